"""Find the indices of nonzero elements, and of elements in sorted arrays."""

import math
from typing import Any, Literal

from fdbr.core.array_modules import where_it_lies
from fdbr.core.routine import Routine
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.ops.declare import constant
from fdbr.ops.declare.batches import spread
from fdbr.ops.dtypes import is_traced
from fdbr.ops.indexing.reading import getitem
from fdbr.ops.indexing.sorting import argsort
from fdbr.ops.reductions.reduce import count_nonzero
from fdbr.ops.shape.creation import arrays, asarray
from fdbr.ops.shape.manipulation import concat, reshape
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["nonzero", "searchsorted"]


@public("fdbr.ops")
@where_it_lies
def nonzero(x: Any, /) -> tuple[Any, ...]:
    """The indices of the nonzero elements: for each axis, an array of indices on it.

    Their number depends on the elements.  Under `vmap` the batch is split into groups of examples
    with the same number.

    Raises
    ------
    ValueError
        If ``x`` has no axes.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.nonzero(np.array([0.0, 3.0, 4.0]))
    (array([1, 2]),)
    """
    x = asarray(x)
    if not x.ndim:
        raise ValueError(f"fdbr.ops.nonzero: x is {describe(x)}, which has no dimension")
    if not is_traced(x):
        return nonzero_raw(x) if x.nbytes >= nonzero_raw.least else x.nonzero()
    indices = true_indices(reshape(x != 0, -1))
    out = []
    for n in reversed(x.shape):
        out.append(indices % (n or 1))
        indices = indices // (n or 1)
    return tuple(reversed(out))


@Routine
def nonzero_raw(x: Any) -> tuple[Any, ...]:
    """Find the indices of the nonzero elements of an array that is not traced."""
    found: tuple[Any, ...] = x.nonzero()
    return found


def true_indices(flags: Any) -> Any:
    """Find the indices of the true elements of a one-dimensional array, in order."""
    if not is_traced(flags):
        return flags.nonzero()[0]
    return argsort(~flags)[: int(count_nonzero(flags))]


def _batch_searchsorted(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    """Compute indices by ranks: an element's rank among all, less its rank among the queries."""
    x, y = values
    if not batched[0]:
        return apply(x, y, **params)
    y = spread(y, batched[1], size)
    queries = reshape(y, (size, math.prod(y.shape[1:])))
    # The argsort is stable, so queries in front sort before equal elements, as side="left" needs.
    left = params["side"] == "left"
    joined = concat([queries, x] if left else [x, queries], axis=1)
    ranks = argsort(argsort(joined, axis=1), axis=1)
    ranks = ranks[:, : queries.shape[1]] if left else ranks[:, x.shape[1] :]
    return reshape(ranks - argsort(argsort(queries, axis=1), axis=1), y.shape)


@constant(batch=_batch_searchsorted)
def _searchsorted(xp: Any, x: Any, y: Any, *, side: Any) -> Any:
    return xp.searchsorted(x, y, side=side)


@public("fdbr.ops")
@where_it_lies
def searchsorted(
    x1: ArrayLike,
    x2: ArrayLike,
    /,
    *,
    side: Literal["left", "right"] = "left",
    sorter: ArrayLike | None = None,
) -> Array:
    """The indices in a sorted array at which inserting elements keeps it sorted.

    Parameters
    ----------
    x1
        An array of one dimension, sorted.
    x2
        The elements to insert: an array of any shape.
    side
        Insert before (``"left"``) or after (``"right"``) equal elements.
    sorter
        Indices that sort ``x1``, as `argsort` returns them, if ``x1`` is not sorted.

    Returns
    -------
    array
        Integers in the shape of ``x2``.

    Raises
    ------
    ValueError
        If ``x1`` does not have one dimension, or ``side`` is neither of these.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.searchsorted(np.array([1.0, 2.0, 3.0]), np.array([2.0, 2.5]))
    array([1, 2])
    """
    x1, x2 = arrays(x1, x2)
    if x1.ndim != 1:
        raise ValueError(f"fdbr.ops.searchsorted: x1 must have one dimension, not {describe(x1)}")
    if side not in ("left", "right"):
        raise ValueError(f"fdbr.ops.searchsorted: side is {side!r}, not 'left' or 'right'")
    return _searchsorted(x1 if sorter is None else getitem(x1, sorter), x2, side=side)
