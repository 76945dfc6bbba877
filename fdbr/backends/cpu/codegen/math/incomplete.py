"""The incomplete gamma functions of nodes, for everyday numbers; others are NaN.

Below the parameter by the power series, above by the continued fraction (https://dlmf.nist.gov/8.7
and 8.9), each with as many terms as the largest parameter needs, and one division.
"""

from typing import Any

from fdbr.backends.cpu.codegen.math.arithmetic import fma, where
from fdbr.backends.cpu.codegen.math.exponential import exp, log
from fdbr.backends.cpu.codegen.math.formulas import both, held, in_double
from fdbr.backends.cpu.codegen.math.gammas import gammaln
from fdbr.core.expr import Node

__all__ = ["gammainc", "gammaincc"]

_LEAST, _MOST = 1e-4, 20.0  # of the parameter
_BETWEEN = 1.5  # from where on the continued fraction is short enough
_FAR = 400.0  # from where on nothing is left
_SERIES, _FRACTION = 44, 36  # terms


def _lower(a: Any, x: Any, upper: bool) -> Node:
    a, x = both(a, x)
    inside = (a >= _LEAST) & (a <= _MOST) & (x > 0) & (x <= 3e38)
    p, t = held(where(inside, a, 1), _LEAST, _MOST), held(where(inside, x, 1), 0, _FAR)
    factor = exp(p * log(t) - t - gammaln(p))
    low = (t < _BETWEEN) | (t < p)
    numerator: Any = 1.0
    denominator: Any = 1.0
    for k in range(_SERIES, 0, -1):
        denominator = denominator * (p + k)
        numerator = fma(t, numerator, denominator)
    below = numerator / (denominator * p)
    after: Any = 1.0
    now: Any = t + (2 * _FRACTION + 1) - p
    for n in range(_FRACTION, 0, -1):
        now, after = (t + (2 * n - 1) - p) * now + n * (p - n) * after, now
    above = after / now
    found = factor * where(low, below, above)
    out = where(low, 1 - found, found) if upper else where(low, found, 1 - found)
    return where(inside, out, float("nan"))


@in_double
def gammainc(a: Any, x: Any) -> Node:
    """The lower one, regularised."""
    return _lower(a, x, upper=False)


@in_double
def gammaincc(a: Any, x: Any) -> Node:
    """The upper one, regularised."""
    return _lower(a, x, upper=True)
