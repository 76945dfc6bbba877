"""Trigonometric and hyperbolic functions and their inverses, element by element."""

import math
from typing import Any

import numpy as np

from fdbr.ops.declare import elementwise
from fdbr.ops.dtypes import is_complex
from fdbr.ops.elementwise.arithmetic import hypot, sqrt, square
from fdbr.ops.elementwise.comparison import where
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cos",
    "cosh",
    "sin",
    "sinh",
    "tan",
    "tanh",
]


@elementwise(x=lambda x: cos(x))
def sin(xp: Any, x: ArrayLike) -> Array:
    """The sine of an angle in radians.

    >>> from fdbr import ops
    >>> ops.sin(0.0)
    0.0
    """
    return xp.sin(x)


@elementwise(x=lambda x: -sin(x))
def cos(xp: Any, x: ArrayLike) -> Array:
    """The cosine of an angle in radians.

    >>> from fdbr import ops
    >>> ops.cos(0.0)
    1.0
    """
    return xp.cos(x)


@elementwise(x=lambda x: 1 / square(cos(x)), heavy=True)
def tan(xp: Any, x: ArrayLike) -> Array:
    """The tangent of an angle in radians.

    >>> from fdbr import ops
    >>> ops.tan(0.0)
    0.0
    """
    return xp.tan(x)


@elementwise(x=lambda x: 1 / sqrt((1 - x) * (1 + x)), heavy=True)
def asin(xp: Any, x: ArrayLike) -> Array:
    """The inverse sine, in radians.

    >>> from fdbr import ops
    >>> ops.asin(0.0)
    0.0
    """
    return xp.arcsin(x)


@elementwise(x=lambda x: -1 / sqrt((1 - x) * (1 + x)), heavy=True)
def acos(xp: Any, x: ArrayLike) -> Array:
    """The inverse cosine, in radians.

    >>> from fdbr import ops
    >>> ops.acos(1.0)
    0.0
    """
    return xp.arccos(x)


@elementwise(x=lambda x: 1 / (1 + x * x) if is_complex(x) else square(1 / hypot(x, 1)), heavy=True)
def atan(xp: Any, x: ArrayLike) -> Array:
    """The inverse tangent, in radians.

    >>> from fdbr import ops
    >>> ops.atan(0.0)
    0.0
    """
    return xp.arctan(x)


@elementwise(
    y=lambda y, x: _divided_by_square(x, hypot(x, y)),
    x=lambda y, x: -_divided_by_square(y, hypot(x, y)),
    heavy=True,
)
def atan2(xp: Any, y: ArrayLike, x: ArrayLike) -> Array:
    """The angle of the point ``(x, y)``, in radians, within [-pi, pi].

    >>> from fdbr import ops
    >>> ops.atan2(0.0, 1.0)
    0.0
    """
    return xp.arctan2(y, x)


def _divided_by_square(x: Any, length: Any) -> Any:
    """``x / length**2`` without the square, which may overflow or underflow."""
    infinite = length == math.inf
    length = where(infinite, 1, length)
    return where(infinite, 0, x / length / length)


@elementwise(x=lambda x: cosh(x), heavy=True)
def sinh(xp: Any, x: ArrayLike) -> Array:
    """The hyperbolic sine.

    >>> from fdbr import ops
    >>> ops.sinh(0.0)
    0.0
    """
    return xp.sinh(x)


@elementwise(x=lambda x: sinh(x), heavy=True)
def cosh(xp: Any, x: ArrayLike) -> Array:
    """The hyperbolic cosine.

    >>> from fdbr import ops
    >>> ops.cosh(0.0)
    1.0
    """
    return xp.cosh(x)


def negative_abs(xp: Any, x: Any) -> Any:
    """``-abs(x)``; for complex ``x``, that of ``x`` and ``-x`` whose real part is not positive."""
    return xp.where(x.real < 0, x, -x) if is_complex(x) else -xp.abs(x)


@elementwise(x=lambda x, out: -2 * tanh(x) * out, heavy=True, floats=True)
def _tanh_derivative(xp: Any, x: Array) -> Array:
    """``1 / cosh(x)**2``, from the operand: ``1 - tanh(x)**2`` cancels where the tanh is near 1."""
    with np.errstate(over="ignore"):  # twice the largest numbers are infinite
        decay = xp.exp(2 * negative_abs(xp, x))
    return 4 * decay / xp.square(1 + decay)


@elementwise(x=lambda x: _tanh_derivative(x), heavy=True)
def tanh(xp: Any, x: ArrayLike) -> Array:
    """The hyperbolic tangent.

    >>> from fdbr import ops
    >>> ops.tanh(0.0)
    0.0
    """
    return xp.tanh(x)


@elementwise(x=lambda x: 1 / (sqrt(x * x + 1) if is_complex(x) else hypot(x, 1)), heavy=True)
def asinh(xp: Any, x: ArrayLike) -> Array:
    """The inverse hyperbolic sine.

    >>> from fdbr import ops
    >>> ops.asinh(0.0)
    0.0
    """
    return xp.arcsinh(x)


@elementwise(x=lambda x: 1 / (sqrt(x - 1) * sqrt(x + 1)), heavy=True)
def acosh(xp: Any, x: ArrayLike) -> Array:
    """The inverse hyperbolic cosine.

    >>> from fdbr import ops
    >>> ops.acosh(1.0)
    0.0
    """
    return xp.arccosh(x)


@elementwise(x=lambda x: 1 / ((1 - x) * (1 + x)), heavy=True)
def atanh(xp: Any, x: ArrayLike) -> Array:
    """The inverse hyperbolic tangent.

    >>> from fdbr import ops
    >>> ops.atanh(0.0)
    0.0
    """
    return xp.arctanh(x)
