"""The logistic function, and what weighs two exponentials against each other.

Slopes are computed from the operand.  From the result, as ``out * (1 - out)``, they would have no
digit left where that is next to 1.
"""

import math
from typing import Any

import numpy as np

from fdbr.core.devices import scipy_of
from fdbr.ops.declare import elementwise
from fdbr.ops.dtypes import is_complex
from fdbr.ops.elementwise import vectorized
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.elementwise.trigonometric import falling, tanh
from fdbr.pytrees.dtypes import dtype_kind
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["logaddexp", "sigmoid", "sigmoid_slope"]

_FEW = 1 << 9  # elements, below which SciPy's function takes less time than several of NumPy's
# Below which the function is the exponential, and that of its negative about to overflow.
_LOW = {code: 2 - math.log(float(np.finfo(code).max)) for code in "efd"}


@elementwise(x=lambda x, out: -out * tanh(x / 2), heavy=True)
def sigmoid_slope(xp: Any, x: ArrayLike) -> Array:
    """``exp(-abs(x)) / (1 + exp(-abs(x)))**2``, the derivative of the logistic function."""
    share = xp.exp(falling(xp, x))
    return share / xp.square(1 + share)


@elementwise(x=lambda x: sigmoid_slope(x), heavy=True)
def sigmoid(xp: Any, x: ArrayLike) -> Array:
    """The logistic function ``1 / (1 + exp(-x))``, accurate however small it is.

    >>> from fdbr import ops
    >>> ops.sigmoid(0.0)
    0.5
    """
    if type(x) is np.ndarray:
        if x.size < _FEW and x.dtype.char in "fd":
            out = scipy_of(np, "special").expit(x)
            if np.count_nonzero(out) < x.size:  # SciPy's is 0 as soon as exp(-x) overflows
                return np.where(out == 0, np.exp(np.minimum(x, 0)), out)[()]
            return out
    elif xp is not np and hasattr(xp, "fma"):  # kernels have it
        return xp.expit(x)
    with np.errstate(over="ignore"):  # far below 0 the exponential is infinite
        if is_complex(x):
            return xp.reciprocal(1 + xp.exp(-x))
        if type(x) is not np.ndarray:
            return xp.reciprocal(1 + xp.exp(-x))
        if x.ndim == 0 or dtype_kind(x.dtype) != "f":
            return xp.reciprocal(2 + xp.expm1(-x))
        out = -x  # the one array that is made
        xp.expm1(out, out=out)  # which NumPy has in less time than the exponential
        out += 2
        xp.reciprocal(out, out=out)
    low = x < _LOW.get(x.dtype.char, -math.inf)
    if low.any():
        out[low] = np.exp(x[low])
    return out


@elementwise(x=lambda x, y: _share(x, y), y=lambda x, y: _share(y, x), heavy=True, double=True)
def logaddexp(xp: Any, x: ArrayLike, y: ArrayLike) -> Array:
    """``log(exp(x) + exp(y))``, without overflow.

    >>> from fdbr import ops
    >>> round(ops.logaddexp(0.0, 0.0), 6)
    0.693147
    """
    return vectorized.logaddexp(x, y) if vectorized.suits(xp, x, y) else xp.logaddexp(x, y)


def _share(x: Any, y: Any) -> Any:
    """The share of ``exp(x)`` in the sum; half of it where both are one infinity."""
    same = (x == y) & (abs(x) == math.inf)
    return sigmoid(where(same, 0, x) - where(same, 0, y))
