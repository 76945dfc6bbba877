"""Convolutions of raw arrays as matrix products with columns of windows (im2col).

Every window becomes a column with one row for each channel and kernel position, so that a
convolution is one matrix product.  In memory the example is the last axis of the columns, so that
copying windows moves long runs whatever the kernel.  Results are views ``(N, C, *spatial)`` of such
arrays; elementwise operations keep this memory order, so the next convolution need not transpose.

Large convolutions are computed by kernels that copy windows in the cache
(`library.conv.correlations`); with few channels, as in depthwise convolutions, kernels multiply
without columns (`library.conv.windows`).  Their results are contiguous, or in the order of ``x``.

Otherwise the columns are made block by block in the same scratch memory, so that they stay in the
caches and memory does not grow with the kernel.  Columns of small arrays are gathered at once
(`few_windows`).
"""

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fdbr.backends.cpu import kernels
from fdbr.backends.cpu.library.conv.correlations import (
    Axes,
    axes_of,
    correlation,
    inner_correlation,
    transposed_correlation,
)
from fdbr.backends.cpu.library.conv.windows import by_position, over_windows
from fdbr.core.util.threads import divide
from fdbr.ops.declare.unbroadcast import accumulate
from fdbr.ops.nn.convolution.few_windows import (
    correlate_kernel_small,
    correlate_small,
    correlate_transposed_small,
    is_small,
)
from fdbr.ops.nn.windows import Geometry, Sizes

__all__ = ["axes", "correlate", "correlate_kernel", "correlate_transposed"]

_WORTH = 1 << 22  # multiplications from which on compiling a kernel pays
_INPUTS = 32  # channels of a group, up to which kernels multiply without columns
_FEW = 4  # the same if stride > 1, where neighbouring windows are not adjacent in memory
_MOST = 1 << 28  # bytes of free scratch memory kept for all threads, besides the last used
_KEPT = 1 << 24  # bytes of one scratch buffer that are kept between calls
_BLOCK = 1 << 22  # bytes of columns made at a time on a CPU, to stay in the caches
_LARGE_BLOCK = 1 << 28  # bytes at a time on a GPU, where each kernel launch costs time


def correlate(xp: Any, x: Any, weight: Any, bias: Any, geometry: Geometry, groups: int) -> Any:
    """Sum ``weight * x`` over channels and kernel positions, for each window."""
    counts = geometry.counts(x.shape[2:])
    if xp is np:
        operands = (x, weight) if bias is None else (x, weight, bias)
        if is_small(geometry, x.shape[1], len(x) * math.prod(counts), *operands):
            return correlate_small(x, weight, bias, geometry, groups)
    dtype = xp.result_type(x.dtype, weight.dtype)
    if xp is np:
        found = None
        if _is_direct(x, geometry, weight.shape[0], groups):
            x, weight = np.ascontiguousarray(x), np.ascontiguousarray(weight)
            found = over_windows(x, weight, bias, geometry.windows(), counts, groups)
        elif weight.size * math.prod(counts) * len(x) >= _WORTH:
            found = correlation(x, weight, bias, axes(geometry, tuple(x.shape[2:])), groups)
        if found is not None:
            return found
        if _is_pointwise(geometry):
            x, weight = x.astype(dtype, copy=False), weight.astype(dtype, copy=False)
            return _mix_channels(x, weight, bias, groups)
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

    _by_blocks(xp, work, x.astype(dtype, copy=False), geometry, groups)
    return _batch_first(xp, out + bias if bias is not None and is_wider else out)


def correlate_transposed(
    xp: Any, y: Any, weight: Any, geometry: Geometry, groups: int, size: Sizes
) -> Any:
    """The transpose of `correlate`: add ``weight * y`` to each window."""
    if xp is np and is_small(geometry, y.shape[1], len(y) * math.prod(size), y, weight):
        return correlate_transposed_small(y, weight, geometry, groups, size)
    geometry_back = geometry.transposed(tuple(y.shape[2:]), size)
    is_direct = geometry_back is not None and _is_direct(
        y, geometry_back, groups * weight.shape[1], groups
    )
    products = weight.size * math.prod(y.shape[2:]) * len(y)
    if xp is np and not is_direct and products >= _WORTH:
        found = transposed_correlation(y, weight, axes(geometry, size), groups)
        if found is not None:
            return found
    if geometry_back is not None and weight.shape[0] <= 2 * groups * weight.shape[1]:
        return correlate(xp, y, _swap_and_flip(xp, weight, groups), None, geometry_back, groups)
    dtype = xp.result_type(y.dtype, weight.dtype)
    counts, batch = tuple(y.shape[2:]), y.shape[0]
    matrix = _by_group(weight.astype(dtype, copy=False), groups).swapaxes(-1, -2)
    y = _examples_last(xp, y.astype(dtype, copy=False))
    channels = groups * weight.shape[1]
    out = xp.zeros((channels, *geometry.padded(size), batch), dtype=dtype)
    positions = math.prod(geometry.kernel)
    row = positions * channels * math.prod(counts[1:]) * batch * dtype.itemsize
    with _scratch(xp) as scratch:
        for block in _slices(xp, counts[0], row):
            rows = _rows(y[:, block], groups)
            block_counts = (block.stop - block.start, *counts[1:])
            columns = scratch("columns", (channels, positions, *block_counts, batch), dtype)
            _product(xp, matrix, rows, columns.reshape((*matrix.shape[:-1], rows.shape[-1])))
            region = out[:, block.start * geometry.stride[0] :]
            for number, slices in enumerate(geometry.kernel_slices(block_counts)):
                region[(slice(None), *slices)] += columns[:, number]
    return _batch_first(xp, out[(slice(None), *geometry.interior(size))])


