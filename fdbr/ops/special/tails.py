"""Integrals over the tails of densities, for the derivatives of distribution functions.

A distribution function is the integral of a density ``p(t; a)`` up to ``x``; its derivatives by
the parameter, of any order, are the integrals of ``p * D`` with the density's relative
derivative ``D``, a polynomial in ``log t``.  In a variable in which the density is log-concave,
the integral runs from ``x`` away from the mode (the integral over everything is 0, so either
side will do), is cut where the density has fallen by ``exp(-50)``, and done there by Gauss's
quadrature.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["FALL", "relative_derivative", "tail_integral"]

FALL = 50.0  # how far the logarithm of the density has fallen where the integral is cut
_NODES = 48  # on each of two panels
_PANEL = 36.0  # the length of the first, within which the density bends
_STEPS = 15  # of Newton's method, which comes down on the end from above


def tail_integral(xp: Any, reach: Any, drop: Any, slope: Any, integrand: Any) -> Any:
    """The integral of a function of the distance from ``x``.

    ``drop(s)`` is how far the logarithm of the density has fallen at a distance ``s``, and
    ``slope(s)`` its derivative; ``drop`` is convex, and not less than `FALL` at ``reach``.
    """
    for _ in range(_STEPS):
        reach = reach - (drop(reach) - FALL) / slope(reach)
    first = xp.minimum(reach, _PANEL)
    rest = reach - first
    total = 0.0
    for node, weight in _gauss():
        total = total + weight * first * integrand(node * first)
        total = total + weight * rest * integrand(first + node * rest)
    return total


@functools.cache
def _gauss() -> list[tuple[float, float]]:
    """Nodes on [0, 1] and their weights, by Gauss and Legendre."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    return list(zip((0.5 * (nodes + 1)).tolist(), (0.5 * weights).tolist(), strict=True))


def relative_derivative(derivatives: Callable[[int, int], Any], i: int, j: int = 0) -> Any:
    """``(d/da)**i (d/db)**j p``, divided by ``p``.

    ``derivatives(k, m)`` is ``(d/da)**k (d/db)**m log p``.  As ``dp/da = p * (dlog p / da)``, the
    product rule gives a derivative by those of lower order.
    """
    if i == j == 0:
        return 1.0
    if i == 0:
        return relative_derivative(lambda k, m: derivatives(m, k), j, 0)
    total: Any = 0.0
    for k in range(i):
        for m in range(j + 1):
            ways = math.comb(i - 1, k) * math.comb(j, m)
            rest = relative_derivative(derivatives, i - 1 - k, j - m)
            total = total + ways * derivatives(k + 1, m) * rest
    return total
