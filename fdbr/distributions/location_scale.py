"""Distributions on the real line that have a location and a scale, and the uniform one."""

import math
from typing import Any, ClassVar

import numpy as np

from fdbr import ops, random
from fdbr.core.tracer import holds, stop_gradient
from fdbr.distributions.distribution import Distribution, broadcast, chance, inside
from fdbr.distributions.ranges import check_shapes
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.tree import frozen

__all__ = ["Cauchy", "Gumbel", "Laplace", "Uniform"]


@public("fdbr.distributions")
@frozen
class Cauchy(Distribution):
    """The Cauchy distribution: the density is ``1 / (pi * scale * (1 + z**2))``.

    It has neither mean nor variance: these are NaN.

    Attributes
    ----------
    loc, scale
        The median, and half the distance of the quartiles; ``z = (x - loc) / scale``.

    >>> from fdbr.distributions import Cauchy
    >>> round(float(Cauchy(0.0, 1.0).cdf(1.0)), 9)
    0.75
    """

    loc: Any = 0.0
    scale: Any = 1.0

    ranges: ClassVar = {"loc": "finite", "scale": "positive and finite"}

    @property
    def mean(self) -> Any:
        return broadcast(self.loc * math.nan, self)

    @property
    def variance(self) -> Any:
        return self.mean

    @property
    def mode(self) -> Any:
        return broadcast(self.loc, self)

    def _log_prob(self, x: Any) -> Any:
        z = (x - self.loc) / self.scale
        return -math.log(math.pi) - ops.log(self.scale) - 2 * ops.log(ops.hypot(z, 1.0))

    def _cdf(self, x: Any) -> Any:
        # atan2 keeps the digits of the lower tail, which 1/2 + atan(z) / pi loses.
        return ops.atan2(ops.ones_like(z := (x - self.loc) / self.scale), -z) / math.pi

    def _survival(self, x: Any) -> Any:
        return ops.atan2(ops.ones_like(z := (x - self.loc) / self.scale), z) / math.pi

    def _icdf(self, q: Any) -> Any:
        # In the tails by what is left to 0 or 1, whose digits q - 1/2 loses.
        q = chance(q)
        middle = ops.abs(q - 0.5) < 0.25
        near = ops.tan(math.pi * (ops.where(middle, q, 0.5) - 0.5))
        tail = ops.where(middle, 0.25, ops.minimum(q, 1 - q))
        far = ops.where(q < 0.5, -1.0, 1.0) / ops.tan(math.pi * tail)
        return self.loc + self.scale * ops.where(middle, near, far)

    def entropy(self) -> Any:
        return broadcast(math.log(4 * math.pi) + ops.log(self.scale), self)

    def _draw(self, key: Any, shape: tuple[int, ...]) -> Any:
        return self.loc + self.scale * random.cauchy(key, shape, self.dtype)


@public("fdbr.distributions")
@frozen
class Gumbel(Distribution):
    """The Gumbel distribution of largest values: ``cdf(x) = exp(-exp(-z))``.

    Attributes
    ----------
    loc, scale
        The mode and the scale; ``z = (x - loc) / scale``.

    >>> from fdbr.distributions import Gumbel
    >>> round(float(Gumbel(0.0, 1.0).mean), 6)
    0.577216
    """

    loc: Any = 0.0
    scale: Any = 1.0

    ranges: ClassVar = {"loc": "finite", "scale": "positive and finite"}

    @property
    def mean(self) -> Any:
        return broadcast(self.loc + np.euler_gamma * self.scale, self)

    @property
    def mode(self) -> Any:
        return broadcast(self.loc, self)

    @property
    def variance(self) -> Any:
        return broadcast(math.pi**2 / 6 * self.scale**2, self)

    def _log_prob(self, x: Any) -> Any:
        def density(x: Any) -> Any:
            z = (x - self.loc) / self.scale
            return -(z + ops.exp(-z)) - ops.log(self.scale)

        return inside(x > -math.inf, x, self.loc, density)

    def _cdf(self, x: Any) -> Any:
        return ops.exp(self._log_cdf(x))

    def _log_cdf(self, x: Any) -> Any:
        return -ops.exp((self.loc - x) / self.scale)

    def _survival(self, x: Any) -> Any:
        return -ops.expm1(self._log_cdf(x))

    def _icdf(self, q: Any) -> Any:
        return self.loc - self.scale * ops.log(-ops.log(chance(q)))

    def entropy(self) -> Any:
        return broadcast(ops.log(self.scale) + (1 + np.euler_gamma), self)

    def _draw(self, key: Any, shape: tuple[int, ...]) -> Any:
        return self.loc + self.scale * random.gumbel(key, shape, self.dtype)


