"""Faddeeva's function and its relatives: Dawson's integral, Fresnel's, Voigt's profile.

>>> import fdbr
>>> from fdbr.ops import special
>>> round(special.dawsn(1.0), 6), round(float(fdbr.grad(special.dawsn)(1.0)), 6)
(0.53808, -0.076159)
"""

import cmath
import math
from typing import Any

from fdbr.ops.elementwise.comparison import where
from fdbr.ops.elementwise.complex_parts import imag, real
from fdbr.ops.elementwise.exponential import exp
from fdbr.ops.elementwise.trigonometric import cos, sin
from fdbr.ops.special.errors import asymptotic_rest, erf, log_ndtr_derivative
from fdbr.ops.special.library import scipy_function, scipy_functions

__all__ = [
    "dawsn",
    "erfi",
    "fresnel",
    "modfresnelm",
    "modfresnelp",
    "ndtri_exp",
    "owens_t",
    "voigt_profile",
    "wofz",
]

_TWO_BY_ROOT_PI = 2 / math.sqrt(math.pi)
_FAR = 10.0  # where the asymptotic series of the derivatives take over

erfi = scipy_function(
    *("erfi", "z", "The imaginary error function, ``-1j * erf(1j * z)``."),
    z=lambda z: _TWO_BY_ROOT_PI * exp(z * z),
)


def _dawsn_derivative(x: Any, out: Any) -> Any:
    """``1 - 2 * x * dawsn(x)``; by its asymptotic series where that cancels."""
    far = (abs(x) > _FAR) & (abs(imag(x)) < abs(real(x)))
    return where(far, -asymptotic_rest(where(far, x, _FAR) ** -2 / 2), 1 - 2 * x * out)


dawsn = scipy_function(
    *("dawsn", "x", "Dawson's integral: ``exp(-x**2)`` times the integral of ``exp(t**2)``."),
    x=_dawsn_derivative,
)


def _wofz_derivative(z: Any, out: Any) -> Any:
    """``2j / sqrt(pi) - 2 * z * wofz(z)``; by its asymptotic series where that cancels."""
    far = (abs(z) > _FAR) & (imag(z) >= 0)
    series = asymptotic_rest(where(far, z, _FAR) ** -2 / 2)
    return -1j * where(far, _TWO_BY_ROOT_PI * series, -_TWO_BY_ROOT_PI - 2j * z * out)


wofz = scipy_function(
    *("wofz", "z", "Faddeeva's function ``exp(-z**2) * erfc(-1j * z)``, which is complex."),
    z=_wofz_derivative,
)

# --- Fresnel's ----------------------------------------------------------------------

fresnel = scipy_functions(
    *("fresnel", "z", "Fresnel's integrals ``(S, C)``: of the sine and cosine of ``pi t**2 / 2``."),
    z=lambda z: (sin(0.5 * math.pi * z * z), cos(0.5 * math.pi * z * z)),
)


def _modified_derivatives(sign: int) -> Any:
    iteration = cmath.exp(-0.25j * sign * math.pi) / math.sqrt(math.pi)

    def derivatives(x: Any, out: Any) -> Any:
        return -exp(1j * sign * x * x), -2j * sign * x * out[1] - iteration

    return derivatives


modfresnelp = scipy_functions(
    "modfresnelp",
    "x",
    "The integral of ``exp(1j * t**2)`` from ``x`` on, and that of the modulated one.",
    x=_modified_derivatives(1),
)
modfresnelm = scipy_functions(
    "modfresnelm",
    "x",
    "The integral of ``exp(-1j * t**2)`` from ``x`` on, and that of the modulated one.",
    x=_modified_derivatives(-1),
)

# --- of probability -----------------------------------------------------------------


def _voigt(x: Any, sigma: Any, gamma: Any) -> tuple[Any, Any]:
    """The argument of the profile, and the derivative of `wofz` there."""
    z = (x + 1j * gamma) / (math.sqrt(2) * sigma)
    return z, _wofz_derivative(z, wofz(z)) / (2 * math.sqrt(math.pi) * sigma * sigma)


def _voigt_by_sigma(x: Any, sigma: Any, gamma: Any, out: Any) -> Any:
    z, slope = _voigt(x, sigma, gamma)
    return -out / sigma - real(math.sqrt(2) * z * slope)


voigt_profile = scipy_function(
    "voigt_profile",
    "x sigma gamma",
    "The density of a normal variable plus one of Cauchy's.",
    x=lambda x, sigma, gamma: real(_voigt(x, sigma, gamma)[1]),
    sigma=_voigt_by_sigma,
    gamma=lambda x, sigma, gamma: -imag(_voigt(x, sigma, gamma)[1]),
)
owens_t = scipy_function(
    *("owens_t", "h a", "Owen's T: the normal probability of ``X > h`` and ``0 < Y < a * X``."),
    h=lambda h, a: -exp(-0.5 * h * h) * erf(a * h / math.sqrt(2)) / (2 * math.sqrt(2 * math.pi)),
    a=lambda h, a: exp(-0.5 * h * h * (1 + a * a)) / (2 * math.pi * (1 + a * a)),
)
ndtri_exp = scipy_function(
    *("ndtri_exp", "y", "The inverse of `log_ndtr`."),
    y=lambda y: 1 / log_ndtr_derivative(ndtri_exp(y), y),
)
