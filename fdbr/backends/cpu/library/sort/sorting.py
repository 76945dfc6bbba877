"""Sorts, argsorts and the largest elements: large arrays by faster algorithms, or by threads."""

from typing import Any

import numpy as np

from fdbr.backends.cpu.library.gather_scatter.flat_index import put_at
from fdbr.backends.cpu.library.sort.argsort import fast_argsort, indices_of_ranks
from fdbr.backends.cpu.tuning import TUNING
from fdbr.core.primitive import implement
from fdbr.core.util.threads import divide, parts
from fdbr.ops.indexing import sorting
from fdbr.ops.indexing.segments import element_key
from fdbr.pytrees.dtypes import dtype_kind


@implement(sorting._pick.primitive, np)
def _picked(xp: Any, x: Any, indices: Any, *, axis: int) -> Any:
    if x.ndim == 1:
        return x[indices]
    if indices.size < TUNING.extra_pass:
        return x[element_key(indices, axis)]
    return np.take_along_axis(x, indices, axis)


@implement(sorting._put_along.primitive, np)
def _written_along(xp: Any, x: Any, indices: Any, *, length: int, axis: int) -> Any:
    out = np.zeros((*x.shape[:axis], length, *x.shape[axis + 1 :]), dtype=x.dtype)
    if indices.size >= TUNING.extra_pass:
        put_at(xp, out, element_key(indices, axis), x)
    else:
        out[element_key(indices, axis)] = x
    return out


# --- order ----------------------------------------------------------------------------


@implement(sorting._argsort.primitive, np)
def _argsort(xp: Any, x: Any, *, axis: int, stable: bool) -> Any:
    found = fast_argsort(x, axis)
    if found is not None:
        return found
    kind: Any = "stable" if stable else None
    if x.nbytes < TUNING.kernel_bytes or x.shape[axis] == x.size:
        return np.argsort(x, axis=axis, kind=kind)
    rows = np.moveaxis(x, axis, -1)
    lines = rows.reshape(-1, rows.shape[-1])
    out = np.empty(lines.shape, np.intp)

    def work(piece: slice) -> None:
        out[piece] = np.argsort(lines[piece], axis=-1, kind=kind)

    divide(work, parts(len(lines), x.size >> 15))
    return np.moveaxis(out.reshape(rows.shape), -1, axis)


@implement(sorting.sort_raw, np)
def _sorted(x: Any, axis: int, stable: bool) -> Any:
    """Sort an array.  NumPy's unstable sort is up to 16 times as fast as its stable one."""
    if stable and (x.size < TUNING.extra_pass or x.dtype.kind == "c"):
        return np.sort(x, axis=axis, kind="stable")
    out = np.sort(x, axis=axis)
    if stable and dtype_kind(x.dtype) == "f" and bool(((x == 0) & np.signbit(x)).any()):
        # Equal numbers differ only in the sign of zeros, so a stable order needs only those again.
        last = np.moveaxis(out, axis, -1)
        last[last == 0] = np.moveaxis(x, axis, -1)[np.moveaxis(x == 0, axis, -1)]
    return out


@implement(sorting._rank_indices.primitive, np)
def _rank_indices(xp: Any, x: Any, *, ranks: tuple[int, ...], axis: int) -> Any:
    indices = indices_of_ranks(x, ranks, axis)
    if indices is not None:
        return indices
    if x.size < TUNING.extra_pass:
        return np.take(np.argsort(x, axis=axis, kind="stable"), np.asarray(ranks), axis=axis)
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


# --- the largest elements -------------------------------------------------------------


@implement(sorting._top_indices.primitive, np)
def _top_indices(xp: Any, x: Any, *, k: int, axis: int) -> Any:
    last = axis == x.ndim - 1
    x = x if last else np.moveaxis(x, axis, -1)
    indices = (
        _largest_by_argmax(x, k)
        if 0 < k <= TUNING.few_largest and x.size >= TUNING.extra_pass
        else None
    )
    if indices is not None:
        pass
    elif 0 < k < x.shape[-1] // 8 and x.dtype.kind != "c":
        # For a million elements, partitioning takes a tenth of the time of sorting.
        candidates = _largest_by_partition(x, k)
        order = _descending_argsort(np.take_along_axis(x, candidates, -1))
        indices = np.take_along_axis(candidates, order, -1)
    else:
        indices = _descending_argsort(x)[..., :k]
    return indices if last else np.moveaxis(indices, -1, axis)


def _descending_argsort(x: Any) -> Any:
    """Compute a stable descending argsort along the last axis."""
    return x.shape[-1] - 1 - x[..., ::-1].argsort(-1, "stable")[..., ::-1]


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


def _largest_by_partition(x: Any, k: int) -> Any:
    """Find the indices of the ``k`` largest elements along the last axis, in no order."""
    n = x.shape[-1]
    least = np.partition(x, n - k, axis=-1)[..., n - k : n - k + 1]
    above, same = x > least, x == least
    if dtype_kind(x.dtype) == "f":  # NaN is the largest
        nan, all_nan = np.isnan(x), np.isnan(least)
        above, same = above | (nan & ~all_nan), same | (nan & all_nan)
    first = np.cumsum(same, axis=-1) <= k - above.sum(axis=-1, keepdims=True)
    return (above | (same & first)).nonzero()[-1].reshape((*x.shape[:-1], k))
