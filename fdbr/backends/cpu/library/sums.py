"""Sums of large NumPy arrays, as products with vectors of ones.

BLAS reads memory at full bandwidth: it takes a third of the time of NumPy's sum, and a tenth or
less along the first axis of a narrow matrix.  It sums about a thousand elements at a time, and
then the partial sums, so that the rounding error does not grow with the number of all elements.
"""

import functools
import itertools
import math
from typing import Any

import numpy as np

from fdbr.backends.cpu import kernels
from fdbr.backends.cpu.library.rows import SMALL, by_slices
from fdbr.backends.cpu.tuning import TUNING
from fdbr.core.primitive import implement
from fdbr.ops.declare.unbroadcast import accumulate
from fdbr.ops.reductions import reduce
from fdbr.pytrees.dtypes import is_short

__all__ = ["ones", "total"]

_ROW = 1 << 10  # elements that one product sums, which bounds the rounding error
_add_up: Any = np.add.reduce  # what the method ``sum`` calls, without its overhead


@implement(accumulate, np)
def _accumulate(value: Any, axes: Any, keepdims: bool = False) -> Any:
    if value.itemsize <= 2 and is_short(value.dtype):
        return accumulate.definition(value, axes, keepdims)
    if value.size < SMALL:
        return _add_up(value, axes, None, None, keepdims)
    if value.size >= TUNING.blas_sum and (found := total(value, axes)) is not None:
        return np.expand_dims(found, _axes_of(axes, value.ndim)) if keepdims else found
    found = by_slices(np.add, value, axes, keepdims)
    return _add_up(value, axes, None, None, keepdims) if found is None else found


def _axes_of(axes: Any, ndim: int) -> tuple[int, ...]:
    """Convert NumPy's ``axis`` argument to a tuple."""
    return tuple(range(ndim)) if axes is None else axes if type(axes) is tuple else (axes,)


@implement(reduce._sum.primitive, np)
def _sum(xp: Any, x: Any, *, axes: tuple[int, ...], keepdims: bool) -> Any:
    if type(x) is not np.ndarray:
        return accumulate.definition(x, axes, keepdims)
    return _accumulate(x, axes, keepdims)


@implement(reduce._mean.primitive, np)
def _mean(xp: Any, x: Any, *, axes: tuple[int, ...], keepdims: bool) -> Any:
    return _sum(xp, x, axes=axes, keepdims=keepdims) / reduce._count(x.shape, axes)


@implement(reduce._sum_of_rows.primitive, np)
def _sum_of_rows(xp: Any, x: Any) -> Any:
    """Sum along the first axis; BLAS sums a matrix two to four times faster than NumPy."""
    if (
        x.ndim == 2
        and len(x) <= TUNING.blas_sum_rows
        and x.nbytes < TUNING.kernel_bytes
        and x.dtype.char in "fd"
        and type(x) is np.ndarray
    ):
        return ones(len(x), x.dtype).dot(x)
    return accumulate(x, 0)


def total(value: Any, axes: Any) -> Any:
    """Sum along axes and remove them; return `None` where NumPy's sum is as good."""
    if value.dtype.char not in "fd" or not value.flags.c_contiguous:
        return None
    every = range(value.ndim)
    axes = set(every) if axes is None else {axis % value.ndim for axis in np.atleast_1d(axes)}
    last = next((i for i in reversed(every) if i not in axes), -1)  # the last axis that is kept
    count = math.prod(value.shape[last + 1 :])
    kept = [i for i in every if i not in axes]
    if (
        value.nbytes >= TUNING.kernel_bytes
    ):  # kernel threads do not delay what follows, as BLAS threads do
        group, *others = kernels.stages(value, axes)
        found = kernels.reduced("total", _row_sum, group, (value,))
        if found is not None:
            rest = tuple(itertools.chain(*others))
            if rest:
                part = total(found, rest)
                found = found.sum(axis=rest) if part is None else part
            return found.reshape([value.shape[i] for i in kept])[()]
    if count >= TUNING.blas_sum_row:
        rows = _row_sums(value.reshape(-1, count))
        if rows is None:
            return None
        rows = rows.reshape(value.shape[: last + 1])
        rest = tuple(axis for axis in axes if axis <= last)
        return rows.sum(axis=rest) if rest else rows[()]
    first = len(axes)
    if axes == set(range(first)) and count == 1:
        rows = value.reshape(math.prod(value.shape[:first]), -1)
        return _column_sums(rows).reshape([value.shape[i] for i in kept])
    return None


def _column_sums(rows: Any) -> Any:
    """Sum the rows of a matrix, giving one sum for each column."""
    count = len(rows)
    if count <= TUNING.blas_sum_rows:
        return ones(count, rows.dtype).dot(rows)
    whole = count - count % _ROW
    parts = rows[:whole].reshape(-1, _ROW, rows.shape[1])
    sums = np.matmul(ones(_ROW, rows.dtype), parts)
    sums[0] += _column_sums(rows[whole:]) if whole < count else 0
    return _column_sums(sums)


def _row_sums(rows: Any) -> Any:
    """Sum each row of a matrix; return `None` if no piece length divides the rows."""
    number, count = rows.shape
    if count <= _ROW:
        return np.vecdot(rows, ones(count, rows.dtype))  # single-threaded
    if number == 1:
        whole = count - count % _ROW
        sums = _row_sums(rows[:, :whole].reshape(-1, _ROW))
        return sums.sum(keepdims=True) + rows[0, whole:].sum()
    part = next((n for n in range(_ROW, TUNING.blas_sum_row, -1) if count % n == 0), None)
    return (
        None if part is None else _row_sums(rows.reshape(-1, part)).reshape(number, -1).sum(axis=1)
    )


def _row_sum(rows: Any) -> Any:
    return rows.sum(axis=(1,), keepdims=True)


@functools.lru_cache(maxsize=16)
def ones(count: int, dtype: Any) -> Any:
    """Return a cached vector of ones."""
    return np.ones(count, dtype)
