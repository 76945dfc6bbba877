"""The incomplete gamma and beta functions, differentiated by all their arguments.

Their derivatives by the parameters are families of primitives, one for each order, which are
closed under differentiation: by a parameter the order is one higher, and by ``x`` there is the
density times a polynomial.
"""

import math
from typing import Any

from fdbr.ops.declare import elementwise
from fdbr.ops.dtypes import float_dtype
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.elementwise.exponential import exp, log, log1p
from fdbr.ops.special.entropies import xlog1py, xlogy
from fdbr.ops.special.gammas import betaln, digamma, gammaln, polygamma, polygamma_value
from fdbr.ops.special.library import scipy_special
from fdbr.ops.special.tails import FALL, relative_derivative, tail_integral
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["betainc", "gammainc", "gammaincc"]

_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188)
_LARGE = 10.0  # where that series for the logarithm of gamma is exact to the last digit


@elementwise(
    double=True,
    a=lambda a, x: gammainc_by(a, x, n=1),
    x=lambda a, x: gamma_density(a, x),
    heavy=True,
)
def gammainc(xp: Any, a: ArrayLike, x: ArrayLike) -> Array:
    """The regularised lower incomplete gamma function: gamma's distribution function.

    The integral of ``t**(a-1) * exp(-t) / gamma(a)`` from 0 to ``x``, for ``a > 0``.  The
    derivatives by ``a`` are computed by quadrature, to 11 digits or more.

    >>> from fdbr import ops
    >>> round(ops.gammainc(1.0, 1.0), 6)
    0.632121
    """
    return scipy_special.on(xp)(xp, "gammainc", a, x)


@elementwise(
    double=True,
    a=lambda a, x: -gammainc_by(a, x, n=1),
    x=lambda a, x: -gamma_density(a, x),
    heavy=True,
)
def gammaincc(xp: Any, a: ArrayLike, x: ArrayLike) -> Array:
    """The regularised upper incomplete gamma function ``1 - gammainc(a, x)``.

    >>> from fdbr import ops
    >>> round(ops.gammaincc(1.0, 1.0), 6)
    0.367879
    """
    return scipy_special.on(xp)(xp, "gammaincc", a, x)


