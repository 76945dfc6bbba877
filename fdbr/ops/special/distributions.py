"""Distribution functions: binomial, Poisson, gamma, chi-square, F, Student's, and inverses.

They are incomplete gamma and beta functions, from which their derivatives come.  Inverses are
differentiated as implicit functions: see `inverses`.  Counts are rounded down by the functions
themselves, so the derivative by them is 0 wherever it exists; by the number of trials none is
known, but by that which an inverse solves for.

>>> import fdbr
>>> from fdbr.ops import special
>>> round(special.chdtr(2.0, 1.0), 6), round(float(fdbr.grad(special.chdtr, 1)(2.0, 1.0)), 6)
(0.393469, 0.303265)
"""

from typing import Any

from fdbr.ops.elementwise.arithmetic import floor, sign, sqrt
from fdbr.ops.elementwise.exponential import exp, log1p
from fdbr.ops.special.gammas import betaln
from fdbr.ops.special.incomplete import beta_density, betainc_by, gamma_density, gammainc_by
from fdbr.ops.special.library import scipy_function

__all__ = [
    "bdtr",
    "bdtrc",
    "bdtri",
    "bdtrik",
    "bdtrin",
    "chdtr",
    "chdtrc",
    "chdtri",
    "chdtriv",
    "fdtr",
    "fdtrc",
    "fdtri",
    "fdtridfd",
    "gdtr",
    "gdtrc",
    "gdtria",
    "gdtrib",
    "gdtrix",
    "nbdtr",
    "nbdtrc",
    "nbdtri",
    "nbdtrik",
    "nbdtrin",
    "pdtr",
    "pdtrc",
    "pdtri",
    "pdtrik",
    "stdtr",
    "stdtridf",
    "stdtrit",
]


def _by_a(a: Any, b: Any, x: Any) -> Any:
    return betainc_by(a, b, x, i=1, j=0)


def _by_b(a: Any, b: Any, x: Any) -> Any:
    return betainc_by(a, b, x, i=0, j=1)


# --- binomial: betainc(n - k, k + 1, 1 - p) -----------------------------------------


def _bdtr_by_p(k: Any, n: Any, p: Any) -> Any:
    return -beta_density(n - k, k + 1.0, 1 - p)


def _bdtr_by_k(k: Any, n: Any, p: Any) -> Any:
    return _by_b(n - k, k + 1.0, 1 - p) - _by_a(n - k, k + 1.0, 1 - p)


def _bdtr_by_n(k: Any, n: Any, p: Any) -> Any:
    return _by_a(n - k, k + 1.0, 1 - p)


bdtr = scipy_function(
    *("bdtr", "k n p", "The probability of up to ``k`` successes in ``n`` trials."),
    k=None,
    p=lambda k, n, p: _bdtr_by_p(floor(k), n, p),
)
bdtrc = scipy_function(
    *("bdtrc", "k n p", "The probability of more than ``k`` successes in ``n`` trials."),
    k=None,
    p=lambda k, n, p: -_bdtr_by_p(floor(k), n, p),
)
bdtri = scipy_function(
    *("bdtri", "k n y", "The ``p`` where ``bdtr(k, n, p)`` is ``y``."),
    k=None,
    y=lambda k, n, out: 1 / _bdtr_by_p(floor(k), n, out),
)
bdtrik = scipy_function(
    *("bdtrik", "y n p", "The ``k``, any real number, where ``bdtr(k, n, p)`` is ``y``."),
    y=lambda n, p, out: 1 / _bdtr_by_k(out, n, p),
    n=lambda n, p, out: -_bdtr_by_n(out, n, p) / _bdtr_by_k(out, n, p),
    p=lambda n, p, out: -_bdtr_by_p(out, n, p) / _bdtr_by_k(out, n, p),
)
bdtrin = scipy_function(
    *("bdtrin", "k y p", "The ``n``, any real number, where ``bdtr(k, n, p)`` is ``y``."),
    k=lambda k, p, out: -_bdtr_by_k(k, out, p) / _bdtr_by_n(k, out, p),
    y=lambda k, p, out: 1 / _bdtr_by_n(k, out, p),
    p=lambda k, p, out: -_bdtr_by_p(k, out, p) / _bdtr_by_n(k, out, p),
)

# --- negative binomial: betainc(n, k + 1, p) ----------------------------------------

