"""Distributions of probabilities: of one, and of several that sum to one."""

from typing import Any, ClassVar

from fdbr import ops, random
from fdbr.distributions.accurate import gamma_entropy
from fdbr.distributions.distribution import Distribution, broadcast, check_vector, inside
from fdbr.errors.public import public
from fdbr.ops import special
from fdbr.tree import frozen

__all__ = ["Beta", "Dirichlet"]


@public("fdbr.distributions")
@frozen
class Beta(Distribution):
    """The beta distribution: the density goes as ``x**(a - 1) * (1 - x)**(b - 1)``.

    Attributes
    ----------
    concentration1, concentration0
        ``a`` and ``b``.

    >>> from fdbr.distributions import Beta
    >>> Beta(2.0, 6.0).mean.tolist()
    0.25
    """

    concentration1: Any
    concentration0: Any

    support = "[0, 1]"
    ranges: ClassVar = dict.fromkeys(("concentration1", "concentration0"), "positive and finite")

    @property
    def mean(self) -> Any:
        a, b = self.concentration1, self.concentration0
        return broadcast(a / (a + b), self)

    @property
    def mode(self) -> Any:
        """The value of the largest density, where both concentrations are above 1; else NaN."""
        a, b = self.concentration1, self.concentration0
        both = ops.where((a > 1) & (b > 1), a + b - 2, float("nan"))
        return broadcast((a - 1) / both, self)

    @property
    def variance(self) -> Any:
        a, b = self.concentration1, self.concentration0
        return broadcast(a * b / ((a + b) ** 2 * (a + b + 1)), self)

    def _log_prob(self, x: Any) -> Any:
        a, b = self.concentration1, self.concentration0

        def density(x: Any) -> Any:
            return ops.xlogy(a - 1, x) + ops.xlog1py(b - 1, -x) - ops.betaln(a, b)

        return inside((x >= 0) & (x <= 1), x, 0.5, density)

    def _cdf(self, x: Any) -> Any:
        return ops.betainc(self.concentration1, self.concentration0, ops.clip(x, 0.0, 1.0))

    def _survival(self, x: Any) -> Any:
        x = ops.clip(x, 0.0, 1.0)
        return special.betaincc(self.concentration1, self.concentration0, x)

    def _icdf(self, q: Any) -> Any:
        return special.betaincinv(self.concentration1, self.concentration0, q)

    def entropy(self) -> Any:
        a, b = self.concentration1, self.concentration0
        parts = gamma_entropy(a) + gamma_entropy(b)
        return broadcast(parts - gamma_entropy(a + b) - ops.digamma(a + b), self)

    def _draw(self, key: Any, shape: tuple[int, ...]) -> Any:
        return random.beta(key, self.concentration1, self.concentration0, shape, self.dtype)


def _rounding(x: Any) -> float:
    """Return the largest distance of a sum of probabilities from one."""
    return max(1e-6, float(ops.finfo(x.dtype).eps) ** 0.5) if hasattr(x, "dtype") else 1e-6


@public("fdbr.distributions")
@frozen
class Dirichlet(Distribution):
    """Probabilities that sum to one: the density goes as ``prod(x**(concentration - 1))``.

    Parameters
    ----------
    concentration
        Positive, shape ``(..., n)``.

    `log_prob` is -inf for vectors with a negative element, or a sum that differs from 1 by more
    than 1e-6 in float64 and 3.5e-4 in float32.

    Raises
    ------
    ValueError
        If it has no axis.

    >>> import numpy as np
    >>> from fdbr.distributions import Dirichlet
    >>> Dirichlet(np.array([1.0, 3.0])).mean.tolist()
    [0.25, 0.75]
    """

    concentration: Any

    def __init__(self, concentration: Any) -> None:
        check_vector("Dirichlet", "concentration", concentration)
        self.__attrs_init__(concentration)  # type: ignore[attr-defined]

    support = "simplex"
    ranges: ClassVar = {"concentration": "positive and finite"}

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return tuple(self.concentration.shape[:-1])

    @property
    def event_shape(self) -> tuple[int, ...]:
        return tuple(self.concentration.shape[-1:])

    @property
    def total(self) -> Any:
        """The sum of the concentrations, with its axis."""
        return ops.sum(self.concentration, axis=-1, keepdims=True)

    @property
    def mean(self) -> Any:
        return self.concentration / self.total

    @property
    def variance(self) -> Any:
        return self.mean * (1 - self.mean) / (self.total + 1)

    @property
    def log_normalizer(self) -> Any:
        """The logarithm of what the product of powers is divided by."""
        total = ops.gammaln(ops.sum(self.concentration, axis=-1))
        return ops.sum(ops.gammaln(self.concentration), axis=-1) - total

    def _log_prob(self, x: Any) -> Any:
        unknown = ops.isnan(x)
        away = ops.abs(ops.sum(x, axis=-1) - 1)
        within = ops.all((x >= 0) | unknown, axis=-1) & ~(away > _rounding(x))
        some = ops.where((x >= 0) | unknown, x, 1.0)
        density = ops.sum(ops.xlogy(self.concentration - 1, some), axis=-1) - self.log_normalizer
        return ops.where(within, density, float("-inf"))

    def entropy(self) -> Any:
        a = self.concentration
        total = ops.sum(a, axis=-1)
        rest = gamma_entropy(total) + (self.event_shape[0] - 1) * ops.digamma(total)
        return ops.sum(gamma_entropy(a), axis=-1) - rest

    def _draw(self, key: Any, shape: tuple[int, ...]) -> Any:
        return random.dirichlet(key, self.concentration, shape, self.dtype)
