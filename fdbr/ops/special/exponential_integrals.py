"""Exponential integrals, sine and cosine integrals, Spence's dilogarithm.

>>> import fdbr
>>> from fdbr.ops import special
>>> round(special.exp1(1.0), 6), float(fdbr.grad(lambda x: special.sici(x)[0])(0.0))
(0.219384, 1.0)
"""

import math
from typing import Any

from fdbr.ops.declare import elementwise
from fdbr.ops.dtypes import is_complex
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.elementwise.complex_parts import real
from fdbr.ops.elementwise.exponential import exp
from fdbr.ops.elementwise.trigonometric import cos, cosh
from fdbr.ops.special.library import one_less, scipy_function, scipy_functions, scipy_special
from fdbr.ops.special.others import sinc
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["exp1", "expi", "expn", "shichi", "sici", "spence"]

expi = scipy_function(
    *("expi", "x", "The exponential integral Ei: that of ``exp(t) / t`` up to ``x``."),
    x=lambda x: exp(x) / x,
)
exp1 = scipy_function(
    *("exp1", "z", "The exponential integral E1: that of ``exp(-t) / t`` from ``z`` on."),
    z=lambda z: -exp(-z) / z,
)


def _expn_derivative(n: Any, x: Any) -> Any:
    """``-expn(n - 1, x)``; of order 0 it is elementary."""
    first, below = one_less(n)
    return -where(first, exp(-x) * (1 + 1 / x) / x, expn(below, x))


expn = scipy_function(
    *("expn", "n x", "The exponential integral of integer order ``n``."), x=_expn_derivative
)


def _sinhc(x: Any) -> Any:
    """``sinh(x) / x``."""
    out = sinc(1j / math.pi * x)
    return out if is_complex(x) else real(out)


sici = scipy_functions(
    *("sici", "x", "The integrals of sine and cosine over their argument: ``(si, ci)``."),
    x=lambda x: (sinc(x / math.pi), lambda: cos(x) / x),
)
shichi = scipy_functions(
    *("shichi", "x", "Those of the hyperbolic sine and cosine: ``(shi, chi)``."),
    x=lambda x: (_sinhc(x), lambda: cosh(x) / x),
)


@elementwise(double=True, u=lambda u, order: _log1p_ratio(u, order=order + 1))
def _log1p_ratio(xp: Any, u: ArrayLike, *, order: int) -> Array:
    """The derivative of some order of ``log1p(u) / u``, the integral of ``1 / (1 + u * s)``."""
    n = order + 1.0
    factor = (-1) ** order * math.factorial(order) / n
    return factor * scipy_special.on(xp)(xp, "hyp2f1", n, n, n + 1, -u)


spence = scipy_function(
    *("spence", "z", "Spence's function: the integral of ``log(t) / (1 - t)`` from 1 to ``z``."),
    z=lambda z: -_log1p_ratio(z - 1, order=0),
)
