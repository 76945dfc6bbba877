"""Faster advanced indexing of NumPy arrays, by indices into the flattened array.

NumPy reads and writes with one index array several times as fast as with two, and adds twenty
times as fast; whole rows are added fastest by a product with a sparse matrix.  Large arrays
indexed along one axis are left to kernels (see `axis_index`).
"""

import importlib
import math
from typing import Any

import numpy as np

from fdbr.backends.cpu.library.gather_scatter.axis_index import (
    index_of_key,
    is_small,
    only_axis,
    read_by_kernel,
    write_by_kernel,
)
from fdbr.backends.cpu.tuning import TUNING
from fdbr.core.array_modules import copy_of
from fdbr.core.primitive import implement
from fdbr.core.util.threads import divide
from fdbr.ops.indexing import positions, reading
from fdbr.ops.indexing.keys import join
from fdbr.ops.indexing.regions import Region
from fdbr.ops.indexing.segments import _scatter_extreme, element_key, identity_of_extreme
from fdbr.ops.indexing.writing import _increase
from fdbr.pytrees.dtypes import is_short
from fdbr.pytrees.typing import Array

__all__ = ["add_at", "last_written", "put_at", "read_at", "scatter_add"]


@implement(reading.read, np)
def _read(x: Any, key: Any) -> Any:
    """Read elements of an array; many of them by a kernel."""
    for part in key if type(key) is tuple else (key,):
        if (
            type(part) is np.ndarray
            and part.size >= TUNING.gather_index
            and part.dtype.kind in "iu"
        ):
            found = read_by_kernel(x, key)
            return x[key] if found is None else found
    return x[key]


@implement(positions.read_at, np)
def read_at(xp: Any, x: Any, key: Any) -> Any:
    """Read ``x[key]`` as an array in row-major order."""
    if not isinstance(x, np.ndarray) or is_small(x.shape, key, x.itemsize):
        return x[key]
    found = read_by_kernel(x, key)
    if found is not None:
        return found
    axis = only_axis(key, x.ndim)
    if axis is not None:
        return x.take(index_of_key(key).astype(np.intp, copy=False), axis=axis)
    flat = flat_index_of(x.shape, key) if x.flags.c_contiguous else None
    if flat is None:
        return x[key]
    row, out = x.reshape(-1), np.empty(flat.region, x.dtype)

    def work(piece: slice) -> None:
        row.take(
            flat.indices(piece), out=out[piece], mode="wrap"
        )  # indices are in range, and "wrap" avoids a buffered check

    divide(work, flat.pieces())
    return out


@implement(positions.put_at, np)
def put_at(xp: Any, out: Any, key: Any, values: Any) -> None:
    """Assign ``out[key] = values``, one value for each element, or a scalar; the last stays."""
    if is_small(out.shape, key, out.itemsize):
        out[key] = values
        return
    if write_by_kernel(out, key, np.asarray(values, out.dtype), add=False):
        return
    rows = only_axis(key, out.ndim) is not None or not out.flags.c_contiguous
    flat = None if rows else flat_index_of(out.shape, key)
    if flat is None:
        out[key] = values
        return
    row, is_scalar = out.reshape(-1), np.ndim(values) == 0
    for piece in flat.pieces():
        row[flat.indices(piece).reshape(-1)] = values if is_scalar else values[piece].reshape(-1)


@implement(positions.sums_at, np)
def scatter_add(xp: Any, shape: tuple[int, ...], key: Any, values: Array) -> Any:
    """Add values to zeros at a key, each value for repeated indices."""
    if is_short(values.dtype):
        return scatter_add(xp, shape, key, values.astype(np.float32)).astype(values.dtype)
    axis = only_axis(key, len(shape)) if values.size >= TUNING.flat_indices else None
    if axis is not None and values.nbytes * TUNING.heavy_passes < TUNING.kernel_bytes:
        sums = _sum_rows_by_matrix(shape, axis, index_of_key(key), values)
        if sums is not None:
            return sums
    out = np.zeros(shape, dtype=values.dtype)
    add_at(xp, out, key, values)
    return out


