"""The gamma function and its relatives."""

import math
from typing import Any

from fdbr.errors.checks import integer
from fdbr.errors.public import public
from fdbr.ops.declare import constant, elementwise
from fdbr.ops.elementwise.arithmetic import floor
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.elementwise.trigonometric import cos, sin
from fdbr.ops.special.library import refuse_complex, scipy_function, scipy_special, unknown
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = [
    "beta",
    "betaln",
    "binom",
    "digamma",
    "gamma",
    "gammaln",
    "gammasgn",
    "loggamma",
    "multigammaln",
    "poch",
    "polygamma",
    "psi",
    "rgamma",
    "zeta",
    "zetac",
]


@elementwise(double=True, x=lambda x, out: out * digamma(x))
def gamma(xp: Any, x: ArrayLike) -> Array:
    """The gamma function, which extends the factorials: ``gamma(n + 1) = n!``.

    >>> from fdbr import ops
    >>> ops.gamma(5.0)
    24.0
    """
    refuse_complex("gamma", x)
    return scipy_special.on(xp)(xp, "gamma", x)


@elementwise(double=True, x=lambda x: digamma(x), heavy=True)
def gammaln(xp: Any, x: ArrayLike) -> Array:
    """The logarithm of the absolute value of `gamma`.

    >>> from fdbr import ops
    >>> round(ops.gammaln(100.0), 4)
    359.1342
    """
    return scipy_special.on(xp)(xp, "gammaln", x)


@elementwise(double=True, x=lambda x: digamma(x))
def loggamma(xp: Any, x: ArrayLike) -> Array:
    """The logarithm of `gamma` of positive numbers; NaN below 0.

    >>> from fdbr.ops import special
    >>> round(special.loggamma(100.0), 4)
    359.1342
    """
    refuse_complex("special.loggamma", x)
    return scipy_special.on(xp)(xp, "loggamma", x)


@elementwise(double=True, x=lambda x, out: _rgamma_derivative(x, out))
def rgamma(xp: Any, x: ArrayLike) -> Array:
    """``1 / gamma(x)``, which is 0 at 0, -1, -2, ….

    >>> from fdbr.ops import special
    >>> special.rgamma(5.0) * 24, special.rgamma(-1.0) == 0
    (1.0, True)
    """
    refuse_complex("special.rgamma", x)
    return scipy_special.on(xp)(xp, "rgamma", x)


def _rgamma_derivative(x: Any, out: Any) -> Any:
    """``-rgamma(x) * digamma(x)``; where x is small of ``gamma(1 - x) * sin(pi * x) / pi``."""
    low = x < 0.5
    mirrored = 1 - where(low, x, 0)
    angle = math.pi * where(low, x, 0)
    below = gamma(mirrored) * (cos(angle) - digamma(mirrored) * sin(angle) / math.pi)
    x = where(low, 1, where(x == math.inf, 1000, x))  # the derivative is 0 in float64
    return where(low, below, -rgamma(x) * digamma(x))


@constant
def gammasgn(xp: Any, x: ArrayLike) -> Array:
    """The sign of `gamma`, whose derivative is 0 wherever it exists.

    >>> from fdbr.ops import special
    >>> float(special.gammasgn(-0.5))
    -1.0
    """
    return scipy_special.on(xp)(xp, "gammasgn", x)


@elementwise(double=True, x=lambda x: _polygamma(x, n=1), heavy=True)
def digamma(xp: Any, x: ArrayLike) -> Array:
    """The derivative of `gammaln`.

    >>> from fdbr import ops
    >>> round(ops.digamma(1.0), 6)
    -0.577216
    """
    refuse_complex("digamma", x)
    return scipy_special.on(xp)(xp, "digamma", x)


psi = digamma


@elementwise(double=True, x=lambda x, n: _polygamma(x, n=n + 1))
def _polygamma(xp: Any, x: ArrayLike, *, n: int) -> Array:
    return polygamma_value(xp, n, x)


def polygamma_value(xp: Any, n: int, x: Any) -> Any:
    """The polygamma function of plain arrays."""
    if n == 0:
        return scipy_special.on(xp)(xp, "digamma", x)
    out = scipy_special.on(xp)(xp, "zeta", n + 1.0, x)
    return out if n == 1 else (-1) ** (n + 1) * math.factorial(n) * out


@public("fdbr.ops")
def polygamma(n: int, x: ArrayLike, /) -> Array:
    """The derivative of `digamma` of order ``n``.

    Parameters
    ----------
    n
        An integer of at least 0: an order of derivatives, not an array.
    x
        An array.

    Raises
    ------
    TypeError
        If ``n`` is no integer.
    ValueError
        If it is negative.

    >>> from fdbr import ops
    >>> round(ops.polygamma(1, 1.0), 6)
    1.644934
    """
    order = integer("fdbr.ops.polygamma", "n", n, least=0)
    return _polygamma(x, n=order) if order else digamma(x)


