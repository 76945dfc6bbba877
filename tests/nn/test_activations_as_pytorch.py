"""Activation functions give what PyTorch's give, under the names of its arguments."""

import numpy as np
import pytest

import fdbr
from fdbr import ops
from fdbr.testing import assert_allclose
from nn.recorded import recorded

CASES = recorded("activations")

ROUNDED = {"celu", "hard_sigmoid"}  # PyTorch rounds 1 / alpha and 1 / 6 to float32

FUNCTIONS = {
    "celu": lambda x: ops.celu(x, alpha=0.7),
    "elu": lambda x: ops.elu(x, alpha=0.7),
    "gelu none": lambda x: ops.gelu(x, approximate="none"),
    "gelu tanh": lambda x: ops.gelu(x, approximate="tanh"),
    "glu": lambda x: ops.glu(x, axis=1),
    "hard_shrink": lambda x: ops.hard_shrink(x, lambd=0.8),
    "hard_tanh": lambda x: ops.hard_tanh(x, min_val=-0.5, max_val=2.0),
    "leaky_relu slope": lambda x: ops.leaky_relu(x, negative_slope=0.3),
    "log_softmax": lambda x: ops.log_softmax(x, axis=0),
    "relu6": lambda x: ops.relu6(4 * x),
    "softmin": lambda x: ops.softmin(x, axis=1),
    "softplus": lambda x: ops.softplus(x, threshold=20),
    "softplus beta": lambda x: ops.softplus(x, beta=3.0, threshold=2.0),
    "soft_shrink": lambda x: ops.soft_shrink(x, lambd=0.8),
    "threshold": lambda x: ops.threshold(x, 0.3, 7.0),
    "normalize p": lambda x: ops.normalize(x, p=1.0, axis=0, eps=20.0),
    "local_response_norm": lambda x: ops.local_response_norm(x[None], 4),
    "local_response_norm settings": lambda x: ops.local_response_norm(
        x[None], 3, alpha=0.4, beta=0.5, k=2.0
    ),
}


@pytest.mark.parametrize(
    ("dtype", "rtol"), [("float64", 1e-10), ("float32", 1e-5)], ids=["float64", "float32"]
)
@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_pytorchs(case, dtype, rtol):
    rtol = max(rtol, 1e-7) if case in ROUNDED else rtol
    arrays = {name: value.astype(dtype) for name, value in CASES[case].items()}
    names = [name for name in ("x", "y2", "z", "w") if name in arrays]
    function = FUNCTIONS.get(case) or getattr(ops, case)
    y, pullback = fdbr.vjp(function, *(arrays[name] for name in names))
    found = dict(zip((f"grad {name}" for name in names), pullback(arrays["ct"]), strict=True))
    for name, value in {"y": y, **found}.items():
        assert value.dtype == dtype
        scale = np.abs(arrays[name]).max()
        assert_allclose(value, arrays[name], rtol=rtol, atol=rtol * scale)
