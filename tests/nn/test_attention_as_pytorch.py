"""Attention gives what PyTorch's gives."""

import numpy as np
import pytest

import fdbr
from fdbr import nn, ops
from fdbr.testing import assert_allclose
from nn.recorded import recorded

CASES = recorded("attention")
INPUTS = ("in0", "in1", "in2")


def layer_of(arrays, add_zero_attn=False):
    names = ["in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight", "in_proj_bias"]
    out = nn.Linear(arrays["out_proj.weight"], arrays.get("out_proj.bias"))
    fields = [arrays.get(name) for name in (*names, "bias_k", "bias_v")]
    return nn.MultiHeadAttention(*fields, out, num_heads=2, add_zero_attn=add_zero_attn)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("case", [case for case in CASES if case.startswith("layer")])
def test_layers_give_pytorchs_values_weights_and_gradients(case, dtype):
    arrays = {
        name: x.astype(dtype) if x.dtype.kind == "f" else x for name, x in CASES[case].items()
    }
    layer = layer_of(arrays, "more" in case)
    inputs = [arrays[name] for name in INPUTS if name in arrays]
    masks = {name[5:]: x for name, x in arrays.items() if name.startswith("mask ")}
    options = {"need_weights": True, "average_attn_weights": case != "layer memory", **masks}
    call = lambda layer, *inputs: layer(*inputs, **options)
    found, pullback = fdbr.vjp(call, layer, *inputs)
    tight = 1e-10 if dtype == "float64" else 2e-5
    assert_allclose(found, (arrays["y"], arrays["weights"]), rtol=tight, atol=tight)
    assert_allclose(layer(*inputs, **masks), arrays["y"], rtol=tight, atol=tight)
    derivatives, *by_inputs = pullback((arrays["ct"], arrays["ct of weights"]))
    pairs = dict(zip(INPUTS, by_inputs, strict=False))
    for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "in_proj_bias", "bias_v"):
        pairs[name] = getattr(derivatives, name)
    pairs["out_proj.weight"] = derivatives.out_proj.weight
    for name, slope in pairs.items():
        assert_allclose(slope, arrays.get(f"grad {name}"), rtol=tight, atol=tight)


@pytest.mark.parametrize("case", [case for case in CASES if case.startswith("function")])
def test_the_function_gives_pytorchs_values_and_gradients_by_pytorchs_names(case):
    arrays = CASES[case]
    names = ("attn_mask", "is_causal", "scale", "enable_gqa")
    call = {name: arrays[name] for name in names if name in arrays}
    call = {name: x if x.ndim else x.item() for name, x in call.items()}
    run = lambda *inputs: ops.scaled_dot_product_attention(*inputs, **call)
    y, pullback = fdbr.vjp(run, *(arrays[name] for name in INPUTS))
    assert_allclose(y, arrays["y"], rtol=1e-10, atol=1e-12)
    for name, slope in zip(INPUTS, pullback(arrays["ct"]), strict=True):
        assert np.isfinite(slope).all()
        assert_allclose(slope, arrays[f"grad {name}"], rtol=1e-10, atol=1e-12)
