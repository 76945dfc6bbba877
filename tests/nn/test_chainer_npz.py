"""Weights in the files of Chainer's ``save_npz``."""

import contextlib
import io
import zipfile
from typing import ClassVar

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import fdbr
from fdbr import nn, ops, tree
from fdbr.testing import assert_allclose
from nn.layer_cases import CASES, KEY

each = pytest.mark.parametrize("case", CASES, ids=repr)


@fdbr.frozen
class Net(nn.Layer):
    l1: nn.Linear
    bn: nn.BatchNorm
    blocks: tuple
    scale: np.ndarray


def net(key=KEY):
    linear = nn.Linear.init(key, 3, 2)
    conv = nn.Conv.init(key, 2, 3, (2, 2))
    blocks = nn.Sequential(conv, ops.relu, nn.Sequential(linear)), nn.Embed.init(key, 5, 2)
    return Net(linear, nn.BatchNorm.init(key, 2), blocks, np.ones(2, np.float32))


def same(loaded, layer):
    """Whether a model is another one, but for biases that Chainer has as one."""
    assert tree.structure(loaded) == tree.structure(layer)
    pairs = zip(tree.leaves(loaded), tree.leaves(layer), tree.paths(layer), strict=True)
    for one, other, path in pairs:
        if "bias_" not in path:
            np.testing.assert_array_equal(one, other, err_msg=path)


@each
def test_every_layer_is_loaded_from_what_was_saved(case, tmp_path):
    layer = case.make("float32")
    nn.save_chainer_npz(layer, tmp_path / "a.npz")
    zeroed = tree.map(lambda leaf: leaf * 0, tree.trainable(layer))
    loaded = nn.load_chainer_npz(tree.combine(zeroed, layer), tmp_path / "a.npz")
    same(loaded, layer)
    inputs = case.inputs("float32")
    assert_allclose(case.call(loaded, *inputs), case.call(layer, *inputs), rtol=1e-5, atol=1e-6)


