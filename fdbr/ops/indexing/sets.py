"""Functions of arrays as sets: unique elements and membership.

The number of unique elements depends on the elements.  Under `vmap` the batch is split into groups
of examples with the same number.
"""

from typing import Any, NamedTuple

import numpy as np

from fdbr.core.array_modules import array_module, where_it_lies
from fdbr.core.routine import Routine
from fdbr.errors.public import public
from fdbr.ops.dtypes import is_traced
from fdbr.ops.elementwise.comparison import equal, logical_not, not_equal
from fdbr.ops.indexing.reading import pick
from fdbr.ops.indexing.searching import searchsorted, true_indices
from fdbr.ops.indexing.sorting import argsort, sort
from fdbr.ops.reductions.cumulative import cumulative_sum
from fdbr.ops.shape.creation import arrays, asarray, ones_like
from fdbr.ops.shape.manipulation import concat, reshape
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["isin", "unique_all", "unique_counts", "unique_inverse", "unique_values"]


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


# The functions of arrays that are not traced.


@Routine
def values_raw(x: Any) -> Any:
    """Compute `unique_values`."""
    return array_module(x).unique(x, equal_nan=False)


@Routine
def counts_raw(x: Any) -> tuple[Any, Any]:
    """Compute `unique_counts`."""
    values, counts = array_module(x).unique(x, return_counts=True, equal_nan=False)
    return values, counts


@Routine
def inverse_raw(x: Any) -> tuple[Any, Any]:
    """Compute `unique_inverse`."""
    values, inverse = array_module(x).unique(x, return_inverse=True, equal_nan=False)
    return values, inverse.reshape(x.shape)


@Routine
def isin_raw(x1: Any, x2: Any) -> Any:
    """Compute `isin`."""
    return array_module(x1, x2).isin(x1, x2)


@public("fdbr.ops")
@where_it_lies
def unique_values(x: ArrayLike, /) -> Array:
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
        return values_raw(x)
    return unique_all(x).values


@public("fdbr.ops")
@where_it_lies
def unique_counts(x: ArrayLike, /) -> UniqueCounts:
    """The unique elements and their counts; see `unique_values`.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.unique_counts(np.array([2.0, 1.0, 2.0])).counts
    array([1, 2])
    """
    x = asarray(x)
    if not is_traced(x):
        return UniqueCounts(*counts_raw(x))
    found = unique_all(x)
    return UniqueCounts(found.values, found.counts)


@public("fdbr.ops")
@where_it_lies
def unique_inverse(x: ArrayLike, /) -> UniqueInverse:
    """The unique elements, and the index among them of each element of ``x``.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.unique_inverse(np.array([2.0, 1.0, 2.0])).inverse_indices
    array([1, 0, 1])
    """
    x = asarray(x)
    if not is_traced(x):
        return UniqueInverse(*inverse_raw(x))
    found = unique_all(x)
    return UniqueInverse(found.values, found.inverse_indices)


@public("fdbr.ops")
@where_it_lies
def unique_all(x: ArrayLike, /) -> UniqueAll:
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


@public("fdbr.ops")
@where_it_lies
def isin(x1: Any, x2: Any, /, *, invert: bool = False) -> Any:
    """Whether each element of ``x1`` is among those of ``x2``; NaN never is.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.isin(np.array([1, 2, 3]), np.array([2, 4]))
    array([False,  True, False])
    """
    x1, x2 = arrays(x1, x2)
    x2 = x2 if x2.ndim == 1 else reshape(x2, -1)
    if not is_traced(x1) and not is_traced(x2):
        found = (isin_raw.host if type(x1) is np.ndarray else isin_raw.definition)(x1, x2)
    elif not x2.size:
        found = not_equal(x1, x1) & equal(x1, x1)
    else:
        ordered = sort(x2)
        offsets = searchsorted(ordered, x1)
        found = equal(pick(ordered, offsets - (offsets == x2.size)), x1)
    return logical_not(found) if invert else found
