"""Exponentials and logarithms, element by element."""

import math
from typing import Any

from fdbr.ops import vectorized
from fdbr.ops.comparison import where
from fdbr.ops.kinds import elementwise

__all__ = [
    "exp",
    "exp2",
    "expm1",
    "log",
    "log10",
    "log1p",
    "log2",
    "logaddexp",
]


@elementwise(x=lambda out: out)
def exp(xp: Any, x: Any) -> Any:
    """The exponential ``e**x``.

    >>> from fdbr import ops
    >>> ops.exp(0.0)
    1.0
    """
    return xp.exp(x)


@elementwise(x=lambda out: out + 1)
def expm1(xp: Any, x: Any) -> Any:
    """``exp(x) - 1``, accurate near 0.

    >>> from fdbr import ops
    >>> ops.expm1(0.0)
    0.0
    """
    return xp.expm1(x)


@elementwise(x=lambda out: math.log(2) * out)
def exp2(xp: Any, x: Any) -> Any:
    """The power ``2**x``.

    >>> from fdbr import ops
    >>> ops.exp2(3.0)
    8.0
    """
    return xp.exp2(x)


@elementwise(x=lambda x: 1 / x)
def log(xp: Any, x: Any) -> Any:
    """The natural logarithm.

    >>> from fdbr import ops
    >>> ops.log(1.0)
    0.0
    """
    return xp.log(x)


@elementwise(x=lambda x: 1 / (1 + x))
def log1p(xp: Any, x: Any) -> Any:
    """``log(1 + x)``, accurate near 0.

    >>> from fdbr import ops
    >>> ops.log1p(0.0)
    0.0
    """
    return xp.log1p(x)


@elementwise(x=lambda x: 1 / (x * math.log(2)))
def log2(xp: Any, x: Any) -> Any:
    """The logarithm to base 2.

    >>> from fdbr import ops
    >>> ops.log2(8.0)
    3.0
    """
    return xp.log2(x)


@elementwise(x=lambda x: 1 / (x * math.log(10)))
def log10(xp: Any, x: Any) -> Any:
    """The logarithm to base 10.

    >>> from fdbr import ops
    >>> ops.log10(100.0)
    2.0
    """
    return xp.log10(x)


@elementwise(x=lambda x, out: _share_of(x, out), y=lambda y, out: _share_of(y, out), heavy=True)
def logaddexp(xp: Any, x: Any, y: Any) -> Any:
    """``log(exp(x) + exp(y))``, without overflow.

    >>> from fdbr import ops
    >>> round(ops.logaddexp(0.0, 0.0), 6)
    0.693147
    """
    return vectorized.logaddexp(x, y) if vectorized.suits(xp, x, y) else xp.logaddexp(x, y)


def _share_of(x: Any, out: Any) -> Any:
    same = x == out  # among others where both are infinite, and x - out would be NaN
    return exp(where(same, 0, x) - where(same, 0, out))
