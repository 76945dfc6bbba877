"""Keys that index one axis by an array, which kernels read and write in large arrays."""

import itertools
import math
from typing import Any

import numpy as np

from fdbr.backends.cpu.library.gather_scatter.gather_scatter import (
    ADDED,
    gathered,
    moves,
    scattered,
)
from fdbr.backends.cpu.tuning import TUNING
from fdbr.pytrees.typing import Array

__all__ = [
    "is_small",
    "only_axis",
    "index_of_key",
    "read_by_kernel",
    "write_by_kernel",
]


def is_small(shape: tuple[int, ...], key: Any, itemsize: int) -> bool:
    """Whether a key selects so few elements that NumPy's indexing is fastest."""
    parts = key if type(key) is tuple else (key,)
    if len(parts) == len(shape) and all(map(_is_index, parts)):
        lengths = itertools.zip_longest(*(part.shape[::-1] for part in parts), fillvalue=1)
        return math.prod(map(max, lengths)) < TUNING.flat_indices
    size = math.prod(shape) * itemsize
    for part in parts:
        if type(part) is np.ndarray:
            size *= part.size
    return not size or size < TUNING.kernel_bytes


def _is_index(part: Any) -> bool:
    """Whether a part of a key is an index array, whose memory order NumPy gives the result."""
    return type(part) is np.ndarray and part.dtype.kind in "iu" and part.flags.c_contiguous


def only_axis(key: Any, ndim: int) -> int | None:
    """Return the axis of the only index array, if the key takes all other axes whole."""
    parts = key if type(key) is tuple else (key,)
    axis = None
    for number, part in enumerate(parts):
        if isinstance(part, np.ndarray) and part.dtype.kind in "iu" and axis is None:
            axis = number
        elif part is Ellipsis and number == len(parts) - 1:
            continue
        elif type(part) is not slice or part != slice(None):
            return None
    return axis


def index_of_key(key: Any) -> Any:
    """Return the first index array of a key."""
    parts = key if type(key) is tuple else (key,)
    return next(part for part in parts if isinstance(part, np.ndarray))


class _Access:
    """The description of a key for kernels: see `gathered`.

    Attributes
    ----------
    shape
        The shape of ``x[key]``.
    index
        The index array.
    stack
        The numbers of elements before, along and after the indexed axis.
    each
        Whether there is an index for each element, rather than for each row.
    """

    __slots__ = ("each", "index", "shape", "stack")

    def __init__(self, shape: tuple[int, ...], axis: int, index: Any, each: bool) -> None:
        after = shape[axis + 1 :]
        self.each = each
        self.shape = index.shape if each else (*shape[:axis], *index.shape, *after)
        self.index = index
        self.stack = math.prod(shape[:axis]), shape[axis], math.prod(after)


def _access(shape: tuple[int, ...], key: Any, itemsize: int, add: bool = False) -> _Access | None:
    """Describe a key for kernels; return `None` if they cannot read it, or it selects little.

    NumPy copies rows as fast as a kernel, but takes many passes for single elements and for sums.
    """
    axis = only_axis(key, len(shape))
    if axis is not None:
        found = _Access(shape, axis, index_of_key(key), each=False)
    else:
        axis_and_index = _index_of_axis(shape, key)
        if axis_and_index is None:
            return None
        found = _Access(shape, *axis_and_index, each=True)
    size = math.prod(found.shape)
    passes = TUNING.heavy_passes if add or found.each else 1
    if not size or size * itemsize * passes < TUNING.kernel_bytes:
        return None
    fits_int32 = found.index.dtype == np.int32 and found.stack[1] <= np.iinfo(np.int32).max
    found.index = np.ascontiguousarray(found.index, np.int32 if fits_int32 else np.int64)
    return found


def _index_of_axis(shape: tuple[int, ...], key: Any) -> tuple[int, Any] | None:
    """Return the axis and index if a key indexes one axis by element and is iota on the others."""
    if type(key) is not tuple or len(key) != len(shape):
        return None
    axis = None
    for i, part in enumerate(key):
        if (
            not isinstance(part, np.ndarray)
            or part.ndim != len(shape)
            or part.dtype.kind not in "iu"
        ):
            return None
        if part.size != part.shape[i] or len(part.reshape(-1)) != shape[i] or not _is_iota(part):
            if axis is not None:
                return None
            axis = i
    if axis is None:
        axis = len(shape) - 1
    region = (*shape[:axis], key[axis].shape[axis], *shape[axis + 1 :])
    if key[axis].shape == region:
        return axis, key[axis]
    try:
        return axis, np.broadcast_to(key[axis], region)
    except ValueError:
        return None  # other axes differ in length


def _is_iota(part: Any) -> bool:
    return np.array_equal(part.reshape(-1), np.arange(part.size))


def read_by_kernel(x: Array, key: Any) -> Any:
    """Read ``x[key]`` by a kernel; return `None` without one, or if an index is out of bounds."""
    if type(x) is not np.ndarray or not x.flags.c_contiguous or not moves(x.dtype):
        return None
    access = _access(x.shape, key, x.itemsize)
    if access is None:
        return None
    out = np.empty(access.shape, x.dtype)
    return out if gathered(x, access.index, access.stack, access.each, out) else None


def write_by_kernel(out: Any, key: Any, values: Array, add: bool) -> bool:
    """Write values into a new array, or add them, by a kernel.

    Return `False` if there is no kernel, or if an index is out of bounds: then some values may
    have been written already.
    """
    if type(out) is not np.ndarray or not out.flags.c_contiguous or values.dtype != out.dtype:
        return False
    if out.dtype not in ADDED if add else not moves(out.dtype):
        return False
    access = _access(out.shape, key, out.itemsize, add)
    if access is None or values.shape not in ((), access.shape):
        return False
    values = np.ascontiguousarray(values)
    return scattered(out, access.index, access.stack, access.each, values, add)
