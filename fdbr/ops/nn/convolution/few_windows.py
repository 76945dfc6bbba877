"""Convolutions of small arrays: of few windows, the columns are taken by numbers that are kept.

What a convolution of some hundred elements takes is the time of NumPy's calls.  Here all columns
come by one of them, and where the padding is, and where no window is, they take a zero that stands
behind the elements.
"""

import functools
import math
from typing import Any

import numpy as np

from fdbr.ops.nn.windows import Geometry, Sizes

__all__ = ["correlated", "correlated_kernel", "correlated_transposed", "is_small"]

_MOST = 1 << 12  # elements of columns


def is_small(geometry: Geometry, channels: int, windows: int, *arrays: Any) -> bool:
    """Whether there are few columns, of plain arrays in one dtype."""
    dtype = arrays[0].dtype
    return (
        0 < channels * windows * math.prod(geometry.kernel) <= _MOST
        and dtype.char in "fdFD"
        and all(array.dtype is dtype for array in arrays)
    )


def correlated(x: Any, weight: Any, bias: Any, geometry: Geometry, groups: int) -> Any:
    """The sum over channels and positions of ``weight * x``, for each window."""
    columns, counts = _columns(x, geometry, None)
    return _product(columns, weight, bias, counts, groups)


def correlated_transposed(y: Any, weight: Any, geometry: Geometry, groups: int, size: Sizes) -> Any:
    """Its transpose, for each element of axes of ``size``."""
    columns, _ = _columns(y, geometry, size)
    inputs, outputs = weight.shape[:2]
    turned = weight.reshape((groups, inputs // groups, *weight.shape[1:])).swapaxes(1, 2)
    return _product(columns, turned.reshape(groups * outputs, -1), None, size, groups)


def correlated_kernel(x: Any, y: Any, geometry: Geometry, groups: int) -> Any:
    """The sum over examples and windows of ``y * x``, for each position of the kernel."""
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
    """Weights by columns, in the order ``(N, O, *counts)`` of what lies with examples last."""
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
    """A row for each channel and position, a column for each window and example."""
    numbers, counts, beyond = _numbers(geometry, x.shape, size)
    if not beyond:
        return x.reshape(-1).take(numbers), counts
    row = np.empty(x.size + 1, x.dtype)
    row[:-1] = x.reshape(-1)
    row[-1] = 0
    return row.take(numbers), counts


@functools.lru_cache(256)
def _numbers(geometry: Geometry, shape: Sizes, size: Sizes | None) -> tuple[Any, Sizes, bool]:
    """Which elements the columns are, how many windows there are, and if some lie beyond.

    The windows are those over an array of a shape; or, where ``size`` is given, those of its
    elements in which each element of axes of this size lies.
    """
    examples, channels, *lengths = shape
    counts = geometry.counts(tuple(lengths)) if size is None else size
    rank = len(lengths)
    numbers = np.zeros((1,) * (2 * rank), np.intp)
    inside = np.ones((1,) * (2 * rank), bool)
    for axis, n in enumerate(lengths):
        taps = geometry.dilation[axis] * np.arange(geometry.kernel[axis])[:, None]
        step, low = geometry.stride[axis], geometry.padding[axis][0]
        if size is None:
            places = taps + (step * np.arange(counts[axis]) - low)
            there = (places >= 0) & (places < n)
        else:
            moved = np.arange(counts[axis]) + low - taps
            places = moved // step
            there = (moved % step == 0) & (places >= 0) & (places < n)
        spread = [1] * (2 * rank)
        spread[axis], spread[rank + axis] = places.shape
        numbers = numbers * n + places.reshape(spread)
        inside = inside & there.reshape(spread)
    each = math.prod(lengths)
    first = np.arange(channels)[:, None, None] * each
    last = np.arange(examples) * (channels * each)
    numbers = first + numbers.reshape(1, -1, 1) + last
    numbers = np.where(inside.reshape(1, -1, 1), numbers, math.prod(shape))
    positions = math.prod(geometry.kernel)
    numbers = numbers.reshape(channels * positions, -1)
    numbers.setflags(write=False)
    return numbers, counts, not inside.all()
