"""Carlson's symmetric elliptic integrals, and the family that their derivatives belong to.

All are multiples of integrals over ``t`` from 0 to infinity of

    t**n * (t + x)**-(i + 1/2) * (t + y)**-(j + 1/2) * (t + z)**-(k + 1/2) * (t + p)**-m,

whose derivatives are of the same kind (https://dlmf.nist.gov/19.16 and 19.18).  With ``t``
an exponential the integrand is smooth on the whole line and falls on both sides, so the sum
over equal steps is exact to the last digits.

>>> import fdbr
>>> from fdbr.ops import special
>>> round(special.elliprf(1.0, 1.0, 4.0), 6)
0.760346
>>> round(float(fdbr.grad(special.elliprf)(1.0, 1.0, 4.0)), 6)
-0.103305
"""

import functools
import math
from typing import Any

from fdbr.ops.declare import elementwise
from fdbr.ops.dtypes import float_dtype
from fdbr.ops.elementwise.arithmetic import sqrt
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.special.library import refuse_complex, scipy_special
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["elliprc", "elliprd", "elliprf", "elliprg", "elliprj"]

_STEP = 0.5  # the error of the sum is exp(-2 * pi**2 / step)
_REACH = 80.0  # beyond the scales of the arguments, where the integrand has fallen to nothing


def _by(number: int) -> Any:
    """The derivative by an operand: its power is one higher."""

    def partial(x: Any, y: Any, z: Any, p: Any, n: int, powers: Any) -> Any:
        raised = tuple(power + (i == number) for i, power in enumerate(powers))
        return -powers[number] * _carlson(x, y, z, p, n=n, powers=raised)

    return partial


@elementwise(double=True, x=_by(0), y=_by(1), z=_by(2), p=_by(3))
def _carlson(
    xp: Any, x: ArrayLike, y: ArrayLike, z: ArrayLike, p: ArrayLike, *, n: int, powers: Any
) -> Array:
    """The integral, of ``powers``: infinite where it diverges, NaN where one is negative."""
    dtype = float_dtype(x, y, z, p)
    values = xp.broadcast_arrays(*(xp.asarray(v, dtype=float) for v in (x, y, z, p)))
    valid, at_zero = True, n + 1.0
    for v, power in zip(values, powers, strict=True):
        valid = valid & (v >= 0) & (v < math.inf)
        at_zero = at_zero - xp.where(v == 0, power, 0.0)
    positive = [xp.where(valid & (v > 0), v, 1.0) for v in values]
    low, high = functools.reduce(xp.minimum, positive), functools.reduce(xp.maximum, positive)
    first = xp.log(low) - _REACH
    # The step is the same for all, and each has its own last one: no value depends on others.
    last = xp.ceil((xp.log(high) + _REACH - first) / _STEP)
    total = 0.0
    for i in range(int(xp.max(last)) + 1 if last.size else 0):
        t = xp.exp(first + i * _STEP)
        term = t ** (n + 1)
        for v, power in zip(values, powers, strict=True):
            if power:
                term = term * (t + v) ** -power
        total = total + xp.where(i <= last, term, 0.0)
    out = xp.where(at_zero > 0, total * _STEP, math.inf)
    return xp.where(valid, out, math.nan).astype(dtype)[()]


# --- Carlson's functions ------------------------------------------------------------


@elementwise(
    double=True,
    x=lambda x, y, z: -elliprd(y, z, x) / 6,
    y=lambda x, y, z: -elliprd(z, x, y) / 6,
    z=lambda x, y, z: -elliprd(x, y, z) / 6,
)
def elliprf(xp: Any, x: ArrayLike, y: ArrayLike, z: ArrayLike) -> Array:
    """Carlson's integral of the first kind, of real arguments of at least 0."""
    _check("elliprf", x, y, z)
    return scipy_special.on(xp)(xp, "elliprf", x, y, z)


def _in_family(factor: float, n: int, *powers: float) -> Any:
    return lambda x, y, z: factor * _carlson(x, y, z, 1.0, n=n, powers=(*powers, 0))


@elementwise(
    double=True,
    x=_in_family(-0.75, 0, 1.5, 0.5, 1.5),
    y=_in_family(-0.75, 0, 0.5, 1.5, 1.5),
    z=_in_family(-2.25, 0, 0.5, 0.5, 2.5),
)
def elliprd(xp: Any, x: ArrayLike, y: ArrayLike, z: ArrayLike) -> Array:
    """Carlson's integral of the second kind, of real arguments of at least 0."""
    _check("elliprd", x, y, z)
    return scipy_special.on(xp)(xp, "elliprd", x, y, z)


@elementwise(
    double=True,
    x=_in_family(0.125, 1, 1.5, 0.5, 0.5),
    y=_in_family(0.125, 1, 0.5, 1.5, 0.5),
    z=_in_family(0.125, 1, 0.5, 0.5, 1.5),
)
def elliprg(xp: Any, x: ArrayLike, y: ArrayLike, z: ArrayLike) -> Array:
    """Carlson's completely symmetric integral of the second kind, of reals of at least 0."""
    _check("elliprg", x, y, z)
    return scipy_special.on(xp)(xp, "elliprg", x, y, z)


def _in_family_of_four(factor: float, *powers: float) -> Any:
    return lambda x, y, z, p: factor * _carlson(x, y, z, p, n=0, powers=powers)


@elementwise(
    double=True,
    x=_in_family_of_four(-0.75, 1.5, 0.5, 0.5, 1),
    y=_in_family_of_four(-0.75, 0.5, 1.5, 0.5, 1),
    z=_in_family_of_four(-0.75, 0.5, 0.5, 1.5, 1),
    p=_in_family_of_four(-1.5, 0.5, 0.5, 0.5, 2),
)
def elliprj(xp: Any, x: ArrayLike, y: ArrayLike, z: ArrayLike, p: ArrayLike) -> Array:
    """Carlson's integral of the third kind, of reals of at least 0.

    Where ``p`` is negative, the value is Cauchy's, and the derivatives are NaN.
    """
    _check("elliprj", x, y, z, p)
    return scipy_special.on(xp)(xp, "elliprj", x, y, z, p)


@elementwise(double=True, x=lambda x, y: _elliprc_by_x(x, y), y=lambda x, y: _elliprc_by_y(x, y))
def elliprc(xp: Any, x: ArrayLike, y: ArrayLike) -> Array:
    """Carlson's degenerate integral ``elliprf(x, y, y)``; Cauchy's where ``y`` is negative."""
    _check("elliprc", x, y)
    return scipy_special.on(xp)(xp, "elliprc", x, y)


def _elliprc_by_x(x: Any, y: Any) -> Any:
    negative = y < 0
    other, y = where(negative, y, -1), where(negative, 1, y)
    below = (elliprc(x, other) - 1 / sqrt(x)) / (2 * (other - x))
    return where(negative, below, -0.25 * _carlson(x, y, 1.0, 1.0, n=0, powers=(1.5, 1, 0, 0)))


def _elliprc_by_y(x: Any, y: Any) -> Any:
    negative = y < 0
    other, y = where(negative, y, -1), where(negative, 1, y)
    below = (sqrt(x) / other - elliprc(x, other)) / (2 * (other - x))
    return where(negative, below, -0.5 * _carlson(x, y, 1.0, 1.0, n=0, powers=(0.5, 2, 0, 0)))


def _check(function: str, *operands: Any) -> None:
    for operand in operands:
        refuse_complex(f"special.{function}", operand)
