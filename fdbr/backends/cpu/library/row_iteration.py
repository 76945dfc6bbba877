"""NumPy's functions on arrays whose long rows are contiguous, but not adjacent in memory.

NumPy copies the elements of several such rows to a buffer of 8,192 elements, which takes longer
than the arithmetic.  If a buffer does not hold two rows, NumPy iterates over the rows in place.
"""

import contextlib
import math
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fdbr.backends.cpu import kernels
from fdbr.backends.cpu.tuning import TUNING
from fdbr.core.primitive import implement
from fdbr.ops.einsums import wide_product
from fdbr.ops.indexing import reading
from fdbr.ops.shape import layout
from fdbr.pytrees.typing import Array

__all__ = ["broadcast_product", "unbuffered_rows"]

_LONG = 1 << 8  # elements of a row, from which on buffers cost more than they save
_LARGE = 1 << 14  # elements of a product, below which the iteration order does not matter
_FEW = 1 << 2  # factors are copied to get long rows if they have at most 1/4 of the product's size


@contextlib.contextmanager
def unbuffered_rows(row: int) -> Iterator[None]:
    """Make NumPy's functions iterate over rows of ``row`` elements without buffers.

    Results do not change, if they have the dtype of the operands.

    >>> x = np.arange(2000.0).reshape(2, 1000)
    >>> with unbuffered_rows(999):
    ...     y = x[:, 1:] - x[:, :-1]
    >>> y.min(), y.max(), np.getbufsize()
    (np.float64(1.0), np.float64(1.0), 8192)
    """
    if row < _LONG:
        yield
        return
    old_size = np.setbufsize(min(row // 16 * 16, 8192))  # NumPy takes multiples of 16
    try:
        yield
    finally:
        np.setbufsize(old_size)


@implement(reading.add_slices, np)
def _add_slices(out: Any, terms: Sequence[tuple[Any, Any]]) -> None:
    with unbuffered_rows(out.shape[-1] if out.ndim > 1 else 0):
        reading.add_slices.definition(out, terms)


@implement(layout.differences, np)
def _differences(x: Any, before: tuple[slice, ...]) -> Any:
    if x.size < _LARGE:
        return layout.differences.definition(x, before)
    with unbuffered_rows(x.shape[-1]):
        return layout.differences.definition(x, before)


@implement(wide_product, np)
def broadcast_product(x: Array, y: Array) -> Any:
    """Compute ``x * y`` of arrays of one rank that broadcast, as the factors of an outer product.

    Several short rows are merged into one, if that copies few elements of the factors.
    """
    if x.dtype != y.dtype or not x.ndim or (x.size * y.size < _LARGE):
        return x * y
    shape = np.broadcast_shapes(x.shape, y.shape)
    size = math.prod(shape)
    if size * x.itemsize >= TUNING.kernel_bytes:
        found = kernels.elementwise(operator.mul, operator.mul, (x, y))
        if found is not None:
            return found
    row, axis = 1, len(shape)
    while row < _LONG and axis:
        axis -= 1
        row *= shape[axis]
    if axis < len(shape) - 1:
        copied = [math.prod(part.shape[:axis]) * row for part in (x, y)]
        if size < _LARGE or sum(copied) * _FEW > size:
            return x * y
        x, y = (
            np.broadcast_to(part, part.shape[:axis] + shape[axis:]).reshape(*part.shape[:axis], row)
            for part in (x, y)
        )
    if size * x.itemsize >= TUNING.kernel_bytes:
        found = kernels.elementwise(operator.mul, operator.mul, (x, y))
        if found is not None:
            return found.reshape(shape)
    with unbuffered_rows(row):
        return (x * y).reshape(shape)