nbdtr = scipy_function(
    *("nbdtr", "k n p", "The probability of up to ``k`` failures before ``n`` successes."),
    k=None,
    p=lambda k, n, p: beta_density(n, floor(k) + 1.0, p),
)
nbdtrc = scipy_function(
    *("nbdtrc", "k n p", "The probability of more than ``k`` failures before ``n`` successes."),
    k=None,
    p=lambda k, n, p: -beta_density(n, floor(k) + 1.0, p),
)
nbdtri = scipy_function(
    *("nbdtri", "k n y", "The ``p`` where ``nbdtr(k, n, p)`` is ``y``."),
    k=None,
    y=lambda k, n, out: 1 / beta_density(n, floor(k) + 1.0, out),
)
nbdtrik = scipy_function(
    *("nbdtrik", "y n p", "The ``k``, any real number, where ``nbdtr(k, n, p)`` is ``y``."),
    y=lambda n, p, out: 1 / _by_b(n, out + 1, p),
    n=lambda n, p, out: -_by_a(n, out + 1, p) / _by_b(n, out + 1, p),
    p=lambda n, p, out: -beta_density(n, out + 1, p) / _by_b(n, out + 1, p),
)
nbdtrin = scipy_function(
    *("nbdtrin", "k y p", "The ``n``, any real number, where ``nbdtr(k, n, p)`` is ``y``."),
    k=lambda k, p, out: -_by_b(out, k + 1.0, p) / _by_a(out, k + 1.0, p),
    y=lambda k, p, out: 1 / _by_a(out, k + 1.0, p),
    p=lambda k, p, out: -beta_density(out, k + 1.0, p) / _by_a(out, k + 1.0, p),
)

# --- Poisson: gammaincc(k + 1, m) ---------------------------------------------------

pdtr = scipy_function(
    *("pdtr", "k m", "The probability of up to ``k`` events, where ``m`` are expected."),
    k=None,
    m=lambda k, m: -gamma_density(floor(k) + 1.0, m),
)
pdtrc = scipy_function(
    *("pdtrc", "k m", "The probability of more than ``k`` events, where ``m`` are expected."),
    k=None,
    m=lambda k, m: gamma_density(floor(k) + 1.0, m),
)
pdtri = scipy_function(
    *("pdtri", "k y", "The ``m`` where ``pdtr(k, m)`` is ``y``."),
    k=None,
    y=lambda k, out: -1 / gamma_density(floor(k) + 1.0, out),
)
pdtrik = scipy_function(
    *("pdtrik", "p m", "The ``k``, any real number, where ``pdtr(k, m)`` is ``p``."),
    p=lambda m, out: -1 / gammainc_by(out + 1, m, n=1),
    m=lambda m, out: -gamma_density(out + 1, m) / gammainc_by(out + 1, m, n=1),
)

# --- gamma: gammainc(b, a * x) ------------------------------------------------------


def _gdtr_by_b(a: Any, b: Any, x: Any) -> Any:
    return gammainc_by(b, a * x, n=1)


def _shape_over_density(a: Any, b: Any, x: Any) -> Any:
    return gammainc_by(b, a * x, n=1) / gamma_density(b, a * x)


gdtr = scipy_function(
    *("gdtr", "a b x", "The gamma distribution function, of rate ``a`` and shape ``b``."),
    a=lambda a, b, x: x * gamma_density(b, a * x),
    b=_gdtr_by_b,
    x=lambda a, b, x: a * gamma_density(b, a * x),
)
gdtrc = scipy_function(
    *("gdtrc", "a b x", "The gamma distribution's upper tail, of rate ``a`` and shape ``b``."),
    a=lambda a, b, x: -x * gamma_density(b, a * x),
    b=lambda a, b, x: -_gdtr_by_b(a, b, x),
    x=lambda a, b, x: -a * gamma_density(b, a * x),
)
gdtria = scipy_function(
    *("gdtria", "p b x", "The ``a`` where ``gdtr(a, b, x)`` is ``p``."),
    p=lambda b, x, out: 1 / (x * gamma_density(b, out * x)),
    b=lambda b, x, out: -_shape_over_density(out, b, x) / x,
    x=lambda x, out: -out / x,
)
gdtrib = scipy_function(
    *("gdtrib", "a p x", "The ``b`` where ``gdtr(a, b, x)`` is ``p``."),
    a=lambda a, x, out: -x / _shape_over_density(a, out, x),
    p=lambda a, x, out: 1 / _gdtr_by_b(a, out, x),
    x=lambda a, x, out: -a / _shape_over_density(a, out, x),
)
gdtrix = scipy_function(
    *("gdtrix", "a b p", "The ``x`` where ``gdtr(a, b, x)`` is ``p``."),
    a=lambda a, out: -out / a,
    b=lambda a, b, out: -_shape_over_density(a, b, out) / a,
    p=lambda a, b, out: 1 / (a * gamma_density(b, a * out)),
)

# --- chi-square: gammainc(v / 2, x / 2) ---------------------------------------------


def _chdtr_by_v(v: Any, x: Any) -> Any:
    return 0.5 * gammainc_by(0.5 * v, 0.5 * x, n=1)


def _chdtr_by_x(v: Any, x: Any) -> Any:
    return 0.5 * gamma_density(0.5 * v, 0.5 * x)