@public("fdbr.distributions")
@frozen
class Laplace(Distribution):
    """The Laplace distribution: the density is ``exp(-abs(z)) / (2 * scale)``.

    Attributes
    ----------
    loc, scale
        The mean, and the mean distance from it; ``z = (x - loc) / scale``.

    >>> from fdbr.distributions import Laplace
    >>> float(Laplace(1.0, 2.0).cdf(1.0))
    0.5
    """

    loc: Any = 0.0
    scale: Any = 1.0

    ranges: ClassVar = {"loc": "finite", "scale": "positive and finite"}

    @property
    def mean(self) -> Any:
        return broadcast(self.loc, self)

    @property
    def mode(self) -> Any:
        return self.mean

    @property
    def variance(self) -> Any:
        return broadcast(2 * self.scale**2, self)

    def _log_prob(self, x: Any) -> Any:
        return -ops.abs((x - self.loc) / self.scale) - ops.log(self.scale) - math.log(2)

    def _cdf(self, x: Any) -> Any:
        return _laplace_cdf((x - self.loc) / self.scale)

    def _survival(self, x: Any) -> Any:
        return _laplace_cdf((self.loc - x) / self.scale)

    def _icdf(self, q: Any) -> Any:
        q, lower = chance(q), q < 0.5
        away = ops.log(2 * ops.where(lower, q, 1 - q))
        return self.loc + self.scale * ops.where(lower, away, -away)

    def entropy(self) -> Any:
        return broadcast(1 + math.log(2) + ops.log(self.scale), self)

    def _draw(self, key: Any, shape: tuple[int, ...]) -> Any:
        return self.loc + self.scale * random.laplace(key, shape, self.dtype)


def _laplace_cdf(z: Any) -> Any:
    half = 0.5 * ops.exp(-ops.abs(z))
    return ops.where(z < 0, half, 1 - half)


@public("fdbr.distributions")
@frozen
class Uniform(Distribution):
    """The uniform distribution on [low, high).

    Attributes
    ----------
    low, high
        The bounds.

    >>> from fdbr.distributions import Uniform
    >>> float(Uniform(0.0, 4.0).cdf(1.0))
    0.25
    """

    low: Any = 0.0
    high: Any = 1.0

    ranges: ClassVar = {"low": "finite", "high": "finite"}

    def _check(self, kind: str, given: dict[str, Any]) -> None:
        check_shapes(kind, **given)
        if not holds(stop_gradient(self.low) < stop_gradient(self.high)):
            raise ValueError(
                f"fdbr.distributions.{kind}: low must lie below high, got {describe(self.low)} "
                f"and {describe(self.high)}"
            )

    support = "[low, high)"

    @property
    def mean(self) -> Any:
        return broadcast((self.low + self.high) / 2, self)

    @property
    def mode(self) -> Any:
        """The mean: all values are as probable."""
        return self.mean

    @property
    def variance(self) -> Any:
        return broadcast((self.high - self.low) ** 2 / 12, self)

    def _log_prob(self, x: Any) -> Any:
        within = (x >= self.low) & (x < self.high)
        return inside(within, x, self.low, lambda x: 0 * x - ops.log(self.high - self.low))

    def _cdf(self, x: Any) -> Any:
        return ops.clip((x - self.low) / (self.high - self.low), 0.0, 1.0)

    def _icdf(self, q: Any) -> Any:
        return self.low + chance(q) * (self.high - self.low)

    def entropy(self) -> Any:
        return broadcast(ops.log(self.high - self.low), self)

    def _draw(self, key: Any, shape: tuple[int, ...]) -> Any:
        return random.uniform(key, shape, self.dtype, self.low, self.high)
