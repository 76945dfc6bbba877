"""The arithmetic of convolutions on plain arrays: matrix products with columns of windows.

Every window becomes a column with one row for each channel and each position of the kernel, so
that a convolution is one matrix product.  The columns are ordered by place first and example
last: then a copy of windows moves long runs of memory, whatever the kernel.  Results come as
views in the order ``(N, C, *spatial)`` of arrays that lie so in memory; what is computed from
them element by element keeps this order, so the next convolution needs no rearrangement.

The columns are made block by block, so that they stay in the processor's caches and memory
does not grow with the kernel: that takes half to two thirds of the time of all at once.
"""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from fdbr.ops.windows import Geometry, Sizes

__all__ = ["correlate", "correlate_kernel", "correlate_transposed"]

_BLOCK = 1 << 22  # bytes of columns at a time on a CPU
_LARGE_BLOCK = 1 << 28  # and elsewhere, where launching an operation costs more


def correlate(xp: Any, x: Any, weight: Any, bias: Any, geometry: Geometry, groups: int) -> Any:
    """The sum over channels and positions of ``weight * x``, for each window."""
    dtype = xp.result_type(x.dtype, weight.dtype)
    counts = geometry.counts(x.shape[2:])
    windows = _windows(xp, _examples_last(xp, x.astype(dtype, copy=False), geometry), geometry)
    outputs = weight.shape[0]
    matrix = _by_group(weight.astype(dtype, copy=False), groups)
    blocks = _blocks(xp, windows, len(counts))
    if len(blocks) == 1:
        out = xp.matmul(matrix, _columns(windows, groups))
        out = out.reshape((outputs, *counts, x.shape[0]))
    else:
        out = xp.empty((outputs, *counts, x.shape[0]), dtype=dtype)
        for block in blocks:
            part = xp.matmul(matrix, _columns(windows[(..., block, *_all(counts))], groups))
            out[:, block] = part.reshape((outputs, -1, *counts[1:], x.shape[0]))
    if bias is not None:
        ones = (1,) * (len(counts) + 1)
        bias = bias.reshape((-1, *ones))
        out = out + bias if xp.result_type(dtype, bias.dtype) != dtype else _add(out, bias)
    return _batch_first(xp, out)


def correlate_transposed(
    xp: Any, y: Any, weight: Any, geometry: Geometry, groups: int, size: Sizes
) -> Any:
    """What `correlate` does transposed: each window gets ``weight * y``, and windows add up."""
    dtype = xp.result_type(y.dtype, weight.dtype)
    counts, batch = tuple(y.shape[2:]), y.shape[0]
    matrix = _by_group(weight.astype(dtype, copy=False), groups).swapaxes(-1, -2)
    y = _examples_last(xp, y.astype(dtype, copy=False))
    channels = groups * weight.shape[1]
    out = xp.zeros((channels, *geometry.padded(size), batch), dtype=dtype)
    positions = list(itertools.product(*map(range, geometry.kernel)))
    row = len(positions) * channels * math.prod(counts[1:]) * batch * dtype.itemsize
    for block in _slices(xp, counts[0], row):
        part = y[:, block]
        here = (part.shape[1], *counts[1:])
        rows = _rows(part, groups)
        # Of one output a group, the product of columns with rows is slow as a matrix product.
        columns = matrix * rows if matrix.shape[-1] == 1 else xp.matmul(matrix, rows)
        columns = columns.reshape((channels, len(positions), *here, batch))
        ahead = block.start * geometry.stride[0]
        region = out[:, ahead:]
        for number, position in enumerate(positions):
            region[(slice(None), *geometry.place(position, here))] += columns[:, number]
    return _batch_first(xp, out[(slice(None), *geometry.interior(size))])


