"""Keys whose places lie along one axis, and what kernels do with them in large arrays."""

import functools
import math
from typing import Any

import numpy as np

from fdbr.backends.cpu.kernels import LEAST
from fdbr.backends.cpu.library.gather_scatter.gather_scatter import (
    ADDED,
    gathered,
    moves,
    scattered,
)
from fdbr.pytrees.typing import Array

__all__ = ["few", "numbers_of_axis", "only_axis", "places_of", "read_along", "write_along"]


@functools.lru_cache(1 << 8)
def _kept_numbers(n: int, axis: int, ndim: int) -> Any:
    numbers = np.arange(n).reshape((1,) * axis + (n,) + (1,) * (ndim - axis - 1))
    numbers.setflags(write=False)
    return numbers


def numbers_of_axis(n: int, axis: int, ndim: int) -> Any:
    """``0 … n - 1`` along an axis, and 1 long on the others.

    >>> numbers_of_axis(3, 1, 2)
    array([[0, 1, 2]])
    """
    return (_kept_numbers if n <= _SHORT else _kept_numbers.__wrapped__)(n, axis, ndim)


def few(shape: tuple[int, ...], key: Any, itemsize: int) -> bool:
    """Whether a key names so few elements that NumPy's own indexing takes least time."""
    most = math.prod(shape) * itemsize
    for part in key if type(key) is tuple else (key,):
        if type(part) is np.ndarray:
            most *= part.size
    return most < LEAST


def only_axis(key: Any, ndim: int) -> int | None:
    """The axis which alone a key has something to say of, by one index array."""
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


def places_of(key: Any) -> Any:
    """The first index array of a key."""
    parts = key if type(key) is tuple else (key,)
    return next(part for part in parts if isinstance(part, np.ndarray))


_SHORT = 1 << 8  # numbers that are kept


class _Course:
    """The description of a key for kernels: see `gathered`.

    Attributes
    ----------
    shape
        That of ``x[key]``.
    index, stack, each
        The places, what they are places of, and whether there is one for each element.
    """

    __slots__ = ("each", "index", "shape", "stack")

    def __init__(self, shape: tuple[int, ...], axis: int, index: Any, each: bool) -> None:
        behind = shape[axis + 1 :]
        self.each = each
        self.shape = index.shape if each else (*shape[:axis], *index.shape, *behind)
        self.index = index
        self.stack = math.prod(shape[:axis]), shape[axis], math.prod(behind)


def _course(shape: tuple[int, ...], key: Any, itemsize: int) -> _Course | None:
    """The way by which a kernel finds a key's elements; `None` if it cannot, or they are few."""
    axis = only_axis(key, len(shape))
    if axis is not None:
        found = _Course(shape, axis, places_of(key), each=False)
    else:
        along = _varying(shape, key)
        if along is None:
            return None
        found = _Course(shape, *along, each=True)
    size = math.prod(found.shape)
    if not size or size * itemsize < LEAST:
        return None
    narrow = found.index.dtype == np.int32 and found.stack[1] <= np.iinfo(np.int32).max
    found.index = np.ascontiguousarray(found.index, np.int32 if narrow else np.int64)
    return found


def _varying(shape: tuple[int, ...], key: Any) -> tuple[int, Any] | None:
    """The axis along which a key tells a place for each element, and on the others its own."""
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
        if part.size != part.shape[i] or len(part.reshape(-1)) != shape[i] or not _is_own(part):
            if axis is not None:
                return None
            axis = i
    if axis is None:
        axis = len(shape) - 1
    region = (*shape[:axis], key[axis].shape[axis], *shape[axis + 1 :])
    try:
        return axis, np.broadcast_to(key[axis], region)
    except ValueError:
        return None  # other axes are longer, or shorter


def _is_own(part: Any) -> bool:
    return np.array_equal(part.reshape(-1), np.arange(part.size))


def read_along(x: Array, key: Any) -> Any:
    """``x[key]`` by a kernel; `None` where there is none, or a place is not there."""
    if type(x) is not np.ndarray or not x.flags.c_contiguous or not moves(x.dtype):
        return None
    course = _course(x.shape, key, x.itemsize)
    if course is None:
        return None
    out = np.empty(course.shape, x.dtype)
    return out if gathered(x, course.index, course.stack, course.each, out) else None


def write_along(out: Any, key: Any, values: Array, add: bool) -> bool:
    """Put values into a new array, or add them, by a kernel.

    `False` is where there is none, and where a place is not there: then values may have been
    written to others.
    """
    if type(out) is not np.ndarray or not out.flags.c_contiguous or values.dtype != out.dtype:
        return False
    if out.dtype not in ADDED if add else not moves(out.dtype):
        return False
    course = _course(out.shape, key, out.itemsize)
    if course is None or values.shape not in ((), course.shape):
        return False
    values = np.ascontiguousarray(values)
    return scattered(out, course.index, course.stack, course.each, values, add)
