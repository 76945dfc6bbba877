"""Bessel functions of nodes: polynomials that were fitted here (`coefficients`).

Near 0 they are of the square of the argument, far out of its reciprocal, times what the function
falls or grows as (https://dlmf.nist.gov/10.17 and 10.40).
"""

import math
from collections.abc import Sequence
from typing import Any

from fdbr.backends.cpu.codegen.math import coefficients as table
from fdbr.backends.cpu.codegen.math.angles import of_half_turns, turns
from fdbr.backends.cpu.codegen.math.arithmetic import absolute, minimum, sqrt, where
from fdbr.backends.cpu.codegen.math.exponential import exp, log
from fdbr.backends.cpu.codegen.math.formulas import in_double, polynomial
from fdbr.core.expr import InexpressibleError, Node

__all__ = [
    *("i0", "i0e", "i1", "i1e", "iv", "ive", "j0", "j1", "jv", "k0", "k0e", "k1", "k1e"),
    *("kv", "kve", "y0", "y1", "yv"),
]

_LEVEL = 8.0  # where one polynomial takes over from the other
_MOST = 800.0  # whose exponential is infinite


def _of(t: Node, ascending: Sequence[float]) -> Node:
    return polynomial(t, ascending[::-1])


def _order(v: Any) -> int:
    """The order, if it is one of those that derivatives have."""
    if isinstance(v, Node) or v not in (0, 1, 2):
        raise InexpressibleError("Bessel functions of other orders")
    return int(v)


# --- modified, which grow -----------------------------------------------------------


def _scaled_i(order: int, a: Node) -> Node:
    """``exp(-a) I(a)`` of positive numbers."""
    near = a * (2 / _LEVEL) - 1
    if order == 2:
        far = _scaled_i(0, a) - 2 / where(a > 1, a, 1) * _scaled_i(1, a)
        return where(a <= _LEVEL, a * a * _of(near, table.I2_NEAR), far)
    first, second = (table.I1_NEAR, table.I1_FAR) if order else (table.I0_NEAR, table.I0_FAR)
    outside = where(a > _LEVEL, a, _LEVEL)
    far = _of(2 * _LEVEL / outside - 1, second) / sqrt(outside)
    inside = _of(near, first)
    return where(a <= _LEVEL, inside * a if order else inside, far)


@in_double
def ive(v: Any, x: Node) -> Node:
    order = _order(v)
    out = _scaled_i(order, absolute(x))
    out = where(x == x, out, x)
    return where(x < 0, -out, out) if order == 1 else out


@in_double
def iv(v: Any, x: Node) -> Node:
    a = absolute(x)
    a = where(a < math.inf, minimum(a, _MOST), math.nan)  # of which SciPy gives NaN
    out = exp(a) * _scaled_i(_order(v), a)
    return where(x < 0, -out, out) if v == 1 else out


def i0(x: Node) -> Node:
    return iv(0, x)


def i1(x: Node) -> Node:
    return iv(1, x)


def i0e(x: Node) -> Node:
    return ive(0, x)


def i1e(x: Node) -> Node:
    return ive(1, x)


# --- modified, which fall -----------------------------------------------------------


def _scaled_k(order: int, x: Node, scaled: bool) -> Node:
    """``K(x)``, or ``exp(x) K(x)``, of positive numbers."""
    square = x * x
    t = 0.5 * square - 1
    logarithm = log(0.5 * x)
    if order:
        near = _of(t, table.K1_SMALL) / x + logarithm * x * _of(t, table.I1_SMALL)
    else:
        near = _of(t, table.K0_SMALL) - logarithm * _of(t, table.I0_SMALL)
    outside = where(x > 2, x, 2)
    far = _of(4 / outside - 1, table.K1_FAR if order else table.K0_FAR) / sqrt(outside)
    factor = exp(x if scaled else -x)
    out = where(x <= 2, factor * near, far) if scaled else where(x <= 2, near, factor * far)
    return where(x > 0, out, where(x == 0, math.inf, math.nan * x))


def _k(v: Any, x: Node, scaled: bool) -> Node:
    order = _order(v)
    if order == 2:
        return _scaled_k(0, x, scaled) + 2 / absolute(x) * _scaled_k(1, x, scaled)
    return _scaled_k(order, x, scaled)


@in_double
def kv(v: Any, x: Node) -> Node:
    return _k(v, x, scaled=False)


@in_double
def kve(v: Any, x: Node) -> Node:
    return _k(v, x, scaled=True)


def k0(x: Node) -> Node:
    return kv(0, x)


def k1(x: Node) -> Node:
    return kv(1, x)


def k0e(x: Node) -> Node:
    return kve(0, x)


def k1e(x: Node) -> Node:
    return kve(1, x)


# --- which oscillate ----------------------------------------------------------------

_NEAR = {
    0: (table.J0_NEAR, table.Y0_NEAR),
    1: (table.J1_NEAR, table.Y1_NEAR),
}
_FAR = {
    0: (table.P0_FAR, table.Q0_FAR),
    1: (table.P1_FAR, table.Q1_FAR),
}


def _far_out(order: int, x: Node) -> tuple[Node, Node]:
    """J and Y where ``x`` is not small, by amplitude and phase."""
    inverse = _LEVEL / x
    t = 2 * inverse * inverse - 1
    first, second = (_of(t, part) for part in _FAR[order])
    sine, cosine = of_half_turns(2 * turns(x) - (2 * order + 1) / 4)
    scale = sqrt(2 / math.pi / x)
    second = second / x
    return scale * (first * cosine - second * sine), scale * (first * sine + second * cosine)


@in_double
def jv(v: Any, x: Node) -> Node:
    order, a = _order(v), absolute(x)
    t = a * a * (2 / _LEVEL**2) - 1
    outside = where(a > _LEVEL, a, _LEVEL)
    if order == 2:
        near = a * a * _of(t, table.J2_NEAR)
        far = 2 / outside * _far_out(1, outside)[0] - _far_out(0, outside)[0]
    else:
        near = _of(t, _NEAR[order][0])
        near = near * x if order else near
        far, _ = _far_out(order, outside)
        far = where(x < 0, -far, far) if order else far
    return where(a <= _LEVEL, near, where(a < math.inf, far, math.nan))


@in_double
def yv(v: Any, x: Node) -> Node:
    order = _order(v)
    out = 2 / x * _y(1, x) - _y(0, x) if order == 2 else _y(order, x)
    return where(x > 0, out, where(x == 0, -math.inf, math.nan * x))


def _y(order: int, x: Node) -> Node:
    t = x * x * (2 / _LEVEL**2) - 1
    cut = where(x > _LEVEL, _LEVEL, x)
    first, second = (_of(t, part) for part in _NEAR[order])
    near = 2 / math.pi * log(cut) * first + second
    near = x * near - 2 / math.pi / x if order else near
    _, far = _far_out(order, where(x > _LEVEL, x, _LEVEL))
    return where(x <= _LEVEL, near, where(x < math.inf, far, math.nan))


def j0(x: Node) -> Node:
    return jv(0, x)


def j1(x: Node) -> Node:
    return jv(1, x)


def y0(x: Node) -> Node:
    return yv(0, x)


def y1(x: Node) -> Node:
    return yv(1, x)
