"""Distributions with parameters of their own: gamma, beta, Dirichlet, counts, vectors.

Draws of floating numbers are differentiable by the parameters: each is a smooth function of them
and of numbers that do not depend on them (Figurnov, Mohamed & Mnih, *Implicit reparameterization
gradients*, NeurIPS 2018, find the same derivatives).
"""

import functools
import math
from typing import Any

import numpy as np

from fdbr import ops
from fdbr.core.tracer import holds, stop_gradient
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.random.arguments import Shape, checked, drawing, give, parameter, shape_of
from fdbr.random.continuous import exponential, normal, open_unit
from fdbr.random.keys import split

__all__ = [
    "beta",
    "binomial",
    "chisquare",
    "dirichlet",
    "gamma",
    "geometric",
    "loggamma",
    "multivariate_normal",
    "pareto",
    "poisson",
    "rademacher",
    "t",
]


def _positive(function: str, **given: Any) -> None:
    """Refuse parameters that are not positive and finite."""
    for name, value in given.items():
        plain = stop_gradient(value)
        if not holds((plain > 0) & (plain < math.inf)):
            raise ValueError(
                f"fdbr.random.{function}: {name} must be positive and finite, got {value!r}"
            )


def _shape(shape: Shape | None, *values: Any) -> Shape:
    if shape is not None:
        return shape
    return np.broadcast_shapes(*(getattr(value, "shape", ()) for value in values))


@public("fdbr.random")
@drawing
def loggamma(key: Any, a: Any, shape: Shape | None = None, dtype: Any = np.float64) -> Any:
    """Logarithms of draws of `gamma`, which for small ``a`` are too small for a number.

    ``log G(a + 1) + log(u) / a``, with a gamma draw by inversion: Marsaglia & Tsang, ACM TOMS
    2000, give this identity.  Arguments and errors as for `gamma`.

    >>> import fdbr
    >>> bool(fdbr.random.loggamma(fdbr.random.key(0), 1e-4) < -100)
    True
    """
    shape, dtype = checked("loggamma", key, _shape(shape, a), dtype)
    a = parameter("loggamma", "a", a, shape, np.dtype(np.float64))
    _positive("loggamma", a=a)
    first, second = split(key)
    u, _ = open_unit("loggamma", first, shape, dtype)
    draws = ops.log(ops.special.gammaincinv(a + 1, u))
    return give(draws - exponential(second, shape) / a, dtype)


@public("fdbr.random")
@drawing
def gamma(key: Any, a: Any, shape: Shape | None = None, dtype: Any = np.float64) -> Any:
    """Gamma of rate one: the density is ``x**(a-1) * exp(-x) / gamma(a)``.

    Parameters
    ----------
    key
        A key.
    a
        The shape parameter: a positive number, or an array that broadcasts to ``shape``.
    shape
        The shape of the result; by default that of the parameters together.
    dtype
        A floating dtype.

    Returns
    -------
    array
        Of that shape and dtype, differentiable by ``a``.

    Raises
    ------
    TypeError, ValueError
        If a parameter is not positive, or does not broadcast.

    >>> import fdbr
    >>> import numpy as np
    >>> fdbr.random.gamma(fdbr.random.key(0), np.array([0.5, 3.0])).shape
    (2,)
    """
    return give(ops.exp(loggamma(key, a, shape)), checked("gamma", key, (), dtype)[1])


@public("fdbr.random")
@drawing
def chisquare(key: Any, df: Any, shape: Shape | None = None, dtype: Any = np.float64) -> Any:
    """Sums of the squares of ``df`` normal numbers.  Arguments and errors as for `gamma`.

    >>> import fdbr
    >>> bool(fdbr.random.chisquare(fdbr.random.key(0), 3.0) > 0)
    True
    """
    _positive("chisquare", df=df)
    return give(2 * gamma(key, df / 2, shape), checked("chisquare", key, (), dtype)[1])


@public("fdbr.random")
@drawing
def beta(key: Any, a: Any, b: Any, shape: Shape | None = None, dtype: Any = np.float64) -> Any:
    """Beta: the density is ``x**(a-1) * (1-x)**(b-1) / beta(a, b)``.

    Arguments and errors as for `gamma`.

    >>> import fdbr
    >>> bool(0 < fdbr.random.beta(fdbr.random.key(0), 2.0, 3.0) < 1)
    True
    """
    shape, dtype = checked("beta", key, _shape(shape, a, b), dtype)
    first, second = split(key)
    logs = loggamma(first, a, shape) - loggamma(second, b, shape)
    return give(ops.sigmoid(logs), dtype)