@implement(positions.add_at, np)
def add_at(xp: Any, out: Any, key: Any, values: Array) -> None:
    """Compute ``np.add.at(out, key, values)`` for an array in row-major order."""
    if values.size < TUNING.flat_indices:
        np.add.at(out, key, values)
        return
    if write_by_kernel(out, key, values, add=True):
        return
    row, flat = out.reshape(-1), flat_index_of(out.shape, key)
    if flat is None:
        indices = np.arange(out.size).reshape(out.shape)[key].reshape(-1)
        if not write_by_kernel(row, indices, values.reshape(-1), add=True):
            np.add.at(row, indices, values.reshape(-1))
        return
    _combine_at(np.add, row, flat, values)


def _combine_at(ufunc: np.ufunc, row: Any, flat: "FlatIndex", values: Any) -> None:
    """Apply ``ufunc.at`` to one axis, for which NumPy has a loop ten times as fast."""
    for piece in flat.pieces():
        ufunc.at(row, flat.indices(piece).reshape(-1), values[piece].reshape(-1))


def _sum_rows_by_matrix(shape: tuple[int, ...], axis: int, index: Any, values: Any) -> Any:
    """Add rows at their indices by a product with a sparse matrix of ones."""
    stack, count, row = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    if row < TUNING.sparse_row or stack > TUNING.sparse_stack or values.dtype.char not in "fdFD":
        return None
    indices = _nonnegative(index.reshape(-1), count)
    if indices is None:
        return None
    sparse = importlib.import_module("scipy.sparse")
    ones = np.ones(len(indices), dtype=values.dtype)
    selection = sparse.csc_array(
        (ones, indices, np.arange(len(indices) + 1)), (count, len(indices))
    )
    rows = values.reshape(stack, len(indices), row)
    sums = [selection @ part for part in rows]
    return (sums[0] if stack == 1 else np.stack(sums)).reshape(shape)


# --- the elements that a key selects --------------------------------------------------


