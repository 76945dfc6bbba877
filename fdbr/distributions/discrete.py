"""Distributions of counts, categories and truth values."""

import math
from typing import Any, ClassVar

import numpy as np

from fdbr import ops, random
from fdbr.distributions.accurate import LARGE
from fdbr.distributions.distribution import (
    Distribution,
    broadcast,
    chance,
    check_vector,
    exactly_one,
    inside,
    shape_of,
    stepped,
    times,
)
from fdbr.distributions.ranges import check_range
from fdbr.errors.public import public
from fdbr.ops import special
from fdbr.tree import frozen, static

__all__ = ["Bernoulli", "Categorical", "Geometric", "OneHotCategorical", "Poisson"]


@public("fdbr.distributions")
class _Chances:
    """A probability for each distribution, given as such or by its logit."""

    __slots__ = ()

    @property
    def p(self) -> Any:
        """The probability."""
        logits: Any = self.logits  # type: ignore[attr-defined]
        return self.probs if logits is None else ops.sigmoid(logits)  # type: ignore[attr-defined]

    @property
    def q(self) -> Any:
        """The other probability, ``1 - p``."""
        logits: Any = self.logits  # type: ignore[attr-defined]
        return 1 - self.p if logits is None else ops.sigmoid(-logits)

    @property
    def log_p(self) -> Any:
        """Its logarithm."""
        logits: Any = self.logits  # type: ignore[attr-defined]
        return _log(self.p) if logits is None else ops.log_sigmoid(logits)

    @property
    def log_q(self) -> Any:
        """The logarithm of what is left to one."""
        logits: Any = self.logits  # type: ignore[attr-defined]
        if logits is None:
            return inside(self.p < 1, self.p, 0.0, lambda p: ops.log1p(-p))
        return ops.log_sigmoid(-logits)


def _log(p: Any) -> Any:
    """The logarithm, -inf of 0 without a warning or a derivative."""
    return inside(p > 0, p, 1.0, ops.log)


@public("fdbr.distributions")
@frozen
class Bernoulli(_Chances, Distribution):
    """One with a probability, zero otherwise.

    Parameters
    ----------
    probs
        The probability of one.
    logits
        ``log(p / (1 - p))``, in its place.

    Raises
    ------
    ValueError
        If not exactly one of them is given.

    >>> from fdbr.distributions import Bernoulli
    >>> round(float(Bernoulli(0.25).log_prob(1)), 6)
    -1.386294
    """

    probs: Any = None
    logits: Any = None

    reparametrized = False
    support = "{0, 1}"
    ranges: ClassVar = {"probs": "in [0, 1]", "logits": "numbers, not NaN"}

    def __init__(self, probs: Any = None, logits: Any = None) -> None:
        exactly_one("Bernoulli", probs=probs, logits=logits)
        self.__attrs_init__(probs, logits)  # type: ignore[attr-defined]

    @property
    def mean(self) -> Any:
        return broadcast(self.p, self)

    @property
    def mode(self) -> Any:
        return broadcast(ops.where(self.p > 0.5, 1.0, 0.0), self)

    @property
    def variance(self) -> Any:
        return broadcast(ops.exp(self.log_p + self.log_q), self)

    def _log_prob(self, x: Any) -> Any:
        return stepped(x, ops.where(x == 1, self.log_p, ops.where(x == 0, self.log_q, -math.inf)))

    def _cdf(self, x: Any) -> Any:
        return stepped(x, ops.where(x >= 1, 1.0, ops.where(x >= 0, self.q, 0.0)))

    def _survival(self, x: Any) -> Any:
        return stepped(x, ops.where(x >= 1, 0.0, ops.where(x >= 0, self.p, 1.0)))

    def _icdf(self, q: Any) -> Any:
        return stepped(chance(q), ops.where(q > self.q, 1.0, 0.0))

    def entropy(self) -> Any:
        return broadcast(-times(self.p, self.log_p) - times(self.q, self.log_q), self)

    def _draw(self, key: Any, shape: tuple[int, ...]) -> Any:
        return ops.astype(random.bernoulli(key, self.p, shape), self.dtype)


