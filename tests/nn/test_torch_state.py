"""Weights in PyTorch's form: state dicts, and the files that hold them."""

import contextlib
import warnings
from typing import ClassVar

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from safetensors.numpy import load_file, save_file

import fdbr
from fdbr import nn, ops, tree
from fdbr.testing import assert_allclose
from nn.layer_cases import CASES, KEY
from nn.recorded import recorded

RECORDED = recorded("weights")
STATE = RECORDED["state"]

each = pytest.mark.parametrize("case", CASES, ids=repr)


def net():
    return nn.Sequential(
        nn.Conv.init(KEY, 2, 3, (2, 2)),
        nn.BatchNorm.init(KEY, 3),
        ops.relu,
        nn.Flatten(),
        nn.Linear.init(KEY, 12, 2),
    )


def written(tmp_path, name):
    (tmp_path / "file.pt").write_bytes(RECORDED[name]["file"].tobytes())
    return tmp_path / "file.pt"


def zeroed(model):
    return tree.map(lambda leaf: leaf * 0 if hasattr(leaf, "shape") else leaf, model)


@each
def test_every_layer_is_loaded_from_what_was_saved(case, tmp_path):
    layer = case.make("float32")
    state = nn.save_torch_state(layer, tmp_path / "a.safetensors")
    assert nn.load_torch_state(zeroed(layer), state) == layer
    assert nn.load_torch_state(zeroed(layer), tmp_path / "a.safetensors") == layer


def test_a_state_dict_of_pytorch_gives_its_outputs():
    model = nn.load_torch_state(net(), STATE)
    assert_allclose(model(RECORDED["net"]["x"]), RECORDED["net"]["y"], rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="read-only"):
        model[0].weight[...] = 0


def test_what_is_saved_has_the_names_shapes_and_dtypes_of_pytorch():
    state = nn.save_torch_state(nn.load_torch_state(net(), STATE))
    assert {n: (v.shape, v.dtype) for n, v in state.items()} == {
        n: (v.shape, v.dtype) for n, v in STATE.items()
    }
    for name, value in STATE.items():
        if "tracked" not in name:
            np.testing.assert_array_equal(state[name], value)


@pytest.mark.parametrize("name", ["zip", "old", "checkpoint"])
def test_files_of_pytorch_are_read_without_it(tmp_path, name):
    model = nn.load_torch_state(net(), written(tmp_path, name))
    assert model == nn.load_torch_state(net(), STATE)
    assert nn.load_torch_state(net(), str(tmp_path / "file.pt")) == model


def test_parameters_alone_are_loaded_if_it_need_not_be_strict(tmp_path):
    path = written(tmp_path, "parameters")
    with pytest.raises(ValueError, match=r"missing: 1\.running_mean, 1\.running_var"):
        nn.load_torch_state(net(), path)
    with pytest.warns(RuntimeWarning, match=r"missing: 1\.running_mean, 1\.running_var"):
        model = nn.load_torch_state(net(), path, strict=False)
    np.testing.assert_array_equal(model[0].weight, STATE["0.weight"])
    assert not model[1].running_mean.any()


def test_bfloat16_is_widened(tmp_path):
    model = nn.load_torch_state(net(), written(tmp_path, "half"))
    assert_allclose(model[0].weight, STATE["0.weight"], rtol=1e-2)
    assert model[0].weight.dtype == np.float32


def test_views_of_one_storage_are_read(tmp_path):
    layer = nn.load_torch_state(nn.Linear.init(KEY, 3, 2), written(tmp_path, "views"))
    assert layer.weight.tolist() == [[1.0, 2.0, 3.0], [5.0, 6.0, 7.0]]
    assert layer.bias.tolist() == [5.0, 6.0]


def test_a_whole_module_in_a_file_is_refused_and_not_run(tmp_path):
    with pytest.raises(ValueError, match=r"NEWOBJ.*save module\.state_dict\(\) alone"):
        nn.load_torch_state(net(), written(tmp_path, "module"))


