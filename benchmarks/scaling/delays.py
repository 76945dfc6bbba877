"""Stragglers: by how much ranks are slower than they might be, in a step."""

import math
from collections.abc import Callable

import attrs
import numpy as np
from scipy import integrate, stats

__all__ = ["Exponential", "Hiccups", "Normal", "OneSlow", "Steady", "expected_normal_maximum"]


@attrs.frozen
class Steady:
    """No rank is ever late."""

    def factors(self, generator: np.random.Generator, ranks: int) -> np.ndarray:
        """By what the times of each rank are multiplied in a step."""
        return np.ones(ranks)

    def expected_maximum(self, ranks: int) -> float:
        """The mean of the largest factor."""
        return 1.0


@attrs.frozen
class Normal:
    """Times are spread normally around their mean, in every step anew.

    Attributes
    ----------
    spread
        The standard deviation, as a part of the mean; a factor is at least a tenth.
    """

    spread: float

    def factors(self, generator: np.random.Generator, ranks: int) -> np.ndarray:
        return np.maximum(1 + self.spread * generator.standard_normal(ranks), 0.1)

    def expected_maximum(self, ranks: int) -> float:
        """As if no factor were held at a tenth."""
        return 1 + self.spread * expected_normal_maximum(ranks)


@attrs.frozen
class Exponential:
    """What a rank needs beyond its least time is exponential, with this mean."""

    mean: float

    def factors(self, generator: np.random.Generator, ranks: int) -> np.ndarray:
        return 1 + self.mean * generator.standard_exponential(ranks)

    def expected_maximum(self, ranks: int) -> float:
        """The mean times the harmonic number of ranks, beyond one."""
        return 1 + self.mean * math.fsum(1 / i for i in range(1, ranks + 1))


@attrs.frozen
class Hiccups:
    """Now and then a rank takes much longer: garbage collection, a page from disk."""

    probability: float
    factor: float

    def factors(self, generator: np.random.Generator, ranks: int) -> np.ndarray:
        return np.where(generator.random(ranks) < self.probability, self.factor, 1.0)

    def expected_maximum(self, ranks: int) -> float:
        nobody = (1 - self.probability) ** ranks
        return nobody + (1 - nobody) * self.factor


@attrs.frozen
class OneSlow:
    """One rank is slower than the others in every step: a hot or shared machine."""

    factor: float

    def factors(self, generator: np.random.Generator, ranks: int) -> np.ndarray:
        factors = np.ones(ranks)
        factors[ranks // 2] = self.factor
        return factors

    def expected_maximum(self, ranks: int) -> float:
        return max(1.0, self.factor) if ranks > 1 else self.factor


def expected_normal_maximum(ranks: int) -> float:
    """The mean of the largest of so many standard normal numbers."""

    def weighted(x: float) -> float:
        return float(x * ranks * stats.norm.pdf(x) * stats.norm.cdf(x) ** (ranks - 1))

    return integrate.quad(weighted, -10, 10, points=[0.0, 3.0], limit=200)[0]


Delay = Steady | Normal | Exponential | Hiccups | OneSlow
Draw = Callable[[np.random.Generator, int], np.ndarray]