class FlatIndex:
    """Flat indices computed from index arrays for all axes, piece by piece.

    Pieces keep the temporary arrays in the caches.

    Attributes
    ----------
    region
        The shape that the index arrays broadcast to.
    """

    def __init__(self, terms: list[tuple[Any, int]]) -> None:
        self.region = np.broadcast_shapes(*(part.shape for part, _ in terms))
        self._terms = [
            (np.broadcast_to(part, self.region), step)
            if part.size == math.prod(self.region)
            else (np.broadcast_to(part * step, self.region), 1)
            for part, step in terms
        ]

    def pieces(self) -> list[slice]:
        """Slice the region's first axis."""
        step = max(1, TUNING.flat_piece * self.region[0] // math.prod(self.region))
        return [slice(i, i + step) for i in range(0, self.region[0], step)]

    def indices(self, piece: slice) -> Any:
        """Compute the indices into the flattened array."""
        total = None
        for part, step in self._terms:
            term = part[piece] if step == 1 else part[piece] * step
            total = term if total is None else total + term
        return total


def flat_index_of(shape: tuple[int, ...], key: Any) -> FlatIndex | None:
    """Make the `FlatIndex` of a key; return `None` if it has slices, or selects few elements."""
    parts = list(key if type(key) is tuple else (key,))
    axis = only_axis(key, len(shape))
    if axis is not None:
        parts = _full_indices(shape, axis, index_of_key(key))
    if len(parts) != len(shape) or not any(
        getattr(part, "size", 0) >= TUNING.flat_index_size for part in parts
    ):
        return None
    terms = []
    step = math.prod(shape)
    for n, part in zip(shape, parts, strict=True):
        if not isinstance(part, np.ndarray) or part.dtype.kind not in "iu":
            return None
        part = _nonnegative(part, n)
        if part is None:
            return None
        step //= n
        terms.append((part, step))
    flat = FlatIndex(terms)
    return flat if math.prod(flat.region) >= TUNING.flat_indices else None


def _full_indices(shape: tuple[int, ...], axis: int, index: Any) -> list[Any]:
    """Make index arrays for all axes of a key that indexes one and takes the others whole."""
    parts: list[Any] = []
    after = len(shape) - 1 - axis
    for i, n in enumerate(shape):
        if i == axis:
            parts.append(index.reshape(index.shape + (1,) * after))
        else:
            ones = len(shape) - 1 - i + (index.ndim - 1 if i < axis else 0)
            parts.append(np.arange(n).reshape((n,) + (1,) * ones))
    return parts


def _nonnegative(index: Any, count: int) -> Any:
    """Make negative indices positive; return `None` if an index is out of bounds."""
    index = index.astype(np.intp, copy=False)
    least, most = index.min(initial=0), index.max(initial=-count)
    if least < -count or most >= count:
        return None
    return index if least >= 0 else np.where(index < 0, index + count, index)


@implement(positions.last_written, np)
def last_written(xp: Any, shape: tuple[int, ...], key: Any) -> Any:
    """Mark the elements of ``x[key]`` whose index does not occur again later in the key."""
    region = Region(shape, key)
    order = np.arange(math.prod(region.indexed), dtype=np.intc).reshape(region.indexed)
    last = np.empty(region.lengths, dtype=np.intc)
    arrays = tuple(region.arrays)
    put_at(xp, last, arrays, order)
    hit = read_at(xp, last, arrays) == order
    if not region.before and not region.after:
        return hit
    return np.broadcast_to(hit.reshape(hit.shape + (1,) * len(region.after)), region.shape)


# --- operations -----------------------------------------------------------------------


@implement(_increase.primitive, np)
def _increased(xp: Any, x: Any, values: Any, *indices: Any, key: Any) -> Any:
    if is_short(x.dtype):
        return _increase.primitive.value(xp, x, values, *indices, key=key)
    out = copy_of(x) if type(x) is np.ndarray and x.flags.c_contiguous else np.array(x, order="C")
    if indices:
        add_at(xp, out, join(key, indices), values)
    else:
        out[key] += values
    return out


@implement(_scatter_extreme.primitive, np)
def _scattered_extreme(
    xp: Any, x: Any, src: Any, index: Any, *, axis: int, largest: bool, include_self: bool
) -> Any:
    key, out = element_key(index, axis), np.array(x, order="C")
    ufunc = np.maximum if largest else np.minimum
    with np.errstate(invalid="ignore"):  # NumPy warns of NaN
        many = src.size >= TUNING.flat_indices
        if many and axis == 0 and (ids := _ids_of_rows(index, out.shape)) is not None:
            _combine_rows(ufunc, out, ids, src, include_self)
            return out
        if not include_self:
            out[key] = identity_of_extreme(x.dtype, np, largest)
        if many and (flat := flat_index_of(out.shape, key)) is not None:
            _combine_at(ufunc, out.reshape(-1), flat, src)
        else:
            ufunc.at(out, key, src)
    return out


def _ids_of_rows(index: Any, shape: tuple[int, ...]) -> Any:
    """Return the ids, if an index sends many whole rows to each row, as in segments."""
    if index.ndim != 2 or index.strides[1] or index.shape[1] != shape[1]:
        return None
    # To sort few rows for each result takes longer.
    return _nonnegative(index[:, 0], shape[0]) if len(index) >= 4 * shape[0] else None


def _combine_rows(ufunc: np.ufunc, out: Any, ids: Any, rows: Any, include_self: bool) -> None:
    order = ids.argsort(kind="stable")
    ids = ids[order]
    starts = np.flatnonzero(np.append(True, ids[1:] != ids[:-1]))
    found = ufunc.reduceat(rows.take(order, axis=0), starts, axis=0)
    where = ids[starts]
    out[where] = ufunc(out[where], found) if include_self else found
