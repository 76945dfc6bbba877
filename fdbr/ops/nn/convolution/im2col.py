"""The arithmetic of convolutions on plain arrays: matrix products with columns of windows.

Every window becomes a column with one row for each channel and each position of the kernel, so
that a convolution is one matrix product.  The columns are ordered by place first and example
last: then a copy of windows moves long runs of memory, whatever the kernel.  Results come as
views in the order ``(N, C, *spatial)`` of arrays that lie so in memory; what is computed from
them element by element keeps this order, so the next convolution needs no rearrangement.

Where kernels pay, they do that in the cache (`library.conv.correlations`); and where channels are
few, above all where each has its own weights, they compute the products one by one instead
(`library.conv.windows`).  Then results lie in memory as arrays do by themselves, or as ``x`` does.

Otherwise the columns are made block by block, always in the same memory, so that they stay in the
processor's caches and memory does not grow with the kernel.  Of small arrays the columns are taken
all at once (`few_windows`).
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
from fdbr.ops.declare.unbroadcast import accumulated
from fdbr.ops.nn.convolution.few_windows import (
    correlated,
    correlated_kernel,
    correlated_transposed,
    is_small,
)
from fdbr.ops.nn.windows import Geometry, Sizes

__all__ = ["axes", "correlate", "correlate_kernel", "correlate_transposed"]

_WORTH = 1 << 22  # multiplications for which a kernel is worth being made
_INPUTS = 32  # channels of a group, up to which products are computed one by one
_FEW = 4  # the same, where elements of neighbouring windows do not lie side by side
_MOST = 1 << 28  # bytes that stay in all, whatever threads come and go, beside what was used last
_KEPT = 1 << 24  # bytes of memory that stays, at most, for each use
_BLOCK = 1 << 22  # bytes of columns at a time on a CPU
_LARGE_BLOCK = 1 << 28  # and elsewhere, where launching an operation costs more


def correlate(xp: Any, x: Any, weight: Any, bias: Any, geometry: Geometry, groups: int) -> Any:
    """The sum over channels and positions of ``weight * x``, for each window."""
    counts = geometry.counts(x.shape[2:])
    if xp is np:
        beside = (x, weight) if bias is None else (x, weight, bias)
        if is_small(geometry, x.shape[1], len(x) * math.prod(counts), *beside):
            return correlated(x, weight, bias, geometry, groups)
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
            return _mixed(x, weight, bias, groups)
    outputs = weight.shape[0]
    matrix = _by_group(weight.astype(dtype, copy=False), groups)
    out = xp.empty((outputs, *counts, x.shape[0]), dtype=dtype)
    if bias is not None:
        wide = xp.result_type(dtype, bias.dtype) != dtype
        bias = bias.reshape((-1, *(1,) * (len(counts) + 1)))

    def work(block: slice, columns: Any) -> None:
        part = out[:, block]
        xp.matmul(matrix, columns, out=_rows(part, groups))
        if bias is not None and not wide:
            part += bias

    _by_blocks(xp, work, x.astype(dtype, copy=False), geometry, groups)
    return _batch_first(xp, out + bias if bias is not None and wide else out)


def correlate_transposed(
    xp: Any, y: Any, weight: Any, geometry: Geometry, groups: int, size: Sizes
) -> Any:
    """The transpose of `correlate`: each window gets ``weight * y``, and windows add up."""
    if xp is np and is_small(geometry, y.shape[1], len(y) * math.prod(size), y, weight):
        return correlated_transposed(y, weight, geometry, groups, size)
    turned = geometry.turned(tuple(y.shape[2:]), size)
    direct = turned is not None and _is_direct(y, turned, groups * weight.shape[1], groups)
    products = weight.size * math.prod(y.shape[2:]) * len(y)
    if xp is np and not direct and products >= _WORTH:
        found = transposed_correlation(y, weight, axes(geometry, size), groups)
        if found is not None:
            return found
    if turned is not None and weight.shape[0] <= 2 * groups * weight.shape[1]:
        return correlate(xp, y, _turned(xp, weight, groups), None, turned, groups)
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
            here = (block.stop - block.start, *counts[1:])
            columns = scratch("columns", (channels, positions, *here, batch), dtype)
            _product(xp, matrix, rows, columns.reshape((*matrix.shape[:-1], rows.shape[-1])))
            region = out[:, block.start * geometry.stride[0] :]
            for number, place in enumerate(geometry.places(here)):
                region[(slice(None), *place)] += columns[:, number]
    return _batch_first(xp, out[(slice(None), *geometry.interior(size))])


def _turned(xp: Any, weight: Any, groups: int) -> Any:
    """Weights from outputs to inputs, with each kernel turned round."""
    outputs, inputs, *kernel = weight.shape
    parts = weight.reshape((groups, outputs // groups, inputs, *kernel)).swapaxes(1, 2)
    whole = parts.reshape((groups * inputs, outputs // groups, *kernel))
    return xp.flip(whole, tuple(range(2, whole.ndim)))


def _product(xp: Any, matrix: Any, rows: Any, out: Any) -> None:
    # Of one output a group, the product of columns with rows is slow as a matrix product.
    (xp.multiply if matrix.shape[-1] == 1 else xp.matmul)(matrix, rows, out=out)


def correlate_kernel(xp: Any, x: Any, y: Any, geometry: Geometry, groups: int) -> Any:
    """The sum over examples and windows of ``y * x``, for each position of the kernel."""
    if xp is np and is_small(geometry, x.shape[1], len(y) * math.prod(y.shape[2:]), x, y):
        return correlated_kernel(x, y, geometry, groups)
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
                return accumulated(found, 0)
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
    """Whether columns would take longer to make than the products take one by one."""
    if x.nbytes < kernels.LEAST or not (x.flags.c_contiguous or 0 in x.strides):
        return False
    inputs = x.shape[1] // groups
    if geometry.stride[-1] == 1:
        return inputs <= _INPUTS and outputs <= _INPUTS * groups
    return inputs <= _FEW and outputs <= _FEW * groups


@functools.lru_cache(1024)
def axes(geometry: Geometry, size: Sizes) -> Axes:
    """The windows of an array with spatial axes of these lengths, for kernels."""
    before = [low for low, _ in geometry.padding]
    counts = geometry.counts(size)
    return axes_of(geometry.kernel, geometry.stride, before, geometry.dilation, counts, size)


# --- kernels of one element ---------------------------------------------------------


def _is_pointwise(geometry: Geometry) -> bool:
    """Whether each window is one element, and each element is one."""
    return not any(map(any, geometry.padding)) and {*geometry.kernel, *geometry.stride} == {1}


def _mixed(x: Any, weight: Any, bias: Any, groups: int) -> Any:
    """`correlate` where windows are elements: channels are mixed, in the order they lie in."""
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
    """Matrices of pixels, with a row a channel: for each example, or of all together."""
    by_example = all(x.flags.c_contiguous for x in arrays)
    found = []
    for x in arrays:
        count, channels, *spatial = x.shape
        parts, size = (count, math.prod(spatial)) if by_example else (1, count * math.prod(spatial))
        x = x if by_example else _examples_last(np, x)
        found.append(x.reshape(parts, groups, channels // groups, size))
    return found


# --- arrangements -------------------------------------------------------------------


def _examples_last(xp: Any, x: Any) -> Any:
    """``(N, C, *spatial)`` as ``(C, *spatial, N)`` in memory."""
    return xp.ascontiguousarray(xp.transpose(x, (*range(1, x.ndim), 0)))


def _padded(xp: Any, x: Any, geometry: Geometry, empty: Any) -> Any:
    """``(N, C, *spatial)`` as ``(C, *spatial, N)`` in memory, with its padding."""
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
    """The elements of all windows: ``(C, *kernel, *counts, N)``."""
    counts = tuple(
        (n - extent) // step + 1
        for n, extent, step in zip(x.shape[1:-1], geometry.extents(), geometry.stride, strict=True)
    )
    shape = (x.shape[0], *geometry.kernel, *counts, x.shape[-1])
    if type(x) is np.ndarray and x.size:
        return np.ndarray(shape, x.dtype, x, 0, _strides(x, geometry))  # in a tenth of the time
    strided = getattr(getattr(xp, "lib", None), "stride_tricks", None)
    if strided is None:
        parts = [x[(slice(None), *place)] for place in geometry.places(counts)]
        return xp.stack(parts, axis=1).reshape(shape)
    return strided.as_strided(x, shape, _strides(x, geometry))


def _strides(x: Any, geometry: Geometry) -> Sizes:
    channel, *spatial, example = x.strides
    steps = [n * d for n, d in zip(spatial, geometry.dilation, strict=True)]
    jumps = [n * s for n, s in zip(spatial, geometry.stride, strict=True)]
    return (channel, *steps, *jumps, example)


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


def _by_blocks(
    xp: Any, work: Callable[[slice, Any], None], x: Any, geometry: Geometry, groups: int
) -> None:
    """Call ``work`` with parts of the first spatial axis of places, and the columns of each.

    These are a matrix for each group: a row a channel and position, a column a window.  Products of
    many small matrices use one thread, so there each takes blocks of its own.
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
    """An axis in parts, of which each is ``row`` bytes long for each of its elements."""
    length = max(1, (_BLOCK if xp is np else _LARGE_BLOCK) // max(row, 1))
    for start in range(0, count, length):
        yield slice(start, min(start + length, count))


# --- scratch ------------------------------------------------------------------------


class _Scratch:
    """Memory for arrays that end with the call that makes them: one at a time for each use.

    It stays from call to call, for the system gives new memory page by page, and that takes
    longer than to fill it.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, Any] = {}

    def __call__(self, use: str, shape: Sizes, dtype: Any) -> Any:
        """An array, of whatever it was before."""
        size = math.prod(shape) * dtype.itemsize
        if size > _KEPT or dtype.hasobject:
            return np.empty(shape, dtype)
        found = self._buffers.get(use)
        if found is None or len(found) < size:
            found = self._buffers[use] = np.empty(size, np.uint8)
        return found[:size].view(dtype).reshape(shape)

    @property
    def nbytes(self) -> int:
        """The bytes that it keeps."""
        return sum(len(buffer) for buffer in list(self._buffers.values()))


_idle: list[_Scratch] = []  # each is used by one call at a time; the one used last is the last


def _give(scratch: _Scratch) -> None:
    """Take scratch back, and let go what was used least recently of more than is kept.

    Nothing waits, as in `fdbr.backends.cpu.exec.memory.workspaces`: other threads may do the same.
    """
    _idle.append(scratch)
    while len(_idle) > 1 and sum([one.nbytes for one in _idle[:-1]]) > _MOST:
        try:
            _idle.pop(0)
        except IndexError:  # another thread was faster
            break


@contextlib.contextmanager
def _scratch(xp: Any) -> Iterator[Any]:
    """A function that makes arrays for the time of one call."""
    if xp is not np:  # such modules keep memory themselves
        yield lambda use, shape, dtype: xp.empty(shape, dtype=dtype)
        return
    try:
        scratch = _idle.pop()
    except IndexError:
        scratch = _Scratch()
    try:
        yield scratch
    finally:
        _give(scratch)
