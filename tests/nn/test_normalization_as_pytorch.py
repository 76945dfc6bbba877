"""Layers of normalisation give what PyTorch's give, in training and in inference.

Weight and spectral normalisation and parametric rectifiers are among them.
"""

import numpy as np
import pytest

import fdbr
from fdbr import nn, tree
from fdbr.testing import assert_allclose
from nn.recorded import recorded

CASES = recorded("normalization") | recorded("reparametrization")


def path_in(layer, name):
    """The path in an fdbr layer of what PyTorch's state calls so."""
    known = {
        "parametrizations.weight.original0": "magnitude",
        "parametrizations.weight.original1": "layer.weight",
        "parametrizations.weight.original": "layer.weight",
        "parametrizations.weight.0._u": "u",
        "parametrizations.weight.0._v": "v",
    }
    return "layer.bias" if name == "bias" and hasattr(layer, "layer") else known.get(name, name)


def filled(layer, state):
    """The layer with the arrays of PyTorch's state."""
    for name, value in state.items():
        path = path_in(layer, name)
        if path == "num_batches_tracked":
            continue
        if path.startswith("layer."):
            inner = tree.replace(layer.layer, **{path.removeprefix("layer."): value})
            layer = tree.replace(layer, layer=inner)
        else:
            layer = tree.replace(layer, **{path: value})
    return layer


def made(case, dtype):
    """The layer of a case, by PyTorch's names of its settings."""
    kind, *words = case.split()
    shape = CASES[case]["x"].shape
    settings = dict(word.split("=") for word in words if "=" in word)
    settings = {name: eval(value) for name, value in settings.items()}
    sizes = {
        "LayerNorm": ((2, 3) if "bias" in settings else 4,),
        "RMSNorm": (4,),
        "GroupNorm": (2, 4),
    }.get(kind, shape[1:2])
    key = fdbr.random.key(0)
    inner = nn.Linear.init(key, 3, 2, dtype=dtype)
    if case == "WeightNorm axis=None":
        inner = nn.Conv.init(key, 2, 3, (2,), dtype=dtype)
    if case == "SpectralNorm transposed":
        inner = nn.ConvTranspose.init(key, 2, 3, (2,), dtype=dtype)
        settings = {"n_power_iterations": 2, "eps": 1e-3}
    if kind in ("WeightNorm", "SpectralNorm"):
        return getattr(nn, kind).init(key, inner, **settings)
    return getattr(nn, kind).init(None, *sizes, dtype=dtype, **settings)


def part(layer, path):
    for step in path.split("."):
        layer = getattr(layer, step)
    return layer


@pytest.mark.parametrize(
    ("dtype", "rtol"), [("float64", 1e-10), ("float32", 1e-5)], ids=["float64", "float32"]
)
@pytest.mark.parametrize("case", CASES)
def test_outputs_gradients_and_statistics_are_pytorchs(case, dtype, rtol):
    arrays = {
        name: value.astype(dtype) if value.dtype.kind == "f" else value
        for name, value in CASES[case].items()
    }
    state = {k.removeprefix("before "): v for k, v in arrays.items() if k.startswith("before ")}
    layer = filled(made(case, dtype), state)

    def close(found, name):
        wanted = arrays[name]
        if wanted.dtype.kind == "f":
            assert found.dtype == wanted.dtype, name
        assert_allclose(found, wanted, rtol=rtol, atol=rtol * max(np.abs(wanted).max(), 1))

    _, layer = layer.train(arrays["first"])
    for mode in ("train", "eval"):
        call = {"train": lambda own, x: own.train(x), "eval": lambda own, x: (own(x), own)}[mode]
        both = layer, arrays["x"]
        y, pullback, layer = fdbr.vjp(lambda both, call=call: call(*both), both, has_aux=True)
        close(y, f"{mode} y")
        ((by_layer, by_x),) = pullback(arrays["ct"])
        close(by_x, f"{mode} grad x")
        for name in arrays:
            if name.startswith(f"{mode} grad ") and not name.endswith(" x"):
                close(part(by_layer, path_in(layer, name.rpartition(" ")[2])), name)
    for name in arrays:
        path = path_in(layer, name.removeprefix("after "))
        if name.startswith("after ") and part(layer, path) is not None:
            close(part(layer, path), name)
