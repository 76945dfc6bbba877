"""Inverses of the incomplete gamma and beta functions, in each of their arguments.

Of an inverse the derivatives are those of an implicit function: where ``F(a, x) = y`` holds,
``x`` grows by ``1 / F_x`` with ``y``, and by ``-F_a / F_x`` with ``a``.

>>> import fdbr
>>> from fdbr.ops import special
>>> round(special.gammaincinv(1.0, 0.5), 6)
0.693147
>>> round(float(fdbr.grad(special.gammaincinv, 1)(1.0, 0.5)), 6)
2.0
"""

from typing import Any

from fdbr.ops.special.incomplete import beta_density, betainc_by, gamma_density, gammainc_by
from fdbr.ops.special.library import scipy_function

__all__ = [
    "betaincc",
    "betainccinv",
    "betaincinv",
    "btdtria",
    "btdtrib",
    "gammainccinv",
    "gammaincinv",
]


def _by_a(a: Any, b: Any, x: Any) -> Any:
    return betainc_by(a, b, x, i=1, j=0)


def _by_b(a: Any, b: Any, x: Any) -> Any:
    return betainc_by(a, b, x, i=0, j=1)


gammaincinv = scipy_function(
    *("gammaincinv", "a y", "The ``x`` where ``gammainc(a, x)`` is ``y``."),
    a=lambda a, out: -gammainc_by(a, out, n=1) / gamma_density(a, out),
    y=lambda a, out: 1 / gamma_density(a, out),
)
gammainccinv = scipy_function(
    *("gammainccinv", "a y", "The ``x`` where ``gammaincc(a, x)`` is ``y``."),
    a=lambda a, out: -gammainc_by(a, out, n=1) / gamma_density(a, out),
    y=lambda a, out: -1 / gamma_density(a, out),
)
betaincc = scipy_function(
    *("betaincc", "a b x", "The regularised incomplete beta function's rest, ``1 - betainc``."),
    a=lambda a, b, x: -_by_a(a, b, x),
    b=lambda a, b, x: -_by_b(a, b, x),
    x=lambda a, b, x: -beta_density(a, b, x),
)
betaincinv = scipy_function(
    *("betaincinv", "a b y", "The ``x`` where ``betainc(a, b, x)`` is ``y``."),
    a=lambda a, b, out: -_by_a(a, b, out) / beta_density(a, b, out),
    b=lambda a, b, out: -_by_b(a, b, out) / beta_density(a, b, out),
    y=lambda a, b, out: 1 / beta_density(a, b, out),
)
betainccinv = scipy_function(
    *("betainccinv", "a b y", "The ``x`` where ``betaincc(a, b, x)`` is ``y``."),
    a=lambda a, b, out: -_by_a(a, b, out) / beta_density(a, b, out),
    b=lambda a, b, out: -_by_b(a, b, out) / beta_density(a, b, out),
    y=lambda a, b, out: -1 / beta_density(a, b, out),
)
btdtria = scipy_function(
    *("btdtria", "p b x", "The ``a`` where ``betainc(a, b, x)`` is ``p``."),
    p=lambda b, x, out: 1 / _by_a(out, b, x),
    b=lambda b, x, out: -_by_b(out, b, x) / _by_a(out, b, x),
    x=lambda b, x, out: -beta_density(out, b, x) / _by_a(out, b, x),
)
btdtrib = scipy_function(
    *("btdtrib", "a p x", "The ``b`` where ``betainc(a, b, x)`` is ``p``."),
    a=lambda a, x, out: -_by_a(a, out, x) / _by_b(a, out, x),
    p=lambda a, x, out: 1 / _by_b(a, out, x),
    x=lambda a, x, out: -beta_density(a, out, x) / _by_b(a, out, x),
)
