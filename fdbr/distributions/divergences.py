"""Kullback-Leibler divergences, and cross entropies, of distributions of one family."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr import ops
from fdbr.distributions.accurate import excess, gamma_divergence
from fdbr.distributions.discrete import (
    Bernoulli,
    Categorical,
    Geometric,
    OneHotCategorical,
    Poisson,
)
from fdbr.distributions.independent import Independent
from fdbr.distributions.location_scale import Cauchy, Gumbel, Laplace, Uniform
from fdbr.distributions.normal import LogNormal, MultivariateNormal, Normal
from fdbr.distributions.positive import Chi2, Exponential, Gamma, Pareto
from fdbr.distributions.simplex import Beta, Dirichlet
from fdbr.errors.public import public

__all__ = ["cross_entropy", "kl_divergence", "register_kl"]

_rules: dict[tuple[type, type], Callable[[Any, Any], Any]] = {}


@public("fdbr.distributions")
def register_kl(p: type, q: type) -> Callable[[Any], Any]:
    """A decorator: the function computes `kl_divergence` of two classes of distributions.

    >>> from fdbr.distributions import Exponential, Normal, kl_divergence, register_kl
    >>> @register_kl(Exponential, Normal)
    ... def exponential_and_normal(p, q):
    ...     return q.loc  # whatever it is
    >>> kl_divergence(Exponential(1.0), Normal(2.0, 1.0))
    2.0
    """

    def register(rule: Any) -> Any:
        _rules[p, q] = rule
        return rule

    return register


@public("fdbr.distributions")
def kl_divergence(p: Any, q: Any) -> Any:
    """The expectation of ``p.log_prob(x) - q.log_prob(x)`` for ``x`` drawn from ``p``, in nats.

    Parameters
    ----------
    p, q
        Distributions of one class, or of two for which there is a rule (`register_kl`).

    Returns
    -------
    array
        Of the shape to which their batch shapes broadcast.

    Raises
    ------
    NotImplementedError
        If there is no rule for the two classes.

    >>> from fdbr.distributions import Normal, kl_divergence
    >>> float(kl_divergence(Normal(1.0, 1.0), Normal(0.0, 1.0)))
    0.5
    """
    for one in type(p).__mro__:
        for other in type(q).__mro__:
            if (one, other) in _rules:
                return _rules[one, other](p, q)
    raise NotImplementedError(
        f"fdbr.distributions.kl_divergence: no rule for {type(p).__name__} and "
        f"{type(q).__name__}; register one with register_kl, or estimate it from samples"
    )


@public("fdbr.distributions")
def cross_entropy(p: Any, q: Any) -> Any:
    """The expectation of ``-q.log_prob(x)`` for ``x`` drawn from ``p``.

    It is ``p.entropy() + kl_divergence(p, q)``.  Arguments and errors as for `kl_divergence`.

    >>> from fdbr.distributions import Bernoulli, cross_entropy
    >>> round(float(cross_entropy(Bernoulli(1.0), Bernoulli(0.5))), 6)
    0.693147
    """
    return p.entropy() + kl_divergence(p, q)


def _of(kind: type) -> Callable[[Any], Any]:
    return register_kl(kind, kind)


@_of(Normal)
@_of(LogNormal)
def _normal(p: Any, q: Any) -> Any:
    ratio, away = p.scale / q.scale, (p.loc - q.loc) / q.scale
    return 0.5 * (excess(ratio * ratio, 1.0) + away * away)


@_of(MultivariateNormal)
def _multivariate_normal(p: Any, q: Any) -> Any:
    n = p.event_shape[0]
    z = q.whitened(p.loc)
    lead = np.broadcast_shapes(q.scale_tril.shape[:-2], p.scale_tril.shape[:-2])
    theirs, ours = (ops.broadcast_to(f.scale_tril, (*lead, n, n)) for f in (q, p))
    inside = ops.linalg.solve_triangular(theirs, ours, lower=True)
    squares = ops.sum(inside * inside, axis=(-2, -1)) + ops.sum(z * z, axis=-1)
    return 0.5 * (squares - n) + q.log_det - p.log_det


@_of(Uniform)
def _uniform(p: Any, q: Any) -> Any:
    covered = (q.low <= p.low) & (p.high <= q.high)
    return ops.where(covered, ops.log((q.high - q.low) / (p.high - p.low)), math.inf)


@_of(Cauchy)
def _cauchy(p: Any, q: Any) -> Any:
    # The divergence is log(((s + t)**2 + away**2) / (4 * s * t)).
    scale, away = (p.scale - q.scale) / q.scale, (p.loc - q.loc) / q.scale
    return ops.log1p((scale * scale + away * away) / (4 * (p.scale / q.scale)))


@_of(Gumbel)
def _gumbel(p: Any, q: Any) -> Any:
    ratio, away = p.scale / q.scale, (p.loc - q.loc) / q.scale
    rest = ops.expm1(ops.gammaln(ratio + 1) - away)
    return np.euler_gamma * (ratio - 1) - ops.log(ratio) + away + rest


@_of(Laplace)
def _laplace(p: Any, q: Any) -> Any:
    away = ops.abs(p.loc - q.loc) / p.scale
    ratio = p.scale / q.scale
    return ratio * (away + ops.expm1(-away)) + excess(p.scale, q.scale)


@_of(Exponential)
def _exponential(p: Any, q: Any) -> Any:
    return excess(q.rate, p.rate)


@_of(Gamma)
def _gamma(p: Any, q: Any) -> Any:
    a, b = p.concentration, q.concentration
    rest = a * excess(q.rate, p.rate) + (a - b) * ops.log(q.rate / p.rate)
    return gamma_divergence(a, b) + rest


@_of(Chi2)
def _chi2(p: Any, q: Any) -> Any:
    return _gamma(p.as_gamma, q.as_gamma)


@_of(Pareto)
def _pareto(p: Any, q: Any) -> Any:
    finite = q.alpha * ops.log(p.scale / q.scale) + excess(q.alpha, p.alpha)
    return ops.where(p.scale >= q.scale, finite, math.inf)


@_of(Beta)
def _beta(p: Any, q: Any) -> Any:
    a, b, c, d = p.concentration1, p.concentration0, q.concentration1, q.concentration0
    return gamma_divergence(a, c) + gamma_divergence(b, d) - gamma_divergence(a + b, c + d)


@_of(Dirichlet)
def _dirichlet(p: Any, q: Any) -> Any:
    each = ops.sum(gamma_divergence(p.concentration, q.concentration), axis=-1)
    return each - gamma_divergence(p.total, q.total)[..., 0]


def _expected(chance: Any, log_p: Any, log_q: Any) -> Any:
    """``chance * (log_p - log_q)``, 0 where the chance is 0."""
    never = chance == 0
    logs = ops.where(never, 0.0, log_p) - ops.where(never, 0.0, log_q)
    return ops.where(never, 0.0, chance * logs)


@_of(Bernoulli)
def _bernoulli(p: Any, q: Any) -> Any:
    return _expected(p.p, p.log_p, q.log_p) + _expected(p.q, p.log_q, q.log_q)


@_of(Geometric)
def _geometric(p: Any, q: Any) -> Any:
    if p.start != q.start:
        raise ValueError(
            "fdbr.distributions.kl_divergence: two Geometric must have one start, got "
            f"{p.start} and {q.start}"
        )
    return p.log_p - q.log_p + _expected(p.q, p.log_q, q.log_q) / p.p


@_of(Poisson)
def _poisson(p: Any, q: Any) -> Any:
    some = ops.where(p.rate > 0, p.rate, 1.0)
    return ops.where(p.rate > 0, some * excess(q.rate, some), q.rate)


@_of(Categorical)
@_of(OneHotCategorical)
def _categorical(p: Any, q: Any) -> Any:
    return ops.sum(_expected(p.p, p.log_p, q.log_p), axis=-1)


@_of(Independent)
def _independent(p: Any, q: Any) -> Any:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise ValueError(
            "fdbr.distributions.kl_divergence: two Independent must take as many axes, got "
            f"{p.reinterpreted_batch_ndims} and {q.reinterpreted_batch_ndims}"
        )
    return p.total(kl_divergence(p.base, q.base))
