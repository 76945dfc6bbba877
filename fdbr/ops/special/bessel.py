"""Modified Bessel functions of the first kind, of integer order."""

from typing import Any

from fdbr.ops.arithmetic import sign
from fdbr.ops.kinds import elementwise
from fdbr.ops.special.library import scipy_special

__all__ = ["i0", "i0e", "i1", "i1e"]

# Their derivatives are means of neighbours in order, so there is no division by zero at 0.


@elementwise(x=lambda x: i1(x))
def i0(xp: Any, x: Any) -> Any:
    """The modified Bessel function of order 0.

    >>> from fdbr import ops
    >>> ops.i0(0.0)
    1.0
    """
    return scipy_special(xp, "i0", x)


@elementwise(x=lambda x: 0.5 * (i0(x) + _iv(x, n=2)))
def i1(xp: Any, x: Any) -> Any:
    """The modified Bessel function of order 1: the derivative of `i0`.

    >>> from fdbr import ops
    >>> ops.i1(0.0)
    0.0
    """
    return scipy_special(xp, "i1", x)


@elementwise(x=lambda x, n: 0.5 * ((_iv(x, n=n - 1) if n > 2 else i1(x)) + _iv(x, n=n + 1)))
def _iv(xp: Any, x: Any, *, n: int) -> Any:
    return scipy_special(xp, "iv", float(n), x)


@elementwise(x=lambda x, out: i1e(x) - sign(x) * out)
def i0e(xp: Any, x: Any) -> Any:
    """``exp(-abs(x)) * i0(x)``, without overflow; its derivative at 0 is taken as 0.

    >>> from fdbr import ops
    >>> ops.i0e(0.0)
    1.0
    """
    return scipy_special(xp, "i0e", x)


@elementwise(x=lambda x, out: 0.5 * (i0e(x) + _ive(x, n=2)) - sign(x) * out)
def i1e(xp: Any, x: Any) -> Any:
    """``exp(-abs(x)) * i1(x)``, without overflow.

    >>> from fdbr import ops
    >>> ops.i1e(0.0)
    0.0
    """
    return scipy_special(xp, "i1e", x)


@elementwise(
    x=lambda x, out, n: (
        0.5 * ((_ive(x, n=n - 1) if n > 2 else i1e(x)) + _ive(x, n=n + 1)) - sign(x) * out
    )
)
def _ive(xp: Any, x: Any, *, n: int) -> Any:
    return scipy_special(xp, "ive", float(n), x)
