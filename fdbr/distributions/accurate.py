"""Entropies and divergences without cancellation, for parameters of all orders of magnitude."""

import math
from typing import Any

from fdbr import ops

__all__ = ["LARGE", "excess", "gamma_divergence", "gamma_entropy"]

LARGE = 100.0
"""From here on asymptotic series are exact to double precision."""

_HALF_LOG = 0.5 * math.log(2 * math.pi)
_NEAR = 0.25
_ODD = tuple(2 / (2 * k + 1) for k in range(12, 0, -1))


def excess(x: Any, y: Any) -> Any:
    """``r - 1 - log(r)`` of the ratio ``r = x / y``, accurate near 1."""
    ratio, u = x / y, (x - y) / y
    near = ops.abs(u) < _NEAR
    far = ops.where(near, 2.0, ratio)
    u = ops.where(near, u, 0.0)
    # log(1 + u) is 2 * atanh(s), and u - 2 * s is s * u.
    s = u / (2 + u)
    square, series = s * s, 0.0
    for coefficient in _ODD:
        series = series * square + coefficient
    return ops.where(near, s * u - s * square * series, far - 1 - ops.log(far))


def gamma_entropy(a: Any) -> Any:
    """The entropy of a gamma distribution of rate 1."""
    is_large = a >= LARGE
    small, large = ops.where(is_large, 1.0, a), ops.where(is_large, a, LARGE)
    direct = small + ops.gammaln(small) + (1 - small) * ops.digamma(small)
    r = 1 / large
    series = r * (1 / 3 + r * (1 / 12 + r * (1 / 90 - r * (1 / 120 + r / 210))))
    return ops.where(is_large, 0.5 + _HALF_LOG + 0.5 * ops.log(large) - series, direct)


def gamma_divergence(a: Any, b: Any) -> Any:
    """``gammaln(b) - gammaln(a) - (b - a) * digamma(a)``, the divergence at equal rates."""
    is_large = (a >= LARGE) & (b >= LARGE)
    x, y = ops.where(is_large, 1.0, a), ops.where(is_large, 1.0, b)
    direct = ops.gammaln(y) - ops.gammaln(x) - (y - x) * ops.digamma(x)
    a, b = ops.where(is_large, a, LARGE), ops.where(is_large, b, LARGE)
    rest = _stirling(b) - _stirling(a) - (b - a) * _stirling_derivative(a)
    stirling = b * excess(a, b) + 0.5 * excess(b, a) + rest
    return ops.where(is_large, stirling, direct)


def _stirling(x: Any) -> Any:
    """The remainder of Stirling's formula for ``gammaln``."""
    r = 1 / x
    square = r * r
    return r * (1 / 12 - square * (1 / 360 - square / 1260))


def _stirling_derivative(x: Any) -> Any:
    square = 1 / x**2
    return -square * (1 / 12 - square * (1 / 120 - square / 252))
