"""Noncentral distributions, and the parameters of a normal one.

By the degrees of freedom no derivative is known.  By the rest the distribution functions are
differentiated as mixtures (Johnson, Kotz and Balakrishnan, Continuous Univariate Distributions
2, chapters 29 to 31), and their inverses as implicit functions.

>>> import fdbr
>>> from fdbr.ops import special
>>> round(special.chndtr(2.0, 2.0, 0.0), 6) == round(special.chdtr(2.0, 2.0), 6)
True
"""

import math
from typing import Any

from fdbr.ops.declare import elementwise
from fdbr.ops.dtypes import float_dtype
from fdbr.ops.elementwise.exponential import exp, log, log1p
from fdbr.ops.special.entropies import xlog1py, xlogy
from fdbr.ops.special.errors import ndtri
from fdbr.ops.special.gammas import betaln, gammaln
from fdbr.ops.special.hypergeometric import hyp0f1, hyp1f1
from fdbr.ops.special.library import scipy_function, unknown
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = [
    "chndtr",
    "chndtridf",
    "chndtrinc",
    "chndtrix",
    "ncfdtr",
    "ncfdtri",
    "ncfdtridfd",
    "ncfdtridfn",
    "ncfdtrinc",
    "nctdtr",
    "nctdtridf",
    "nctdtrinc",
    "nctdtrit",
    "nrdtrimn",
    "nrdtrisd",
]

# --- chi-square ---------------------------------------------------------------------


def _chn_density(x: Any, df: Any, nc: Any) -> Any:
    """A mixture by Poisson's law of chi-square densities of df, df + 2, …."""
    half = 0.5 * df
    central = xlogy(half - 1, 0.5 * x) - 0.5 * (x + nc) - gammaln(half)
    return 0.5 * exp(central) * hyp0f1(half, 0.25 * nc * x)


def _chn_by_nc(x: Any, df: Any, nc: Any) -> Any:
    return -_chn_density(x, df + 2.0, nc)


chndtr = scipy_function(
    *("chndtr", "x df nc", "The noncentral chi-square distribution function."),
    x=_chn_density,
    nc=_chn_by_nc,
)
chndtrix = scipy_function(
    *("chndtrix", "p df nc", "The ``x`` where ``chndtr(x, df, nc)`` is ``p``."),
    p=lambda df, nc, out: 1 / _chn_density(out, df, nc),
    nc=lambda df, nc, out: -_chn_by_nc(out, df, nc) / _chn_density(out, df, nc),
)
chndtrinc = scipy_function(
    *("chndtrinc", "x df p", "The ``nc`` where ``chndtr(x, df, nc)`` is ``p``."),
    x=lambda x, df, out: -_chn_density(x, df, out) / _chn_by_nc(x, df, out),
    p=lambda x, df, out: 1 / _chn_by_nc(x, df, out),
)
chndtridf = scipy_function(
    *("chndtridf", "x p nc", "The ``df`` where ``chndtr(x, df, nc)`` is ``p``.")
)

# --- F ------------------------------------------------------------------------------


def _ncf_term(dfn: Any, dfd: Any, nc: Any, f: Any, shift: int) -> Any:
    """``w**a * (1 - w)**b / beta(a, b)`` times its share of the mixture, with a = dfn / 2."""
    a, b = 0.5 * dfn, 0.5 * dfd
    w = dfn * f / (dfd + dfn * f)
    level = xlogy(a, w) + xlog1py(b, -w) - betaln(a, b) - 0.5 * nc
    return exp(level) * hyp1f1(a + b, a + shift, 0.5 * nc * w)


def _ncf_density(dfn: Any, dfd: Any, nc: Any, f: Any) -> Any:
    return _ncf_term(dfn, dfd, nc, f, 0) / f


def _ncf_by_nc(dfn: Any, dfd: Any, nc: Any, f: Any) -> Any:
    return -_ncf_term(dfn, dfd, nc, f, 1) / dfn


ncfdtr = scipy_function(
    *("ncfdtr", "dfn dfd nc f", "The noncentral F distribution function."),
    nc=_ncf_by_nc,
    f=_ncf_density,
)
ncfdtri = scipy_function(
    *("ncfdtri", "dfn dfd nc p", "The ``f`` where ``ncfdtr(dfn, dfd, nc, f)`` is ``p``."),
    nc=lambda dfn, dfd, nc, out: -_ncf_by_nc(dfn, dfd, nc, out) / _ncf_density(dfn, dfd, nc, out),
    p=lambda dfn, dfd, nc, out: 1 / _ncf_density(dfn, dfd, nc, out),
)
ncfdtrinc = scipy_function(  # whose values have five digits
    *("ncfdtrinc", "dfn dfd p f", "The ``nc`` where ``ncfdtr(dfn, dfd, nc, f)`` is ``p``.")
)
ncfdtridfn = scipy_function(
    *("ncfdtridfn", "p dfd nc f", "The ``dfn`` where ``ncfdtr(dfn, dfd, nc, f)`` is ``p``.")
)
ncfdtridfd = scipy_function(
    *("ncfdtridfd", "dfn p nc f", "The ``dfd`` where ``ncfdtr(dfn, dfd, nc, f)`` is ``p``.")
)

