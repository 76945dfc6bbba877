"""The error function and the normal distribution."""

import math
from typing import Any

from fdbr.ops.declare import elementwise
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.elementwise.complex_parts import real
from fdbr.ops.elementwise.exponential import exp, gaussian
from fdbr.ops.special.library import scipy_special
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["erf", "erfc", "erfcinv", "erfcx", "erfinv", "log_ndtr", "ndtr", "ndtri"]

_TWO_BY_ROOT_PI = 2 / math.sqrt(math.pi)
_HALF_ROOT_PI = math.sqrt(math.pi) / 2
_ROOT_TWO_PI = math.sqrt(2 * math.pi)
_FAR = 10.0  # where the asymptotic series of erfcx's derivative takes over
_TERMS = 12


@elementwise(x=lambda x: _TWO_BY_ROOT_PI * gaussian(x, rate=1.0), heavy=True)
def erf(xp: Any, x: ArrayLike) -> Array:
    """The error function ``2 / sqrt(pi) * integral of exp(-t**2) from 0 to x``.

    >>> from fdbr import ops
    >>> round(ops.erf(1.0), 6)
    0.842701
    """
    return scipy_special.on(xp)(xp, "erf", x)


@elementwise(x=lambda x: -_TWO_BY_ROOT_PI * gaussian(x, rate=1.0), heavy=True)
def erfc(xp: Any, x: ArrayLike) -> Array:
    """The complementary error function ``1 - erf(x)``, accurate where it is small.

    >>> from fdbr import ops
    >>> ops.erfc(10.0) > 0
    True
    """
    return scipy_special.on(xp)(xp, "erfc", x)


@elementwise(double=True, x=lambda x: _erfcx_derivative(x, erfcx(x)), heavy=True)
def erfcx(xp: Any, x: ArrayLike) -> Array:
    """The scaled complementary error function ``exp(x**2) * erfc(x)``.

    >>> from fdbr import ops
    >>> round(ops.erfcx(100.0), 6)
    0.005642
    """
    return scipy_special.on(xp)(xp, "erfcx", x)


def _erfcx_derivative(x: Any, out: Any) -> Any:
    """``2 * x * erfcx(x) - 2 / sqrt(pi)``; by its asymptotic series where that cancels."""
    far = real(x) > _FAR
    series = asymptotic_rest((1 / where(far, x, _FAR)) ** 2 / -2)
    return where(far, _TWO_BY_ROOT_PI * series, 2 * (x * out) - _TWO_BY_ROOT_PI)


def asymptotic_rest(ratio: Any) -> Any:
    """The sum of ``(2k - 1)!! * ratio**k`` over k = 1, 2, …, up to its smallest terms."""
    series = 1.0
    for k in range(_TERMS, 0, -1):
        series = 1 + (2 * k + 1) * ratio * series
    return ratio * series


@elementwise(double=True, x=lambda x: _HALF_ROOT_PI * exp(erfinv(x) ** 2), heavy=True)
def erfinv(xp: Any, x: ArrayLike) -> Array:
    """The inverse of `erf`, on [-1, 1].

    >>> from fdbr import ops
    >>> round(ops.erfinv(0.5), 6)
    0.476936
    """
    return scipy_special.on(xp)(xp, "erfinv", x)


@elementwise(double=True, x=lambda x: -_HALF_ROOT_PI * exp(erfcinv(x) ** 2), heavy=True)
def erfcinv(xp: Any, x: ArrayLike) -> Array:
    """The inverse of `erfc`, on [0, 2].

    >>> from fdbr import ops
    >>> round(ops.erfcinv(1e-10), 6)
    4.572825
    """
    return scipy_special.on(xp)(xp, "erfcinv", x)


@elementwise(x=lambda x: gaussian(x, rate=0.5) / _ROOT_TWO_PI, heavy=True)
def ndtr(xp: Any, x: ArrayLike) -> Array:
    """The distribution function of the standard normal distribution.

    >>> from fdbr import ops
    >>> ops.ndtr(0.0)
    0.5
    """
    return scipy_special.on(xp)(xp, "ndtr", x)


@elementwise(double=True, x=lambda x: log_ndtr_derivative(x, log_ndtr(x)), heavy=True)
def log_ndtr(xp: Any, x: ArrayLike) -> Array:
    """The logarithm of `ndtr`, without underflow.

    >>> from fdbr import ops
    >>> round(ops.log_ndtr(-100.0), 4)
    -5005.5242
    """
    return scipy_special.on(xp)(xp, "log_ndtr", x)


def log_ndtr_derivative(x: Array, out: Any) -> Any:
    """The density over `ndtr`: by `erfcx` where that is not large, by `exp` in the other tail."""
    above = real(x) > 0
    below = math.sqrt(2 / math.pi) / erfcx(-math.sqrt(0.5) * where(above, 0, x))
    x, out = where(above, x, 0), where(above, out, 0)
    return where(above, gaussian(x, rate=0.5) * exp(-out) / _ROOT_TWO_PI, below)


@elementwise(double=True, x=lambda x: _ROOT_TWO_PI * exp(0.5 * ndtri(x) ** 2), heavy=True)
def ndtri(xp: Any, x: ArrayLike) -> Array:
    """The inverse of `ndtr`, on [0, 1]: the quantiles of the standard normal distribution.

    >>> from fdbr import ops
    >>> round(ops.ndtri(0.975), 6)
    1.959964
    """
    return scipy_special.on(xp)(xp, "ndtri", x)
