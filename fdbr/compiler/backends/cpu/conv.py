"""Convolutions under `jit`: like `fdbr.ops.networks.im2col`, without columns.

Arrays lie in memory as there, examples last.  A stride along the last axis is taken out of it
when the array is put into its padding: elements of one *phase*, which are that far apart, come
next to each other, and so all rows are without gaps.
"""

import itertools
import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from fdbr.compiler.backends.cpu import vectors
from fdbr.compiler.backends.cpu.conv_kernels import (
    Layout,
    Weights,
    offsets,
    run_correlation,
    run_inner,
    windows,
)
from fdbr.ops.networks import im2col
from fdbr.ops.networks.windows import Geometry, Pairs, Sizes

__all__ = ["VALUES"]

_CODES = ("f4", "f8")
_SHORT = 384  # windows up to which their matrix is worth being made


def _correlated(
    x: Any, weight: Any, bias: Any, geometry: Geometry, groups: int, positive: bool
) -> Any:
    counts = geometry.counts(x.shape[2:])
    given = (x, weight) if bias is None else (x, weight, bias)
    length = counts[-1] * len(x)
    if not _fit(given, length):
        out = im2col.correlate(np, x, weight, bias, geometry, groups)
        return np.maximum(out, 0, out=out) if positive else out
    out = np.empty((len(weight), *counts, len(x)), x.dtype)
    arranged = _arranged(x, geometry.padding, geometry.stride[-1])
    layout = _layout_of_windows(arranged.shape, arranged.strides, geometry, counts, groups)
    step = weight[0].nbytes
    weights = Weights(offsets(weight[0].size, x.itemsize), step, step * (len(weight) // groups))
    bias = np.zeros(len(weight), x.dtype) if bias is None else np.ascontiguousarray(bias)
    rows = offsets(math.prod(counts[:-1]), length * x.itemsize)
    weight = np.ascontiguousarray(weight)
    run_correlation(arranged, layout, weight, weights, out, rows, length, bias, groups, positive)
    return _batch_first(out)


def _conv(xp: Any, x: Any, weight: Any, *, geometry: Geometry, groups: int) -> Any:
    return _correlated(x, weight, None, geometry, groups, False)


def _conv_relu(xp: Any, x: Any, weight: Any, *, geometry: Geometry, groups: int) -> Any:
    return _correlated(x, weight, None, geometry, groups, True)


def _conv_biased(
    xp: Any, x: Any, weight: Any, bias: Any, *, geometry: Geometry, groups: int
) -> Any:
    return _correlated(x, weight, bias, geometry, groups, False)


def _conv_biased_relu(
    xp: Any, x: Any, weight: Any, bias: Any, *, geometry: Geometry, groups: int
) -> Any:
    return _correlated(x, weight, bias, geometry, groups, True)


def _conv_kernel(xp: Any, x: Any, y: Any, *, geometry: Geometry, groups: int) -> Any:
    counts = tuple(y.shape[2:])
    length = counts[-1] * len(x)
    if not _fit((x, y), length):
        return im2col.correlate_kernel(xp, x, y, geometry, groups)
    arranged = _arranged(x, geometry.padding, geometry.stride[-1])
    layout = _layout_of_windows(arranged.shape, arranged.strides, geometry, counts, groups)
    y = _arranged(y, ((0, 0),) * len(counts), 1)
    out = np.empty((len(y), x.shape[1] // groups, *geometry.kernel), x.dtype)
    if groups == 1 and y[0].size <= _SHORT and len(layout.taps) >= vectors.lanes(x.dtype.str[1:]):
        _run_short(arranged, layout, y, length, out)
        return out
    rows = offsets(math.prod(counts[:-1]), length * x.itemsize)
    run_inner(arranged, layout, y, rows, length, out, groups)
    return out


def _run_short(x: Any, layout: Layout, y: Any, length: int, out: Any) -> None:
    """Write the inner products of rows so short that to sum up a vector of them takes longest."""
    found = windows(x, layout, length)
    count, taps = found.shape
    none = np.zeros(1, np.int64)
    weights = Weights(offsets(count, x.itemsize), y[0].nbytes, 0)
    turned = Layout(offsets(count, found.strides[0]), none, 0)
    bias = np.zeros(len(y), y.dtype)
    run_correlation(found, turned, y, weights, out.reshape((len(y), taps)), none, taps, bias, 1)


def _conv_input(
    xp: Any, y: Any, weight: Any, *, geometry: Geometry, groups: int, size: Sizes
) -> Any:
    step = geometry.stride[-1]
    if not _fit((y, weight), size[-1] // step * len(y)):
        return im2col.correlate_transposed(xp, y, weight, geometry, groups, size)
    plans, padding = _phases(geometry, size, tuple(y.shape[2:]))
    arranged = _arranged(y, padding, 1)
    channels = groups * weight.shape[1]
    shape = (channels, *size[:-1], step, -(-size[-1] // step), len(y))
    out = np.empty(shape, y.dtype)
    bias = np.zeros(channels, y.dtype)
    weight = np.ascontiguousarray(weight)
    for phase in plans:
        tables = _tables_of_phase(
            phase, (arranged.shape, arranged.strides), out.strides, weight.shape, groups
        )
        layout, weights, rows = tables
        part = out[..., phase[-1].first, :, :]
        length = phase[-1].number * len(y)
        run_correlation(arranged, layout, weight, weights, part, rows, length, bias, groups)
    if step > 1:
        parts = out
        out = np.empty((channels, *size, len(y)), y.dtype)
        for i in range(step):
            place = out[..., i::step, :]
            place[...] = parts[..., i, : place.shape[-2], :]
    return _batch_first(out.reshape((channels, *size, len(y))))


VALUES: dict[str, Callable[..., Any]] = {
    "conv": _conv,
    "conv_relu": _conv_relu,
    "conv_biased": _conv_biased,
    "conv_biased_relu": _conv_biased_relu,
    "conv_kernel": _conv_kernel,
    "conv_input": _conv_input,
}


# --- what the kernels take ----------------------------------------------------------


def _fit(arrays: tuple[Any, ...], length: int) -> bool:
    """Whether the kernels compute with arrays of these dtypes, and rows of this length."""
    dtype = arrays[0].dtype
    return (
        dtype.str[1:] in _CODES
        and dtype.isnative
        and all(array.dtype == dtype and array.size for array in arrays)
        and length >= vectors.lanes(dtype.str[1:])
    )


def _batch_first(x: Any) -> Any:
    return x.transpose((x.ndim - 1, *range(x.ndim - 1)))


def _arranged(x: Any, padding: Pairs, step: int) -> Any:
    """``(N, C, *spatial)`` in its padding as ``(C, *others, phases, last, N)`` in memory.

    Padding below zero cuts off.
    """
    x = x.transpose((*range(1, x.ndim), 0))
    if any(low < 0 or high < 0 for low, high in padding):
        ends = [
            slice(max(-low, 0), n - max(-high, 0))
            for n, (low, high) in zip(x.shape[1:-1], padding, strict=True)
        ]
        x = x[(slice(None), *ends)]
        padding = tuple((max(low, 0), max(high, 0)) for low, high in padding)
    *others, last = (n + low + high for n, (low, high) in zip(x.shape[1:-1], padding, strict=True))
    padded = any(map(any, padding))
    if step == 1 and not padded:
        return np.ascontiguousarray(x).reshape((len(x), *others, 1, last, x.shape[-1]))
    out = np.empty((len(x), *others, step, -(-last // step), x.shape[-1]), x.dtype)
    _clear_edges(out, padding, last)
    inside: Any = tuple(
        slice(low, low + n) for (low, _), n in zip(padding[:-1], x.shape[1:-2], strict=True)
    )
    before = padding[-1][0]
    for phase in range(step):
        first = (phase - before) % step
        part = x[..., first::step, :]
        start = (first + before) // step
        out[(slice(None), *inside, phase, slice(start, start + part.shape[-2]))] = part
    return out


def _clear_edges(out: Any, padding: Pairs, last: int) -> None:
    """Write zeros to the padding of an array that is arranged in it."""
    if out.shape[-3] > 1:
        if any(map(any, padding)) or last % out.shape[-3]:
            out[...] = 0
        return
    axes = (*range(1, len(padding)), out.ndim - 2)
    for axis, (low, high) in zip(axes, padding, strict=True):
        before = (slice(None),) * axis
        out[(*before, slice(low))] = 0
        out[(*before, slice(out.shape[axis] - high, None))] = 0


@lru_cache(256)
def _sums(*parts: tuple[int, ...]) -> Any:
    """The sums of one number of each of the parts, in row-major order."""
    total = np.zeros(1, np.int64)
    for part in parts:
        total = (total[:, None] + np.array(part, np.int64)).ravel()
    return total


@lru_cache(256)
def _layout_of_windows(
    shape: Sizes, strides: Sizes, geometry: Geometry, counts: Sizes, groups: int
) -> Layout:
    """How the windows lie in an arranged array; a row are the windows along the last axis."""
    channels = shape[0] // groups
    *others, phase, last, _ = strides[1:]
    step = geometry.stride[-1]
    taps = [tuple(c * strides[0] for c in range(channels))]
    starts = []
    for axis, stride in enumerate(others):
        apart = geometry.dilation[axis] * stride
        taps.append(tuple(i * apart for i in range(geometry.kernel[axis])))
        starts.append(tuple(i * geometry.stride[axis] * stride for i in range(counts[axis])))
    places = [i * geometry.dilation[-1] for i in range(geometry.kernel[-1])]
    taps.append(tuple(i % step * phase + i // step * last for i in places))
    return Layout(_sums(*taps), _sums(*starts), channels * strides[0])


# --- the transposed convolution -----------------------------------------------------
#
# Its results whose places have the same remainders by the stride are a correlation with some of
# the positions of the kernel: those from which a window reaches such a place.


class _Places(NamedTuple):
    """Every so many places of an axis, and the positions of the kernel that reach them.

    Attributes
    ----------
    first, step, number
        The places.
    taps
        Positions of the kernel, and where in ``y`` the first place finds what it is multiplied by.
    """

    first: int
    step: int
    number: int
    taps: tuple[tuple[int, int], ...]


_Phase = tuple[_Places, ...]


@lru_cache(256)
def _phases(geometry: Geometry, size: Sizes, counts: Sizes) -> tuple[list[_Phase], Pairs]:
    """The correlations, with places for each axis, and the padding that they need."""
    axes, padding = [], []
    for k, step, (low, _), apart, n, count in zip(*geometry, size, counts, strict=True):
        begins = [[(i, first + low - i * apart) for i in range(k)] for first in range(min(step, n))]
        taps = [[(i, b // step) for i, b in begin if b % step == 0] for begin in begins]
        numbers = [-(-(n - first) // step) for first in range(min(step, n))]
        before = max((-b for part in taps for _, b in part), default=0)
        after = max(
            (m + b - count for m, part in zip(numbers, taps, strict=True) for _, b in part),
            default=0,
        )
        padding.append((before, after))
        axes.append(
            [
                _Places(first, step, m, tuple((i, b + before) for i, b in part))
                for first, (m, part) in enumerate(zip(numbers, taps, strict=True))
            ]
        )
    return list(itertools.product(*axes)), tuple(padding)


@lru_cache(256)
def _tables_of_phase(
    phase: _Phase, y: tuple[Sizes, Sizes], out: Sizes, weight: Sizes, groups: int
) -> tuple[Layout, Weights, Any]:
    """Layouts for an arranged ``y`` (its shape and strides), the result and the weights."""
    outputs = y[0][0] // groups
    channel, *others, _, last, size = y[1]
    whole = math.prod(weight[1:]) * size
    taps = [tuple(o * channel for o in range(outputs))]
    kept = [tuple(o * whole for o in range(outputs))]
    begins, rows = [], []
    for axis, (places, stride) in enumerate(zip(phase, (*others, last), strict=True)):
        apart = math.prod(weight[axis + 3 :]) * size
        taps.append(tuple(b * stride for _, b in places.taps))
        kept.append(tuple(i * apart for i, _ in places.taps))
        begins.append(tuple(q * stride for q in range(places.number)))
        ahead = out[axis + 1]
        rows.append(tuple((places.first + q * places.step) * ahead for q in range(places.number)))
    return (
        Layout(_sums(*taps), _sums(*begins[:-1]), outputs * channel),
        Weights(_sums(*kept), math.prod(weight[2:]) * size, outputs * whole),
        _sums(*rows[:-1]),
    )
