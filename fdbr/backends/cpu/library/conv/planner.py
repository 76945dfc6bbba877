"""Convolutions of NumPy arrays: which of the library's functions computes one.

Eager operations and compiled programs ask here, so both compute alike:

- Columns gathered by cached indices (`few_windows`), which takes the fewest calls of NumPy, if all
  columns have few elements.
- Sums over the elements of windows (`windows`), if a group has few channels, as in depthwise
  convolutions, so that tiles of products would be mostly empty.
- Products whose columns are built in the cache (`correlations`) otherwise.
- The definition (`fdbr.ops.nn.convolution.im2col`) for numbers without kernels, and for few
  multiplications.

Arrays have their examples first in memory or last, as compiled programs lay them out.
"""

import functools
import math
from typing import Any

import numpy as np

from fdbr.backends.cpu.library.conv.correlations import (
    Axes,
    axes_of,
    correlation,
    inner_correlation,
    transposed_correlation,
)
from fdbr.backends.cpu.library.conv.few_windows import (
    correlate_kernel_small,
    correlate_small,
    correlate_transposed_small,
    is_small,
)
from fdbr.backends.cpu.library.conv.program_primitives import (
    EXAMPLES_LAST,
    WITH_RELU,
    last,
    to_last,
)
from fdbr.backends.cpu.library.conv.window_kernels import windows_of
from fdbr.backends.cpu.library.conv.windows import by_position, over_windows
from fdbr.backends.cpu.tuning import TUNING
from fdbr.compiler.ir import op
from fdbr.core.primitive import implement
from fdbr.ops.declare.unbroadcast import accumulate
from fdbr.ops.nn.convolution import im2col
from fdbr.ops.nn.windows import Geometry, Sizes

__all__ = ["correlate", "correlate_kernel", "correlate_transposed"]


def correlate(
    x: Any, weight: Any, bias: Any, geometry: Geometry, groups: int, positive: bool = False
) -> Any:
    """Sum ``weight * x`` over channels and kernel positions; with ``positive``, apply `relu`."""
    size = tuple(x.shape[2:])
    counts = geometry.counts(size)
    operands = (x, weight) if bias is None else (x, weight, bias)
    found = None
    if is_small(geometry, x.shape[1], len(x) * math.prod(counts), *operands):
        found = correlate_small(x, weight, bias, geometry, groups)
    elif _is_direct(x, geometry, len(weight), groups):
        x, weight = np.ascontiguousarray(x), np.ascontiguousarray(weight)
        found = over_windows(x, weight, bias, windows_of(geometry), counts, groups)
    elif weight.size * math.prod(counts) * len(x) >= TUNING.conv_kernel:
        x, geometry = _sampled(x, geometry)
        found = correlation(x, weight, bias, _axes(geometry, x.shape[2:]), groups, positive)
        if found is not None:
            return found
    if found is None:
        found = im2col.correlate(np, x, weight, bias, geometry, groups, TUNING.conv_columns)
    return np.maximum(found, 0, out=found) if positive else found


def correlate_transposed(y: Any, weight: Any, geometry: Geometry, groups: int, size: Sizes) -> Any:
    """Add ``weight * y`` to each window."""
    counts, inputs = tuple(y.shape[2:]), weight.shape[1]
    if is_small(geometry, y.shape[1], len(y) * math.prod(size), y, weight):
        return correlate_transposed_small(y, weight, geometry, groups, size)
    geometry_back = geometry.transposed(counts, size)
    if geometry_back is not None and _is_direct(y, geometry_back, groups * inputs, groups):
        weight = im2col.swapped_and_flipped(np, weight, groups)
        return correlate(y, weight, None, geometry_back, groups)
    found = None
    if weight.size * math.prod(counts) * len(y) >= TUNING.conv_kernel:
        found = transposed_correlation(y, weight, _axes(geometry, size), groups)
    if found is None:
        return im2col.correlate_transposed(
            np, y, weight, geometry, groups, size, TUNING.conv_columns
        )
    return found


def correlate_kernel(x: Any, y: Any, geometry: Geometry, groups: int) -> Any:
    """Sum ``y * x`` over examples and windows, for each kernel position."""
    size, counts, inputs = tuple(x.shape[2:]), tuple(y.shape[2:]), x.shape[1] // groups
    if is_small(geometry, x.shape[1], len(y) * math.prod(counts), x, y):
        return correlate_kernel_small(x, y, geometry, groups)
    found = None
    if _is_direct(x, geometry, y.shape[1], groups):
        x, y = np.ascontiguousarray(x), np.ascontiguousarray(y)
        found = by_position(x, y, windows_of(geometry), inputs)
        found = found if found is None else accumulate(found, 0)
    elif _is_single(geometry) and x.dtype == y.dtype:
        return _mixed(_sampled(x, geometry)[0], y, groups)
    elif y.size * inputs * math.prod(geometry.kernel) >= TUNING.conv_kernel:
        found = inner_correlation(x, y, _axes(geometry, size), groups)
    if found is None:
        return im2col.correlate_kernel(np, x, y, geometry, groups, TUNING.conv_columns)
    return found


