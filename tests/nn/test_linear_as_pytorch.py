"""The fully connected layer gives what PyTorch's gives."""

import pytest

import fdbr
from fdbr import nn
from fdbr.testing import assert_allclose
from nn.recorded import recorded

CASES = recorded("linear")


@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_pytorchs(case):
    arrays = CASES[case]
    layer = nn.Linear(arrays["weight"], arrays.get("bias"))
    y, pullback = fdbr.vjp(lambda layer, x: layer(x), layer, arrays["x"])
    assert_allclose(y, arrays["y"], rtol=1e-12, atol=1e-12)
    by_layer, by_x = pullback(arrays["ct"])
    for name, found in (("x", by_x), ("weight", by_layer.weight), ("bias", by_layer.bias)):
        assert_allclose(found, arrays.get(f"grad {name}"), rtol=1e-12, atol=1e-12)
