"""Elements gathered from places that an array of integers tells, and written or added there.

The arrays are stacks of `outer` matrices of `count` rows of `inner` elements, and the places are
numbers of rows.  There is one for each row that is moved, or one for each element of such a row.
Each is looked at when it is used: negative ones count from the end, and one that there is not is
left out, and told.

What comes to one place is written by one thread, in the order of the places: so the result has the
same bits on every number of threads, and they are NumPy's.
"""

from array import array
from typing import Any

import numpy as np

from fdbr.backends.cpu.library.gather_scatter.gather_scatter_text import (
    TABLE,
    gathering,
    scattering,
)
from fdbr.backends.cpu.runtime.machine import address_of
from fdbr.backends.cpu.runtime.pool import launch, part_count, thread_count

__all__ = ["ADDED", "gathered", "moves", "scattered"]

_WORDS = {np.dtype(np.int64): "i64", np.dtype(np.int32): "i32"}
ADDED = {
    np.dtype(kind): name
    for kind, name in {
        np.float32: "float",
        np.float64: "double",
        np.int32: "i32",
        np.int64: "i64",
        np.uint32: "i32",
        np.uint64: "i64",
    }.items()
}
"""The dtypes that are added up, by LLVM's names."""

_SINGLE = frozenset({1, 2, 4, 8, 16})  # bytes that are moved at once
_PART = 1 << 14  # elements that are worth a thread's waking
_GRAIN = 1 << 10


def moves(dtype: Any) -> bool:
    """Whether elements of a dtype can be moved as bytes."""
    return not dtype.hasobject


class _Course:
    """The way of a kernel through stacks of rows: the words of its table, by their names."""

    def __init__(
        self, shape: tuple[int, int, int], index: Any, each: bool, itemsize: int, added: bool
    ) -> None:
        self.outer, count, inner = shape
        self.each = each and inner > 1
        number = index.size // (self.outer * inner if each else 1)  # of rows that are moved
        row = 1 if each else inner  # elements that are moved together
        if row > 1 and not added and row * itemsize in _SINGLE:
            itemsize, row, inner = row * itemsize, 1, 1
        self.size = itemsize if row == 1 and itemsize in _SINGLE else 0
        self.line = inner if self.each else number
        self.lines = number if self.each else 1
        unit = 1 if self.size else row * (1 if added else itemsize)  # what addresses count
        self.words = {
            "count": count,
            "line": self.line,
            "lines": self.lines,
            "base": self.line * self.lines if each else 0,
            "step": inner if self.each else unit,
            "stack": count * (inner if self.each else unit),
            "bytes": unit,
            "apart": unit,
            "which": 0,
            "total": self.outer,
            "wrong": 0,
        }
        self.moved = self.outer * self.line * self.lines
        self.weight = self.moved * (1 if self.size else row)

    def run(self, source: str, units: int, grain: int, parts: int, *arrays: Any) -> bool:
        for name, one in zip(("x", "index", "out"), arrays, strict=True):
            self.words[name] = one.__array_interface__["data"][0]
        table = array("q", [self.words[name] for name in TABLE])
        launch(address_of(source), table.buffer_info()[0], units, grain, max(1, parts))
        return not table[-1]


def gathered(x: Any, index: Any, shape: tuple[int, int, int], each: bool, out: Any) -> bool:
    """Read the places of an array into another; whether all of them are there.

    Parameters
    ----------
    x
        Its elements are those of a stack of ``shape``, ``(outer, count, inner)``, in C order.
    index
        Numbers from ``-count`` to ``count - 1``, in C order, in int32 or int64: of rows, or, with
        ``each``, of shape ``(outer, number, inner)``, one for each element.
    out
        An array in C order and of the same dtype, which has ``(outer, number, inner)`` elements.
    """
    course = _Course(shape, index, each, x.itemsize, False)
    source = gathering(_WORDS[index.dtype], course.size, course.each)
    parts = part_count(course.weight // _PART)
    grain = _GRAIN if course.size else 1
    return course.run(source, course.moved, grain, parts, x, index, out)


def scattered(
    out: Any, index: Any, shape: tuple[int, int, int], each: bool, values: Any, add: bool
) -> bool:
    """Write values to the places of an array, or add them; whether all places are there.

    Of several for one place the last one stays.  Parameters are those of `gathered`; ``values``
    may also be one number, for all places.
    """
    course = _Course(shape, index, each, out.itemsize, add)
    if values.size == 1:
        values = np.full(1 if each else shape[2], values.reshape(-1), out.dtype)
        course.words["apart"] = 0
    source = scattering(
        _WORDS[index.dtype], course.size, course.each, ADDED[out.dtype] if add else ""
    )
    threads = thread_count() if course.weight >= 2 * _PART else 1
    units, grain, parts = course.outer, 1, 4 * threads
    if threads > 1 and course.outer < 2 * threads:
        # Nobody else writes to the columns of a thread; or, failing these, to its places.
        course.words["which"] = 1 if course.each else 2
        units, parts = (course.line if course.each else shape[1]), threads
        grain = 16 if course.each else 1
    return course.run(source, units, grain, min(parts, units), values, index, out)
