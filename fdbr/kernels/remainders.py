"""Signs, neighbours and remainders of nodes, to the last bit, under NumPy's names."""

import math
from typing import Any

import numpy as np

from fdbr.kernels.arithmetic import absolute, floor, fma, full_like, where
from fdbr.kernels.expressions import FLOATS, InexpressibleError, Node
from fdbr.kernels.formulas import bits_of, both, from_bits, in_double, integers

__all__ = [
    *("copysign", "floor_divide", "nextafter", "remainder"),
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

_STEP = 28  # bits of a quotient whose product with a single number is exact in double precision
_STEPS = 10  # of those in the quotient of any two single numbers


def _left(x: Node, y: Node) -> Node:
    """What is left of ``x`` by whole multiples of ``y``, with the sign of ``x``, exactly."""
    rest, divisor = absolute(x), absolute(y)
    inverse = 1 / divisor
    for k in range(_STEPS - 1, -1, -1):
        unit = divisor * 2.0 ** (_STEP * k)
        quotient = floor(rest * (inverse * 2.0 ** (-_STEP * k)))
        rest = fma(-quotient, unit, rest)  # one unit too many or too few at most
        rest = where(rest < 0, rest + unit, rest)
        rest = where(rest >= unit, rest - unit, rest)
    rest = where(divisor == math.inf, absolute(x), rest)
    defined = (divisor > 0) & (absolute(x) < math.inf)
    return copysign(where(defined, rest, math.nan * x * y), x)


@in_double
def remainder(x: Any, y: Any) -> Node:
    x, y = both(x, y)
    rest = _left(x, y)
    other = (rest < 0) & (y > 0) | (rest > 0) & (y < 0)
    return where(rest == 0, copysign(rest, y), where(other, rest + y, rest))


def floor_divide(x: Any, y: Any) -> Node:
    """As NumPy does it, with its roundings."""
    x, y = both(x, y)
    rest = in_double(_left)(x, y)
    quotient = (x - rest) / y
    quotient = where((rest < 0) & (y > 0) | (rest > 0) & (y < 0), quotient - 1, quotient)
    whole = floor(quotient)
    whole = where(quotient - whole > 0.5, whole + 1, whole)
    out = where(quotient == 0, copysign(full_like(whole, 0), x / y), whole)
    return where(y == 0, x / y, out)
