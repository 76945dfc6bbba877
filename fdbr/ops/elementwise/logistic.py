"""The logistic function and `logaddexp`, element by element.

Derivatives are computed from the operand.  The usual formula in the result, ``out * (1 - out)``,
cancels where the result is near 1.
"""

import math
from typing import Any

import numpy as np

from fdbr.core.devices import scipy_of
from fdbr.ops.declare import elementwise
from fdbr.ops.dtypes import is_complex
from fdbr.ops.elementwise import vectorized
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.elementwise.trigonometric import negative_abs, tanh
from fdbr.pytrees.dtypes import dtype_kind
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["logaddexp", "sigmoid", "sigmoid_derivative"]

_FEW = 1 << 9  # elements, below which one call of SciPy is faster than several of NumPy
# Below this operand ``exp(-x)`` is about to overflow, and the function equals ``exp(x)``.
_LOW = {code: 2 - math.log(float(np.finfo(code).max)) for code in "efd"}


@elementwise(x=lambda x, out: -out * tanh(x / 2), heavy=True)
def sigmoid_derivative(xp: Any, x: Array) -> Array:
    """``exp(-abs(x)) / (1 + exp(-abs(x)))**2``, the derivative of the logistic function."""
    decay = xp.exp(negative_abs(xp, x))
    return decay / xp.square(1 + decay)


@elementwise(x=lambda x: sigmoid_derivative(x), heavy=True)
def sigmoid(xp: Any, x: ArrayLike) -> Array:
    """The logistic function ``1 / (1 + exp(-x))``, accurate however small it is.

    >>> from fdbr import ops
    >>> ops.sigmoid(0.0)
    0.5
    """
    if type(x) is np.ndarray:
        if x.size < _FEW and x.dtype.char in "fd":
            out = scipy_of(np, "special").expit(x)
            if np.count_nonzero(out) < x.size:  # SciPy returns 0 where exp(-x) overflows
                return np.where(out == 0, np.exp(np.minimum(x, 0)), out)[()]
            return out
    elif xp is not np and hasattr(xp, "fma"):  # kernels have a function of their own
        return xp.expit(x)
    with np.errstate(over="ignore"):  # far below 0 the exponential is infinite
        if is_complex(x):
            return xp.reciprocal(1 + xp.exp(-x))
        if type(x) is not np.ndarray:
            return xp.reciprocal(1 + xp.exp(-x))
        if x.ndim == 0 or dtype_kind(x.dtype) != "f":
            return xp.reciprocal(2 + xp.expm1(-x))
        out = -x  # the only array that is allocated
        xp.expm1(out, out=out)  # NumPy computes it faster than exp
        out += 2
        xp.reciprocal(out, out=out)
    low = x < _LOW.get(x.dtype.char, -math.inf)
    if low.any():
        out[low] = np.exp(x[low])
    return out


@elementwise(
    x=lambda x, y: _softmax_weight(x, y),
    y=lambda x, y: _softmax_weight(y, x),
    heavy=True,
    double=True,
)
def logaddexp(xp: Any, x: ArrayLike, y: ArrayLike) -> Array:
    """``log(exp(x) + exp(y))``, without overflow.

    >>> from fdbr import ops
    >>> round(ops.logaddexp(0.0, 0.0), 6)
    0.693147
    """
    return vectorized.logaddexp(x, y) if vectorized.is_supported(xp, x, y) else xp.logaddexp(x, y)


def _softmax_weight(x: Any, y: Any) -> Any:
    """``exp(x) / (exp(x) + exp(y))``; 1/2 where both are the same infinity."""
    same = (x == y) & (abs(x) == math.inf)
    return sigmoid(where(same, 0, x) - where(same, 0, y))