@public("fdbr.distributions")
@frozen
class Geometric(_Chances, Distribution):
    """The number of failures before the first success: ``k`` has probability ``p * (1-p)**k``.

    Parameters
    ----------
    probs
        The probability of success.
    logits
        ``log(p / (1 - p))``, in its place.
    start
        0, or 1 for the number of trials up to the first success, as in Chainer and SciPy.

    Raises
    ------
    ValueError
        If not exactly one of the first two is given, or ``start`` is neither 0 nor 1.

    >>> from fdbr.distributions import Geometric
    >>> Geometric(0.25).mean.tolist(), Geometric(0.25, start=1).mean.tolist()
    (3.0, 4.0)
    """

    probs: Any = None
    logits: Any = None
    start: int = static(default=0)

    reparametrized = False
    support = "counts"
    ranges: ClassVar = {"probs": "in (0, 1]", "logits": "numbers, not NaN"}

    def __init__(self, probs: Any = None, logits: Any = None, *, start: int = 0) -> None:
        exactly_one("Geometric", probs=probs, logits=logits)
        if start not in (0, 1):
            raise ValueError(f"fdbr.distributions.Geometric: start must be 0 or 1, got {start!r}")
        self.__attrs_init__(probs, logits, start)  # type: ignore[attr-defined]

    @property
    def mean(self) -> Any:
        return broadcast(self.q / self.p + self.start, self)

    @property
    def mode(self) -> Any:
        return broadcast(0 * self.p + self.start, self)

    @property
    def variance(self) -> Any:
        return broadcast(ops.exp(self.log_q - 2 * self.log_p), self)

    def _log_prob(self, x: Any) -> Any:
        failures = x - self.start
        whole = (failures >= 0) & (failures == ops.floor(failures))
        return inside(whole, failures, 0.0, lambda k: times(k, self.log_q) + self.log_p)

    def _failures(self, x: Any) -> Any:
        return ops.maximum(ops.floor(x) - self.start, -1.0)

    def _cdf(self, x: Any) -> Any:
        return -ops.expm1(self._log_survival(x))

    def _survival(self, x: Any) -> Any:
        return ops.exp(self._log_survival(x))

    def _log_survival(self, x: Any) -> Any:
        return times(self._failures(x) + 1, self.log_q)

    def _icdf(self, q: Any) -> Any:
        q = chance(q)
        certain = self.log_q == -math.inf  # at once
        below = ops.where(certain | (q == 1), 0.0, q)
        near = ops.ceil(ops.log1p(-below) / ops.where(certain, -1.0, self.log_q)) - 1
        near = ops.maximum(near, 0.0) + self.start
        less = ops.maximum(near - 1, self.start)  # where the quotient was rounded up
        found = ops.where(self._cdf(less) >= below, less, near)
        return stepped(q, ops.where((q == 1) & ~certain, math.inf, found))

    def entropy(self) -> Any:
        return broadcast(-self.log_p - times(self.q, self.log_q) / self.p, self)

    def _draw(self, key: Any, shape: tuple[int, ...]) -> Any:
        draws = random.geometric(key, self.p, shape)
        return ops.astype(draws + (self.start - 1), self.dtype)