def correlate_kernel(xp: Any, x: Any, y: Any, geometry: Geometry, groups: int) -> Any:
    """The sum over examples and windows of ``y * x``, for each position of the kernel."""
    dtype = xp.result_type(x.dtype, y.dtype)
    counts = tuple(y.shape[2:])
    windows = _windows(xp, _examples_last(xp, x.astype(dtype, copy=False), geometry), geometry)
    y = _examples_last(xp, y.astype(dtype, copy=False))
    total: Any = None
    for block in _blocks(xp, windows, len(counts)):
        columns = _columns(windows[(..., block, *_all(counts))], groups)
        part = xp.matmul(_rows(y[:, block], groups), columns.swapaxes(-1, -2))
        total = part if total is None else _add(total, part)
    return total.reshape((y.shape[0], x.shape[1] // groups, *geometry.kernel))


# --- arrangements -------------------------------------------------------------------


def _examples_last(xp: Any, x: Any, geometry: Geometry | None = None) -> Any:
    """``(N, C, *spatial)`` as ``(C, *spatial, N)`` in memory, with its padding."""
    x = xp.transpose(x, (*range(1, x.ndim), 0))
    if geometry is None or not any(map(any, geometry.padding)):
        return xp.ascontiguousarray(x)
    size = x.shape[1:-1]
    out = xp.zeros((x.shape[0], *geometry.padded(size), x.shape[-1]), dtype=x.dtype)
    out[(slice(None), *geometry.interior(size))] = x
    return out


def _batch_first(xp: Any, x: Any) -> Any:
    return xp.transpose(x, (x.ndim - 1, *range(x.ndim - 1)))


def _windows(xp: Any, x: Any, geometry: Geometry) -> Any:
    """The elements of all windows: ``(C, *kernel, *counts, N)``."""
    counts = tuple(
        (n - extent) // step + 1
        for n, extent, step in zip(x.shape[1:-1], geometry.extents(), geometry.stride, strict=True)
    )
    shape = (x.shape[0], *geometry.kernel, *counts, x.shape[-1])
    strided = getattr(getattr(xp, "lib", None), "stride_tricks", None)
    if strided is None:
        positions = itertools.product(*map(range, geometry.kernel))
        parts = [x[(slice(None), *geometry.place(p, counts))] for p in positions]
        return xp.stack(parts, axis=1).reshape(shape)
    channel, *spatial, example = x.strides
    steps = [n * d for n, d in zip(spatial, geometry.dilation, strict=True)]
    jumps = [n * s for n, s in zip(spatial, geometry.stride, strict=True)]
    return strided.as_strided(x, shape, (channel, *steps, *jumps, example))


def _columns(windows: Any, groups: int) -> Any:
    """Windows as a matrix for each group: a row a channel and position, a column a window."""
    rank = (windows.ndim - 2) // 2
    rows = math.prod(windows.shape[: rank + 1])
    columns = math.prod(windows.shape[rank + 1 :])
    if groups == 1:
        return windows.reshape((rows, columns))
    return windows.reshape((groups, rows // groups, columns))


def _rows(y: Any, groups: int) -> Any:
    """``(C, *spatial, N)`` as a matrix for each group, with a row a channel."""
    columns = math.prod(y.shape[1:])
    if groups == 1:
        return y.reshape((y.shape[0], columns))
    return y.reshape((groups, y.shape[0] // groups, columns))


def _by_group(weight: Any, groups: int) -> Any:
    """Weights as a matrix for each group: a row an output, a column a channel and position."""
    columns = math.prod(weight.shape[1:])
    if groups == 1:
        return weight.reshape((weight.shape[0], columns))
    return weight.reshape((groups, weight.shape[0] // groups, columns))


def _add(total: Any, part: Any) -> Any:
    total += part
    return total


# --- blocks -------------------------------------------------------------------------


def _all(counts: Sizes) -> tuple[slice, ...]:
    """A key of the axes of windows after the first one of places."""
    return (slice(None),) * len(counts)


def _blocks(xp: Any, windows: Any, rank: int) -> list[slice]:
    """Parts of the windows along the first spatial axis."""
    count = windows.shape[rank + 1]
    return _slices(xp, count, math.prod(windows.shape) // max(count, 1) * windows.dtype.itemsize)


def _slices(xp: Any, count: int, row: int) -> list[slice]:
    """An axis in parts, of which each is ``row`` bytes long for each of its elements."""
    length = max(1, (_BLOCK if xp is np else _LARGE_BLOCK) // max(row, 1))
    return list(_steps(count, length))


def _steps(count: int, length: int) -> Iterator[slice]:
    for start in range(0, count, length):
        yield slice(start, min(start + length, count))
