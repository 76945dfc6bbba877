"""NumPy's functions on long rows that do not lie in one row in memory.

NumPy gathers the elements of several such rows in buffers, of 8,192 elements, which takes longer
than the arithmetic: where a buffer does not hold two rows, it goes through them where they lie.
"""

import contextlib
import math
import operator
from collections.abc import Iterator
from typing import Any

import numpy as np

from fdbr.backends.cpu import kernels
from fdbr.pytrees.typing import Array

__all__ = ["multiplied", "where_they_lie"]

_LONG = 1 << 8  # elements of a row, from which on the buffers cost more than they save
_LARGE = 1 << 14  # elements of a product, from which on it matters how NumPy goes through rows
_FEW = 1 << 2  # part of the product's elements that are copied to have long rows


@contextlib.contextmanager
def where_they_lie(row: int) -> Iterator[None]:
    """Have NumPy's functions go through rows of so many elements without buffers.

    It changes nothing in their results, if these have the dtype of the operands.

    >>> x = np.arange(2000.0).reshape(2, 1000)
    >>> with where_they_lie(999):
    ...     y = x[:, 1:] - x[:, :-1]
    >>> y.min(), y.max(), np.getbufsize()
    (np.float64(1.0), np.float64(1.0), 8192)
    """
    if row < _LONG:
        yield
        return
    before = np.setbufsize(min(row // 16 * 16, 8192))  # NumPy takes multiples of 16
    try:
        yield
    finally:
        np.setbufsize(before)


def multiplied(x: Array, y: Array) -> Any:
    """``x * y`` of arrays of one rank that broadcast, as an outer product's factors.

    Of short rows several are made one, where that takes few copies of factors.
    """
    if x.dtype != y.dtype or not x.ndim or (x.size * y.size < _LARGE):
        return x * y
    shape = np.broadcast_shapes(x.shape, y.shape)
    size = math.prod(shape)
    if size * x.itemsize >= kernels.LEAST:
        found = kernels.elementwise(operator.mul, operator.mul, (x, y))
        if found is not None:
            return found
    row, axis = 1, len(shape)
    while row < _LONG and axis:
        axis -= 1
        row *= shape[axis]
    if axis < len(shape) - 1:
        whole = [math.prod(part.shape[:axis]) * row for part in (x, y)]
        if size < _LARGE or sum(whole) * _FEW > size:
            return x * y
        x, y = (
            np.broadcast_to(part, part.shape[:axis] + shape[axis:]).reshape(*part.shape[:axis], row)
            for part in (x, y)
        )
    if size * x.itemsize >= kernels.LEAST:
        found = kernels.elementwise(operator.mul, operator.mul, (x, y))
        if found is not None:
            return found.reshape(shape)
    with where_they_lie(row):
        return (x * y).reshape(shape)
