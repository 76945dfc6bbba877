"""Gathering of elements at integer indices, and scattering or adding them there.

The arrays are stacks of ``outer`` matrices of ``count`` rows of ``inner`` elements, and the indices
are numbers of rows.  There is one for each row that is moved, or one for each element of it.
Negative indices count from the end; those out of bounds are skipped and reported.

All writes to one row are done by one thread, in the order of the indices: so the result has the
same bits for every number of threads, and they are NumPy's.
"""

from array import array
from typing import Any

import numpy as np

from fdbr.backends.cpu.library.gather_scatter.lines import TABLE, gathering, scattering
from fdbr.backends.cpu.runtime.machine import address_of
from fdbr.backends.cpu.runtime.pool import data_address, launch, part_count, thread_count
from fdbr.backends.cpu.tuning import TUNING

__all__ = ["ADDED", "gathered", "moves", "scattered"]

_WORDS = {np.dtype(np.int64): "i8", np.dtype(np.int32): "i4"}
ADDED = {
    np.dtype(kind): name
    for kind, name in {
        np.float32: "f4",
        np.float64: "f8",
        np.int32: "i4",
        np.int64: "i8",
        np.uint32: "i4",
        np.uint64: "i8",
    }.items()
}
"""The dtypes that can be added, with their names in kernels."""

_SINGLE = frozenset({1, 2, 4, 8, 16})  # sizes in bytes that one instruction moves
_GRAIN = 1 << 10  # elements of which each part has a multiple


def moves(dtype: Any) -> bool:
    """Return whether elements of a dtype can be moved as bytes."""
    return not dtype.hasobject


class _Course:
    """The division of the work into lines: the entries of a kernel's table, by name."""

    def __init__(
        self, shape: tuple[int, int, int], index: Any, each: bool, itemsize: int, added: bool
    ) -> None:
        self.outer, count, inner = shape
        self.each = each and inner > 1
        number = index.size // (self.outer * inner if each else 1)  # rows that are moved
        row = 1 if each else inner  # elements that are moved together
        if row > 1 and not added and row * itemsize in _SINGLE:
            itemsize, row, inner = row * itemsize, 1, 1
        self.size = itemsize if row == 1 and itemsize in _SINGLE else 0
        self.line = inner if self.each else number
        self.lines = number if self.each else 1
        unit = 1 if self.size else row * (1 if added else itemsize)  # the unit of addresses
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
            self.words[name] = data_address(one)
        table = array("q", [self.words[name] for name in TABLE])
        launch(address_of(source), table.buffer_info()[0], units, grain, max(1, parts))
        return not table[-1]


def gathered(x: Any, index: Any, shape: tuple[int, int, int], each: bool, out: Any) -> bool:
    """Gather rows or elements of an array; return whether all indices are in bounds.

    Parameters
    ----------
    x
        The array; its elements form a stack of ``shape``, ``(outer, count, inner)``, in C order.
    index
        Integers from ``-count`` to ``count - 1``, in C order, in int32 or int64: of rows, or, with
        ``each``, of shape ``(outer, number, inner)``, one for each element.
    out
        An array in C order and of the same dtype, which has ``(outer, number, inner)`` elements.
    """
    course = _Course(shape, index, each, x.itemsize, False)
    source = gathering(_WORDS[index.dtype], course.size, course.each)
    parts = part_count(course.weight // TUNING.gather_part)
    grain = _GRAIN if course.size else 1
    return course.run(source, course.moved, grain, parts, x, index, out)


def scattered(
    out: Any, index: Any, shape: tuple[int, int, int], each: bool, values: Any, add: bool
) -> bool:
    """Write values to rows or elements of an array, or add them; return whether all are in bounds.

    Of several values for one index the last one stays.  Parameters are those of `gathered`;
    ``values`` may also be one number for all indices.
    """
    course = _Course(shape, index, each, out.itemsize, add)
    if values.size == 1:
        values = np.full(1 if each else shape[2], values.reshape(-1), out.dtype)
        course.words["apart"] = 0
    source = scattering(
        _WORDS[index.dtype], course.size, course.each, ADDED[out.dtype] if add else ""
    )
    threads = thread_count() if course.weight >= 2 * TUNING.gather_part else 1
    units, grain, parts = course.outer, 1, 4 * threads
    if threads > 1 and course.outer < 2 * threads:
        # Each thread writes to columns of its own, or else to rows of its own.
        course.words["which"] = 1 if course.each else 2
        units, parts = (course.line if course.each else shape[1]), threads
        grain = 16 if course.each else 1
    return course.run(source, units, grain, min(parts, units), values, index, out)
