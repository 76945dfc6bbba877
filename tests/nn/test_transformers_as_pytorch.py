"""Transformers give what PyTorch's and torchvision's give, by the same names of parameters."""

import re

import pytest

import fdbr
from fdbr import nn, random, tree
from fdbr.testing import assert_allclose
from nn.recorded import recorded

CASES = recorded("transformers")
KEY = random.key(0)
FIRST = {"norm_first": True, "activation": "gelu"}
MODELS = {
    "encoder layer": (nn.TransformerEncoderLayer, {}),
    "encoder layer with norms first": (nn.TransformerEncoderLayer, FIRST),
    "decoder layer": (nn.TransformerDecoderLayer, {}),
    "decoder layer with norms first": (nn.TransformerDecoderLayer, FIRST),
    "transformer": (nn.Transformer, {}),
    "vision block": (nn.ViTBlock, {}),
}


def model_of(case):
    kind, settings = MODELS[case]
    sizes = (4, 2, 1, 1, 3) if kind is nn.Transformer else (4, 2, 3)
    return kind.init(KEY, *sizes, dropout=0.1, dtype="float64", **settings)


def named(model):
    """The leaves by the names that PyTorch gives them."""
    paths = [re.sub(r"\[(\d+)\]", r".\1", path).lstrip(".") for path in tree.paths(model)]
    paths = [path.replace("mlp.layers.", "mlp.") for path in paths]
    return dict(zip(paths, tree.leaves(model), strict=True))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("case", MODELS)
def test_values_and_gradients_are_pytorchs(case, dtype):
    arrays = {
        name: x.astype(dtype) if x.dtype.kind == "f" else x for name, x in CASES[case].items()
    }
    model = model_of(case)
    names = list(named(model))
    assert {f"p {name}" for name in names} == {name for name in arrays if name.startswith("p ")}
    model = tree.unflatten(tree.structure(model), [arrays[f"p {name}"] for name in names])
    inputs = [arrays[name] for name in ("in0", "in1") if name in arrays]
    masks = {name[5:]: x for name, x in arrays.items() if name.startswith("mask ")}
    y, pullback = fdbr.vjp(lambda model, *inputs: model(*inputs, **masks), model, *inputs)
    tight = 1e-10 if dtype == "float64" else 2e-5
    assert_allclose(y, arrays["y"], rtol=tight, atol=tight)
    derivatives, *by_inputs = pullback(arrays["ct"])
    for i, slope in enumerate(by_inputs):
        assert_allclose(slope, arrays[f"grad in{i}"], rtol=tight, atol=tight)
    for name, slope in named(derivatives).items():
        assert_allclose(slope, arrays[f"grad p {name}"], rtol=tight, atol=tight)
