"""Functions of arrays as sets: unique elements and membership.

The number of unique elements depends on the elements.  Under `vmap` the batch is split into groups
of examples with the same number.
"""

from typing import Any, NamedTuple

import numpy as np

from fdbr.core.array_modules import Array, array_module, where_it_lies
from fdbr.errors.public import public
from fdbr.ops.dtypes import is_traced
from fdbr.ops.elementwise.comparison import equal, logical_not, not_equal
from fdbr.ops.indexing.reading import pick
from fdbr.ops.indexing.searching import searchsorted, true_indices
from fdbr.ops.indexing.sorting import argsort, sort
from fdbr.ops.reductions.cumulative import cumulative_sum
from fdbr.ops.shape.creation import arrays, asarray, ones_like
from fdbr.ops.shape.manipulation import concat, reshape
from fdbr.pytrees.dtypes import dtype_kind

__all__ = ["isin", "unique_all", "unique_counts", "unique_inverse", "unique_values"]


# Integers are counted in a table, instead of sorted, if their range is at most this many times the
# number of elements.
_RANGE = 4


class UniqueAll(NamedTuple):
    """The unique elements, their first indices, the inverse indices, and their counts."""

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCounts(NamedTuple):
    """The unique elements and their counts."""

    values: Any
    counts: Any


class UniqueInverse(NamedTuple):
    """The unique elements, and for each element the index of its value among them."""

    values: Any
    inverse_indices: Any


def _sorts_faster(x: Any) -> bool:
    """Whether sorting is faster than `numpy.unique`, which hashes elements."""
    return type(x) is np.ndarray and x.size > 0 and dtype_kind(x.dtype) in "biuf"


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
    places
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
    if type(x) is not np.ndarray or x.dtype.kind not in "iu" or not x.size:
        return None
    least, most = int(x.min()), int(x.max())
    fits = most - least < _RANGE * x.size and most <= np.iinfo(np.intp).max
    return _Table(x, least) if fits else None


@public("fdbr.ops")
@where_it_lies
def unique_values(x: Array, /) -> Any:
    """The unique elements in order; every NaN is unique.

    The derivative goes to the first occurrence of each.

    >>> import fdbr, numpy as np
    >>> from fdbr import ops
    >>> ops.unique_values(np.array([2.0, 1.0, 2.0]))
    array([1., 2.])
    >>> fdbr.grad(lambda x: ops.unique_values(x)[1])(np.array([2.0, 1.0, 2.0]))
    array([1., 0., 0.])
    """
    x = asarray(x)
    if not is_traced(x):
        if (table := _table(x)) is not None:
            return table.elements()
        return _runs(x)[0] if _sorts_faster(x) else array_module(x).unique(x, equal_nan=False)
    return unique_all(x).values


@public("fdbr.ops")
@where_it_lies
def unique_counts(x: Array, /) -> UniqueCounts:
    """The unique elements and their counts; see `unique_values`.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.unique_counts(np.array([2.0, 1.0, 2.0])).counts
    array([1, 2])
    """
    x = asarray(x)
    if not is_traced(x):
        if (table := _table(x)) is not None:
            return UniqueCounts(table.elements(), table.counts[table.values])
        if _sorts_faster(x):
            values, starts = _runs(x)
            return UniqueCounts(values, np.diff(starts, append=x.size))
        return UniqueCounts(*array_module(x).unique(x, return_counts=True, equal_nan=False))
    found = unique_all(x)
    return UniqueCounts(found.values, found.counts)


@public("fdbr.ops")
@where_it_lies
def unique_inverse(x: Array, /) -> UniqueInverse:
    """The unique elements, and the index among them of each element of ``x``.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.unique_inverse(np.array([2.0, 1.0, 2.0])).inverse_indices
    array([1, 0, 1])
    """
    x = asarray(x)
    if not is_traced(x):
        if (table := _table(x)) is not None:
            ranks = np.empty(len(table.counts), np.intp)
            ranks[table.values] = np.arange(len(table.values))
            return UniqueInverse(table.elements(), ranks[table.offsets].reshape(x.shape))
        values, inverse = array_module(x).unique(x, return_inverse=True, equal_nan=False)
        return UniqueInverse(values, inverse.reshape(x.shape))
    found = unique_all(x)
    return UniqueInverse(found.values, found.inverse_indices)


@public("fdbr.ops")
@where_it_lies
def unique_all(x: Array, /) -> UniqueAll:
    """The unique elements, their first indices, the inverse indices, and their counts.

    Indices refer to the flattened array.  See `unique_values`.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.unique_all(np.array([2.0, 1.0, 2.0])).indices
    array([1, 0])
    """
    x = asarray(x)
    if not is_traced(x):
        values, indices, inverse, counts = array_module(x).unique(
            x, return_index=True, return_inverse=True, return_counts=True, equal_nan=False
        )
        return UniqueAll(values, indices, inverse.reshape(x.shape), counts)
    flat = reshape(x, -1)
    order = argsort(flat)  # stable: equal elements keep their order
    ordered = flat[order]
    is_first = concat([ones_like(ordered[:1], dtype=bool), not_equal(ordered[1:], ordered[:-1])])
    starts = true_indices(is_first)
    ranks = cumulative_sum(is_first) - 1
    ends = concat([starts[1:], ones_like(starts[:1]) * flat.size])
    indices = order[starts]
    return UniqueAll(flat[indices], indices, reshape(ranks[argsort(order)], x.shape), ends - starts)


_FEW = 1 << 12  # comparisons, up to which comparing all pairs is faster than sorting


@public("fdbr.ops")
@where_it_lies
def isin(x1: Array, x2: Array, /, *, invert: bool = False) -> Any:
    """Whether each element of ``x1`` is among those of ``x2``; NaN never is.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.isin(np.array([1, 2, 3]), np.array([2, 4]))
    array([False,  True, False])
    """
    x1, x2 = arrays(x1, x2)
    x2 = x2 if x2.ndim == 1 else reshape(x2, -1)
    if not is_traced(x1) and not is_traced(x2):
        if x1.size * x2.size <= _FEW:
            found = (x1[..., None] == x2).any(-1)
        else:
            found = array_module(x1, x2).isin(x1, x2)
    elif not x2.size:
        found = not_equal(x1, x1) & equal(x1, x1)
    else:
        ordered = sort(x2)
        offsets = searchsorted(ordered, x1)
        found = equal(pick(ordered, offsets - (offsets == x2.size)), x1)
    return logical_not(found) if invert else found
