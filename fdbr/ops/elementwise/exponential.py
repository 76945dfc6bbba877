"""Exponentials and logarithms, element by element."""

import math
from typing import Any

import numpy as np

from fdbr.ops.declare.elementwise import elementwise
from fdbr.ops.elementwise.comparison import where
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = [
    "exp",
    "exp2",
    "expm1",
    "log",
    "log10",
    "log1p",
    "log2",
]


@elementwise(x=lambda out: out)
def exp(xp: Any, x: ArrayLike) -> Array:
    """The exponential ``e**x``.

    >>> from fdbr import ops
    >>> ops.exp(0.0)
    1.0
    """
    return xp.exp(x)


@elementwise(x=lambda x: exp(x), heavy=True)  # out + 1 cancels where out is near -1
def expm1(xp: Any, x: ArrayLike) -> Array:
    """``exp(x) - 1``, accurate near 0.

    >>> from fdbr import ops
    >>> ops.expm1(0.0)
    0.0
    """
    return xp.expm1(x)


@elementwise(x=lambda out: math.log(2) * out, heavy=True)
def exp2(xp: Any, x: ArrayLike) -> Array:
    """The power ``2**x``.

    >>> from fdbr import ops
    >>> ops.exp2(3.0)
    8.0
    """
    return xp.exp2(x)


@elementwise(x=lambda x: 1 / x)
def log(xp: Any, x: ArrayLike) -> Array:
    """The natural logarithm.

    >>> from fdbr import ops
    >>> ops.log(1.0)
    0.0
    """
    return xp.log(x)


@elementwise(x=lambda x: 1 / (1 + x), heavy=True)
def log1p(xp: Any, x: ArrayLike) -> Array:
    """``log(1 + x)``, accurate near 0.

    >>> from fdbr import ops
    >>> ops.log1p(0.0)
    0.0
    """
    return xp.log1p(x)


@elementwise(x=lambda x: 1 / math.log(2) / x, heavy=True)
def log2(xp: Any, x: ArrayLike) -> Array:
    """The logarithm to base 2.

    >>> from fdbr import ops
    >>> ops.log2(8.0)
    3.0
    """
    return xp.log2(x)


@elementwise(x=lambda x: 1 / math.log(10) / x, heavy=True)
def log10(xp: Any, x: ArrayLike) -> Array:
    """The logarithm to base 10.

    >>> from fdbr import ops
    >>> ops.log10(100.0)
    2.0
    """
    return xp.log10(x)


@elementwise(x=lambda x, out, rate: -2 * rate * (where(out == 0, 0, x) * out), heavy=True)
def gaussian(xp: Any, x: ArrayLike, *, rate: float) -> Array:
    """``exp(-rate * x**2)``, in float64 for float32: a rounded exponent would cost digits."""
    if xp is not np and hasattr(xp, "fma"):  # kernels have a function of their own
        return xp.gaussian(x, rate)
    with np.errstate(over="ignore"):  # far from 0 the square is infinite, and the result 0
        if getattr(x, "dtype", None) == np.float32:
            wide = x.astype(np.float64)
            return xp.exp(-rate * wide * wide).astype(np.float32)
        return xp.exp(-rate * x * x)