@elementwise(
    double=True,
    a=lambda a, b, out: _beta_derivative(a, b, out),
    b=lambda a, b, out: _beta_derivative(b, a, out),
)
def beta(xp: Any, a: ArrayLike, b: ArrayLike) -> Array:
    """The beta function ``gamma(a) * gamma(b) / gamma(a + b)``.

    >>> from fdbr import ops
    >>> round(ops.beta(2.0, 3.0), 6)
    0.083333
    """
    return scipy_special.on(xp)(xp, "beta", a, b)


def _beta_derivative(a: Any, b: Any, out: Any) -> Any:
    """The derivative of `beta` in ``a``.

    It is ``out * (digamma(a) - digamma(a + b))``.  Where ``a + b`` is 0, -1, -2, …, `beta` is 0
    and `digamma` has a pole; the product is finite, and follows from `rgamma`.
    """
    total = a + b
    at_pole = (total <= 0) & (total == floor(total))
    regular = out * (digamma(a) - digamma(where(at_pole, 1.0, total)))
    a, b, total = (where(at_pole, x, 0.5) for x in (a, b, total))
    inverse = rgamma(total)
    rate = digamma(a) * inverse + _rgamma_derivative(total, inverse)
    return where(at_pole, gamma(a) * gamma(b) * rate, regular)


@elementwise(
    double=True,
    a=lambda a, b: digamma(a) - digamma(a + b),
    b=lambda a, b: digamma(b) - digamma(a + b),
)
def betaln(xp: Any, a: ArrayLike, b: ArrayLike) -> Array:
    """The logarithm of the absolute value of `beta`.

    >>> from fdbr import ops
    >>> round(ops.betaln(100.0, 100.0), 4)
    -139.6653
    """
    return scipy_special.on(xp)(xp, "betaln", a, b)


@elementwise(
    double=True,
    z=lambda z, m, out: out * (digamma(z + m) - digamma(z)),
    m=lambda z, m, out: out * digamma(z + m),
)
def poch(xp: Any, z: ArrayLike, m: ArrayLike) -> Array:
    """Pochhammer's symbol ``gamma(z + m) / gamma(z)``.

    >>> from fdbr.ops import special
    >>> special.poch(3.0, 2.0)
    12.0
    """
    return scipy_special.on(xp)(xp, "poch", z, m)


@elementwise(
    double=True,
    n=lambda n, k, out: out * (digamma(n + 1) - digamma(n - k + 1)),
    k=lambda n, k, out: out * (digamma(n - k + 1) - digamma(k + 1)),
)
def binom(xp: Any, n: ArrayLike, k: ArrayLike) -> Array:
    """The binomial coefficient of real arguments.

    >>> from fdbr.ops import special
    >>> special.binom(4.0, 2.0)
    6.0
    """
    return scipy_special.on(xp)(xp, "binom", n, k)


def multigammaln(a: ArrayLike, d: int, /) -> Array:
    """The logarithm of the multivariate gamma function of ``d`` dimensions.

    Parameters
    ----------
    a
        An array of numbers above ``(d - 1) / 2``.
    d
        A positive integer.

    Raises
    ------
    TypeError, ValueError
        If ``d`` is no integer, or not positive.

    >>> from fdbr.ops import special
    >>> round(special.multigammaln(5.0, 1), 4) == round(special.gammaln(5.0), 4)
    True
    """
    d = integer("scipy.special.multigammaln", "d", d, least=1)
    out = gammaln(a) + 0.25 * d * (d - 1) * math.log(math.pi)
    for j in range(1, d):
        out = out + gammaln(a - 0.5 * j)
    return out


@elementwise(double=True, x=unknown("zeta", "x"), q=lambda x, q: -x * _zeta(x + 1, q))
def _zeta(xp: Any, x: ArrayLike, q: ArrayLike) -> Array:
    return scipy_special.on(xp)(xp, "zeta", x, q)


@public("fdbr.ops")
def zeta(x: ArrayLike, q: ArrayLike = 1.0, /) -> Array:
    """The zeta function of Hurwitz, ``sum of (k + q)**-x over k = 0, 1, …``; with q = 1 Riemann's.

    It has a derivative by ``q``, and none by ``x``.

    Raises
    ------
    TypeError
        If it is differentiated by ``x``.

    >>> from fdbr import ops
    >>> round(ops.zeta(2.0), 6)
    1.644934
    """
    return _zeta(x, q)


zetac = scipy_function("zetac", "x", "Riemann's zeta function minus 1.")