chdtr = scipy_function(
    *("chdtr", "v x", "The chi-square distribution function, of ``v`` degrees of freedom."),
    v=_chdtr_by_v,
    x=_chdtr_by_x,
)
chdtrc = scipy_function(
    *("chdtrc", "v x", "The upper tail of the chi-square distribution."),
    v=lambda v, x: -_chdtr_by_v(v, x),
    x=lambda v, x: -_chdtr_by_x(v, x),
)
chdtri = scipy_function(
    *("chdtri", "v p", "The ``x`` where ``chdtrc(v, x)`` is ``p``."),
    v=lambda v, out: -_chdtr_by_v(v, out) / _chdtr_by_x(v, out),
    p=lambda v, out: -1 / _chdtr_by_x(v, out),
)
chdtriv = scipy_function(
    *("chdtriv", "p x", "The ``v`` where ``chdtr(v, x)`` is ``p``."),
    p=lambda x, out: 1 / _chdtr_by_v(out, x),
    x=lambda x, out: -_chdtr_by_x(out, x) / _chdtr_by_v(out, x),
)

# --- F: betainc(dfn / 2, dfd / 2, w), w = dfn * x / (dfd + dfn * x) -----------------


def _fdtr_by_x(dfn: Any, dfd: Any, x: Any) -> Any:
    total = dfd + dfn * x
    return beta_density(0.5 * dfn, 0.5 * dfd, dfn * x / total) * dfn * dfd / (total * total)


def _fdtr_by_dfn(dfn: Any, dfd: Any, x: Any) -> Any:
    w = dfn * x / (dfd + dfn * x)
    return 0.5 * _by_a(0.5 * dfn, 0.5 * dfd, w) + x / dfn * _fdtr_by_x(dfn, dfd, x)


def _fdtr_by_dfd(dfn: Any, dfd: Any, x: Any) -> Any:
    w = dfn * x / (dfd + dfn * x)
    return 0.5 * _by_b(0.5 * dfn, 0.5 * dfd, w) - x / dfd * _fdtr_by_x(dfn, dfd, x)


fdtr = scipy_function(
    *("fdtr", "dfn dfd x", "The F distribution function."),
    dfn=_fdtr_by_dfn,
    dfd=_fdtr_by_dfd,
    x=_fdtr_by_x,
)
fdtrc = scipy_function(
    *("fdtrc", "dfn dfd x", "The upper tail of the F distribution."),
    dfn=lambda dfn, dfd, x: -_fdtr_by_dfn(dfn, dfd, x),
    dfd=lambda dfn, dfd, x: -_fdtr_by_dfd(dfn, dfd, x),
    x=lambda dfn, dfd, x: -_fdtr_by_x(dfn, dfd, x),
)
fdtri = scipy_function(
    *("fdtri", "dfn dfd p", "The ``x`` where ``fdtr(dfn, dfd, x)`` is ``p``."),
    dfn=lambda dfn, dfd, out: -_fdtr_by_dfn(dfn, dfd, out) / _fdtr_by_x(dfn, dfd, out),
    dfd=lambda dfn, dfd, out: -_fdtr_by_dfd(dfn, dfd, out) / _fdtr_by_x(dfn, dfd, out),
    p=lambda dfn, dfd, out: 1 / _fdtr_by_x(dfn, dfd, out),
)
fdtridfd = scipy_function(
    *("fdtridfd", "dfn p x", "The ``dfd`` where ``fdtr(dfn, dfd, x)`` is ``p``."),
    dfn=lambda dfn, x, out: -_fdtr_by_dfn(dfn, out, x) / _fdtr_by_dfd(dfn, out, x),
    p=lambda dfn, x, out: 1 / _fdtr_by_dfd(dfn, out, x),
    x=lambda dfn, x, out: -_fdtr_by_x(dfn, out, x) / _fdtr_by_dfd(dfn, out, x),
)

# --- Student's: that of t**2 is an F distribution -----------------------------------


def _stdtr_by_t(df: Any, t: Any) -> Any:
    """The density."""
    fall = 0.5 * (df + 1) * log1p(t * t / df)
    return exp(-fall - betaln(0.5 * df, 0.5)) / sqrt(df)


def _stdtr_by_df(df: Any, t: Any) -> Any:
    """Of ``0.5 * betainc(df / 2, 1 / 2, df / (df + t**2))``, the tail beyond ``abs(t)``."""
    by_shape = -0.25 * sign(t) * _by_a(0.5 * df, 0.5, df / (df + t * t))
    return by_shape - 0.5 * t / df * _stdtr_by_t(df, t)


stdtr = scipy_function(
    *("stdtr", "df t", "Student's distribution function."),
    df=_stdtr_by_df,
    t=_stdtr_by_t,
)
stdtrit = scipy_function(
    *("stdtrit", "df p", "The ``t`` where ``stdtr(df, t)`` is ``p``."),
    df=lambda df, out: -_stdtr_by_df(df, out) / _stdtr_by_t(df, out),
    p=lambda df, out: 1 / _stdtr_by_t(df, out),
)
stdtridf = scipy_function(
    *("stdtridf", "p t", "The ``df`` where ``stdtr(df, t)`` is ``p``."),
    p=lambda t, out: 1 / _stdtr_by_df(out, t),
    t=lambda t, out: -_stdtr_by_t(out, t) / _stdtr_by_df(out, t),
)