@public("fdbr.distributions")
@frozen
class Poisson(Distribution):
    """Counts of independent events: ``k`` has probability ``rate**k * exp(-rate) / k!``.

    Attributes
    ----------
    rate
        The mean, which is the variance too.

    >>> from fdbr.distributions import Poisson
    >>> round(float(Poisson(2.0).log_prob(0)), 6)
    -2.0
    """

    rate: Any

    reparametrized = False
    support = "counts"
    ranges: ClassVar = {"rate": "at least 0 and finite"}

    @property
    def mean(self) -> Any:
        return broadcast(self.rate, self)

    @property
    def mode(self) -> Any:
        return broadcast(ops.floor(self.rate), self)

    @property
    def variance(self) -> Any:
        return self.mean

    def _log_prob(self, x: Any) -> Any:
        def mass(k: Any) -> Any:
            return ops.xlogy(k, self.rate) - self.rate - ops.gammaln(k + 1.0)

        return inside((x >= 0) & (x < math.inf) & (x == ops.floor(x)), x, 0.0, mass)

    def _cdf(self, x: Any) -> Any:
        counts = ops.maximum(ops.floor(x), 0.0)
        return stepped(x, ops.where(x >= 0, ops.gammaincc(counts + 1.0, self.rate), 0.0))

    def _survival(self, x: Any) -> Any:
        counts = ops.maximum(ops.floor(x), 0.0)
        return stepped(x, ops.where(x >= 0, ops.gammainc(counts + 1.0, self.rate), 1.0))

    def _icdf(self, q: Any) -> Any:
        q = chance(q)
        near = ops.maximum(ops.ceil(special.pdtrik(q, self.rate)), 0.0)
        less = ops.maximum(near - 1, 0.0)
        found = ops.where(self._cdf(less) >= q, less, near)
        return stepped(q, ops.where(self.rate == 0, 0.0, ops.where(q == 1, math.inf, found)))

    def entropy(self) -> Any:
        """``rate * (1 - log(rate))`` and the expectation of ``log(k!)``, as an integral.

        Large rates have an asymptotic series.  Binet's integral for the logarithm of a factorial,
        of which the expectation is in closed form, is
        ``(rate - (1 - exp(-rate * s)) / s) / -log(1 - s)`` over s from 0 to 1.
        """
        rate = broadcast(self.rate, self)
        is_large = rate >= LARGE
        r = 1 / ops.where(is_large, rate, LARGE)
        series = r * (1 / 12 + r * (1 / 24 + r * (19 / 360 + r * (9 / 80 + r * (863 / 2520)))))
        large = 0.5 + _HALF_LOG - 0.5 * ops.log(r) - series
        return ops.where(is_large, large, self._entropy_of_small(ops.where(is_large, 1.0, rate)))

    def _entropy_of_small(self, rate: Any) -> Any:
        steep = rate[..., None] * ops.asarray(_NODES, dtype=rate.dtype)
        tiny = steep < 1e-2
        series = steep / 2 * (1 - steep / 3 * (1 - steep / 4 * (1 - steep / 5)))
        some = ops.where(tiny, 1.0, steep)
        share = ops.where(tiny, series, 1 + ops.expm1(-some) / some)
        factorial = rate * ops.sum(share * ops.asarray(_WEIGHTS, dtype=rate.dtype), axis=-1)
        return rate - ops.xlogy(rate, rate) + factorial

    def _draw(self, key: Any, shape: tuple[int, ...]) -> Any:
        return ops.astype(random.poisson(key, self.rate, shape), self.dtype)


_HALF_LOG = 0.5 * math.log(2 * math.pi)


def _double_exponential() -> tuple[Any, Any]:
    """Nodes in (0, 1) and weights of tanh-sinh quadrature, with the factor ``1 / -log(1 - s)``.

    Takahasi & Mori, *Double exponential formulas for numerical integration*, 1974.
    """
    t = np.linspace(-4.0, 3.2, 220)
    inner = np.pi * np.sinh(t)
    s = 1 / (1 + np.exp(-inner))
    rest = 1 / (1 + np.exp(inner))  # 1 - s
    slope = np.pi * np.cosh(t) * s * rest
    logs = np.where(s < 0.5, -np.log1p(-np.minimum(s, 0.5)), -np.log(rest))
    return s, slope * (t[1] - t[0]) / logs


_NODES, _WEIGHTS = _double_exponential()


def _normalized(probs: Any) -> Any:
    """Probabilities along the last axis, divided by their sum."""
    return probs / ops.sum(probs, axis=-1, keepdims=True)