def _is_direct(x: Any, geometry: Geometry, outputs: int, groups: int) -> bool:
    """Whether to sum over the elements of windows, for ``outputs`` channels of results."""
    if outputs > TUNING.conv_results * groups or x.nbytes < TUNING.kernel_bytes:
        return False
    inputs = x.shape[1] // groups
    is_read_in_order = x.flags.c_contiguous or 0 in x.strides
    return is_read_in_order and inputs <= (
        TUNING.conv_inputs if geometry.stride[-1] == 1 else TUNING.conv_apart
    )


@functools.lru_cache(1024)
def _axes(geometry: Geometry, size: Sizes) -> Axes:
    """Describe the windows over spatial axes of these lengths for kernels."""
    before = [low for low, _ in geometry.padding]
    counts = geometry.counts(size)
    return axes_of(geometry.kernel, geometry.stride, before, geometry.dilation, counts, size)


# --- kernels of one element ---------------------------------------------------------


def _is_single(geometry: Geometry) -> bool:
    """Whether windows are single elements, without padding."""
    return not any(map(any, geometry.padding)) and {*geometry.kernel} == {1}


def _sampled(x: Any, geometry: Geometry) -> tuple[Any, Geometry]:
    """Return the elements that windows of single elements read, and the windows over these.

    They are copied in the order of memory; rows of adjacent elements are packed faster.
    """
    if {*geometry.stride} == {1} or not _is_single(geometry):
        return x, geometry
    read = x[(..., *[slice(None, None, step) for step in geometry.stride])]
    return read.copy(order="K"), geometry._replace(stride=(1,) * len(geometry.stride))


def _mixed(x: Any, y: Any, groups: int) -> Any:
    """Compute `correlate_kernel` of pointwise windows: a product of matrices of pixels."""
    by_example = x.flags.c_contiguous and y.flags.c_contiguous
    rows, columns = (_pixels(value, groups, by_example) for value in (x, y))
    total = np.matmul(columns, rows.swapaxes(-1, -2)).sum(axis=0).astype(x.dtype, copy=False)
    return total.reshape((y.shape[1], x.shape[1] // groups, *(1,) * (x.ndim - 2)))


def _pixels(x: Any, groups: int, by_example: bool) -> Any:
    """View an array as matrices with a row for each channel: per example, or for all together."""
    count, channels, *spatial = x.shape
    parts, size = (count, math.prod(spatial)) if by_example else (1, count * math.prod(spatial))
    x = x if by_example else np.ascontiguousarray(x.transpose((*range(1, x.ndim), 0)))
    return x.reshape(parts, groups, channels // groups, size)


# --- primitives ---------------------------------------------------------------------


@implement(op.CONV, np)
def _conv(xp: Any, x: Any, weight: Any, *, geometry: Geometry, groups: int) -> Any:
    return correlate(x, weight, None, geometry, groups)


@implement(WITH_RELU[op.CONV], np)
def _conv_relu(xp: Any, x: Any, weight: Any, *, geometry: Geometry, groups: int) -> Any:
    return correlate(x, weight, None, geometry, groups, True)


@implement(op.CONV_BIASED, np)
def _conv_biased(
    xp: Any, x: Any, weight: Any, bias: Any, *, geometry: Geometry, groups: int
) -> Any:
    return correlate(x, weight, bias, geometry, groups)


@implement(WITH_RELU[op.CONV_BIASED], np)
def _conv_biased_relu(
    xp: Any, x: Any, weight: Any, bias: Any, *, geometry: Geometry, groups: int
) -> Any:
    return correlate(x, weight, bias, geometry, groups, True)


@implement(op.CONV_KERNEL, np)
def _conv_kernel(xp: Any, x: Any, y: Any, *, geometry: Geometry, groups: int) -> Any:
    return correlate_kernel(x, y, geometry, groups)


@implement(op.CONV_INPUT, np)
def _conv_input(
    xp: Any, y: Any, weight: Any, *, geometry: Geometry, groups: int, size: Sizes
) -> Any:
    return correlate_transposed(y, weight, geometry, groups, size)


for _primitive, _value in ((op.CONV, _conv_relu), (op.CONV_BIASED, _conv_biased_relu)):
    _of_last = to_last(_value, *EXAMPLES_LAST[_primitive])
    implement(WITH_RELU[last[_primitive]], np)(_of_last)
