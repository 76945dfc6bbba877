"""Trigonometric and hyperbolic functions and their inverses, element by element."""

from typing import Any

from fdbr.ops.arithmetic import sqrt
from fdbr.ops.kinds import elementwise

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
def sin(xp: Any, x: Any) -> Any:
    """The sine of an angle in radians.

    >>> from fdbr import ops
    >>> ops.sin(0.0)
    0.0
    """
    return xp.sin(x)


@elementwise(x=lambda x: -sin(x))
def cos(xp: Any, x: Any) -> Any:
    """The cosine of an angle in radians.

    >>> from fdbr import ops
    >>> ops.cos(0.0)
    1.0
    """
    return xp.cos(x)


@elementwise(x=lambda out: 1 + out * out)
def tan(xp: Any, x: Any) -> Any:
    """The tangent of an angle in radians.

    >>> from fdbr import ops
    >>> ops.tan(0.0)
    0.0
    """
    return xp.tan(x)


@elementwise(x=lambda x: 1 / sqrt(1 - x * x))
def asin(xp: Any, x: Any) -> Any:
    """The inverse sine, in radians.

    >>> from fdbr import ops
    >>> ops.asin(0.0)
    0.0
    """
    return xp.arcsin(x)


@elementwise(x=lambda x: -1 / sqrt(1 - x * x))
def acos(xp: Any, x: Any) -> Any:
    """The inverse cosine, in radians.

    >>> from fdbr import ops
    >>> ops.acos(1.0)
    0.0
    """
    return xp.arccos(x)


@elementwise(x=lambda x: 1 / (1 + x * x))
def atan(xp: Any, x: Any) -> Any:
    """The inverse tangent, in radians.

    >>> from fdbr import ops
    >>> ops.atan(0.0)
    0.0
    """
    return xp.arctan(x)


@elementwise(y=lambda y, x: x / (x * x + y * y), x=lambda y, x: -y / (x * x + y * y))
def atan2(xp: Any, y: Any, x: Any) -> Any:
    """The angle of the point ``(x, y)``, in radians, within [-pi, pi].

    >>> from fdbr import ops
    >>> ops.atan2(0.0, 1.0)
    0.0
    """
    return xp.arctan2(y, x)


@elementwise(x=lambda x: cosh(x))
def sinh(xp: Any, x: Any) -> Any:
    """The hyperbolic sine.

    >>> from fdbr import ops
    >>> ops.sinh(0.0)
    0.0
    """
    return xp.sinh(x)


@elementwise(x=lambda x: sinh(x))
def cosh(xp: Any, x: Any) -> Any:
    """The hyperbolic cosine.

    >>> from fdbr import ops
    >>> ops.cosh(0.0)
    1.0
    """
    return xp.cosh(x)


@elementwise(x=lambda out: 1 - out * out)
def tanh(xp: Any, x: Any) -> Any:
    """The hyperbolic tangent.

    >>> from fdbr import ops
    >>> ops.tanh(0.0)
    0.0
    """
    return xp.tanh(x)


@elementwise(x=lambda x: 1 / sqrt(x * x + 1))
def asinh(xp: Any, x: Any) -> Any:
    """The inverse hyperbolic sine.

    >>> from fdbr import ops
    >>> ops.asinh(0.0)
    0.0
    """
    return xp.arcsinh(x)


@elementwise(x=lambda x: 1 / (sqrt(x - 1) * sqrt(x + 1)))
def acosh(xp: Any, x: Any) -> Any:
    """The inverse hyperbolic cosine.

    >>> from fdbr import ops
    >>> ops.acosh(1.0)
    0.0
    """
    return xp.arccosh(x)


@elementwise(x=lambda x: 1 / (1 - x * x))
def atanh(xp: Any, x: Any) -> Any:
    """The inverse hyperbolic tangent.

    >>> from fdbr import ops
    >>> ops.atanh(0.0)
    0.0
    """
    return xp.arctanh(x)
