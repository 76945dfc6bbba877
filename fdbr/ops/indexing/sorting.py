"""Sorting, argsort and top-k.

The permutation is locally constant, so the derivative of a sort is that of reading elements at the
indices of the argsort, which is linear.
"""

from typing import Any

import numpy as np

from fdbr.backends.cpu.kernels import LEAST
from fdbr.core.array_modules import Array, array_module, where_it_lies
from fdbr.core.util.threads import divide, parts
from fdbr.errors.checks import describe, integer
from fdbr.errors.public import public
from fdbr.ops.axes import normalize_axis
from fdbr.ops.declare import constant, indexed, shifted
from fdbr.ops.declare.batches import spread
from fdbr.ops.dtypes import is_traced
from fdbr.ops.indexing.argsort import fast_argsort, indices_of_ranks
from fdbr.ops.indexing.axis_index import iota_along
from fdbr.ops.indexing.flat_index import put_at
from fdbr.ops.shape.creation import asarray
from fdbr.ops.shape.manipulation import flip
from fdbr.pytrees.dtypes import dtype_kind

__all__ = ["argsort", "sort", "top_k"]

_MANY = 4096  # elements from which on unstable sorts and partitions are worth their overhead
_FEW = 16  # largest elements up to which one argmax for each is faster than a partition


# --- reading along an axis ------------------------------------------------------------


