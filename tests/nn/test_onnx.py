"""Models as programs of ONNX: what onnxruntime computes is what they compute."""

import sys

import attrs
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import fdbr
from fdbr import nn, ops, tree
from fdbr.testing import assert_allclose
from nn.layer_cases import CASES, KEY, LayerCase, numbers
from nn.recorded import recorded

RECORDED = recorded("weights")


@pytest.fixture
def runtime():
    pytest.importorskip("onnx", reason="onnx is not installed; pip install 'fdbr[onnx]'")
    found = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    found.set_default_logger_severity(4)
    return found


def check(runtime, path, function, *inputs, tolerance=2e-5):
    """The exported function gives what it gives here, in the same dtypes and shapes."""
    nn.export_onnx(function, inputs, path)
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [known.name for known in session.get_inputs()]
    found = session.run(None, dict(zip(names, tree.leaves(inputs), strict=True)))
    for one, other in zip(found, tree.leaves(function(*inputs)), strict=True):
        assert (one.shape, one.dtype) == (np.shape(other), other.dtype)
        assert_allclose(one, other, rtol=tolerance, atol=tolerance)


WITHOUT = {
    "MaxPool with indices",  # indices have no counterpart in ONNX
    # They ask whether labels are in range.
    *("Classifier", "Classifier with a loss of its own", "BinaryHierarchicalSoftmax", "CRF1d"),
}
PLAIN = [c for c in CASES if c.call is attrs.fields(LayerCase).call.default]


@pytest.mark.parametrize("case", [c for c in PLAIN if c.name not in WITHOUT], ids=repr)
def test_every_layer_gives_the_same_in_onnxruntime(case, runtime, tmp_path):
    inputs = case.inputs("float32")
    if not all(isinstance(leaf, np.ndarray) for leaf in tree.leaves(inputs)):
        pytest.skip("its inputs are not arrays alone")
    layer = case.make("float32")
    check(runtime, tmp_path / "a.onnx", layer, *inputs)
    zeroed = tree.map(lambda leaf: leaf * 0 if hasattr(leaf, "shape") else leaf, layer)
    loaded = nn.load_onnx(zeroed, tmp_path / "a.onnx", strict=False)
    check_same(loaded, layer, inputs)


def check_same(loaded, layer, inputs):
    """Parameters that the call has read are there again."""
    assert_allclose(tree.leaves(loaded(*inputs)), tree.leaves(layer(*inputs)), rtol=1e-6)


X = numbers((2, 3, 4), "float32")
SQUARE = numbers((4, 4, 4), "float32")
IMAGE = numbers((2, 4, 8, 6), "float32")
KERNEL = numbers((6, 4, 3, 2), "float32")
PLACES = np.array([[0, 2], [1, -1]])