@public("fdbr.random")
@drawing
def dirichlet(key: Any, alpha: Any, shape: Shape | None = None, dtype: Any = np.float64) -> Any:
    """Probabilities that sum to one along a last axis.

    Parameters
    ----------
    key, dtype
        As for `gamma`.
    alpha
        Positive, shape ``(..., n)``.
    shape
        The shape of the result without its last axis; it must end in that of ``alpha`` without its
        own, which is the default.

    Raises
    ------
    TypeError, ValueError
        If ``alpha`` has no axis, is not positive, or does not fit ``shape``.

    >>> import fdbr
    >>> import numpy as np
    >>> float(fdbr.random.dirichlet(fdbr.random.key(0), np.ones(3)).sum().round(9))
    1.0
    """
    if not getattr(alpha, "ndim", 0):
        raise ValueError(
            f"fdbr.random.dirichlet: alpha must have an axis of categories, got {describe(alpha)}"
        )
    shape = tuple(alpha.shape[:-1]) if shape is None else shape_of("dirichlet", shape)
    _, dtype = checked("dirichlet", key, shape, dtype)
    logs = loggamma(key, alpha, (*shape, alpha.shape[-1]))
    return give(ops.softmax(logs, axis=-1), dtype)


@public("fdbr.random")
@drawing
def pareto(key: Any, b: Any, shape: Shape | None = None, dtype: Any = np.float64) -> Any:
    """Pareto from one on: the density is ``b / x**(b+1)``.  Arguments and errors as for `gamma`.

    >>> import fdbr
    >>> bool(fdbr.random.pareto(fdbr.random.key(0), 2.0) > 1)
    True
    """
    shape, dtype = checked("pareto", key, _shape(shape, b), dtype)
    b = parameter("pareto", "b", b, shape, np.dtype(np.float64))
    _positive("pareto", b=b)
    return give(ops.exp(exponential(key, shape) / b), dtype)


@public("fdbr.random")
@drawing
def t(key: Any, df: Any, shape: Shape | None = None, dtype: Any = np.float64) -> Any:
    """Student's t with ``df`` degrees of freedom.  Arguments and errors as for `gamma`.

    >>> import fdbr
    >>> fdbr.random.t(fdbr.random.key(0), 5.0, (4,)).shape
    (4,)
    """
    shape, dtype = checked("t", key, _shape(shape, df), dtype)
    df = parameter("t", "df", df, shape, np.dtype(np.float64))
    _positive("t", df=df)
    first, second = split(key)
    logs = ops.log(df / 2) - loggamma(second, df / 2, shape)
    return give(normal(first, shape) * ops.exp(logs / 2), dtype)


@public("fdbr.random")
@drawing
def multivariate_normal(
    key: Any, mean: Any, cov: Any, shape: Shape | None = None, dtype: Any = np.float64
) -> Any:
    """Normal vectors of some mean and covariance.

    Parameters
    ----------
    key, dtype
        As for `gamma`.
    mean
        Shape ``(..., n)``.
    cov
        Positive definite, shape ``(..., n, n)``.
    shape
        The shape of the result without its last axis; by default that to which the others'
        leading axes broadcast.

    Raises
    ------
    TypeError, ValueError
        If the shapes do not fit.

    >>> import fdbr
    >>> import numpy as np
    >>> fdbr.random.multivariate_normal(fdbr.random.key(0), np.zeros(2), np.eye(2), (5,)).shape
    (5, 2)
    """
    mean, cov = ops.asarray(mean), ops.asarray(cov)
    if not mean.ndim or cov.ndim < 2 or cov.shape[-2:] != (mean.shape[-1],) * 2:
        raise ValueError(
            "fdbr.random.multivariate_normal: mean and cov must have shapes (..., n) and "
            f"(..., n, n), got {describe(mean)} and {describe(cov)}"
        )
    if shape is None:
        shape = np.broadcast_shapes(mean.shape[:-1], cov.shape[:-2])
    shape, dtype = checked("multivariate_normal", key, shape, dtype)
    draws = normal(key, (*shape, mean.shape[-1]))
    factor = ops.linalg.cholesky(ops.astype(cov, np.float64))
    return give(mean + ops.squeeze(factor @ ops.expand_dims(draws, axis=-1), axis=-1), dtype)


# --- counts, which have no derivatives ----------------------------------------------


