"""Powers, Box and Cox's transformations, functions of degrees, and Huber's losses.

>>> import fdbr
>>> from fdbr.ops import special
>>> special.boxcox(1.0, 0.5), special.exprel(0.0), float(fdbr.grad(special.exprel)(0.0))
(0.0, 1.0, 0.5)
"""

import math
from typing import Any

from fdbr.ops.declare import elementwise
from fdbr.ops.elementwise.arithmetic import abs as absolute
from fdbr.ops.elementwise.arithmetic import sign, sqrt
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.elementwise.exponential import exp, log, log1p
from fdbr.ops.elementwise.trigonometric import sin
from fdbr.ops.special.library import scipy_function, scipy_special
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = [
    "boxcox",
    "boxcox1p",
    "cosdg",
    "cosm1",
    "cotdg",
    "exp10",
    "exprel",
    "huber",
    "inv_boxcox",
    "inv_boxcox1p",
    "powm1",
    "pseudo_huber",
    "radian",
    "sindg",
    "tandg",
    "tklmbda",
]

_LOG_TEN = math.log(10)
_DEGREE = math.pi / 180
_INFINITE = 1000.0  # where exponentials are so in every dtype


@elementwise(double=True, x=lambda x, order: _mean_power(x, order=order + 1))
def _mean_power(xp: Any, x: ArrayLike, *, order: int) -> Array:
    """The derivative of some order of `exprel`: the integral of ``s**order * exp(x * s)``."""
    x = xp.minimum(xp.maximum(x, -1e150), _INFINITE)  # SciPy's series would not come to an end
    return scipy_special.on(xp)(xp, "hyp1f1", order + 1.0, order + 2.0, x) / (order + 1)


exprel = scipy_function(
    *("exprel", "x", "``(exp(x) - 1) / x``, and 1 at 0."), x=lambda x: _mean_power(x, order=1)
)
exp10 = scipy_function("exp10", "x", "``10**x``.", x=lambda out: _LOG_TEN * out)
cosm1 = scipy_function(*("cosm1", "x", "``cos(x) - 1``, accurate near 0."), x=lambda x: -sin(x))
powm1 = scipy_function(
    *("powm1", "x y", "``x**y - 1``, accurate where that is small."),
    x=lambda x, y: y * x ** (y - 1.0),
    y=lambda x, out: (out + 1) * log(x),
)

# --- Box and Cox's ------------------------------------------------------------------
#
# With l = log(x), boxcox(x, lmbda) is l * exprel(l * lmbda).


def _boxcox_by_lmbda(l: Any, lmbda: Any) -> Any:  # noqa: E741
    return l * l * _mean_power(l * lmbda, order=1)


def _inv_boxcox_by_lmbda(y: Any, lmbda: Any) -> Any:
    """By the inverse, whose logarithm is ``log1p(lmbda * y) / lmbda``."""
    l = where(lmbda == 0, y, log1p(lmbda * y) / where(lmbda == 0, 1, lmbda))  # noqa: E741
    return -_boxcox_by_lmbda(l, lmbda) * exp(l * (1 - lmbda))


def _inv_boxcox_by_y(y: Any, lmbda: Any) -> Any:
    l = where(lmbda == 0, y, log1p(lmbda * y) / where(lmbda == 0, 1, lmbda))  # noqa: E741
    return exp(l * (1 - lmbda))


