"""NumPy's indexing of many places at once, by their numbers in the flattened array.

NumPy reads and writes at one index array several times as fast as at two, and adds twenty times as
fast; whole rows are added fastest by a product with a sparse matrix.  What is large kernels move,
where the places lie along one axis (see `fdbr.ops.along`).
"""

import importlib
import math
from typing import Any

import numpy as np

from fdbr.backends.cpu.kernels import LEAST
from fdbr.core.util.threads import divide
from fdbr.ops.indexing.axis_index import few, only_axis, places_of, read_along, write_along
from fdbr.pytrees.typing import Array

__all__ = ["add_at", "added_at", "last_named", "put_at", "read_at", "region_shape"]

_MANY = 1 << 11  # places from which on it pays
_FEW = 1 << 5  # of which one index array has so many at least
_PIECE = 1 << 15  # places at a time
_ROW = 8  # elements of a row from which on rows are added as such
_STACK = 64  # how often at the most


def read_at(xp: Any, x: Any, key: Any) -> Any:
    """``x[key]``, in row-major order."""
    if xp is not np or not isinstance(x, np.ndarray):
        return x[key]
    if few(x.shape, key, x.itemsize):
        return x[key]
    found = read_along(x, key)
    if found is not None:
        return found
    axis = only_axis(key, x.ndim)
    if axis is not None:
        return x.take(places_of(key).astype(np.intp, copy=False), axis=axis)
    places = named(x.shape, key) if x.flags.c_contiguous else None
    if places is None:
        return x[key]
    row, out = x.reshape(-1), np.empty(places.region, x.dtype)

    def work(piece: slice) -> None:
        row.take(places.numbers(piece), out=out[piece], mode="wrap")  # they are in range

    divide(work, places.pieces())
    return out


def put_at(out: Any, key: Any, values: Array) -> None:
    """``out[key] = values`` for values of the key's shape, or one; the last for a place stays."""
    if few(out.shape, key, out.itemsize):
        out[key] = values
        return
    if write_along(out, key, np.asarray(values, out.dtype), add=False):
        return
    rows = only_axis(key, out.ndim) is not None or not out.flags.c_contiguous
    places = None if rows else named(out.shape, key)
    if places is None:
        out[key] = values
        return
    row, one = out.reshape(-1), np.ndim(values) == 0
    for piece in places.pieces():
        row[places.numbers(piece).reshape(-1)] = values if one else values[piece].reshape(-1)


def added_at(shape: tuple[int, ...], key: Any, values: Array) -> Any:
    """Zeros, with values added at the places of a key."""
    axis = only_axis(key, len(shape)) if values.size >= _MANY else None
    if axis is not None and values.nbytes < LEAST:
        sums = _summed_rows(shape, axis, places_of(key), values)
        if sums is not None:
            return sums
    out = np.zeros(shape, dtype=values.dtype)
    add_at(out, key, values)
    return out


def add_at(out: Any, key: Any, values: Array) -> None:
    """``np.add.at(out, key, values)`` for an array in row-major order."""
    if values.size < _MANY:
        np.add.at(out, key, values)
        return
    if write_along(out, key, values, add=True):
        return
    row, places = out.reshape(-1), named(out.shape, key)
    if places is None:
        numbers = np.arange(out.size).reshape(out.shape)[key].reshape(-1)
        if not write_along(row, numbers, values.reshape(-1), add=True):
            np.add.at(row, numbers, values.reshape(-1))
        return
    for piece in places.pieces():
        np.add.at(row, places.numbers(piece).reshape(-1), values[piece].reshape(-1))


def _summed_rows(shape: tuple[int, ...], axis: int, index: Any, values: Any) -> Any:
    """Rows added to those of their numbers, by a product with a sparse matrix of ones."""
    stack, count, row = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    if row < _ROW or stack > _STACK or values.dtype.char not in "fdFD":
        return None
    numbers = _wrapped(index.reshape(-1), count)
    if numbers is None:
        return None
    sparse = importlib.import_module("scipy.sparse")
    ones = np.ones(len(numbers), dtype=values.dtype)
    chosen = sparse.csc_array((ones, numbers, np.arange(len(numbers) + 1)), (count, len(numbers)))
    rows = values.reshape(stack, len(numbers), row)
    sums = [chosen @ part for part in rows]
    return (sums[0] if stack == 1 else np.stack(sums)).reshape(shape)


# --- what a key names ---------------------------------------------------------------


