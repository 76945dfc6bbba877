"""Sampling from many classes in constant time."""

from typing import Any, Self

import numpy as np

from fdbr import ops, random
from fdbr.core.array_modules import Array, array_module, lock, to_numpy
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.tree import buffer, frozen

__all__ = ["WalkerAlias"]


@public("fdbr.nn")
@frozen
class WalkerAlias:
    """Walker's alias method: each draw of one of many classes takes the same short time.

    A draw chooses a class uniformly, keeps it with that class's threshold, and otherwise takes its
    alias: Walker, *An efficient method for generating discrete random variables with general
    distributions*, 1977; Vose, 1991.

    Attributes
    ----------
    threshold
        The probability with which each class is kept, float64.
    alias
        The class that reclasses it otherwise, int64.

    >>> import fdbr
    >>> sampler = fdbr.nn.WalkerAlias.init([0, 1, 3])
    >>> sampler.sample(fdbr.random.key(0), (2, 5)).shape
    (2, 5)
    """

    threshold: Any = buffer()
    alias: Any = buffer()

    @classmethod
    def init(cls, weights: Any) -> Self:
        """Return a sampler of ``0 … len(weights) - 1``, with probabilities proportional to weights.

        Parameters
        ----------
        weights
            Numbers of at least 0, not all of them 0, shape ``(classes,)``: counts of words, say.

        Raises
        ------
        TypeError, ValueError
            If they are not numbers of one axis, or one is negative or infinite, or all are 0.
        """
        where = "fdbr.nn.WalkerAlias.init"
        given = ops.asarray(weights)
        if given.ndim != 1 or not given.shape[0]:
            raise ValueError(f"{where}: weights must have shape (classes,), got {describe(given)}")
        if given.dtype.kind not in "fiub":
            raise TypeError(f"{where}: weights must be real numbers, not {describe(given)}")
        shares = np.asarray(to_numpy(given), dtype=np.float64)
        if not np.isfinite(shares).all() or (shares < 0).any() or not shares.any():
            raise ValueError(
                f"{where}: weights must be at least 0, finite and not all 0, got "
                f"{shares.min()} to {shares.max()}"
            )
        threshold, alias = _tables(shares / shares.max())
        xp = array_module(given)
        return cls(lock(xp.asarray(threshold)), lock(xp.asarray(alias)))

    def sample(self, key: Any, shape: int | tuple[int, ...] = ()) -> Array:
        """Draw classes independently; returns int64 numbers of the given shape.

        Parameters
        ----------
        key
            A random key.
        shape
            The shape of the result.
        """
        count = self.threshold.shape[0]
        draws = random.uniform(key, shape) * count
        classes = ops.minimum(ops.astype(draws, np.int64), count - 1)
        kept = draws - classes < ops.take(self.threshold, classes)
        return ops.where(kept, classes, ops.take(self.alias, classes))


def _tables(shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return Vose's tables: classes above the mean probability fill up those below it."""
    count = len(shares)
    threshold = shares / shares.sum() * count
    alias = np.arange(count)
    left = threshold.tolist()
    small = [i for i, share in enumerate(left) if share < 1]
    large = [i for i, share in enumerate(left) if share >= 1]
    while small and large:
        i, j = small.pop(), large[-1]
        alias[i] = j
        left[j] -= 1 - left[i]
        if left[j] < 1:
            small.append(large.pop())
    threshold = np.array(left)
    rest = np.array(small + large, dtype=int)  # their probabilities are 1 up to rounding
    threshold[rest] = 1
    return threshold, alias