def _swap_and_flip(xp: Any, weight: Any, groups: int) -> Any:
    """Swap inputs and outputs of the weights and flip each kernel."""
    outputs, inputs, *kernel = weight.shape
    parts = weight.reshape((groups, outputs // groups, inputs, *kernel)).swapaxes(1, 2)
    swapped = parts.reshape((groups * inputs, outputs // groups, *kernel))
    return xp.flip(swapped, tuple(range(2, swapped.ndim)))


def _product(xp: Any, matrix: Any, rows: Any, out: Any) -> None:
    # With one output in a group, matmul of a column with a row is slower than broadcasting.
    (xp.multiply if matrix.shape[-1] == 1 else xp.matmul)(matrix, rows, out=out)


def correlate_kernel(xp: Any, x: Any, y: Any, geometry: Geometry, groups: int) -> Any:
    """Sum ``y * x`` over examples and windows, for each kernel position."""
    if xp is np and is_small(geometry, x.shape[1], len(y) * math.prod(y.shape[2:]), x, y):
        return correlate_kernel_small(x, y, geometry, groups)
    dtype = xp.result_type(x.dtype, y.dtype)
    inputs = x.shape[1] // groups
    if xp is np:
        if _is_pointwise(geometry):
            of_x, of_y = (value.astype(dtype, copy=False) for value in (x, y))
            rows, columns = _pixels(of_x, of_y, groups=groups)
            total = np.matmul(columns, rows.swapaxes(-1, -2)).sum(axis=0).astype(dtype, copy=False)
            return total.reshape((y.shape[1], inputs, *geometry.kernel))
        if _is_direct(x, geometry, y.shape[1], groups):
            x, y = np.ascontiguousarray(x), np.ascontiguousarray(y)
            found = by_position(x, y, geometry.windows(), inputs)
            if found is not None:
                return accumulate(found, 0)
        elif y.size * inputs * math.prod(geometry.kernel) >= _WORTH:
            found = inner_correlation(x, y, axes(geometry, tuple(x.shape[2:])), groups)
            if found is not None:
                return found
    y = _examples_last(xp, y.astype(dtype, copy=False))
    parts: dict[int, Any] = {}

    def work(block: slice, columns: Any) -> None:
        parts[block.start] = xp.matmul(_rows(y[:, block], groups), columns.swapaxes(-1, -2))

    _by_blocks(xp, work, x.astype(dtype, copy=False), geometry, groups)
    total = functools.reduce(_add, (parts[start] for start in sorted(parts)))
    return total.reshape((y.shape[0], inputs, *geometry.kernel))


# --- few channels -------------------------------------------------------------------


def _is_direct(x: Any, geometry: Geometry, outputs: int, groups: int) -> bool:
    """Whether making columns would take longer than multiplying without them."""
    if x.nbytes < kernels.LEAST or not (x.flags.c_contiguous or 0 in x.strides):
        return False
    inputs = x.shape[1] // groups
    if geometry.stride[-1] == 1:
        return inputs <= _INPUTS and outputs <= _INPUTS * groups
    return inputs <= _FEW and outputs <= _FEW * groups


@functools.lru_cache(1024)
def axes(geometry: Geometry, size: Sizes) -> Axes:
    """Describe the windows over spatial axes of these lengths for kernels."""
    before = [low for low, _ in geometry.padding]
    counts = geometry.counts(size)
    return axes_of(geometry.kernel, geometry.stride, before, geometry.dilation, counts, size)


# --- kernels of one element ---------------------------------------------------------


def _is_pointwise(geometry: Geometry) -> bool:
    """Whether the windows are single elements, one for each element."""
    return not any(map(any, geometry.padding)) and {*geometry.kernel, *geometry.stride} == {1}


def _mix_channels(x: Any, weight: Any, bias: Any, groups: int) -> Any:
    """Compute `correlate` of pointwise windows: a matrix product that mixes channels."""
    (pixels,) = _pixels(x, groups=groups)
    outputs = weight.shape[0]
    matrices = weight.reshape((groups, outputs // groups, weight.shape[1]))
    out = np.matmul(matrices, pixels).astype(x.dtype, copy=False)
    if bias is not None:
        bias = bias.reshape((groups, outputs // groups, 1))
        if np.result_type(out, bias) == out.dtype:
            out += bias
        else:
            out = out + bias
    if len(out) == len(x):
        return out.reshape((len(x), outputs, *x.shape[2:]))
    return _batch_first(np, out.reshape((outputs, *x.shape[2:], len(x))))


def _pixels(*arrays: Any, groups: int) -> list[Any]:
    """View arrays as matrices with a row for each channel: per example, or for all together."""
    by_example = all(x.flags.c_contiguous for x in arrays)
    found = []
    for x in arrays:
        count, channels, *spatial = x.shape
        parts, size = (count, math.prod(spatial)) if by_example else (1, count * math.prod(spatial))
        x = x if by_example else _examples_last(np, x)
        found.append(x.reshape(parts, groups, channels // groups, size))
    return found


# --- memory layouts -------------------------------------------------------------------


def _examples_last(xp: Any, x: Any) -> Any:
    """Copy ``(N, C, *spatial)`` to ``(C, *spatial, N)`` in memory."""
    return xp.ascontiguousarray(xp.transpose(x, (*range(1, x.ndim), 0)))


def _padded(xp: Any, x: Any, geometry: Geometry, empty: Any) -> Any:
    """Copy ``(N, C, *spatial)`` to ``(C, *spatial, N)`` in memory, with padding."""
    if not any(map(any, geometry.padding)):
        return _examples_last(xp, x)
    size = x.shape[2:]
    out = empty("padded", (x.shape[1], *geometry.padded(size), x.shape[0]), x.dtype)
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
    if type(x) is np.ndarray and x.size:
        return np.ndarray(
            shape, x.dtype, x, 0, _strides(x, geometry)
        )  # a tenth of as_strided's time
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
    xp: Any, work: Callable[[slice, Any], None], x: Any, geometry: Geometry, groups: int
) -> None:
    """Call ``work`` with slices of the windows along the first spatial axis, and their columns.

    The columns are a matrix for each group: a row for each channel and position, a column for each
    window.  BLAS multiplies the small matrices of groups on one thread, so blocks are divided
    among threads there.
    """
    with _scratch(xp) as scratch:
        windows = _windows(xp, _padded(xp, x, geometry, scratch), geometry)
        rank = len(geometry.kernel)
        rows = math.prod(windows.shape[: rank + 1])
        count, *others = windows.shape[rank + 1 :]
        shape = (rows,) if groups == 1 else (groups, rows // groups)

        def run(block: slice, empty: Any = scratch) -> None:
            part = windows[(..., block, *(slice(None),) * len(others))]
            columns = empty("columns", part.shape, x.dtype)
            columns[...] = part
            work(block, columns.reshape((*shape, math.prod(part.shape[rank + 1 :]))))

        def run_alone(block: slice) -> None:
            with _scratch(xp) as own:
                run(block, own)

        blocks = list(_slices(xp, count, rows * math.prod(others) * x.dtype.itemsize))
        if xp is np and groups > 1 and len(blocks) > 1:
            divide(run_alone, blocks)
        else:
            for block in blocks:
                run(block)


def _slices(xp: Any, count: int, row: int) -> Iterator[slice]:
    """Slice an axis into blocks, where each element takes ``row`` bytes of columns."""
    length = max(1, (_BLOCK if xp is np else _LARGE_BLOCK) // max(row, 1))
    for start in range(0, count, length):
        yield slice(start, min(start + length, count))


# --- scratch ------------------------------------------------------------------------


class _Scratch:
    """Scratch memory for arrays that live for one call, with one buffer for each use.

    It is kept between calls: page faults of new memory take longer than filling it.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, Any] = {}

    def __call__(self, use: str, shape: Sizes, dtype: Any) -> Any:
        """Return an uninitialized array in the buffer for ``use``."""
        size = math.prod(shape) * dtype.itemsize
        if size > _KEPT or dtype.hasobject:
            return np.empty(shape, dtype)
        found = self._buffers.get(use)
        if found is None or len(found) < size:
            found = self._buffers[use] = np.empty(size, np.uint8)
        return found[:size].view(dtype).reshape(shape)

    @property
    def nbytes(self) -> int:
        """The number of bytes kept."""
        return sum(len(buffer) for buffer in list(self._buffers.values()))


_free: list[_Scratch] = []  # used by one call at a time; the most recently used is last


def _return_scratch(scratch: _Scratch) -> None:
    """Return scratch memory to the free list, and drop the least recently used above the limit.

    There is no lock, as in `fdbr.backends.cpu.exec.memory.workspaces`: other threads may pop
    concurrently.
    """
    _free.append(scratch)
    while len(_free) > 1 and sum([scratch_buffer.nbytes for scratch_buffer in _free[:-1]]) > _MOST:
        try:
            _free.pop(0)
        except IndexError:  # another thread has emptied the list
            break


@contextlib.contextmanager
def _scratch(xp: Any) -> Iterator[Any]:
    """Yield a function that makes arrays for the time of one call."""
    if xp is not np:  # CuPy has a memory pool
        yield lambda use, shape, dtype: xp.empty(shape, dtype=dtype)
        return
    try:
        scratch = _free.pop()
    except IndexError:
        scratch = _Scratch()
    try:
        yield scratch
    finally:
        _return_scratch(scratch)