# --- Student's ----------------------------------------------------------------------
#
# With V of chi-square, t's function is the mean of ndtr(t * sqrt(V / df) - nc), so its
# derivatives are means of normal densities: integrals over r = sqrt(V) of
# r**(df + s - 1) * exp(-r**2 * (1 + t**2 / df) / 2 + r * t * nc / sqrt(df)).

_STEPS = 160
_FALL = 40.0  # how far the logarithm of the integrand has fallen at the ends


@elementwise(double=True, n=unknown("nctdtr", "df"), q=lambda n, q: _log_moment_derivative(n, q))
def _log_moment(xp: Any, n: Any, q: ArrayLike) -> Array:
    """The logarithm of the integral of ``y**(n - 1) * exp(q * y - y**2 / 2)``, for n >= 1.

    In ``s = log(y)`` the integrand is smooth, log-concave, and has its mode where
    ``n + q * y = y**2``; equal steps between the ends sum it to the last digits.
    """
    dtype = float_dtype(n, q)
    n, q = xp.broadcast_arrays(xp.asarray(n, dtype=float), xp.asarray(q, dtype=float))
    root = xp.sqrt(q * q + 4 * n)
    mode = xp.where(q > 0, 0.5 * (q + root), 2 * n / (root - q))
    peak = n * xp.log(mode) + q * mode - 0.5 * mode * mode
    width = 1 / xp.sqrt(mode * mode + n)
    below = _FALL / n + xp.sqrt(2 * _FALL) * width
    above = xp.log1p(xp.sqrt(2 * _FALL) / mode) + width
    total = 0.0
    for i in range(_STEPS + 1):
        s = -below + (below + above) * (i / _STEPS)
        y = mode * xp.exp(s)
        total = total + xp.exp(n * (xp.log(mode) + s) + q * y - 0.5 * y * y - peak)
    out = peak + xp.log(total * (below + above) / _STEPS)
    return out.astype(dtype)[()]


def _log_moment_derivative(n: Any, q: Any) -> Any:
    return exp(_log_moment(n + 1.0, q) - _log_moment(n, q))


def _nct_term(df: Any, nc: Any, t: Any, s: int) -> Any:
    """The mean of ``(V / df)**(s / 2)`` times the normal density."""
    spread = log1p(t * t / df)
    q = t * nc * exp(-0.5 * spread) / df**0.5
    level = (
        _log_moment(df + s, q)
        - 0.5 * (df + s) * spread
        - 0.5 * nc * nc
        - 0.5 * s * log(df)
        - (0.5 * df - 1) * math.log(2)
        - gammaln(0.5 * df)
    )
    return exp(level) / math.sqrt(2 * math.pi)


nctdtr = scipy_function(
    *("nctdtr", "df nc t", "The noncentral t distribution function."),
    nc=lambda df, nc, t: -_nct_term(df, nc, t, 0),
    t=lambda df, nc, t: _nct_term(df, nc, t, 1),
)
nctdtrit = scipy_function(
    *("nctdtrit", "df nc p", "The ``t`` where ``nctdtr(df, nc, t)`` is ``p``."),
    nc=lambda df, nc, out: _nct_term(df, nc, out, 0) / _nct_term(df, nc, out, 1),
    p=lambda df, nc, out: 1 / _nct_term(df, nc, out, 1),
)
nctdtrinc = scipy_function(
    *("nctdtrinc", "df p t", "The ``nc`` where ``nctdtr(df, nc, t)`` is ``p``."),
    p=lambda df, t, out: -1 / _nct_term(df, out, t, 0),
    t=lambda df, t, out: _nct_term(df, out, t, 1) / _nct_term(df, out, t, 0),
)
nctdtridf = scipy_function(
    *("nctdtridf", "p nc t", "The ``df`` where ``nctdtr(df, nc, t)`` is ``p``.")
)

# --- the normal distribution's parameters -------------------------------------------


def _ndtri_derivative(p: Any) -> Any:
    quantile = ndtri(p)
    return math.sqrt(2 * math.pi) * exp(0.5 * quantile * quantile)


nrdtrimn = scipy_function(
    *("nrdtrimn", "p std x", "The mean of a normal variable that is below ``x`` with ``p``."),
    p=lambda p, std: -std * _ndtri_derivative(p),
    std=lambda p: -ndtri(p),
    x=1,
)
nrdtrisd = scipy_function(
    *("nrdtrisd", "mn p x", "The deviation of a normal variable that is below ``x`` with ``p``."),
    mn=lambda p: -1 / ndtri(p),
    p=lambda p, out: -out / ndtri(p) * _ndtri_derivative(p),
    x=lambda p: 1 / ndtri(p),
)
