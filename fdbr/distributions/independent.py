"""Independent distributions, taken as one of arrays."""

from typing import Any

from fdbr import ops
from fdbr.distributions.distribution import Distribution
from fdbr.errors.public import public
from fdbr.tree import frozen, static

__all__ = ["Independent"]


@public("fdbr.distributions")
@frozen
class Independent(Distribution):
    """The last axes of a batch of distributions, taken as axes of one draw.

    Attributes
    ----------
    base
        The distributions.
    reinterpreted_batch_ndims
        How many of their last axes; all but the first by default.

    Raises
    ------
    ValueError
        If there are not so many.

    >>> import numpy as np
    >>> from fdbr.distributions import Independent, Normal
    >>> d = Independent(Normal(np.zeros((2, 3)), 1.0), 1)
    >>> d.batch_shape, d.event_shape
    ((2,), (3,))
    """

    base: Any
    reinterpreted_batch_ndims: int = static()

    def __init__(self, base: Any, reinterpreted_batch_ndims: int | None = None) -> None:
        there = len(base.batch_shape)
        count = (
            max(there - 1, 0) if reinterpreted_batch_ndims is None else reinterpreted_batch_ndims
        )
        if not 0 <= count <= there:
            raise ValueError(
                "fdbr.distributions.Independent: reinterpreted_batch_ndims must lie between 0 and "
                f"the {there} axes of batch_shape {base.batch_shape}, got {count}"
            )
        self.__attrs_init__(base, count)  # type: ignore[attr-defined]

    @property
    def reparametrized(self) -> bool:  # type: ignore[override]
        return bool(self.base.reparametrized)

    @property
    def support(self) -> str:  # type: ignore[override]
        return str(self.base.support)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = self.base.batch_shape
        return shape[: len(shape) - self.reinterpreted_batch_ndims]

    @property
    def event_shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = self.base.batch_shape
        return shape[len(self.batch_shape) :] + tuple(self.base.event_shape)

    @property
    def mean(self) -> Any:
        return self.base.mean

    @property
    def variance(self) -> Any:
        return self.base.variance

    @property
    def mode(self) -> Any:
        return self.base.mode

    def total(self, values: Any) -> Any:
        """Values for each of the distributions, added up over the axes of one draw."""
        count = self.reinterpreted_batch_ndims
        return ops.sum(values, axis=tuple(range(-count, 0))) if count else values

    def log_prob(self, x: Any) -> Any:
        return self.total(self.base.log_prob(x))

    def cdf(self, x: Any) -> Any:
        """The probability that no element is above that of ``x``: the product of theirs."""
        each, count = self.base.cdf(x), self.reinterpreted_batch_ndims
        return ops.prod(each, axis=tuple(range(-count, 0))) if count else each

    def log_cdf(self, x: Any) -> Any:
        return self.total(self.base.log_cdf(x))

    def entropy(self) -> Any:
        return self.total(self.base.entropy())

    def _draw(self, key: Any, shape: tuple[int, ...]) -> Any:
        own = self.base.batch_shape[len(self.batch_shape) :]
        return self.base._draw(key, shape + own)
