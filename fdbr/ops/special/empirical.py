"""The distributions of Kolmogorov and Smirnov, of how far a sample is from its law.

>>> import fdbr
>>> from fdbr.ops import special
>>> round(special.kolmogorov(1.0), 6), round(float(fdbr.grad(special.kolmogorov)(1.0)), 6)
(0.27, -1.071949)
"""

import math
from typing import Any

from fdbr.ops.declare import elementwise
from fdbr.ops.dtypes import float_dtype
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.elementwise.exponential import exp
from fdbr.ops.special.library import scipy_function, scipy_special, unknown
from fdbr.pytrees.typing import Array

__all__ = ["kolmogi", "kolmogorov", "smirnov", "smirnovi"]

_TERMS = 5
_MOST = 2.0**31  # beyond SciPy's numbers of draws


def _kolmogorov_derivative(y: Any) -> Any:
    """By the sum of ``exp(-2 * (k * y)**2)``, and near 0 by its transform of Jacobi."""
    far, inside = y > 1, y > 0
    large = where(far, where(y > 30, 30, y), 1)  # 0 from there on, also at infinity
    small = where(far, 1, where(inside, y, 1))
    by_large: Any = 0.0
    by_small: Any = 0.0
    for k in range(1, _TERMS + 1):
        by_large = by_large - 8 * (-1) ** (k - 1) * k * k * large * exp(-2 * k * k * large * large)
        c = (2 * k - 1) ** 2 * math.pi**2 / 8
        square = small**-2
        by_small = by_small - math.sqrt(2 * math.pi) * (2 * c * square - 1) * square * exp(
            -c * square
        )
    return where(far, by_large, where(inside, by_small, 0))


kolmogorov = scipy_function(
    *("kolmogorov", "y", "The limit law's probability of a distance of more than ``y``."),
    y=_kolmogorov_derivative,
)
kolmogi = scipy_function(
    *("kolmogi", "p", "The inverse of `kolmogorov`."),
    p=lambda p: 1 / _kolmogorov_derivative(kolmogi(p)),
)


@elementwise(
    double=True, n=unknown("smirnov", "n"), d=lambda n, d, order: _smirnov_by(n, d, order=order + 1)
)
def _smirnov_by(xp: Any, n: Any, d: Any, *, order: int) -> Array:
    """The derivative of some order of `smirnov` by ``d``, term by term.

    The function is the sum over ``j <= n * (1 - d)`` of ``binom(n, j) * d * a**(j - 1) *
    b**(n - j)`` with ``a = d + j / n`` and ``b = 1 - a``.  SciPy rounds ``n`` down, and gives
    NaN where one of the two is out of range; so does this.
    """
    dtype = float_dtype(n, d)
    n, d = xp.broadcast_arrays(xp.asarray(n, dtype=float), xp.asarray(d, dtype=float))
    valid = (n >= 1) & (n < _MOST) & (d >= 0) & (d <= 1)
    n, d = xp.where(valid, xp.floor(n), 1.0), xp.where(valid, d, 0.0)
    total = xp.where(valid, 0.0, math.nan)
    for j in range(int(n.max()) + 1 if n.size else 0):  # terms beyond an element's own n are 0
        a = d + j / n
        inside = (a > 0) & (a < 1) & (j <= n)
        a = xp.where(inside, a, 0.5)
        ways = [scipy_special.on(xp)(xp, "gammaln", v + 1) for v in (n, xp.maximum(n - j, 0.0))]
        level = ways[0] - ways[1] - math.lgamma(j + 1)
        term: Any = 0.0
        for of_b in range(order + 1):
            for of_d in range(min(order - of_b, 1) + 1):
                of_a = order - of_b - of_d
                sign = math.comb(order, of_b) * math.comb(order - of_b, of_d) * (-1) ** of_b
                size = xp.exp(level + (j - 1 - of_a) * xp.log(a) + (n - j - of_b) * xp.log1p(-a))
                factor = sign * _falling(j - 1, of_a) * _falling(n - j, of_b)
                term = term + factor * size * (1 if of_d else d)
        total = total + xp.where(inside, term, 0.0)
    return total.astype(dtype)[()]


def _falling(x: Any, count: int) -> Any:
    out = 1
    for i in range(count):
        out = out * (x - i)
    return out


smirnov = scipy_function(
    *(
        "smirnov",
        "n d",
        "The probability of a one-sided distance of at least ``d`` of ``n`` draws.",
    ),
    d=lambda n, d: _smirnov_by(n, d, order=1),
)
smirnovi = scipy_function(
    *("smirnovi", "n p", "The inverse of `smirnov`."),
    p=lambda n, out: 1 / _smirnov_by(n, out, order=1),
)