def _batch_along(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    x, indices = (spread(v, flag, size) for v, flag in zip(values, batched, strict=True))
    return apply(x, indices, **{**params, "axis": params["axis"] + 1})


@indexed(
    lambda ct, shape, indices, params: _put_along(
        ct, *indices, length=shape[params["axis"]], axis=params["axis"]
    ),
    batch=_batch_along,
)
def _pick(xp: Any, x: Array, indices: Any, *, axis: int) -> Array:
    """Read the elements at distinct indices along an axis."""
    if x.ndim == 1:
        return x[indices]
    if xp is np and indices.size < _MANY:
        return x[_element_key(x, indices, axis)]
    return xp.take_along_axis(x, indices, axis)


@indexed(
    lambda ct, shape, indices, params: _pick(ct, *indices, axis=params["axis"]),
    batch=_batch_along,
)
def _put_along(xp: Any, x: Array, indices: Any, *, length: int, axis: int) -> Array:
    """Write the elements at indices along an axis of zeros."""
    out = xp.zeros((*x.shape[:axis], length, *x.shape[axis + 1 :]), dtype=x.dtype)
    if xp is not np:
        xp.put_along_axis(out, indices, x, axis)
    elif indices.size >= _MANY:
        put_at(out, _element_key(out, indices, axis), x)
    else:
        out[_element_key(out, indices, axis)] = x
    return out


def _element_key(x: Any, indices: Any, axis: int) -> Any:
    """Make the key that is ``indices`` on the axis and an element's own position on the others."""
    return tuple(
        [indices if i == axis else iota_along(n, i, x.ndim) for i, n in enumerate(x.shape)]
    )


@constant(batch=shifted("axis"))
def _argsort(xp: Any, x: Array, *, axis: int, stable: bool) -> Array:
    found = fast_argsort(x, axis) if xp is np else None
    if found is not None:
        return found
    kind: Any = "stable" if stable else None
    if xp is not np or x.nbytes < LEAST or x.shape[axis] == x.size:
        return xp.argsort(x, axis=axis, kind=kind)
    rows = np.moveaxis(x, axis, -1)
    lines = rows.reshape(-1, rows.shape[-1])
    out = np.empty(lines.shape, np.intp)

    def work(piece: slice) -> None:
        out[piece] = np.argsort(lines[piece], axis=-1, kind=kind)

    divide(work, parts(len(lines), x.size >> 15))
    return np.moveaxis(out.reshape(rows.shape), -1, axis)


# --- sorting ------------------------------------------------------------------------


@public("fdbr.ops")
@where_it_lies
def sort(x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """The elements in order along an axis; NaN counts as the largest.

    The derivative of each element of the result is that of the element that was moved there.

    Parameters
    ----------
    x
        An array of one dimension or more.
    axis
        The axis to sort along.
    descending
        Whether the largest comes first.
    stable
        Whether equal elements keep their order; an unstable sort is faster.

    Raises
    ------
    ValueError
        If the axis does not exist.

    >>> import fdbr, numpy as np
    >>> from fdbr import ops
    >>> ops.sort(np.array([3.0, 1.0, 2.0]), descending=True)
    array([3., 2., 1.])
    >>> fdbr.grad(lambda x: ops.sort(x)[0])(np.array([3.0, 1.0, 2.0]))
    array([0., 1., 0.])
    """
    x = asarray(x)
    axis = normalize_axis(axis, x.ndim, "sort")
    if is_traced(x):
        return _pick(x, argsort(x, axis=axis, descending=descending, stable=stable), axis=axis)
    if descending:
        return flip(sort(flip(x, axis=axis), axis=axis, stable=stable), axis=axis)
    return _sort(array_module(x), x, axis, stable)


def _sort(xp: Any, x: Any, axis: int, stable: bool) -> Any:
    """Sort raw arrays.  NumPy's unstable sort is up to 16 times as fast as its stable one."""
    if stable and (xp is not np or x.size < _MANY or x.dtype.kind == "c"):
        return xp.sort(x, axis=axis, kind="stable")
    out = xp.sort(x, axis=axis)
    if stable and dtype_kind(x.dtype) == "f" and bool(((x == 0) & xp.signbit(x)).any()):
        # Equal numbers differ only in the sign of zeros, so a stable order needs only those again.
        last = xp.moveaxis(out, axis, -1)
        last[last == 0] = xp.moveaxis(x, axis, -1)[xp.moveaxis(x == 0, axis, -1)]
    return out


@public("fdbr.ops")
@where_it_lies
def argsort(x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """The indices that sort an array along an axis; see `sort`.

    Raises
    ------
    ValueError
        If the axis does not exist.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.argsort(np.array([3.0, 1.0, 2.0]))
    array([1, 2, 0])
    """
    x = asarray(x)
    axis = normalize_axis(axis, x.ndim, "argsort")
    if not descending:
        return _argsort(x, axis=axis, stable=stable)
    # Flipped before and after, so that equal elements keep their order.
    ascending = _argsort(flip(x, axis=axis), axis=axis, stable=stable)
    return x.shape[axis] - 1 - flip(ascending, axis=axis)


@constant(batch=shifted("axis"))
def _rank_indices(xp: Any, x: Array, *, ranks: tuple[int, ...], axis: int) -> Array:
    """Find the indices of the elements with given ranks along an axis."""
    indices = indices_of_ranks(x, ranks, axis) if xp is np else None
    if indices is not None:
        return indices
    if xp is not np or x.size < _MANY:
        order = xp.argsort(x, axis=axis, kind="stable")
        return xp.take(order, xp.asarray(ranks), axis=axis)
    x = np.moveaxis(x, axis, -1)
    found = np.partition(x, sorted(set(ranks)), axis=-1)
    each = [_index_of_rank(x, found[..., rank, None], rank) for rank in ranks]
    return np.moveaxis(np.stack(each, axis=-1), -1, axis)


def _index_of_rank(x: Any, value: Any, rank: int) -> Any:
    """Find the index on the last axis of the value with a rank; equal values keep their order."""
    same = x == value
    if dtype_kind(x.dtype) == "f":
        same |= (value != value) & (x != x)
    if (np.count_nonzero(same, axis=-1) > 1).any():
        smaller = x < value
        if dtype_kind(x.dtype) == "f":
            smaller |= (value != value) & (x == x)
        later = np.count_nonzero(smaller, axis=-1, keepdims=True) + np.cumsum(same, axis=-1) > rank
        same &= later
    return same.argmax(axis=-1)


def ranked(x: Array, ranks: tuple[int, ...], axis: int) -> Any:
    """Return the elements with given ranks along an axis, faster than by sorting all.

    >>> import numpy as np
    >>> ranked(np.array([3.0, 1.0, 2.0]), (0, 2), 0)
    array([1., 3.])
    """
    return _pick(x, _rank_indices(x, ranks=ranks, axis=axis), axis=axis)


@public("fdbr.ops")
@where_it_lies
def top_k(x: Array, k: int, /, *, axis: int = -1) -> tuple[Any, Any]:
    """The ``k`` largest elements along an axis, in descending order, and their indices.

    Among equal elements the first counts as larger; NaN counts as the largest.

    Parameters
    ----------
    x
        An array of one dimension or more.
    k
        The number of elements, from 0 to the length of the axis.
    axis
        The axis to search along.

    Returns
    -------
    values, indices
        Arrays of the shape of ``x``, with length ``k`` on the axis; the indices are integers.

    Raises
    ------
    ValueError
        If the axis has fewer than ``k`` elements.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.top_k(np.array([3.0, 1.0, 4.0, 1.0]), 2)
    (array([4., 3.]), array([2, 0]))
    """
    x = asarray(x)
    axis = normalize_axis(axis, x.ndim, "top_k")
    k = integer("fdbr.ops.top_k", "k", k)
    if not 0 <= k <= x.shape[axis]:
        raise ValueError(
            f"fdbr.ops.top_k: k is {k}, but axis {axis} of {describe(x)} has {x.shape[axis]} "
            "elements; give at most as many"
        )
    indices = _top_indices(x, k=k, axis=axis)
    return _pick(x, indices, axis=axis), indices


@constant(batch=shifted("axis"))
def _top_indices(xp: Any, x: Array, *, k: int, axis: int) -> Array:
    last = axis == x.ndim - 1
    x = x if last else xp.moveaxis(x, axis, -1)
    indices = _largest_by_argmax(x, k) if xp is np and 0 < k <= _FEW and x.size >= _MANY else None
    if indices is not None:
        pass
    elif 0 < k < x.shape[-1] // 8 and x.dtype.kind != "c":
        # For a million elements, partitioning takes a tenth of the time of sorting.
        candidates = _largest_by_partition(xp, x, k)
        order = _descending_argsort(xp, xp.take_along_axis(x, candidates, -1))
        indices = xp.take_along_axis(candidates, order, -1)
    else:
        indices = _descending_argsort(xp, x)[..., :k]
    return indices if last else xp.moveaxis(indices, -1, axis)


def _largest_by_argmax(x: Any, k: int) -> Any:
    """Find the indices of the ``k`` largest elements along the last axis by ``k`` argmax searches.

    Each element found is overwritten by the least number of the dtype.  If that number is itself
    found, it may be an overwritten one: then return `None`.
    """
    if dtype_kind(x.dtype) not in "iuf" or k > x.shape[-1]:
        return None
    least = -np.inf if dtype_kind(x.dtype) == "f" else np.iinfo(x.dtype).min
    x = np.array(x, order="C")
    indices = np.empty((*x.shape[:-1], k), np.intp)
    for i in range(k):
        index = x.argmax(axis=-1)[..., None]
        if i and (np.take_along_axis(x, index, -1) == least).any():
            return None
        np.put_along_axis(x, index, least, -1)
        indices[..., i : i + 1] = index
    return indices


def _descending_argsort(xp: Any, x: Any) -> Any:
    """Compute a stable descending argsort along the last axis."""
    x = x[..., ::-1]
    stable = x.argsort(-1, "stable") if type(x) is np.ndarray else xp.argsort(x, kind="stable")
    return x.shape[-1] - 1 - stable[..., ::-1]


def _largest_by_partition(xp: Any, x: Any, k: int) -> Any:
    """Find the indices of the ``k`` largest elements along the last axis, in no order."""
    n = x.shape[-1]
    least = xp.partition(x, n - k, axis=-1)[..., n - k : n - k + 1]
    above, same = x > least, x == least
    if dtype_kind(x.dtype) == "f":  # NaN is the largest
        nan, all_nan = xp.isnan(x), xp.isnan(least)
        above, same = above | (nan & ~all_nan), same | (nan & all_nan)
    first = xp.cumsum(same, axis=-1) <= k - above.sum(axis=-1, keepdims=True)
    return (above | (same & first)).nonzero()[-1].reshape((*x.shape[:-1], k))
