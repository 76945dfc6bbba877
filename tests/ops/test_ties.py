"""At equal arguments, maximum and its kind share the derivative, and the shares are constant."""

import numpy as np
import pytest

import fdbr
from fdbr import ops

KINKS = {
    "maximum": lambda x: ops.maximum(x, -x),
    "minimum": lambda x: ops.minimum(x, -x),
    "np.maximum": lambda x: np.maximum(x, -x),
    "max": lambda x: ops.max(ops.stack([x, -x])),
    "min": lambda x: ops.min(ops.stack([x, -x])),
    "relu": ops.relu,
}
SECOND = {
    "grad of grad": lambda f: fdbr.grad(fdbr.grad(f)),
    "hessian": fdbr.hessian,
    "jit": lambda f: fdbr.jit(fdbr.hessian(f)),
    "vmap": lambda f: lambda x: fdbr.vmap(fdbr.hessian(f))(np.array([x, x]))[0],
    "checkpoint": lambda f: fdbr.hessian(fdbr.checkpoint(f)),
}


@pytest.mark.parametrize("way", SECOND)
@pytest.mark.parametrize("name", KINKS)
def test_the_second_derivative_of_a_square_at_a_tie_is_that_of_jax_and_pytorch(name, way):
    second = SECOND[way](lambda x: KINKS[name](x) ** 2)
    assert second(0.0) == 0.0
    assert second(1.0) == 2.0


def test_the_shares_of_a_smooth_function_at_a_tie_add_up():
    assert fdbr.grad(fdbr.grad(lambda x: ops.maximum(x, x) ** 2))(0.0) == 2.0
    assert fdbr.grad(lambda x: ops.maximum(x * x, -x))(0.0) == -0.5
    assert fdbr.grad(fdbr.grad(lambda x: ops.maximum(x * x, -x)))(0.0) == 1.0