def _counts(
    function: str, key: Any, shape: Shape | None, dtype: Any, **parameters: Any
) -> tuple[Any, ...]:
    """Uniform numbers, an integer dtype, and the parameters as plain values."""
    plain = {name: stop_gradient(value) for name, value in parameters.items()}
    shape, _ = checked(function, key, _shape(shape, *plain.values()), np.float64)
    known = np.dtype(dtype)
    if known.kind not in "iu":
        raise TypeError(f"fdbr.random.{function}: dtype must be an integer dtype, got {known}")
    u, _ = open_unit(function, key, shape, np.float64)
    wide = np.dtype(np.float64)
    values = [parameter(function, name, value, shape, wide) for name, value in plain.items()]
    return u, known, *values


def _give_counts(function: str, draws: Any, dtype: Any, **parameters: Any) -> Any:
    """Finish counts, which the dtype must hold."""
    plain = stop_gradient(draws)
    if not holds(plain < float(np.iinfo(dtype).max + 1)):
        given = " and ".join(f"{name} {value!r}" for name, value in parameters.items())
        raise ValueError(
            f"fdbr.random.{function}: {given} leads to draws above {np.iinfo(dtype).max}, which "
            f"dtype {dtype} does not hold; choose a wider dtype"
        )
    return give(draws, dtype)


# From this variance on counts are rounded normal numbers with a correction for the skewness, with
# an error of the order of 1e-5 counts.  SciPy's inverse functions lose digits, and then return NaN.
_LARGE = 1e10
_SLOW = 1e6  # SciPy's inverse takes 3 ms for a rate of 1e10


def _large_count(u: Any, mean: Any, variance: Any, asymmetry: Any) -> Any:
    """The first terms of the Cornish-Fisher expansion of a quantile, less 1/2."""
    z = ops.special.ndtri(u)
    return mean + ops.sqrt(variance) * z + asymmetry * (z * z - 1) / 6


def _poisson_count(u: Any, lam: Any) -> Any:
    if holds(stop_gradient(lam) < _LARGE):
        return _small_poisson_count(u, lam)
    is_large = lam >= _LARGE
    small = _small_poisson_count(u, ops.where(is_large, 1.0, lam))
    return ops.where(is_large, ops.round(_large_count(u, lam, lam, 1.0)), small)


def _small_poisson_count(u: Any, lam: Any) -> Any:
    some = ops.where(lam > 0, lam, 1.0)
    if holds(lam < _SLOW):
        near = ops.special.pdtrik(u, some)
    else:
        inverse = ops.special.pdtrik(u, ops.where(lam < _SLOW, some, 1.0))
        near = ops.where(lam < _SLOW, inverse, _large_count(u, some, some, 1.0))
    draws = _first_count(u, near, lambda k: ops.special.pdtr(k, some))
    return ops.where(lam > 0, draws, 0.0)


def _first_count(u: Any, near: Any, distribution: Any) -> Any:
    """The least count whose distribution function is at least ``u``, by one that is near."""
    count = ops.maximum(ops.ceil(near), 0.0)
    less = ops.maximum(count - 1, 0.0)
    return ops.where(distribution(less) >= u, less, count)


@public("fdbr.random")
@drawing
def poisson(key: Any, lam: Any, shape: Shape | None = None, dtype: Any = np.int64) -> Any:
    """Counts of mean ``lam``: ``k`` has probability ``lam**k * exp(-lam) / k!``.

    Parameters
    ----------
    key
        A key.
    lam
        A number that is not negative, or an array of them that broadcasts to ``shape``.
    shape
        The shape of the result; by default that of ``lam``.
    dtype
        An integer dtype.

    Raises
    ------
    TypeError, ValueError
        If ``lam`` is negative, infinite or does not broadcast, the dtype is not one of integers, or
        a draw is larger than it holds.

    >>> import fdbr
    >>> fdbr.random.poisson(fdbr.random.key(0), 0.0, (3,)).tolist()
    [0, 0, 0]
    """
    u, dtype, lam = _counts("poisson", key, shape, dtype, lam=lam)
    if not holds((lam >= 0) & (lam < math.inf)):
        raise ValueError(f"fdbr.random.poisson: lam must not be negative or infinite, got {lam!r}")
    draws = _poisson_count(u, ops.zeros_like(u) + lam)
    return _give_counts("poisson", draws, dtype, lam=lam)


