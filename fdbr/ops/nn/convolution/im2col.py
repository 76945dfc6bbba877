"""Convolutions of raw arrays as matrix products with columns of windows (im2col).

Every window becomes a column with one row for each channel and kernel position, so that a
convolution is one matrix product.  In memory the example is the last axis of the columns, so that
copying windows moves long runs whatever the kernel.  Results are views ``(N, C, *spatial)`` of such
arrays; elementwise operations keep this memory order, so the next convolution need not transpose.

The columns are made block by block in the same memory, so that memory does not grow with the
kernel.  These functions are the definitions of convolutions for the arrays of any module; back ends
implement them otherwise (`fdbr.backends.cpu.library.conv.planner`).
"""

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

from fdbr.ops.nn.windows import Geometry, Sizes

__all__ = ["correlate", "correlate_kernel", "correlate_transposed", "swapped_and_flipped"]

_BLOCK = 1 << 28  # bytes of columns made at a time, as each kernel launch on a GPU costs time


def correlate(
    xp: Any,
    x: Any,
    weight: Any,
    bias: Any,
    geometry: Geometry,
    groups: int,
    block_bytes: int = _BLOCK,
) -> Any:
    """Sum ``weight * x`` over channels and kernel positions, for each window."""
    counts = geometry.counts(x.shape[2:])
    dtype = xp.result_type(x.dtype, weight.dtype)
    outputs = weight.shape[0]
    matrix = _by_group(weight.astype(dtype, copy=False), groups)
    out = xp.empty((outputs, *counts, x.shape[0]), dtype=dtype)
    if bias is not None:
        is_wider = xp.result_type(dtype, bias.dtype) != dtype
        bias = bias.reshape((-1, *(1,) * (len(counts) + 1)))

    def work(block: slice, columns: Any) -> None:
        part = out[:, block]
        xp.matmul(matrix, columns, out=_rows(part, groups))
        if bias is not None and not is_wider:
            part += bias

    _by_blocks(xp, work, x.astype(dtype, copy=False), geometry, groups, block_bytes)
    return _batch_first(xp, out + bias if bias is not None and is_wider else out)


def correlate_transposed(
    xp: Any,
    y: Any,
    weight: Any,
    geometry: Geometry,
    groups: int,
    size: Sizes,
    block_bytes: int = _BLOCK,
) -> Any:
    """The transpose of `correlate`: add ``weight * y`` to each window."""
    geometry_back = geometry.transposed(tuple(y.shape[2:]), size)
    if geometry_back is not None and weight.shape[0] <= 2 * groups * weight.shape[1]:
        weight = swapped_and_flipped(xp, weight, groups)
        return correlate(xp, y, weight, None, geometry_back, groups, block_bytes)
    dtype = xp.result_type(y.dtype, weight.dtype)
    counts, batch = tuple(y.shape[2:]), y.shape[0]
    matrix = _by_group(weight.astype(dtype, copy=False), groups).swapaxes(-1, -2)
    y = _examples_last(xp, y.astype(dtype, copy=False))
    channels = groups * weight.shape[1]
    out = xp.zeros((channels, *geometry.padded(size), batch), dtype=dtype)
    positions = math.prod(geometry.kernel)
    elements = positions * channels * math.prod(counts[1:]) * batch
    buffer = None
    for block in _slices(counts[0], elements * dtype.itemsize, block_bytes):
        rows = _rows(y[:, block], groups)
        block_counts = (block.stop - block.start, *counts[1:])
        if buffer is None:
            buffer = xp.empty(elements * block_counts[0], dtype=dtype)
        columns = buffer[: elements * block_counts[0]]
        columns = columns.reshape((channels, positions, *block_counts, batch))
        _product(xp, matrix, rows, columns.reshape((*matrix.shape[:-1], rows.shape[-1])))
        region = out[:, block.start * geometry.stride[0] :]
        for number, slices in enumerate(geometry.kernel_slices(block_counts)):
            region[(slice(None), *slices)] += columns[:, number]
    return _batch_first(xp, out[(slice(None), *geometry.interior(size))])


