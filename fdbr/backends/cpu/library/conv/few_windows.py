"""Convolutions of small arrays, whose columns are gathered by cached indices.

A convolution of some hundred elements is limited by the number of NumPy's calls.  Here one call
gathers all columns; padding is read from a zero appended to the elements.
"""

import functools
import math
from typing import Any

import numpy as np

from fdbr.backends.cpu.tuning import TUNING
from fdbr.ops.nn.windows import Geometry, Sizes

__all__ = ["correlate_small", "correlate_kernel_small", "correlate_transposed_small", "is_small"]


def is_small(geometry: Geometry, channels: int, windows: int, *arrays: Any) -> bool:
    """Whether the columns have few elements, and arrays have one dtype of BLAS."""
    dtype = arrays[0].dtype
    return (
        0 < channels * windows * math.prod(geometry.kernel) <= TUNING.extra_pass
        and dtype.char in "fdFD"
        and all(array.dtype is dtype for array in arrays)
    )


def correlate_small(x: Any, weight: Any, bias: Any, geometry: Geometry, groups: int) -> Any:
    """Sum ``weight * x`` over channels and kernel positions, for each window."""
    columns, counts = _columns(x, geometry, None)
    return _product(columns, weight, bias, counts, groups)


def correlate_transposed_small(
    y: Any, weight: Any, geometry: Geometry, groups: int, size: Sizes
) -> Any:
    """The transpose of `correlate_small` in ``x``, whose spatial axes have ``size``."""
    columns, _ = _columns(y, geometry, size)
    inputs, outputs = weight.shape[:2]
    swapped = weight.reshape((groups, inputs // groups, *weight.shape[1:])).swapaxes(1, 2)
    return _product(columns, swapped.reshape(groups * outputs, -1), None, size, groups)


def correlate_kernel_small(x: Any, y: Any, geometry: Geometry, groups: int) -> Any:
    """Sum ``y * x`` over examples and windows, for each kernel position."""
    columns, _ = _columns(x, geometry, None)
    outputs = y.shape[1]
    rows = y.transpose((*range(1, y.ndim), 0)).reshape(outputs, -1)
    if groups == 1:
        found = rows.dot(columns.T)
    else:
        parts = columns.reshape(groups, -1, columns.shape[1]).swapaxes(1, 2)
        found = np.matmul(rows.reshape(groups, outputs // groups, -1), parts)
    return found.reshape((outputs, x.shape[1] // groups, *geometry.kernel))


def _product(columns: Any, weight: Any, bias: Any, counts: Sizes, groups: int) -> Any:
    """Multiply weights by columns, and return a view ``(N, O, *counts)`` with examples last."""
    outputs = len(weight)
    if groups == 1:
        out = weight.reshape(outputs, -1).dot(columns)
    else:
        parts = weight.reshape(groups, outputs // groups, -1)
        out = np.matmul(parts, columns.reshape(groups, -1, columns.shape[1]))
        out = out.reshape(outputs, -1)
    if bias is not None:
        out += bias.reshape(-1, 1)
    out = out.reshape((outputs, *counts, out.shape[1] // math.prod(counts)))
    return out.transpose((out.ndim - 1, *range(out.ndim - 1)))


def _columns(x: Any, geometry: Geometry, size: Sizes | None) -> tuple[Any, Sizes]:
    """Gather a row for each channel and position, and a column for each window and example."""
    indices, counts, is_padded = _column_indices(geometry, x.shape, size)
    if not is_padded:
        return x.reshape(-1).take(indices), counts
    row = np.empty(x.size + 1, x.dtype)
    row[:-1] = x.reshape(-1)
    row[-1] = 0
    return row.take(indices), counts


@functools.lru_cache(256)
def _column_indices(
    geometry: Geometry, shape: Sizes, size: Sizes | None
) -> tuple[Any, Sizes, bool]:
    """Return the indices of the columns, the numbers of windows, and whether some are padding.

    The windows are those over an array of ``shape``.  If ``size`` is given, they are those of the
    transpose: for each element of axes of ``size``, the windows that contain it.
    """
    examples, channels, *lengths = shape
    counts = geometry.counts(tuple(lengths)) if size is None else size
    rank = len(lengths)
    indices = np.zeros((1,) * (2 * rank), np.intp)
    is_valid = np.ones((1,) * (2 * rank), bool)
    for axis, n in enumerate(lengths):
        taps = geometry.dilation[axis] * np.arange(geometry.kernel[axis])[:, None]
        step, low = geometry.stride[axis], geometry.padding[axis][0]
        if size is None:
            positions = taps + (step * np.arange(counts[axis]) - low)
            is_inside = (positions >= 0) & (positions < n)
        else:
            shifted = np.arange(counts[axis]) + low - taps
            positions = shifted // step
            is_inside = (shifted % step == 0) & (positions >= 0) & (positions < n)
        axes_shape = [1] * (2 * rank)
        axes_shape[axis], axes_shape[rank + axis] = positions.shape
        indices = indices * n + positions.reshape(axes_shape)
        is_valid = is_valid & is_inside.reshape(axes_shape)
    each = math.prod(lengths)
    first = np.arange(channels)[:, None, None] * each
    last = np.arange(examples) * (channels * each)
    indices = first + indices.reshape(1, -1, 1) + last
    indices = np.where(is_valid.reshape(1, -1, 1), indices, math.prod(shape))
    taps_of_window = math.prod(geometry.kernel)
    indices = indices.reshape(channels * taps_of_window, -1)
    indices.setflags(write=False)
    return indices, counts, not is_valid.all()