@public("fdbr.random")
@drawing
def binomial(key: Any, n: Any, p: Any, shape: Shape | None = None, dtype: Any = np.int64) -> Any:
    """Counts of successes among ``n`` trials, each of probability ``p``.

    Arguments and errors as for `poisson`.

    >>> import fdbr
    >>> fdbr.random.binomial(fdbr.random.key(0), 10, 1.0, (2,)).tolist()
    [10, 10]
    """
    u, dtype, n, p = _counts("binomial", key, shape, dtype, n=n, p=p)
    if not (holds((n >= 0) & (n < math.inf)) and holds(p >= 0) and holds(p <= 1)):
        raise ValueError(
            "fdbr.random.binomial: n must not be negative or infinite, and p lie in [0, 1], got "
            f"{n!r} and {p!r}"
        )
    n, p = ops.zeros_like(u) + n, ops.zeros_like(u) + p
    return _give_counts("binomial", _binomial_count(u, n, p), dtype, n=n, p=p)


_MANY = 1e9  # trials from which on SciPy's inverse is inexact for large probabilities
_RARE = 1e-12  # a probability below which binomial and Poisson distributions are the same


def _binomial_count(u: Any, n: Any, p: Any) -> Any:
    rare, large = (p < _RARE) & (p > 0), n * p * (1 - p) >= _LARGE
    mirrored = (p > 0.5) & (n >= _MANY)
    if holds(~(rare | large | mirrored)):
        return _small_binomial_count(u, n, p)
    # Failures are counted instead of successes.
    u, p = ops.where(mirrored, 1 - u, u), ops.where(mirrored, 1 - p, p)
    rare, mean = (p < _RARE) & (p > 0), n * p
    draws = _small_binomial_count(u, ops.where(rare | large, 1.0, n), ops.where(rare, 0.5, p))
    rounded = ops.round(_large_count(u, mean, mean * (1 - p), 1 - 2 * p))
    draws = ops.where(large, rounded, draws)
    draws = ops.where(rare, _poisson_count(u, ops.where(rare, mean, 1.0)), draws)
    draws = ops.minimum(draws, n)
    return ops.where(mirrored, n - draws, draws)


def _small_binomial_count(u: Any, n: Any, p: Any) -> Any:
    sure = (p <= 0) | (p >= 1) | (n <= 0)
    trials, chance = ops.where(sure, 1.0, n), ops.where(sure, 0.5, p)
    distribution = functools.partial(_binomial_cdf, trials, chance)
    draws = _first_count(u, ops.special.bdtrik(u, trials, chance), distribution)
    return ops.where(sure, ops.where(p >= 1, n, 0.0), ops.minimum(draws, n))


def _binomial_cdf(n: Any, p: Any, k: Any) -> Any:
    below = ops.minimum(k, n - 1)
    return ops.where(k >= n, 1.0, ops.special.betainc(n - below, below + 1, 1 - p))


@public("fdbr.random")
@drawing
def geometric(key: Any, p: Any, shape: Shape | None = None, dtype: Any = np.int64) -> Any:
    """Numbers of trials up to the first success, from one on.

    ``k`` has probability ``(1-p)**(k-1) * p``.  Arguments and errors as for `poisson`.

    >>> import fdbr
    >>> fdbr.random.geometric(fdbr.random.key(0), 1.0, (3,)).tolist()
    [1, 1, 1]
    """
    u, dtype, p = _counts("geometric", key, shape, dtype, p=p)
    if not (holds(p > 0) and holds(p <= 1)):
        raise ValueError(f"fdbr.random.geometric: p must lie in (0, 1], got {p!r}")
    chance = ops.zeros_like(u) + p
    draws = ops.ceil(ops.log(u) / ops.log1p(-ops.where(chance < 1, chance, 0.5)))
    draws = ops.where(chance < 1, ops.maximum(draws, 1.0), 1.0)
    return _give_counts("geometric", draws, dtype, p=p)


@public("fdbr.random")
@drawing
def rademacher(key: Any, shape: Shape = (), dtype: Any = np.int64) -> Any:
    """One or minus one, with equal probabilities.

    Raises
    ------
    TypeError, ValueError
        If the key or the shape is none, or the dtype has no -1.

    >>> import fdbr
    >>> bool((abs(fdbr.random.rademacher(fdbr.random.key(0), (9,))) == 1).all())
    True
    """
    shape, _ = checked("rademacher", key, shape, np.float64)
    if np.dtype(dtype).kind in "bu":
        raise TypeError(f"fdbr.random.rademacher: dtype must hold -1, which {dtype} does not")
    u, _ = open_unit("rademacher", key, shape, np.float64)
    return give(ops.where(u < 0.5, -1.0, 1.0), np.dtype(dtype))
