"""Distributions of positive numbers."""

import math
from typing import Any, ClassVar

from fdbr import ops, random
from fdbr.distributions.accurate import gamma_entropy
from fdbr.distributions.distribution import Distribution, broadcast, chance, inside
from fdbr.errors.public import public
from fdbr.ops import special
from fdbr.tree import frozen

__all__ = ["Chi2", "Exponential", "Gamma", "Pareto"]


def _positive(x: Any) -> Any:
    """A value, with 0 where it is negative."""
    return ops.maximum(x, 0.0)


@public("fdbr.distributions")
@frozen
class Exponential(Distribution):
    """The exponential distribution: the density is ``rate * exp(-rate * x)``.

    Attributes
    ----------
    rate
        One over the mean.

    >>> from fdbr.distributions import Exponential
    >>> Exponential(2.0).mean.tolist()
    0.5
    """

    rate: Any = 1.0

    support = "positive"
    ranges: ClassVar = {"rate": "positive and finite"}

    @property
    def mean(self) -> Any:
        return broadcast(1 / self.rate, self)

    @property
    def mode(self) -> Any:
        return broadcast(0 * self.rate, self)

    @property
    def variance(self) -> Any:
        return broadcast(1 / self.rate**2, self)

    def _log_prob(self, x: Any) -> Any:
        return inside(x >= 0, x, 0.0, lambda x: ops.log(self.rate) - self.rate * x)

    def _cdf(self, x: Any) -> Any:
        return -ops.expm1(-self.rate * _positive(x))

    def _survival(self, x: Any) -> Any:
        return ops.exp(-self.rate * _positive(x))

    def _log_survival(self, x: Any) -> Any:
        return -self.rate * _positive(x)

    def _icdf(self, q: Any) -> Any:
        return -ops.log1p(-chance(q)) / self.rate

    def entropy(self) -> Any:
        return broadcast(1 - ops.log(self.rate), self)

    def _draw(self, key: Any, shape: tuple[int, ...]) -> Any:
        return random.exponential(key, shape, self.dtype) / self.rate


@public("fdbr.distributions")
@frozen
class Gamma(Distribution):
    """The gamma distribution: the density goes as ``x**(concentration - 1) * exp(-rate * x)``.

    Attributes
    ----------
    concentration, rate
        The shape, and one over the scale.

    >>> from fdbr.distributions import Gamma
    >>> Gamma(3.0, 2.0).mean.tolist()
    1.5
    """

    concentration: Any
    rate: Any = 1.0

    support = "positive"
    ranges: ClassVar = dict.fromkeys(("concentration", "rate"), "positive and finite")

    @property
    def mean(self) -> Any:
        return broadcast(self.concentration / self.rate, self)

    @property
    def mode(self) -> Any:
        return broadcast(_positive((self.concentration - 1) / self.rate), self)

    @property
    def variance(self) -> Any:
        return broadcast(self.concentration / self.rate**2, self)

    def _log_prob(self, x: Any) -> Any:
        a, b = self.concentration, self.rate
        return inside(
            (x >= 0) & (x < math.inf),
            x,
            1.0,
            lambda x: ops.xlogy(a - 1, x) - b * x + a * ops.log(b) - ops.gammaln(a),
        )

    def _cdf(self, x: Any) -> Any:
        return ops.gammainc(self.concentration, self.rate * _positive(x))

    def _survival(self, x: Any) -> Any:
        return ops.gammaincc(self.concentration, self.rate * _positive(x))

    def _icdf(self, q: Any) -> Any:
        return special.gammaincinv(self.concentration, q) / self.rate

    def entropy(self) -> Any:
        return broadcast(gamma_entropy(self.concentration) - ops.log(self.rate), self)

    def _draw(self, key: Any, shape: tuple[int, ...]) -> Any:
        return random.gamma(key, self.concentration, shape, self.dtype) / self.rate


@public("fdbr.distributions")
@frozen
class Chi2(Distribution):
    """The distribution of the sum of the squares of ``df`` standard normal numbers.

    It is ``Gamma(df / 2, 1 / 2)``.

    Attributes
    ----------
    df
        The degrees of freedom, a positive number.

    >>> from fdbr.distributions import Chi2
    >>> Chi2(3.0).variance.tolist()
    6.0
    """

    df: Any

    support = "positive"
    ranges: ClassVar = {"df": "positive and finite"}

    @property
    def as_gamma(self) -> Gamma:
        """The gamma distribution that it is."""
        return Gamma(self.df / 2, 0.5)

    @property
    def mean(self) -> Any:
        return broadcast(self.df, self)

    @property
    def mode(self) -> Any:
        return broadcast(_positive(self.df - 2), self)

    @property
    def variance(self) -> Any:
        return broadcast(2 * self.df, self)

    def _log_prob(self, x: Any) -> Any:
        return self.as_gamma.log_prob(x)

    def _cdf(self, x: Any) -> Any:
        return self.as_gamma.cdf(x)

    def _survival(self, x: Any) -> Any:
        return self.as_gamma.survival(x)

    def _icdf(self, q: Any) -> Any:
        return self.as_gamma.icdf(q)

    def entropy(self) -> Any:
        return self.as_gamma.entropy()

    def _draw(self, key: Any, shape: tuple[int, ...]) -> Any:
        return self.as_gamma._draw(key, shape)


@public("fdbr.distributions")
@frozen
class Pareto(Distribution):
    """The Pareto distribution: ``survival(x) = (scale / x)**alpha`` from ``scale`` on.

    Attributes
    ----------
    scale, alpha
        The least value, and the exponent.  For ``alpha`` up to 1 the mean is infinite, up to 2 the
        variance.

    >>> from fdbr.distributions import Pareto
    >>> Pareto(1.0, 3.0).mean.tolist()
    1.5
    """

    scale: Any
    alpha: Any

    support = "[scale, inf)"
    ranges: ClassVar = dict.fromkeys(("scale", "alpha"), "positive and finite")

    @property
    def mean(self) -> Any:
        some = ops.where(self.alpha > 1, self.alpha, 2.0)
        return broadcast(ops.where(self.alpha > 1, some * self.scale / (some - 1), math.inf), self)

    @property
    def mode(self) -> Any:
        return broadcast(self.scale, self)

    @property
    def variance(self) -> Any:
        some = ops.where(self.alpha > 2, self.alpha, 3.0)
        finite = self.scale**2 * some / ((some - 1) ** 2 * (some - 2))
        return broadcast(ops.where(self.alpha > 2, finite, math.inf), self)

    def _logs(self, x: Any) -> Any:
        """``log(x / scale)``, 0 below the least value."""
        return ops.log(ops.maximum(x / self.scale, 1.0))

    def _log_prob(self, x: Any) -> Any:
        def density(x: Any) -> Any:
            return ops.log(self.alpha / x) - self.alpha * self._logs(x)

        return inside(x >= self.scale, x, self.scale, density)

    def _cdf(self, x: Any) -> Any:
        return -ops.expm1(-self.alpha * self._logs(x))

    def _survival(self, x: Any) -> Any:
        return ops.exp(self._log_survival(x))

    def _log_survival(self, x: Any) -> Any:
        return -self.alpha * self._logs(x)

    def _icdf(self, q: Any) -> Any:
        return self.scale * ops.exp(-ops.log1p(-chance(q)) / self.alpha)

    def entropy(self) -> Any:
        return broadcast(ops.log(self.scale / self.alpha) + 1 / self.alpha + 1, self)

    def _draw(self, key: Any, shape: tuple[int, ...]) -> Any:
        return self.scale * random.pareto(key, self.alpha, shape, self.dtype)
