"""Parallel copies of rows with gaps between them, and filling of arrays with one number."""

import functools
from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np

from fdbr.backends.cpu.codegen.kernel_builder import Kernel
from fdbr.backends.cpu.runtime.machine import address_of
from fdbr.backends.cpu.runtime.pool import data_address, launch, part_count
from fdbr.backends.cpu.tuning import TUNING

__all__ = ["copied_into", "filled", "joined"]

_FILL = 1 << 13  # bytes of the row that an array is filled with


@functools.cache
def _kernel() -> str:
    """Return the kernel that copies rows; a single row is divided among the threads.

    Its table has the target, the source, the distances of rows in both, and the bytes of a row, or
    0 for a single one.
    """
    kernel = Kernel(("to", "from", "to.step", "from.step", "bytes"), {"to": "u1", "from": "u1"})
    to, source, to_step, from_step, size = kernel.word.values()
    single = size.equals(0)
    with kernel.when(single):
        kernel.copy(to + kernel.start, source + kernel.start, kernel.stop - kernel.start)
    with kernel.when(~single), kernel.each(kernel.start, kernel.stop) as row:
        kernel.copy(to + row * to_step, source + row * from_step, size)
    return kernel.text()


def copied_into(out: Any, x: Any) -> None:
    """Compute ``out[...] = x`` for arrays of one shape and dtype, which do not overlap."""
    if x.nbytes < max(TUNING.kernel_bytes, 1) or x.dtype.hasobject:
        out[...] = x
    elif not any(x.strides):
        filled(out, x[(0,) * x.ndim])
    elif (lines := _lines(out, x)) is not None:
        _copy(out, x, *lines)
    else:
        out[...] = x


def filled(out: Any, value: Any) -> Any:
    """Fill an array with one number, and return it.

    >>> import numpy as np
    >>> filled(np.empty((600, 500)), 2.0).min()
    np.float64(2.0)
    """
    if out.nbytes < TUNING.kernel_bytes or out.dtype.hasobject or not out.flags.forc:
        out[...] = value
        return out
    elements = out.reshape(-1, order="A")
    row = np.full(_FILL // out.itemsize, value, out.dtype)
    rows = len(elements) // len(row)
    _copy(elements, row, rows, row.nbytes, 0, row.nbytes)
    elements[rows * len(row) :] = value
    return out


def _copy(out: Any, x: Any, rows: int, out_step: int, x_step: int, size: int) -> None:
    """Copy ``rows`` rows of ``size`` bytes."""
    data = [data_address(v) for v in (out, x)]
    table = array("q", [*data, out_step, x_step, 0 if rows == 1 else size])
    number, grain = (size, 64) if rows == 1 else (rows, 1)
    parts = part_count(min(rows * size // TUNING.copy_share, number))
    launch(address_of(_kernel()), table.buffer_info()[0], number, grain, parts)


def _lines(out: Any, x: Any) -> tuple[int, int, int, int] | None:
    """Return the number of rows, their distances in both arrays, and their bytes, or `None`."""
    rows, row, steps = 1, x.itemsize, (0, 0)
    whole = True  # while all axes so far form one contiguous row
    for axis in sorted(range(x.ndim), key=lambda i: (out.strides[i], -i)):
        n, here = x.shape[axis], (out.strides[axis], x.strides[axis])
        if n == 1:
            continue
        if whole and here == (row, row):
            row *= n
            continue
        if whole:
            whole, rows, steps = False, n, here
            if row < TUNING.copy_row:
                return None
        elif here == (steps[0] * rows, steps[1] * rows):
            rows *= n
        else:
            return None
    return (rows, *steps, row)


def joined(arrays: Sequence[Any], axis: int) -> Any:
    """Concatenate large arrays of one dtype like `numpy.concatenate`; return `None` for others.

    >>> import numpy as np
    >>> joined([np.ones((1000, 200)), np.zeros((1000, 100))], 1).shape
    (1000, 300)
    """
    first, size = arrays[0], 0
    for part in arrays:
        size += part.nbytes
    if size < TUNING.kernel_bytes or any(
        type(part) is not np.ndarray
        or part.dtype != first.dtype
        or not part.dtype.isnative
        or part.ndim != first.ndim
        or part.shape[:axis] != first.shape[:axis]
        or part.shape[axis + 1 :] != first.shape[axis + 1 :]
        for part in arrays
    ):
        return None
    length = sum(part.shape[axis] for part in arrays)
    out = np.empty((*first.shape[:axis], length, *first.shape[axis + 1 :]), first.dtype)
    place = 0
    for part in arrays:
        end = place + part.shape[axis]
        copied_into(out[(*(slice(None),) * axis, slice(place, end))], part)
        place = end
    return out