def swapped_and_flipped(xp: Any, weight: Any, groups: int) -> Any:
    """Swap inputs and outputs of the weights and flip each kernel."""
    outputs, inputs, *kernel = weight.shape
    parts = weight.reshape((groups, outputs // groups, inputs, *kernel)).swapaxes(1, 2)
    swapped = parts.reshape((groups * inputs, outputs // groups, *kernel))
    return xp.ascontiguousarray(xp.flip(swapped, tuple(range(2, swapped.ndim))))


def _product(xp: Any, matrix: Any, rows: Any, out: Any) -> None:
    # With one output in a group, matmul of a column with a row is slower than broadcasting.
    (xp.multiply if matrix.shape[-1] == 1 else xp.matmul)(matrix, rows, out=out)


def correlate_kernel(
    xp: Any, x: Any, y: Any, geometry: Geometry, groups: int, block_bytes: int = _BLOCK
) -> Any:
    """Sum ``y * x`` over examples and windows, for each kernel position."""
    dtype = xp.result_type(x.dtype, y.dtype)
    inputs = x.shape[1] // groups
    y = _examples_last(xp, y.astype(dtype, copy=False))
    parts: list[Any] = []

    def work(block: slice, columns: Any) -> None:
        parts.append(xp.matmul(_rows(y[:, block], groups), columns.swapaxes(-1, -2)))

    _by_blocks(xp, work, x.astype(dtype, copy=False), geometry, groups, block_bytes)
    total = functools.reduce(_add, parts)
    return total.reshape((y.shape[0], inputs, *geometry.kernel))


# --- memory layouts -------------------------------------------------------------------


def _examples_last(xp: Any, x: Any) -> Any:
    """Copy ``(N, C, *spatial)`` to ``(C, *spatial, N)`` in memory."""
    return xp.ascontiguousarray(xp.transpose(x, (*range(1, x.ndim), 0)))


def _padded(xp: Any, x: Any, geometry: Geometry) -> Any:
    """Copy ``(N, C, *spatial)`` to ``(C, *spatial, N)`` in memory, with padding."""
    if not any(map(any, geometry.padding)):
        return _examples_last(xp, x)
    size = x.shape[2:]
    out = xp.empty((x.shape[1], *geometry.padded(size), x.shape[0]), dtype=x.dtype)
    for axis, (low, high) in enumerate(geometry.padding):
        before = (slice(None),) * (axis + 1)
        out[(*before, slice(low))] = 0
        out[(*before, slice(out.shape[axis + 1] - high, None))] = 0
    out[(slice(None), *geometry.interior(size))] = xp.transpose(x, (*range(1, x.ndim), 0))
    return out


def _batch_first(xp: Any, x: Any) -> Any:
    return xp.transpose(x, (x.ndim - 1, *range(x.ndim - 1)))


def _windows(xp: Any, x: Any, geometry: Geometry) -> Any:
    """View the elements of all windows: ``(C, *kernel, *counts, N)``."""
    counts = tuple(
        (n - extent) // step + 1
        for n, extent, step in zip(x.shape[1:-1], geometry.extents(), geometry.stride, strict=True)
    )
    shape = (x.shape[0], *geometry.kernel, *counts, x.shape[-1])
    strided = getattr(getattr(xp, "lib", None), "stride_tricks", None)
    if strided is None:
        parts = [x[(slice(None), *slices)] for slices in geometry.kernel_slices(counts)]
        return xp.stack(parts, axis=1).reshape(shape)
    return strided.as_strided(x, shape, _strides(x, geometry))


def _strides(x: Any, geometry: Geometry) -> Sizes:
    channel, *spatial, example = x.strides
    steps = [n * d for n, d in zip(spatial, geometry.dilation, strict=True)]
    jumps = [n * s for n, s in zip(spatial, geometry.stride, strict=True)]
    return (channel, *steps, *jumps, example)


def _rows(y: Any, groups: int) -> Any:
    """View ``(C, *spatial, N)`` as a matrix for each group, with a row for each channel."""
    columns = math.prod(y.shape[1:])
    if groups == 1:
        return y.reshape((y.shape[0], columns))
    return y.reshape((groups, y.shape[0] // groups, columns))


def _by_group(weight: Any, groups: int) -> Any:
    """View weights as a matrix for each group: rows are outputs, columns channels and positions."""
    columns = math.prod(weight.shape[1:])
    if groups == 1:
        return weight.reshape((weight.shape[0], columns))
    return weight.reshape((groups, weight.shape[0] // groups, columns))


def _add(total: Any, part: Any) -> Any:
    total += part
    return total


# --- blocks -------------------------------------------------------------------------


def _by_blocks(
    xp: Any,
    work: Callable[[slice, Any], None],
    x: Any,
    geometry: Geometry,
    groups: int,
    block_bytes: int,
) -> None:
    """Call ``work`` with slices of the windows along the first spatial axis, and their columns.

    The columns are a matrix for each group: a row for each channel and position, a column for each
    window.
    """
    windows = _windows(xp, _padded(xp, x, geometry), geometry)
    rank = len(geometry.kernel)
    rows = math.prod(windows.shape[: rank + 1])
    count, *others = windows.shape[rank + 1 :]
    shape = (rows,) if groups == 1 else (groups, rows // groups)
    rest, buffer = (slice(None),) * len(others), None
    for block in _slices(count, rows * math.prod(others) * x.dtype.itemsize, block_bytes):
        part = windows[(..., block, *rest)]
        size = math.prod(part.shape)
        if buffer is None:
            buffer = xp.empty(size, dtype=x.dtype)
        columns = buffer[:size].reshape(part.shape)
        columns[...] = part
        work(block, columns.reshape((*shape, math.prod(part.shape[rank + 1 :]))))


def _slices(count: int, row: int, block_bytes: int) -> Iterator[slice]:
    """Slice an axis into blocks, where each element takes ``row`` bytes of columns."""
    length = max(1, block_bytes // max(row, 1))
    for start in range(0, count, length):
        yield slice(start, min(start + length, count))
