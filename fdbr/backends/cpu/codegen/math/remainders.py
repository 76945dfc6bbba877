"""Signs, neighbours and remainders of nodes, to the last bit, under NumPy's names."""

import math
from typing import Any

import numpy as np

from fdbr.backends.cpu.codegen.math.arithmetic import absolute, floor, fma, full_like, where
from fdbr.backends.cpu.codegen.math.formulas import bits_of, both, from_bits, in_double, integers
from fdbr.core.expr import FLOATS, InexpressibleError, Node

__all__ = [
    *("copysign", "floor_divide", "fmod", "nextafter", "remainder"),
]


def copysign(x: Node, y: Node) -> Node:
    """The magnitude of ``x`` with the sign of ``y``, of one dtype."""
    sign = -(1 << 8 * x.itemsize - 1)
    bits = integers("iand", bits_of(x), ~sign)
    return from_bits(integers("ior", bits, integers("iand", bits_of(y), sign)), x.dtype)


def nextafter(x: Any, y: Any) -> Node:
    """The bits of a number, one more or one less."""
    x, y = both(x, y)
    if x.dtype != y.dtype:
        raise InexpressibleError("numbers of two dtypes")
    number, integer = x.graph.constant, FLOATS[x.dtype]
    up, positive = y > x, x > 0
    away = (up & positive) | ~(up | positive)
    step = x.graph.node("select", integer, (away, number(1, integer), number(-1, integer)))
    out = from_bits(integers("iadd", bits_of(x), step), x.dtype)
    least = full_like(x, float(np.finfo(x.dtype).smallest_subnormal))
    out = where(x == y, y, where(x == 0, copysign(least, y), out))
    return where((x == x) & (y == y), out, x + y)


# --- remainders ---------------------------------------------------------------------

_STEP = 48  # bits of a quotient that is exact to one unit
_STEPS = 6  # of those in the quotient of any two single numbers


def _left(x: Node, y: Node) -> Node:
    """The remainder of ``x`` by whole multiples of ``y``, of either sign, and less than ``y``.

    A product with a rounded quotient is subtracted exactly: what remains is a multiple of the last
    place of one of the two numbers, and not larger than half of what was subtracted.  Quotients
    are rounded to multiples of powers of 2, as a sum with a large number does it.
    """
    rest, divisor = x, absolute(y)
    inverse = 1 / divisor
    for k in range(_STEPS - 1, -1, -1):
        large = 1.5 * 2.0 ** (52 + _STEP * k)
        quotient = fma(rest, inverse, large) - large
        rest = fma(-quotient, divisor, rest)
    rest = where((divisor == math.inf) & (absolute(x) < math.inf), x, rest)
    return where(divisor == 0, math.nan, rest)


def _other_sign(x: Node, y: Node) -> Node:
    return (x < 0) & (y > 0) | (x > 0) & (y < 0)


@in_double
def remainder(x: Any, y: Any) -> Node:
    x, y = both(x, y)
    rest = _left(x, y)
    return where(rest == 0, copysign(rest, y), where(_other_sign(rest, y), rest + y, rest))


@in_double
def _of_dividends_sign(x: Node, y: Node) -> Node:
    rest = _left(x, y)
    return where(_other_sign(rest, x), rest + copysign(absolute(y), x), rest)


def fmod(x: Any, y: Any) -> Node:
    x, y = both(x, y)
    rest = _of_dividends_sign(x, y)
    return where(rest == 0, copysign(rest, x), rest)


def floor_divide(x: Any, y: Any) -> Node:
    """As NumPy does it, with its roundings."""
    x, y = both(x, y)
    rest = _of_dividends_sign(x, y)
    quotient = (x - rest) / y
    quotient = where(_other_sign(rest, y), quotient - 1, quotient)
    whole = floor(quotient)
    whole = where(quotient - whole > 0.5, whole + 1, whole)
    out = where(quotient == 0, copysign(full_like(whole, 0), x / y), whole)
    return where(y == 0, x / y, out)
