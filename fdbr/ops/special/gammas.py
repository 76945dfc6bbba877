"""The gamma function and its relatives."""

import math
from typing import Any

from fdbr.core import integer
from fdbr.ops.kinds import elementwise
from fdbr.ops.special.library import not_differentiated, refuse_complex, scipy_special

__all__ = ["beta", "betaln", "digamma", "gamma", "gammaln", "polygamma", "zeta"]


@elementwise(x=lambda x, out: out * digamma(x))
def gamma(xp: Any, x: Any) -> Any:
    """The gamma function, which extends the factorials: ``gamma(n + 1) = n!``.

    >>> from fdbr import ops
    >>> ops.gamma(5.0)
    24.0
    """
    refuse_complex("gamma", x)
    return scipy_special(xp, "gamma", x)


@elementwise(x=lambda x: digamma(x))
def gammaln(xp: Any, x: Any) -> Any:
    """The logarithm of the absolute value of `gamma`.

    >>> from fdbr import ops
    >>> round(ops.gammaln(100.0), 4)
    359.1342
    """
    return scipy_special(xp, "gammaln", x)


@elementwise(x=lambda x: _polygamma(x, n=1))
def digamma(xp: Any, x: Any) -> Any:
    """The derivative of `gammaln`.

    >>> from fdbr import ops
    >>> round(ops.digamma(1.0), 6)
    -0.577216
    """
    refuse_complex("digamma", x)
    return scipy_special(xp, "digamma", x)


@elementwise(x=lambda x, n: _polygamma(x, n=n + 1))
def _polygamma(xp: Any, x: Any, *, n: int) -> Any:
    return polygamma_value(xp, n, x)


def polygamma_value(xp: Any, n: int, x: Any) -> Any:
    """The polygamma function of plain arrays."""
    if n == 0:
        return scipy_special(xp, "digamma", x)
    return (-1) ** (n + 1) * math.factorial(n) * scipy_special(xp, "zeta", n + 1.0, x)


def polygamma(n: int, x: Any, /) -> Any:
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
    a=lambda a, b, out: out * (digamma(a) - digamma(a + b)),
    b=lambda a, b, out: out * (digamma(b) - digamma(a + b)),
)
def beta(xp: Any, a: Any, b: Any) -> Any:
    """The beta function ``gamma(a) * gamma(b) / gamma(a + b)``.

    >>> from fdbr import ops
    >>> round(ops.beta(2.0, 3.0), 6)
    0.083333
    """
    return scipy_special(xp, "beta", a, b)


@elementwise(a=lambda a, b: digamma(a) - digamma(a + b), b=lambda a, b: digamma(b) - digamma(a + b))
def betaln(xp: Any, a: Any, b: Any) -> Any:
    """The logarithm of the absolute value of `beta`.

    >>> from fdbr import ops
    >>> round(ops.betaln(100.0, 100.0), 4)
    -139.6653
    """
    return scipy_special(xp, "betaln", a, b)


@elementwise(x=None, q=lambda x, q: -x * _zeta(x + 1, q))
def _zeta(xp: Any, x: Any, q: Any) -> Any:
    return scipy_special(xp, "zeta", x, q)


def zeta(x: Any, q: Any = 1.0, /) -> Any:
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
    not_differentiated("zeta", "x", x)
    return _zeta(x, q)