boxcox = scipy_function(
    *("boxcox", "x lmbda", "``(x**lmbda - 1) / lmbda``, and ``log(x)`` where ``lmbda`` is 0."),
    x=lambda x, lmbda: x ** (lmbda - 1.0),
    lmbda=lambda x, lmbda: _boxcox_by_lmbda(log(x), lmbda),
)
boxcox1p = scipy_function(
    *("boxcox1p", "x lmbda", "``boxcox(1 + x, lmbda)``, accurate near 0."),
    x=lambda x, lmbda: (1 + x) ** (lmbda - 1.0),
    lmbda=lambda x, lmbda: _boxcox_by_lmbda(log1p(x), lmbda),
)
inv_boxcox = scipy_function(
    *("inv_boxcox", "y lmbda", "The inverse of `boxcox`."),
    y=_inv_boxcox_by_y,
    lmbda=_inv_boxcox_by_lmbda,
)
inv_boxcox1p = scipy_function(
    *("inv_boxcox1p", "y lmbda", "The inverse of `boxcox1p`."),
    y=_inv_boxcox_by_y,
    lmbda=_inv_boxcox_by_lmbda,
)


def _tklmbda_derivatives(p: Any, lmbda: Any) -> tuple[Any, Any]:
    """Of Tukey's quantile ``boxcox(p, lmbda) - boxcox(1 - p, lmbda)``, by both."""
    by_p = p ** (lmbda - 1.0) + (1 - p) ** (lmbda - 1.0)
    return by_p, _boxcox_by_lmbda(log(p), lmbda) - _boxcox_by_lmbda(log1p(-p), lmbda)


def _tklmbda_derivative(number: int) -> Any:
    """0 outside of the support, where the value is 0 or 1."""

    def slope(lmbda: Any, out: Any) -> Any:
        inside = (out > 0) & (out < 1)
        by_p, by_lmbda = _tklmbda_derivatives(where(inside, out, 0.5), lmbda)
        return where(inside, (-by_lmbda if number else 1) / by_p, 0)

    return slope


tklmbda = scipy_function(
    *("tklmbda", "x lmbda", "The distribution function of Tukey's lambda."),
    x=_tklmbda_derivative(0),
    lmbda=_tklmbda_derivative(1),
)

# --- degrees ------------------------------------------------------------------------

sindg = scipy_function(*("sindg", "x", "The sine of degrees."), x=lambda x: _DEGREE * cosdg(x))
cosdg = scipy_function(*("cosdg", "x", "The cosine of degrees."), x=lambda x: -_DEGREE * sindg(x))
tandg = scipy_function(
    *("tandg", "x", "The tangent of degrees."), x=lambda out: _DEGREE * (1 + out * out)
)
cotdg = scipy_function(
    *("cotdg", "x", "The cotangent of degrees."), x=lambda out: -_DEGREE * (1 + out * out)
)


@elementwise(
    double=True,
    d=lambda d: _DEGREE + 0.0 * d,
    m=lambda m: _DEGREE / 60 + 0.0 * m,
    s=lambda s: _DEGREE / 3600 + 0.0 * s,
)
def radian(xp: Any, d: ArrayLike, m: ArrayLike, s: ArrayLike) -> Array:
    """Degrees, minutes and seconds as radians."""
    return scipy_special.on(xp)(xp, "radian", d, m, s)


# --- Huber's ------------------------------------------------------------------------


def _huber_by_r(delta: Any, r: Any) -> Any:
    return where(absolute(r) <= delta, r, delta * sign(r))


huber = scipy_function(
    *("huber", "delta r", "Huber's loss: ``r**2 / 2`` up to ``delta``, and linear beyond."),
    delta=lambda delta, r: where(absolute(r) <= delta, 0, absolute(r) - delta),
    r=_huber_by_r,
)
pseudo_huber = scipy_function(
    *(
        "pseudo_huber",
        "delta r",
        "A smooth Huber loss, ``delta**2 * (sqrt(1 + (r / delta)**2) - 1)``.",
    ),
    delta=lambda delta, r: _pseudo_huber_by_delta(delta, r),
    r=lambda delta, r: r / sqrt(1 + (r / delta) ** 2),
)


def _pseudo_huber_by_delta(delta: Any, r: Any) -> Any:
    """``delta * (w - 1)**2 / w``, where ``w`` is the root."""
    square = (r / delta) ** 2
    root = sqrt(1 + square)
    return delta * (square / (root + 1)) ** 2 / root