class Places:
    """Read at index arrays for all axes, piece by piece: temporary arrays stay in the caches.

    Attributes
    ----------
    region
        The shape of the index arrays together.
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
        """Slices of the region's first axis."""
        step = max(1, _PIECE * self.region[0] // math.prod(self.region))
        return [slice(i, i + step) for i in range(0, self.region[0], step)]

    def numbers(self, piece: slice) -> Any:
        """The numbers of the places in the flattened array."""
        total = None
        for part, step in self._terms:
            term = part[piece] if step == 1 else part[piece] * step
            total = term if total is None else total + term
        return total


def named(shape: tuple[int, ...], key: Any) -> Places | None:
    """Read at index arrays for all axes; `None` if they leave axes to others, or are few."""
    parts = list(key if type(key) is tuple else (key,))
    axis = only_axis(key, len(shape))
    if axis is not None:
        parts = _open(shape, axis, places_of(key))
    if len(parts) != len(shape) or not any(getattr(part, "size", 0) >= _FEW for part in parts):
        return None
    terms = []
    step = math.prod(shape)
    for n, part in zip(shape, parts, strict=True):
        if not isinstance(part, np.ndarray) or part.dtype.kind not in "iu":
            return None
        part = _wrapped(part, n)
        if part is None:
            return None
        step //= n
        terms.append((part, step))
    places = Places(terms)
    return places if math.prod(places.region) >= _MANY else None


def _open(shape: tuple[int, ...], axis: int, index: Any) -> list[Any]:
    """Index arrays for all axes, where there is one and the others are taken whole."""
    parts: list[Any] = []
    behind = len(shape) - 1 - axis
    for i, n in enumerate(shape):
        if i == axis:
            parts.append(index.reshape(index.shape + (1,) * behind))
        else:
            ones = len(shape) - 1 - i + (index.ndim - 1 if i < axis else 0)
            parts.append(np.arange(n).reshape((n,) + (1,) * ones))
    return parts


def _wrapped(index: Any, count: int) -> Any:
    """An index array without negative numbers; `None` if there are places that there are not."""
    index = index.astype(np.intp, copy=False)
    least, most = index.min(initial=0), index.max(initial=-count)
    if least < -count or most >= count:
        return None
    return index if least >= 0 else np.where(index < 0, index + count, index)


class Region:
    """The shape of ``x[key]`` for ``x`` of a shape, and a key that fits: see NumPy's manual.

    Attributes
    ----------
    before, named, behind
        Its axes: those of the index arrays, and those of slices and new axes around them.
    arrays, lengths
        The index arrays and numbers, and how long the axes are to which they belong.
    """

    def __init__(self, shape: tuple[int, ...], key: Any) -> None:
        parts = list(key) if type(key) is tuple else [key]
        if not any(part is Ellipsis for part in parts):
            parts.append(Ellipsis)
        rest = len(shape) - sum(part is not None and part is not Ellipsis for part in parts)
        if rest < 0:
            raise IndexError(f"too many indices: {len(shape) - rest} for shape {shape}")
        lengths = list(reversed(shape))
        basic: list[int] = []  # of slices and new axes
        self.arrays: list[Any] = []
        self.lengths: list[int] = []
        places: list[int] = []  # of arrays in the key
        before = 0  # basic ones before the first array
        for number, part in enumerate(parts):
            if part is None:
                basic.append(1)
            elif part is Ellipsis:
                basic += [lengths.pop() for _ in range(rest)]
            elif type(part) is slice:
                basic.append(len(range(*part.indices(lengths.pop()))))
            else:
                before = before if places else len(basic)
                places.append(number)
                self.arrays.append(part)
                self.lengths.append(lengths.pop())
        if not places or places[-1] - places[0] >= len(places):
            before = 0
        self.before, self.behind = tuple(basic[:before]), tuple(basic[before:])
        shapes = [getattr(part, "shape", ()) for part in self.arrays]
        self.named = shapes[0] if len(shapes) == 1 else np.broadcast_shapes(*shapes)

    @property
    def shape(self) -> tuple[int, ...]:
        """All axes."""
        return (*self.before, *self.named, *self.behind)


def region_shape(shape: tuple[int, ...], key: Any) -> tuple[int, ...]:
    """The shape of ``x[key]`` for ``x`` of a shape."""
    if type(key) is tuple and len(key) == 1 and shape and type(key[0]) is np.ndarray:
        return (*key[0].shape, *shape[1:])  # the usual cases
    if type(key) is tuple and len(key) == len(shape) and set(map(type, key)) == {np.ndarray}:
        return np.broadcast(*key).shape
    return Region(shape, key).shape


def last_named(shape: tuple[int, ...], key: Any) -> Any:
    """For each element of a key's region, whether no later one names the same place."""
    region = Region(shape, key)
    order = np.arange(math.prod(region.named), dtype=np.intc).reshape(region.named)
    last = np.empty(region.lengths, dtype=np.intc)
    arrays = tuple(region.arrays)
    put_at(last, arrays, order)
    hit = read_at(np, last, arrays) == order
    if not region.before and not region.behind:
        return hit
    return np.broadcast_to(hit.reshape(hit.shape + (1,) * len(region.behind)), region.shape)