@public("fdbr.distributions")
@frozen
class Categorical(Distribution):
    """One of ``n`` categories, by its number from 0 on.

    Parameters
    ----------
    probs
        Probabilities along the last axis; they are divided by their sum.
    logits
        Unnormalised logarithms of them, in their place.

    Raises
    ------
    ValueError
        If not exactly one of them is given, or it has no axis.

    >>> import numpy as np
    >>> from fdbr.distributions import Categorical
    >>> round(float(Categorical(np.array([1.0, 3.0])).prob(1)), 6)
    0.75
    """

    probs: Any = None
    logits: Any = None

    reparametrized = False
    support = "categories"
    ranges: ClassVar = {
        "probs": "at least 0 and finite, with a positive sum along the last axis",
        "logits": "numbers below infinity, some of them above -infinity along the last axis",
    }

    def __init__(self, probs: Any = None, logits: Any = None) -> None:
        kind = type(self).__name__
        exactly_one(kind, probs=probs, logits=logits)
        check_vector(kind, "probs" if logits is None else "logits", self._given(probs, logits))
        if probs is not None:
            check_range(kind, "probs", probs, self.ranges["probs"])  # before it is divided
            probs = _normalized(probs)
        self.__attrs_init__(probs, logits)  # type: ignore[attr-defined]

    @staticmethod
    def _given(probs: Any, logits: Any) -> Any:
        return probs if logits is None else logits

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return tuple(self._given(self.probs, self.logits).shape[:-1])

    @property
    def count(self) -> int:
        """The number of categories."""
        return int(self._given(self.probs, self.logits).shape[-1])

    @property
    def p(self) -> Any:
        """The probabilities, which sum to one."""
        if self.logits is not None:
            return ops.softmax(self.logits, axis=-1)
        return _normalized(self.probs)  # which a transformation of trees may have changed

    @property
    def log_p(self) -> Any:
        """Their logarithms."""
        return _log(self.p) if self.logits is None else ops.log_softmax(self.logits, axis=-1)

    @property
    def mode(self) -> Any:
        return ops.argmax(self.p, axis=-1)

    def _log_prob(self, x: Any) -> Any:
        x = ops.asarray(x)
        within = (x >= 0) & (x < self.count) & (x == ops.floor(x))
        lead = shape_of(x, self.log_p[..., 0])
        places = ops.broadcast_to(ops.astype(ops.where(within, x, 0), np.int64), lead)
        logs = ops.broadcast_to(self.log_p, (*lead, self.count))
        found = ops.take_along_axis(logs, ops.expand_dims(places, axis=-1), axis=-1)
        return stepped(x, ops.where(within, ops.squeeze(found, axis=-1), -math.inf))

    def _cdf(self, x: Any) -> Any:
        x = ops.asarray(x)
        numbers = ops.asarray(np.arange(self.count), dtype=self.dtype)
        up_to = numbers <= ops.expand_dims(x, axis=-1)
        return stepped(x, ops.sum(ops.where(up_to, self.p, 0.0), axis=-1))

    def _icdf(self, q: Any) -> Any:
        q = chance(ops.asarray(q))
        below = ops.cumulative_sum(self.p, axis=-1) < ops.expand_dims(q, axis=-1)
        found = ops.minimum(ops.sum(ops.astype(below, self.dtype), axis=-1), self.count - 1)
        return stepped(q, found)

    def entropy(self) -> Any:
        return -ops.sum(times(self.p, self.log_p), axis=-1)

    def _draw(self, key: Any, shape: tuple[int, ...]) -> Any:
        return random.categorical(key, self.log_p, shape=shape)


@public("fdbr.distributions")
@frozen
class OneHotCategorical(Categorical):
    """One of ``n`` categories, as a vector that is 1 there and 0 elsewhere.

    Parameters
    ----------
    probs, logits
        As for `Categorical`.

    >>> import numpy as np
    >>> import fdbr
    >>> from fdbr.distributions import OneHotCategorical
    >>> OneHotCategorical(np.array([0.0, 1.0])).sample(fdbr.random.key(0)).tolist()
    [0.0, 1.0]
    """

    support = "one-hot vectors"

    def __init__(self, probs: Any = None, logits: Any = None) -> None:
        Categorical.__init__(self, probs, logits)

    @property
    def event_shape(self) -> tuple[int, ...]:
        return (self.count,)

    @property
    def mean(self) -> Any:
        return self.p

    @property
    def variance(self) -> Any:
        return self.p * (1 - self.p)

    @property
    def mode(self) -> Any:
        return ops.one_hot(ops.argmax(self.p, axis=-1), self.count, dtype=self.dtype)

    def _log_prob(self, x: Any) -> Any:
        x = ops.asarray(x)
        within = ops.all((x == 0) | (x == 1), axis=-1) & (ops.sum(x, axis=-1) == 1)
        found = ops.where(within, ops.sum(times(x, self.log_p), axis=-1), -math.inf)
        return stepped(ops.sum(x, axis=-1), found)

    def _cdf(self, x: Any) -> Any:
        raise self._lacks("cdf")

    def _icdf(self, q: Any) -> Any:
        raise self._lacks("icdf")

    def _draw(self, key: Any, shape: tuple[int, ...]) -> Any:
        draws = random.categorical(key, self.log_p, shape=shape)
        return ops.one_hot(draws, self.count, dtype=self.dtype)