@elementwise(
    double=True,
    a=lambda a, b, x: betainc_by(a, b, x, i=1, j=0),
    b=lambda a, b, x: betainc_by(a, b, x, i=0, j=1),
    x=lambda a, b, x: beta_density(a, b, x),
)
def betainc(xp: Any, a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Array:
    """The regularised incomplete beta function: beta's distribution function.

    The integral of ``t**(a-1) * (1-t)**(b-1) / beta(a, b)`` from 0 to ``x``, for ``a, b > 0``.
    The derivatives by ``a`` and ``b`` are computed by quadrature, to 11 digits or more.

    >>> from fdbr import ops
    >>> round(ops.betainc(2.0, 2.0, 0.5), 6)
    0.5
    """
    return scipy_special.on(xp)(xp, "betainc", a, b, x)


# --- what both need -----------------------------------------------------------------


def in_float64(xp: Any, *operands: Any) -> Any:
    return xp.broadcast_arrays(*(xp.asarray(value, dtype=float) for value in operands))


def _height(xp: Any, a: Any) -> Any:
    """``a * log(a) - a - gammaln(a)``, without cancellation where ``a`` is large."""
    large = a > _LARGE
    below = xp.where(large, 1.0, a)
    square = xp.where(large, a, _LARGE) ** -2
    series = 0.0
    for term in reversed(_STIRLING):
        series = series * square + term
    by_series = 0.5 * xp.log(a / (2 * math.pi)) - series * square**0.5
    direct = below * xp.log(below) - below - scipy_special.on(xp)(xp, "gammaln", below)
    return xp.where(large, by_series, direct)


def _settled(xp: Any, out: Any, valid: Any, at_end: Any, dtype: Any) -> Any:
    """A derivative by a parameter: 0 at the ends of the interval, NaN outside of it."""
    return xp.where(valid, out, xp.where(at_end, 0.0, math.nan)).astype(dtype)[()]


# --- gamma's derivatives by the shape -----------------------------------------------


def gamma_density(a: Any, x: Any) -> Any:
    at_infinity = x == math.inf
    x = where(at_infinity, 1, x)
    return where(at_infinity, 0, exp(xlogy(a - 1, x) - x - gammaln(a)))


def _gamma_by_x(a: Any, x: Any, n: int) -> Any:
    inside = (x > 0) & (x < math.inf)
    x = where(inside, x, 1)

    def derivatives(k: int, m: int) -> Any:
        return log(x) - digamma(a) if k == 1 else -polygamma(k - 1, a)

    return where(inside, gamma_density(a, x) * relative_derivative(derivatives, n), 0)


@elementwise(
    double=True,
    a=lambda a, x, n: gammainc_by(a, x, n=n + 1),
    x=lambda a, x, n: _gamma_by_x(a, x, n),
)
def gammainc_by(xp: Any, a: ArrayLike, x: ArrayLike, *, n: int) -> Array:
    """``(d/da)**n gammainc(a, x)``.

    In ``v = log(t / a)`` the density is ``exp(a * (v - exp(v)))`` times a factor, with its mode
    at 0.
    """
    dtype = float_dtype(a, x)
    a, x = in_float64(xp, a, x)
    valid = (a > 0) & (a < math.inf) & (x > 0) & (x < math.inf)
    # From these distances to the mode at ``a`` on, the derivatives are 0 in float64.
    far = (x / 8 > xp.maximum(a, 200)) | (x < a / 8) & (a > 1000)
    at_end = (a > 0) & ((x == 0) | (x == math.inf)) | valid & far
    valid = valid & ~far
    a, x = xp.where(valid, a, 1.0), xp.where(valid, x, 1.0)
    start, height = xp.log(x / a), _height(xp, a)
    side = xp.where(start > 0, 1.0, -1.0)
    shift = xp.log(a) - scipy_special.on(xp)(xp, "digamma", a)
    higher = {k: -polygamma_value(xp, k - 1, a) for k in range(2, n + 1)}

    def integrand(s: Any) -> Any:
        v = start + side * s
        by_a = relative_derivative(lambda k, _: v + shift if k == 1 else higher[k], n)
        return by_a * xp.exp(height + a * (v - xp.expm1(v)))

    ahead = FALL / (a * xp.maximum(xp.exp(start), 1.0))
    root = xp.sqrt(2 * ahead)
    reach = xp.where(side > 0, xp.minimum(root, xp.log1p(ahead + root)), root + ahead)
    out = -side * tail_integral(
        xp,
        reach,
        lambda s: a * (xp.exp(start) * xp.expm1(side * s) - side * s),
        lambda s: a * side * xp.expm1(start + side * s),
        integrand,
    )
    return _settled(xp, out, valid, at_end, dtype)


# --- beta's derivatives by both parameters ------------------------------------------


def beta_density(a: Any, b: Any, x: Any) -> Any:
    return exp(xlogy(a - 1, x) + xlog1py(b - 1, -x) - betaln(a, b))


def _beta_by_x(a: Any, b: Any, x: Any, i: int, j: int) -> Any:
    inside = (x > 0) & (x < 1)
    x = where(inside, x, 0.5)

    def derivatives(k: int, m: int) -> Any:
        total = polygamma(k + m - 1, a + b)
        if k and m:
            return total
        return (
            total
            - polygamma(k + m - 1, a if k else b)
            + ((log(x) if k else log1p(-x)) if k + m == 1 else 0)
        )

    return where(inside, beta_density(a, b, x) * relative_derivative(derivatives, i, j), 0)


@elementwise(
    double=True,
    a=lambda a, b, x, i, j: betainc_by(a, b, x, i=i + 1, j=j),
    b=lambda a, b, x, i, j: betainc_by(a, b, x, i=i, j=j + 1),
    x=lambda a, b, x, i, j: _beta_by_x(a, b, x, i, j),
)
def betainc_by(xp: Any, a: ArrayLike, b: ArrayLike, x: ArrayLike, *, i: int, j: int) -> Array:
    """``(d/da)**i (d/db)**j betainc(a, b, x)``.

    In ``u = log(t / (1 - t))`` the density is ``t**a * (1 - t)**b`` times a factor.  Above the
    mode, 1 - x takes the place of ``x``.
    """
    dtype = float_dtype(a, b, x)
    a, b, x = in_float64(xp, a, b, x)
    proper = (a > 0) & (a < math.inf) & (b > 0) & (b < math.inf)
    valid, at_end = proper & (x > 0) & (x < 1), proper & ((x == 0) | (x == 1))
    a, b, x = xp.where(valid, a, 1.0), xp.where(valid, b, 1.0), xp.where(valid, x, 0.5)
    above = x * (a + b) > a
    p, q = xp.where(above, b, a), xp.where(above, a, b)
    t = xp.where(above, 1 - x, x)
    log_t, log_rest = xp.log(x), xp.log1p(-x)
    log_t, log_rest = xp.where(above, log_rest, log_t), xp.where(above, log_t, log_rest)
    mode, rest_of_mode = xp.log(p / (p + q)), xp.log(q / (p + q))
    height = _height(xp, p) + _height(xp, q) - _height(xp, p + q)
    fixed = _beta_derivatives(xp, a, b, i, j)

    def integrand(s: Any) -> Any:
        bend = xp.log1p(t * xp.expm1(-s))
        near, far = log_t - s - bend, log_rest - bend
        logs = xp.where(above, far, near), xp.where(above, near, far)

        def derivatives(k: int, m: int) -> Any:
            return fixed[k, m] + logs[m] if k + m == 1 else fixed[k, m]

        level = height + p * (near - mode) + q * (far - rest_of_mode)
        return relative_derivative(derivatives, i, j) * xp.exp(level)

    ahead = FALL * (p + q) / (p * q)
    out = xp.where(above, -1.0, 1.0) * tail_integral(
        xp,
        xp.sqrt(2 * ahead) + ahead,
        lambda s: p * s + (p + q) * xp.log1p(t * xp.expm1(-s)),
        lambda s: p - (p + q) * t * xp.exp(-s) / (1 + t * xp.expm1(-s)),
        integrand,
    )
    return _settled(xp, out, valid, at_end, dtype)


def _beta_derivatives(xp: Any, a: Any, b: Any, i: int, j: int) -> dict[tuple[int, int], Any]:
    """The derivatives of the logarithm of the density by a and b, without the logarithms in it."""
    out = {}
    for k in range(i + 1):
        for m in range(j + 1):
            if k + m:
                total = polygamma_value(xp, k + m - 1, a + b)
                alone = 0.0 if k and m else polygamma_value(xp, k + m - 1, a if k else b)
                out[k, m] = total - alone
    return out
