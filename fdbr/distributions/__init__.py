"""Probability distributions, as frozen classes of their parameters.

Densities, distribution functions, entropies and divergences are differentiable by values and
parameters, samples by the parameters where they can be; a distribution is a tree, so
`fdbr.vmap`, `fdbr.grad` and `fdbr.jit` take it as it is.

>>> import numpy as np
>>> import fdbr
>>> from fdbr.distributions import Normal, kl_divergence
>>> posterior, prior = Normal(np.array([0.5, 1.0]), 1.0), Normal(0.0, 1.0)
>>> kl_divergence(posterior, prior)
array([0.125, 0.5  ])
>>> fdbr.grad(lambda d: d.log_prob(2.0).sum())(posterior).loc
array([1.5, 1. ])
"""

from fdbr.distributions.discrete import (
    Bernoulli,
    Categorical,
    Geometric,
    OneHotCategorical,
    Poisson,
)
from fdbr.distributions.distribution import Distribution
from fdbr.distributions.divergences import cross_entropy, kl_divergence, register_kl
from fdbr.distributions.independent import Independent
from fdbr.distributions.location_scale import Cauchy, Gumbel, Laplace, Uniform
from fdbr.distributions.normal import LogNormal, MultivariateNormal, Normal
from fdbr.distributions.positive import Chi2, Exponential, Gamma, Pareto
from fdbr.distributions.simplex import Beta, Dirichlet
from fdbr.errors.names import missing_from

__all__ = [
    "Bernoulli",
    "Beta",
    "Categorical",
    "Cauchy",
    "Chi2",
    "Dirichlet",
    "Distribution",
    "Exponential",
    "Gamma",
    "Geometric",
    "Gumbel",
    "Independent",
    "Laplace",
    "LogNormal",
    "MultivariateNormal",
    "Normal",
    "OneHotCategorical",
    "Pareto",
    "Poisson",
    "Uniform",
    "cross_entropy",
    "kl_divergence",
    "register_kl",
]
__dir__ = __all__.copy  # `dir` shows the public names alone
globals().update(__getattr__=missing_from(__name__))  # type checkers see no `__getattr__`