def test_a_program_that_calls_something_is_refused_by_its_name(tmp_path):
    import pickle

    class Evil:
        def __reduce__(self):
            return print, ("run",)

    (tmp_path / "evil.pt").write_bytes(
        b"".join(
            pickle.dumps(part, 2)
            for part in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}, {"a": Evil()})
        )
    )
    with pytest.raises(ValueError, match=r"calls __builtin__\.print, which is no part"):
        nn.load_torch_state(net(), tmp_path / "evil.pt")


def test_dtype_and_array_module_are_those_of_the_model(xp):
    layer = nn.Linear(xp.asarray(np.zeros((1, 2), np.float64)), None)
    loaded = nn.load_torch_state(layer, {"weight": np.ones((1, 2), np.float16)})
    assert type(loaded.weight) is type(layer.weight)
    assert loaded.weight.dtype == np.float64
    assert nn.save_torch_state(loaded)["weight"].tolist() == [[1.0, 1.0]]


def test_the_error_lists_what_is_missing_unexpected_and_misshapen():
    state = {"weight": np.ones((2, 2)), "more": np.ones(2), "num_batches_tracked": np.array(3)}
    with pytest.raises(ValueError, match=r"^fdbr\.nn\.load_torch_state: ") as caught:
        nn.load_torch_state(nn.Linear.init(KEY, 3, 2), state)
    text = str(caught.value)
    assert "missing: bias; unexpected: more; misshapen: weight" in text
    assert "file: float64[2,2], model: float32[2,3]" in text
    with pytest.raises(ValueError, match="misshapen: weight"):
        nn.load_torch_state(nn.Linear.init(KEY, 3, 2), state, strict=False)
    with pytest.raises(ValueError, match="holds no such numbers"):
        nn.load_torch_state(nn.Linear(np.ones((1, 1)), None), {"weight": np.ones((1, 1), complex)})


@pytest.mark.parametrize("prefix", ["module.", "model.encoder."])
def test_names_with_a_prefix_are_reported_and_can_be_loaded(prefix):
    state = {prefix + name: value for name, value in STATE.items()}
    advice = f"8 of the missing names are there after '{prefix}': give prefix='{prefix}'"
    with pytest.raises(ValueError, match="not the weights") as caught:
        nn.load_torch_state(net(), state)
    assert advice in str(caught.value)
    with pytest.warns(RuntimeWarning, match="load_torch_state: 0 of") as warned:
        assert nn.load_torch_state(net(), state, strict=False) == net()
    assert "missing: 0.weight" in str(warned[0].message)
    assert warned[0].filename == __file__
    loaded = nn.load_torch_state(net(), {**state, "head.weight": np.ones(3)}, prefix=prefix)
    assert loaded == nn.load_torch_state(net(), STATE)


def test_a_whole_state_that_need_not_be_strict_gives_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nn.load_torch_state(net(), STATE, strict=False)


@fdbr.frozen
class Named(nn.Layer):
    proj: nn.Linear
    blocks: tuple
    table: dict
    cache: np.ndarray = fdbr.buffer()

    torch_names: ClassVar = {
        "proj": ("out.proj", "head"),
        "blocks": "",
        "blocks[1].bias": "last_bias",
        "cache": None,
    }


def test_a_class_may_name_its_fields_otherwise():
    linear = nn.Linear.init(KEY, 2, 2)
    model = Named(linear, (linear, linear), {"a": np.ones(1)}, np.zeros(3))
    state = nn.save_torch_state(model)
    assert set(state) == {
        *("out.proj.weight", "out.proj.bias", "head.weight", "head.bias"),
        *("0.weight", "0.bias", "1.weight", "last_bias", "table.a"),
    }
    for name in ("out.proj.weight", "head.bias"):
        state.pop(name)  # each stands there under another name, too
    assert nn.load_torch_state(zeroed(model), state) == model


def test_recurrent_and_parametrized_layers_have_pytorchs_names():
    shapes = lambda layer: {n: v.shape for n, v in nn.save_torch_state(layer).items()}
    lstm = shapes(nn.LSTM.init(KEY, 3, 2, 2, bidirectional=True))
    assert len(lstm) == 16
    assert lstm["weight_ih_l0"] == (8, 3)
    assert lstm["weight_ih_l1_reverse"] == (8, 4)
    assert lstm["bias_hh_l1"] == (8,)
    linear = nn.Linear.init(KEY, 3, 2)
    part = "parametrizations.weight"
    assert shapes(nn.WeightNorm.init(None, linear)) == {
        "bias": (2,),
        f"{part}.original0": (2, 1),
        f"{part}.original1": (2, 3),
    }
    assert shapes(nn.SpectralNorm.init(KEY, linear)) == {
        "bias": (2,),
        f"{part}.original": (2, 3),
        f"{part}.0._u": (2,),
        f"{part}.0._v": (3,),
    }
    assert set(shapes(nn.MultiHeadAttention.init(KEY, 4, 2))) == {
        *("in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias")
    }


