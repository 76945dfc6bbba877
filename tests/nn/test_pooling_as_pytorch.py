"""Pooling and resampling give what PyTorch's functions give, with its argument names."""

import json
import math

import numpy as np
import pytest

import fdbr
from fdbr import ops
from fdbr.testing import assert_allclose
from nn.recorded import recorded

CASES = recorded("pooling")
CALLS = json.loads(str(CASES["all"]["calls"]))


def sines(shape, seed):
    return np.sin(1.7 * np.arange(math.prod(shape)) + seed).reshape(shape)


def called(name, settings, inputs):
    """Return the result of a call, with the indices that it returns or takes."""
    if name == "lp_pool":
        inputs = [1 + x for x in inputs]
    elif name == "max_unpool":
        inputs = [*inputs, 2 * np.arange(inputs[0].size).reshape(inputs[0].shape)]
    found = getattr(ops, name)(*inputs, **settings)
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-10), ("float32", 1e-5)])
@pytest.mark.parametrize("number", range(len(CALLS)))
def test_values_and_gradients_are_pytorchs(number, dtype, tolerance):
    name, shapes, settings = CALLS[number]
    inputs = [sines(shape, i + 1).astype(dtype) for i, shape in enumerate(shapes)]
    values = CASES[str(number)]["values"]
    y, pullback = fdbr.vjp(lambda *inputs: called(name, settings, inputs)[0], *inputs)
    derivatives = pullback(sines(y.shape, 0).astype(dtype))
    indices = called(name, settings, inputs)[1:]
    assert {y.dtype, *(slope.dtype for slope in derivatives)} == {np.dtype(dtype)}
    found = np.concatenate([np.ravel(part) for part in (y, *derivatives, *indices)])
    assert_allclose(found, values.astype(found.dtype), rtol=tolerance, atol=tolerance)
