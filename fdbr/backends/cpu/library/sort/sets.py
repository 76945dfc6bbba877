"""Unique elements and membership, of integers by tables, without hashing."""

from typing import Any

import numpy as np

from fdbr.backends.cpu.tuning import TUNING
from fdbr.core.primitive import implement
from fdbr.ops.indexing import sets
from fdbr.pytrees.dtypes import dtype_kind

# Integers are counted in a table, instead of sorted, if their range is at most this many times the
# number of elements.
_RANGE = 4


def _sorts_faster(x: Any) -> bool:
    """Whether sorting is faster than `numpy.unique`, which hashes elements."""
    return x.size > 0 and dtype_kind(x.dtype) in "biuf"


def _runs(x: Any) -> tuple[Any, Any]:
    """Return the unique elements in order, and where each begins in the sorted array."""
    ordered = np.sort(x, axis=None)
    is_first = np.ones(ordered.shape, bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return ordered[is_first], is_first.nonzero()[0]


class _Table:
    """A count of each integer between the least and the largest of an array.

    Attributes
    ----------
    offsets
        The elements, flattened, minus the smallest one.
    counts
        The number of occurrences of each integer from the smallest one on.
    """

    def __init__(self, x: Any, least: int) -> None:
        self.offsets = x.reshape(-1).astype(np.intp, copy=False)
        if least:
            self.offsets = self.offsets - least
        self.counts = np.bincount(self.offsets)
        self.values = self.counts.nonzero()[0]  # minus the smallest element
        self._least, self._dtype = least, x.dtype

    def elements(self) -> Any:
        """Return the unique elements in order."""
        return (self.values + self._least).astype(self._dtype, copy=False)


def _table(x: Any) -> _Table | None:
    """Make the table if the range of integers is small: sorting would take longer."""
    if x.dtype.kind not in "iu" or not x.size:
        return None
    least, most = int(x.min()), int(x.max())
    fits = most - least < _RANGE * x.size and most <= np.iinfo(np.intp).max
    return _Table(x, least) if fits else None


@implement(sets.values_raw, np)
def _values(x: Any) -> Any:
    if (table := _table(x)) is not None:
        return table.elements()
    return _runs(x)[0] if _sorts_faster(x) else sets.values_raw.definition(x)


@implement(sets.counts_raw, np)
def _counts(x: Any) -> tuple[Any, Any]:
    if (table := _table(x)) is not None:
        return table.elements(), table.counts[table.values]
    if _sorts_faster(x):
        values, starts = _runs(x)
        return values, np.diff(starts, append=x.size)
    found: tuple[Any, Any] = sets.counts_raw.definition(x)
    return found


@implement(sets.inverse_raw, np)
def _inverse(x: Any) -> tuple[Any, Any]:
    if (table := _table(x)) is not None:
        ranks = np.empty(len(table.counts), np.intp)
        ranks[table.values] = np.arange(len(table.values))
        return table.elements(), ranks[table.offsets].reshape(x.shape)
    found: tuple[Any, Any] = sets.inverse_raw.definition(x)
    return found


@implement(sets.isin_raw, np)
def _isin(x1: Any, x2: Any) -> Any:
    if x1.size * x2.size <= TUNING.extra_pass:
        return (x1[..., None] == x2).any(-1)
    return np.isin(x1, x2)