PROGRAMS = {
    "activations": (
        lambda x: [
            f(x)
            for f in (
                *(ops.relu, ops.elu, ops.selu, ops.gelu, ops.silu, ops.softplus, ops.log_sigmoid),
                *(ops.leaky_relu, ops.hard_sigmoid, ops.hard_swish, ops.mish, ops.sigmoid),
            )
        ],
        (X,),
    ),
    "functions": (
        lambda x: (
            *(ops.exp(x), ops.log1p(abs(x)), ops.expm1(x), ops.sin(x), ops.sqrt(abs(x))),
            *(ops.sign(x), ops.floor(x), ops.trunc(x), ops.round(x), ops.square(x), x**3),
            *(ops.isnan(x), ops.isfinite(x), ops.clip(x, -0.5, 0.5), x % 0.7, x // 0.7),
        ),
        (X,),
    ),
    "numbers of several dtypes": (
        lambda x, i: (x * i.sum(), i / 2, i % 3, i // 2, i > 0, x > 0.5, i == 2, x.astype(int)),
        (X, PLACES),
    ),
    "reductions": (
        lambda x: (
            *(x.sum(0), x.mean((0, 2)), x.max(), x.min(1, keepdims=True), x.var(1), x.std()),
            *(ops.any(x > 0, axis=1), ops.all(x > -1), ops.prod(x, axis=2), ops.argmax(x)),
            *(ops.argmin(x, axis=1), ops.logsumexp(x, axis=(0, 1)), ops.cumulative_sum(x, axis=1)),
            *(ops.softmax(x, axis=1), ops.log_softmax(x, axis=-1), ops.softmax(x, axis=(0, 1))),
            ops.count_nonzero(x > 0),
        ),
        (X,),
    ),
    "shapes": (
        lambda x: (
            *(x.T, x.reshape(-1), ops.concat([x, x], axis=1), ops.stack([x, x], axis=-1)),
            *(ops.roll(x, 1, axis=2), ops.flip(x, axis=1), ops.tril(x), ops.triu(x, k=1)),
            *(ops.pad(x, ((0, 0), (1, 2), (0, 1))), ops.broadcast_to(x, (5, 2, 3, 4))),
            *(ops.tile(x, (1, 2, 1)), ops.repeat(x, 2, axis=1), ops.zeros_like(x)),
        ),
        (X,),
    ),
    "indices": (
        lambda x, i: (
            *(x[0], x[:, 1:], x[..., ::-2], x[:, None, -1], x[i], x[:, i], x[i, i], x[1:, i]),
            *(ops.take_along_axis(x, i[:, :, None] % 4, axis=0), ops.top_k(x, 2)),
        ),
        (SQUARE, PLACES),
    ),
    "products": (
        lambda x: (
            *(x @ x.swapaxes(1, 2), x @ x[0].T, x[0, 0] @ x[0, 0]),
            *(ops.einsum("bij,bkj->bik", x, x), ops.tensordot(x, x, axes=((0, 1), (0, 1)))),
            ops.linear(x[0, 0], np.ones((5, 4), "float32"), np.ones(5, "float32")),
        ),
        (X,),
    ),
    "convolutions": (
        lambda x: (
            *(ops.conv(x, KERNEL, stride=2, padding=1), ops.conv(x, KERNEL, padding="same")),
            *(ops.conv(x, KERNEL[:, :2], groups=2, dilation=2), ops.conv(x[0], KERNEL)),
            ops.conv_transpose(x, KERNEL.swapaxes(0, 1), stride=2, padding=1, output_padding=1),
        ),
        (IMAGE,),
    ),
    "pooling": (
        lambda x: (
            *(ops.max_pool(x, 3), ops.max_pool(x, 3, stride=1, padding=1)),
            *(ops.max_pool(x, 2, dilation=2), ops.max_pool(x, 3, stride=2, cover_all=True)),
            *(ops.avg_pool(x, 3), ops.avg_pool(x, 3, 2, 1, count_include_pad=False)),
            *(ops.adaptive_avg_pool(x, (3, 4)), ops.adaptive_avg_pool(x, (4, 3))),
        ),
        (IMAGE,),
    ),
    "resizing": (
        lambda x: (
            ops.interpolate(x, (9, 5), mode="bicubic"),
            ops.interpolate(x, (300, 400), mode="bilinear")[:, :, ::50, ::50],
        ),
        (IMAGE,),
    ),
    "a loop": (
        lambda x: fdbr.scan(lambda c, row: (0.5 * c + row, c.sum()), ops.zeros_like(x[0]), x),
        (X,),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_operations_give_the_same_in_onnxruntime(name, runtime, tmp_path):
    function, inputs = PROGRAMS[name]
    check(runtime, tmp_path / "a.onnx", function, *inputs)


def net():
    return nn.Sequential(
        nn.Conv.init(KEY, 2, 3, (2, 2)),
        nn.BatchNorm.init(KEY, 3),
        ops.relu,
        nn.Flatten(),
        nn.Linear.init(KEY, 12, 2),
    )


def test_parameters_are_initializers_under_pytorchs_names(runtime, tmp_path):
    model = nn.load_torch_state(net(), RECORDED["state"])
    nn.export_onnx(model, RECORDED["net"]["x"], tmp_path / "a.onnx")
    assert nn.load_onnx(net(), tmp_path / "a.onnx") == model
    session = runtime.InferenceSession(tmp_path / "a.onnx", providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"input": RECORDED["net"]["x"]})
    assert_allclose(found, RECORDED["net"]["y"], rtol=1e-5, atol=1e-6)


BATCHED = {
    "a net": (net, (2, 3, 3)),
    "an encoder": (lambda: nn.TransformerEncoderLayer.init(KEY, 4, 2, 8), (3, 4)),
    "a network over time": (lambda: nn.Lambda(recurrent), (3, 4)),
    "means over the batch": (lambda: nn.Lambda(lambda x: (x - x.mean(0), x.sum() / len(x))), (3,)),
    "examples side by side": (lambda: nn.Lambda(lambda x: x.reshape(-1)[None]), (3,)),
}
CELLS = nn.GRU.init(KEY, 4, 2, batch_first=True)


def recurrent(x):
    return CELLS(x)[0]


@pytest.mark.parametrize("name", BATCHED)
def test_batches_of_any_size_are_computed(name, runtime, tmp_path):
    make, shape = BATCHED[name]
    model = make()
    path = tmp_path / "a.onnx"
    nn.export_onnx(model, numbers((1, *shape), "float32"), path, dynamic_batch=True)
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert session.get_inputs()[0].shape == ["batch", *shape]
    for size in (1, 2, 7):
        x = numbers((size, *shape), "float32", size)
        found = session.run(None, {"input": x})
        for one, other in zip(found, tree.leaves(model(x)), strict=True):
            assert one.shape == np.shape(other)
            assert_allclose(one, other, rtol=2e-5, atol=2e-5)


def test_what_depends_on_the_size_of_the_batch_otherwise_is_refused(runtime, tmp_path):
    function = lambda x: ops.stack([row.sum() for row in x])
    with pytest.raises(ValueError, match="no program for batches of any size"):
        nn.export_onnx(function, X, tmp_path / "a.onnx", dynamic_batch=True)
    with pytest.raises(ValueError, match="a first axis, of at least one example"):
        nn.export_onnx(ops.relu, X[:0], tmp_path / "a.onnx", dynamic_batch=True)


def test_pytorchs_files_are_loaded(runtime, tmp_path):
    (tmp_path / "a.onnx").write_bytes(RECORDED["onnx"]["file"].tobytes())
    model = nn.load_onnx(net(), tmp_path / "a.onnx")
    assert model == nn.load_torch_state(net(), RECORDED["state"])


def test_what_onnx_has_not_is_refused_by_name(runtime, tmp_path):
    path = tmp_path / "a.onnx"
    with pytest.raises(ValueError, match=r"^fdbr\.nn\.export_onnx: .* no counterpart of det"):
        nn.export_onnx(ops.linalg.det, np.eye(2), path)
    with pytest.raises(ValueError, match=r"no way to decide by values \(bool\(\)"):
        nn.export_onnx(lambda x: x if x.sum() > 0 else -x, X, path)
    with pytest.raises(ValueError, match="no arrays of dtype"):
        nn.export_onnx(lambda x: x * np.ones(3, np.clongdouble), X[..., :3], path)
    with pytest.raises(TypeError, match="inputs must be arrays"):
        nn.export_onnx(net(), 3.0, path)
    with pytest.raises(TypeError, match="must be a model or a function"):
        nn.export_onnx(3.0, X, path)
    assert not path.exists()


def test_the_error_lists_what_is_missing_unexpected_and_misshapen(runtime, tmp_path):
    nn.export_onnx(nn.Linear.init(KEY, 4, 3, bias=False), X, tmp_path / "a.onnx")
    with pytest.raises(ValueError, match=r"missing: bias; misshapen: weight \(file: float32\[3,4"):
        nn.load_onnx(nn.Linear.init(KEY, 4, 2), tmp_path / "a.onnx")


def test_without_onnx_the_error_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"^fdbr\.nn\.export_onnx: .*pip install 'fdbr\[onnx\]'"):
        nn.export_onnx(ops.relu, X, tmp_path / "a.onnx")
    with pytest.raises(ImportError, match=r"^fdbr\.nn\.load_onnx: .*pip install 'fdbr\[onnx\]'"):
        nn.load_onnx(net(), tmp_path / "a.onnx")


@given(st.binary(max_size=60))
@settings(deadline=None, max_examples=100)
def test_random_bytes_are_refused(tmp_path_factory, content):
    pytest.importorskip("onnx", reason="onnx is not installed; pip install 'fdbr[onnx]'")
    path = tmp_path_factory.getbasetemp() / "random.onnx"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"^fdbr\.nn\.load_onnx: "):
        nn.load_onnx(net(), path)
