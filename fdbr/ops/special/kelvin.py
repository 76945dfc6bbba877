"""The functions of Kelvin and Struve, and integrals of Bessel functions.

Kelvin's functions are parts of Bessel functions of ``x * exp(0.75j * pi)`` and of
``x * exp(0.25j * pi)`` (https://dlmf.nist.gov/10.61), and so are their second derivatives.

>>> import fdbr
>>> from fdbr.ops import special
>>> round(float(fdbr.grad(special.bei)(1.0)), 6) == round(special.beip(1.0), 6)
True
"""

import cmath
import math
from typing import Any

from fdbr.ops.elementwise.comparison import where
from fdbr.ops.elementwise.complex_parts import imag, real
from fdbr.ops.special.bessel import i0, j0, jv, k0, kv, y0
from fdbr.ops.special.gammas import rgamma
from fdbr.ops.special.library import scipy_function, scipy_functions
from fdbr.pytrees.typing import ArrayLike

__all__ = [
    "bei",
    "beip",
    "ber",
    "berp",
    "besselpoly",
    "it2i0k0",
    "it2j0y0",
    "it2struve0",
    "iti0k0",
    "itj0y0",
    "itmodstruve0",
    "itstruve0",
    "kei",
    "keip",
    "kelvin",
    "ker",
    "kerp",
    "modstruve",
    "struve",
]

_FIRST = cmath.exp(0.75j * math.pi)
_SECOND = cmath.exp(0.25j * math.pi)


def _be(x: Any) -> Any:
    """``d2/dx2 (ber + 1j * bei)``."""
    return 0.5j * (jv(0.0, x * _FIRST) - jv(2.0, x * _FIRST))


def _ke(x: Any) -> Any:
    """``d2/dx2 (ker + 1j * kei)``."""
    return 0.5j * (kv(0.0, x * _SECOND) + kv(2.0, x * _SECOND))


ber = scipy_function("ber", "x", "Kelvin's function ber.", x=lambda x: berp(x))
bei = scipy_function("bei", "x", "Kelvin's function bei.", x=lambda x: beip(x))
ker = scipy_function("ker", "x", "Kelvin's function ker.", x=lambda x: kerp(x))
kei = scipy_function("kei", "x", "Kelvin's function kei.", x=lambda x: keip(x))
berp = scipy_function("berp", "x", "The derivative of `ber`.", x=lambda x: real(_be(x)))
beip = scipy_function("beip", "x", "The derivative of `bei`.", x=lambda x: imag(_be(x)))
kerp = scipy_function("kerp", "x", "The derivative of `ker`.", x=lambda x: real(_ke(x)))
keip = scipy_function("keip", "x", "The derivative of `kei`.", x=lambda x: imag(_ke(x)))


def kelvin(x: ArrayLike) -> tuple[Any, Any, Any, Any]:
    """Kelvin's functions as complex numbers: ``(Be, Ke, Bep, Kep)``.

    ``Be = ber + 1j * bei``, ``Ke = ker + 1j * kei``, and ``Bep``, ``Kep`` their derivatives.
    """
    return (
        ber(x) + 1j * bei(x),
        ker(x) + 1j * kei(x),
        berp(x) + 1j * beip(x),
        kerp(x) + 1j * keip(x),
    )


# --- Struve's -----------------------------------------------------------------------


def _struve_rest(v: Any, x: Any) -> Any:
    return 0.5 / math.sqrt(math.pi) * (0.5 * x) ** v * rgamma(v + 1.5)


struve = scipy_function(
    *("struve", "v x", "Struve's function of real order ``v``."),
    x=lambda v, x: 0.5 * (struve(v - 1.0, x) - struve(v + 1.0, x)) + _struve_rest(v, x),
)
modstruve = scipy_function(
    *("modstruve", "v x", "The modified function of Struve, of real order ``v``."),
    x=lambda v, x: 0.5 * (modstruve(v - 1.0, x) + modstruve(v + 1.0, x)) + _struve_rest(v, x),
)

# --- integrals ----------------------------------------------------------------------

_NEAR = 1.0
_TERMS = 9


def _first_by_x(f: Any, sign: int, x: Any) -> Any:
    """``sign * (f(x) - 1) / x`` of the Bessel function of order 0; near 0 by its power series."""
    near = abs(x) < _NEAR
    square = sign * 0.25 * where(near, x, 0) ** 2
    series = 0.0
    for k in range(_TERMS, 0, -1):
        series = 1 / (k * k) * (1 + square * series)
    far = where(near, _NEAR, x)
    return where(near, 0.25 * x * series, sign * (f(far) - 1) / far)


iti0k0 = scipy_functions(
    *("iti0k0", "x", "The integrals of `i0` and `k0` from 0 to ``x``."),
    x=lambda x: (i0(x), lambda: k0(x)),
)
itj0y0 = scipy_functions(
    *("itj0y0", "x", "The integrals of `j0` and `y0` from 0 to ``x``."),
    x=lambda x: (j0(x), lambda: y0(x)),
)
it2i0k0 = scipy_functions(
    *("it2i0k0", "x", "Those of ``(i0(t) - 1) / t`` from 0 to ``x``, ``k0(t) / t`` from ``x`` on."),
    x=lambda x: (_first_by_x(i0, 1, x), lambda: -k0(x) / x),
)
it2j0y0 = scipy_functions(
    *("it2j0y0", "x", "Those of ``(1 - j0(t)) / t`` from 0 to ``x``, ``y0(t) / t`` from ``x`` on."),
    x=lambda x: (_first_by_x(j0, -1, x), lambda: -y0(x) / x),
)
itstruve0 = scipy_function(
    *("itstruve0", "x", "The integral of ``struve(0, t)`` from 0 to ``x``."),
    x=lambda x: struve(0.0, x),
)
itmodstruve0 = scipy_function(
    *("itmodstruve0", "x", "The integral of ``modstruve(0, t)`` from 0 to ``x``."),
    x=lambda x: modstruve(0.0, x),
)
it2struve0 = scipy_function(
    *("it2struve0", "x", "The integral of ``struve(0, t) / t`` from ``x`` on."),
    x=lambda x: -struve(0.0, x) / x,
)
besselpoly = scipy_function(
    *("besselpoly", "a lmb nu", "The integral of ``t**lmb * jv(nu, 2 * a * t)`` over [0, 1]."),
    a=lambda a, lmb, nu: besselpoly(a, lmb + 1.0, nu - 1.0) - besselpoly(a, lmb + 1.0, nu + 1.0),
)