def test_names_are_those_of_chainer(tmp_path):
    nn.save_chainer_npz(net(), tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as file:
        assert set(file.files) == {
            *("l1/W", "l1/b", "bn/gamma", "bn/beta", "bn/avg_mean", "bn/avg_var", "bn/N"),
            # of links alone, as functions have no numbers
            *("blocks/0/0/W", "blocks/0/0/b", "blocks/0/1/0/W", "blocks/0/1/0/b", "blocks/1/W"),
            "scale",
        }
        np.testing.assert_array_equal(file["l1/W"], net().l1.weight)


@pytest.mark.parametrize("compression", [False, True])
def test_a_model_is_read_bit_by_bit(tmp_path, compression):
    nn.save_chainer_npz(net(), tmp_path / "a.npz", compression=compression)
    loaded = nn.load_chainer_npz(net(fdbr.random.key(2)), str(tmp_path / "a.npz"))
    assert loaded == net()
    with pytest.raises(ValueError, match="read-only"):
        loaded.l1.weight[...] = 0


def test_a_part_of_a_snapshot_is_read(tmp_path):
    layer = nn.Linear.init(KEY, 3, 2)
    arrays = {"updater/model:main/W": layer.weight, "updater/model:main/b": layer.bias}
    np.savez(tmp_path / "a.npz", **arrays, epoch=3, nothing=np.asarray(None))
    loaded = nn.load_chainer_npz(layer, tmp_path / "a.npz", prefix="updater/model:main/")
    assert loaded == layer


def test_the_error_lists_what_is_missing_unexpected_and_misshapen(tmp_path):
    np.savez(tmp_path / "a.npz", W=np.ones((2, 4)), b=np.asarray(None), c=np.ones(1), N=3)
    layer = nn.Linear.init(KEY, 3, 2)
    with pytest.raises(ValueError, match=r"^fdbr\.nn\.load_chainer_npz: ") as caught:
        nn.load_chainer_npz(layer, tmp_path / "a.npz")
    assert "missing: b; unexpected: c; misshapen: W (file: float64[2,4]" in str(caught.value)
    np.savez(tmp_path / "b.npz", b=np.ones(2))
    with pytest.warns(RuntimeWarning, match=r"load_chainer_npz: 1 of 2 .*missing: W") as warned:
        loaded = nn.load_chainer_npz(layer, tmp_path / "b.npz", strict=False)
    assert loaded.bias.tolist() == [1, 1]
    assert warned[0].filename == __file__


def test_a_class_may_name_its_fields_otherwise(tmp_path):
    @fdbr.frozen
    class Named(nn.Layer):
        proj: nn.Linear
        table: np.ndarray

        chainer_names: ClassVar = {"proj": "out", "table": None}

    model = Named(nn.Linear.init(KEY, 2, 2, bias=False), np.ones(3))
    nn.save_chainer_npz(model, tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as file:
        assert file.files == ["out/W"]
    assert nn.load_chainer_npz(model, tmp_path / "a.npz") == model


def test_arrays_are_of_the_module_of_the_model(tmp_path, xp):
    layer = nn.Linear(xp.asarray(np.ones((1, 2))), None)
    nn.save_chainer_npz(layer, tmp_path / "a.npz")
    assert type(nn.load_chainer_npz(layer, tmp_path / "a.npz").weight) is type(layer.weight)


# --- recurrent cells, as Chainer's documentation writes them -------------------------


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def arrays_of(layer, tmp_path):
    nn.save_chainer_npz(layer, tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as file:
        return {name: file[name] for name in file.files}


H, C, IN = (np.random.default_rng(seed).normal(size=(3, n)) for seed, n in ((1, 2), (2, 2), (3, 4)))


@pytest.mark.parametrize("kind", ["LSTMCell", "PeepholeLSTMCell", "ZoneoutLSTMCell"])
def test_lstm_gates_are_interleaved_as_in_chainers_links(kind, tmp_path):
    cell = getattr(nn, kind).init(KEY, 4, 2, dtype="float64")
    w = arrays_of(cell, tmp_path)
    gates = (IN @ w["upward/W"].T + w["upward/b"] + H @ w["lateral/W"].T).reshape(3, 2, 4)
    a, i, f, o = np.moveaxis(gates, -1, 0)
    peep = lambda name, c: c @ w[f"peep_{name}/W"].T if "peep_i/W" in w else 0
    c = np.tanh(a) * sigmoid(i + peep("i", C)) + sigmoid(f + peep("f", C)) * C
    h = sigmoid(o + peep("o", c)) * np.tanh(c)
    if kind == "ZoneoutLSTMCell":  # at rest it mixes old and new; without that, it is an LSTM
        cell = nn.LSTMCell(cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh)
    (found_h, found_c), _ = cell((H, C), IN)
    assert_allclose((found_h, found_c), (h, c), rtol=1e-12)


def test_grus_are_those_of_chainers_links(tmp_path):
    cell = nn.GRUCell.init(KEY, 4, 2, reset_first=True, dtype="float64")
    w = arrays_of(cell, tmp_path)
    of = lambda name, x: x @ w[f"{name}/W"].T + w[f"{name}/b"]
    r = sigmoid(of("W_r", IN) + of("U_r", H))
    z = sigmoid(of("W_z", IN) + of("U_z", H))
    new = np.tanh(of("W", IN) + of("U", r * H))
    assert_allclose(cell(H, IN)[0], (1 - z) * H + z * new, rtol=1e-12)


def test_mgus_are_those_of_chainers_links(tmp_path):
    cell = nn.MGUCell.init(KEY, 4, 2, dtype="float64")
    w = arrays_of(cell, tmp_path)
    of = lambda name, *x: np.concatenate(x, axis=1) @ w[f"{name}/W"].T + w[f"{name}/b"]
    f = sigmoid(of("W_f", H, IN))
    new = np.tanh(of("W_h", f * H, IN))
    assert_allclose(cell(H, IN)[0], f * new + (1 - f) * H, rtol=1e-12)


def test_networks_of_n_steps_have_an_array_for_each_gate(tmp_path):
    layer = nn.LSTM.init(KEY, 4, 2, 2, bidirectional=True, dtype="float64")
    w = arrays_of(layer, tmp_path)
    assert len(w) == 4 * 16
    assert w["2/w0"].shape == (2, 4)
    cell = layer.cells[0]
    part = lambda n, m: IN @ w[f"0/w{n}"].T + H @ w[f"0/w{m}"].T + w[f"0/b{n}"] + w[f"0/b{m}"]
    i, f, a, o = (part(n, n + 4) for n in range(4))
    c = sigmoid(f) * C + sigmoid(i) * np.tanh(a)
    (found_h, found_c), _ = cell((H, C), IN)
    assert_allclose((found_h, found_c), (sigmoid(o) * np.tanh(c), c), rtol=1e-12)
    assert nn.load_chainer_npz(tree.map(np.zeros_like, layer), tmp_path / "a.npz") == layer


def test_one_bias_stands_for_two(tmp_path):
    cell = nn.LSTMCell.init(KEY, 4, 2, dtype="float64")
    nn.save_chainer_npz(cell, tmp_path / "a.npz")
    loaded = nn.load_chainer_npz(cell, tmp_path / "a.npz")
    assert_allclose(loaded.bias_ih, cell.bias_ih + cell.bias_hh, rtol=1e-12)
    assert not loaded.bias_hh.any()


def test_tree_lstms_and_others_have_chainers_names(tmp_path):
    names = lambda layer: set(arrays_of(layer, tmp_path))
    tree_lstm = nn.ChildSumTreeLSTM.init(KEY, 4, 2)
    assert names(tree_lstm) == {"W_x/W", "W_x/b", "W_h_aio/W", "W_h_f/W"}
    nary = nn.NaryTreeLSTM.init(KEY, 4, 2, n_ary=2)
    assert names(nary) == {"W_x/W", "W_x/b", "W_h1/W", "W_h2/W"}
    assert names(nn.PReLU.init(None)) == {"W"}
    assert arrays_of(nn.PReLU.init(None), tmp_path)["W"].shape == ()


# --- files that are none ------------------------------------------------------------


def content():
    buffer = io.BytesIO()
    layer = nn.Linear.init(KEY, 3, 2)
    np.savez_compressed(buffer, W=layer.weight, b=layer.bias)
    return buffer.getvalue()


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_damaged_file_is_refused_or_gives_the_weights(tmp_path, data):
    damaged = bytearray(content())
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    (tmp_path / "a").write_bytes(damaged[: data.draw(st.one_of(st.none(), st.integers(0, 400)))])
    with contextlib.suppress(ValueError):
        nn.load_chainer_npz(nn.Linear.init(KEY, 3, 2), tmp_path / "a")


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=40), st.sampled_from([b"", b"PK\x03\x04", b"\x93NUMPY"]))
def test_random_bytes_are_refused(tmp_path_factory, rest, start):
    path = tmp_path_factory.getbasetemp() / "random.npz"
    path.write_bytes(start + rest)
    with pytest.raises(ValueError, match=r"^fdbr\.nn\.load_chainer_npz: "):
        nn.load_chainer_npz(net(), path)


def test_objects_are_not_unpickled_and_nothing_is_read_that_does_not_fit(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999,), }"
        start = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little")
        archive.writestr("W.npy", start + header)
        archive.writestr("b.npy", b"\x93NUMPY\x02\x00\xff\xff\xff\xff")
    with pytest.raises(ValueError, match=r"version \(2, 0\)"):
        nn.load_chainer_npz(nn.Linear.init(KEY, 3, 2), tmp_path / "a.npz")
    with zipfile.ZipFile(tmp_path / "b.npz", "w") as archive:
        archive.writestr("W.npy", start + header)
    with pytest.raises(ValueError, match=r"misshapen: W \(file: float32\[99999999999\]"):
        nn.load_chainer_npz(nn.Linear.init(KEY, 3, 2, bias=False), tmp_path / "b.npz")
