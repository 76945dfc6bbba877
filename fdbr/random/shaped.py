"""Distributions with parameters of their own: gamma, beta, Dirichlet, counts, vectors.

Draws of floating numbers are differentiable by the parameters: each is a smooth function of them
and of numbers that do not depend on them (Figurnov, Mohamed & Mnih, *Implicit reparameterization
gradients*, NeurIPS 2018, find the same derivatives).
"""

import functools
from typing import Any

import numpy as np

from fdbr import ops
from fdbr.core.tracer import holds, stop_gradient
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.ops import special
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
    """Refuse parameters that are not positive."""
    for name, value in given.items():
        plain = stop_gradient(value)
        if not holds(plain > 0):
            raise ValueError(f"fdbr.random.{function}: {name} must be positive, got {value!r}")


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
    draws = ops.log(special.gammaincinv(a + 1, u))
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
        If ``lam`` is negative or does not broadcast, or the dtype is not one of integers.

    >>> import fdbr
    >>> fdbr.random.poisson(fdbr.random.key(0), 0.0, (3,)).tolist()
    [0, 0, 0]
    """
    u, dtype, lam = _counts("poisson", key, shape, dtype, lam=lam)
    if not holds(lam >= 0):
        raise ValueError(f"fdbr.random.poisson: lam must not be negative, got {lam!r}")
    some = ops.where(ops.zeros_like(u) + lam > 0, lam, 1.0)
    draws = _first_count(u, special.pdtrik(u, some), lambda k: special.pdtr(k, some))
    return give(ops.where(ops.zeros_like(u) + lam > 0, draws, 0.0), dtype)


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
    if not (holds(n >= 0) and holds(p >= 0) and holds(p <= 1)):
        raise ValueError(
            f"fdbr.random.binomial: n must not be negative and p lie in [0, 1], got {n!r} and {p!r}"
        )
    n, p = ops.zeros_like(u) + n, ops.zeros_like(u) + p
    sure = (p <= 0) | (p >= 1) | (n <= 0)
    trials, chance = ops.where(sure, 1.0, n), ops.where(sure, 0.5, p)
    distribution = functools.partial(_binomial_cdf, trials, chance)
    draws = _first_count(u, special.bdtrik(u, trials, chance), distribution)
    return give(ops.where(sure, ops.where(p >= 1, n, 0.0), ops.minimum(draws, n)), dtype)


def _binomial_cdf(n: Any, p: Any, k: Any) -> Any:
    below = ops.minimum(k, n - 1)
    return ops.where(k >= n, 1.0, special.betainc(n - below, below + 1, 1 - p))


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
    p = ops.zeros_like(u) + p
    draws = ops.ceil(ops.log(u) / ops.log1p(-ops.where(p < 1, p, 0.5)))
    return give(ops.where(p < 1, ops.maximum(draws, 1.0), 1.0), dtype)


@public("fdbr.random")
@drawing
def rademacher(key: Any, shape: Shape = (), dtype: Any = np.int64) -> Any:
    """One or minus one, with equal probabilities.

    >>> import fdbr
    >>> bool((abs(fdbr.random.rademacher(fdbr.random.key(0), (9,))) == 1).all())
    True
    """
    shape, _ = checked("rademacher", key, shape, np.float64)
    u, _ = open_unit("rademacher", key, shape, np.float64)
    return give(ops.where(u < 0.5, -1.0, 1.0), np.dtype(dtype))
