"""Elliptic integrals of Legendre and functions of Jacobi, and the mean that goes with them.

They are differentiated by all their arguments.  Derivatives by the parameter are integrals of
Carlson (https://dlmf.nist.gov/19.25), which do not cancel where it is 0.

>>> import fdbr, math
>>> from fdbr.ops import special
>>> round(special.ellipk(0.0) / math.pi, 6)
0.5
>>> round(float(fdbr.grad(special.ellipk)(0.0)) / math.pi, 6)
0.125
"""

import math
from typing import Any

from fdbr.ops.elementwise.arithmetic import round as rounded
from fdbr.ops.elementwise.arithmetic import sqrt
from fdbr.ops.elementwise.trigonometric import cos, sin
from fdbr.ops.special.carlson import elliprd
from fdbr.ops.special.library import scipy_function, scipy_functions

__all__ = ["agm", "ellipe", "ellipeinc", "ellipj", "ellipk", "ellipkinc", "ellipkm1"]

ellipk = scipy_function(
    *("ellipk", "m", "The complete elliptic integral of the first kind."),
    m=lambda m: elliprd(0.0, 1.0, 1 - m) / 6,
)
ellipkm1 = scipy_function(
    *("ellipkm1", "p", "``ellipk(1 - p)``, accurate where ``p`` is small."),
    p=lambda p: -elliprd(0.0, 1.0, p) / 6,
)
ellipe = scipy_function(
    *("ellipe", "m", "The complete elliptic integral of the second kind."),
    m=lambda m: -elliprd(0.0, 1 - m, 1.0) / 6,
)


def _periods(phi: Any) -> tuple[Any, Any, Any]:
    """The nearest whole number of half periods, and sine and cosine of the rest."""
    count = rounded(phi / math.pi)
    rest = phi - count * math.pi
    return count, sin(rest), cos(rest)


def _ellipkinc_by_m(phi: Any, m: Any) -> Any:
    count, s, c = _periods(phi)
    within = s**3 * elliprd(c * c, 1.0, 1 - m * s * s)
    return (within + 2 * count * elliprd(0.0, 1.0, 1 - m)) / 6


def _ellipeinc_by_m(phi: Any, m: Any) -> Any:
    count, s, c = _periods(phi)
    within = s**3 * elliprd(c * c, 1 - m * s * s, 1.0)
    return -(within + 2 * count * elliprd(0.0, 1 - m, 1.0)) / 6


def _root(phi: Any, m: Any) -> Any:
    return sqrt(1 - m * sin(phi) ** 2)


ellipkinc = scipy_function(
    *("ellipkinc", "phi m", "The incomplete elliptic integral of the first kind."),
    phi=lambda phi, m: 1 / _root(phi, m),
    m=_ellipkinc_by_m,
)
ellipeinc = scipy_function(
    *("ellipeinc", "phi m", "The incomplete elliptic integral of the second kind."),
    phi=_root,
    m=_ellipeinc_by_m,
)


def _ellipj_by_m(m: Any, out: Any) -> Any:
    """By the amplitude, whose incomplete integral is ``u``, whatever ``m``."""
    sn, cn, dn, phi = out
    by_m = -dn * _ellipkinc_by_m(phi, m)
    return cn * by_m, -sn * by_m, -(sn * sn + 2 * m * sn * cn * by_m) / (2 * dn), by_m


ellipj = scipy_functions(
    *("ellipj", "u m", "Jacobi's elliptic functions and the amplitude: ``(sn, cn, dn, ph)``."),
    u=lambda m, out: (out[1] * out[2], -out[0] * out[2], -m * out[0] * out[1], out[2]),
    m=_ellipj_by_m,
)


def _agm_derivative(a: Any, b: Any, out: Any) -> Any:
    return 2 / (3 * math.pi) * abs(a) * out * out * elliprd(0.0, b * b, a * a)


agm = scipy_function(
    *("agm", "a b", "The arithmetic-geometric mean."),
    a=lambda a, b, out: _agm_derivative(a, b, out),
    b=lambda a, b, out: _agm_derivative(b, a, out),
)