def test_wrong_arguments_are_refused(tmp_path):
    layer = nn.Linear.init(KEY, 2, 2)
    with pytest.raises(TypeError, match="must be a dict of arrays by name"):
        nn.load_torch_state(layer, 3)
    with pytest.raises(TypeError, match="'state_dict'"):
        nn.load_torch_state(layer, {"state_dict": {"weight": np.ones(2)}})
    with pytest.raises(ValueError, match=r"ends in \.safetensors"):
        nn.save_torch_state(layer, tmp_path / "a.pt")
    with pytest.raises(TypeError, match="traced value"):
        fdbr.grad(lambda layer: nn.save_torch_state(layer)["bias"])(layer)


def test_safetensors_files_are_plain_ones(tmp_path):
    layer = nn.Linear.init(KEY, 2, 2)
    nn.save_torch_state(layer, tmp_path / "a.safetensors")
    np.testing.assert_array_equal(load_file(tmp_path / "a.safetensors")["weight"], layer.weight)


# --- any model ------------------------------------------------------------------------


@fdbr.frozen
class Box(nn.Layer):
    weight: object
    parts: object
    counts: object = fdbr.buffer(default=None)


def arrays(draw):
    dtype = draw(st.sampled_from(["float16", "float32", "float64", "complex64"]))
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    return np.random.default_rng(draw(st.integers(0, 99))).normal(size=shape).astype(dtype)


@st.composite
def models(draw, depth=2):
    inner = st.builds(lambda: None) if not depth else st.none() | models(depth - 1)
    parts = st.lists(inner, max_size=2).map(tuple) | st.dictionaries(
        st.sampled_from("abc"), inner, max_size=2
    )
    counts = draw(st.none() | st.integers(0, 9).map(np.int64) | st.just(np.arange(3)))
    return Box(draw(st.none() | st.builds(lambda: arrays(draw))), draw(inner | parts), counts)


@given(models(), st.sampled_from(["dict", "safetensors", "npz"]))
@settings(deadline=None)
def test_any_model_comes_back_bit_by_bit(tmp_path_factory, model, how):
    folder = tmp_path_factory.getbasetemp()
    zero = tree.map(lambda leaf: leaf * 0, model)
    if how == "dict":
        loaded = nn.load_torch_state(zero, nn.save_torch_state(model))
    elif how == "safetensors":
        nn.save_torch_state(model, folder / "a.safetensors")
        loaded = nn.load_torch_state(zero, folder / "a.safetensors")
    else:
        nn.save_chainer_npz(model, folder / "a.npz")
        loaded = nn.load_chainer_npz(zero, folder / "a.npz")
    assert loaded == model


# --- files that are none ------------------------------------------------------------


@pytest.mark.parametrize("name", ["zip", "old", "safetensors"])
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_damaged_file_gives_the_weights_or_is_refused(tmp_path, name, data):
    path = tmp_path / "file"
    if name == "safetensors":
        save_file(STATE, path)
    else:
        path.write_bytes(RECORDED[name]["file"].tobytes())
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.one_of(st.none(), st.integers(0, len(content))))])
    refused = contextlib.suppress(ValueError)
    with refused:
        nn.load_torch_state(net(), path)


STARTS = [b"", b"\x80\x02", b"PK\x03\x04", b"\2" + b"\0" * 7]


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=40), st.sampled_from(STARTS))
def test_random_bytes_are_refused(tmp_path_factory, content, start):
    path = tmp_path_factory.getbasetemp() / "random.pt"
    path.write_bytes(start + content)
    with pytest.raises(ValueError, match=r"^fdbr\.nn\.load_torch_state: "):
        nn.load_torch_state(net(), path)
