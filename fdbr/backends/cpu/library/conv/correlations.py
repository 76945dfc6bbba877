"""Convolutions as products of matrices that are built in the cache, block by block.

The full matrix of windows and the padding are never stored in memory.  The three functions are
derivatives of each other: `correlation`, `transposed_correlation` and `inner_correlation`.  Arrays
have shape ``(N, C, *spatial)``, in memory in this order or as ``(C, *spatial, N)``; results have
the memory order of their operands.
"""

import functools
import itertools
import math
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fdbr.backends.cpu.codegen.eager_kernels import expected
from fdbr.backends.cpu.codegen.node_values import code_of
from fdbr.backends.cpu.library.conv.correlation_kernels import packing_weights
from fdbr.backends.cpu.library.conv.plans import Axes, Axis, Problem, inner_plan, plan
from fdbr.backends.cpu.runtime.machine import address_of
from fdbr.backends.cpu.runtime.pool import launch, thread_count
from fdbr.backends.cpu.tuning import TUNING
from fdbr.core.expr import FLOATS

__all__ = ["Axes", "Axis", "axes_of", "correlation", "inner_correlation", "transposed_correlation"]


def axes_of(
    kernel: Sequence[int],
    stride: Sequence[int],
    before: Sequence[int],
    apart: Sequence[int],
    counts: Sequence[int],
    size: Sequence[int],
) -> Axes:
    """Return the axes of windows whose geometry is given field by field."""
    return tuple(map(Axis, kernel, apart, before, stride, counts, size))


def correlation(
    x: Any, weight: Any, bias: Any, axes: Axes, groups: int, positive: bool = False
) -> Any:
    """Compute ``bias[o] + sum(weight[o, c, k] * x[n, c, p * stride - before + k * apart])``.

    Parameters
    ----------
    x
        Shape ``(N, C, *spatial)``.
    weight
        Shape ``(O, C // groups, *kernel)``.
    bias
        Shape ``(O,)``, or `None`.
    axes
        The geometry of the windows.
    groups
        The number of groups of channels.
    positive
        Whether negative results are replaced by zero.

    Returns
    -------
    array or None
        Shape ``(N, O, *counts)``; `None` if there is no kernel for it.
    """
    given = (x, weight) if bias is None else (x, weight, bias)
    if not _computed(given):
        return None
    counts = tuple([a.windows for a in axes])
    x, last, back = _laid(x, counts)
    outputs, inputs = len(weight), weight.shape[1]
    steps = _tap_steps(weight.strides[1:], weight.shape[1:2], axes)
    out = _made(len(x), outputs, counts, x.dtype, last)
    rows = _Rows(
        weight.ctypes.data, steps, weight.strides[0], weight.strides[0] * outputs // groups
    )
    _correlate(x, last, rows, bias, axes, groups, inputs, outputs // groups, out, positive)
    return np.ascontiguousarray(out) if back else out


def transposed_correlation(y: Any, weight: Any, axes: Axes, groups: int) -> Any:
    """Sum for each element over all windows that contain it: `correlation` transposed.

    Parameters
    ----------
    y
        Shape ``(N, O, *counts)``.
    weight, axes, groups
        Those of the correlation, of whose ``x`` the result is the cotangent.

    Returns
    -------
    array or None
        Shape ``(N, C, *spatial)``; `None` if there is no kernel for it.
    """
    if not _computed((y, weight)):
        return None
    size = tuple([a.length for a in axes])
    y, last, back = _laid(y, size)
    outputs, inputs = len(weight) // groups, weight.shape[1]
    out = _made(len(y), groups * inputs, size, y.dtype, last)
    phases = list(itertools.product(*map(_phases, axes)))
    read = [phase for phase in phases if all(part.axis.taps for part in phase)]
    if len(read) < len(phases):
        out[...] = 0  # at once: the elements that no window contains are not adjacent
    for phase in read:
        turned = tuple([part.axis for part in phase])
        counts = tuple([a.windows for a in turned])
        key = tuple(
            [slice(part.first, None, a.stride) for part, a in zip(phase, axes, strict=True)]
        )
        place = out[(..., *key)]
        part = place
        if counts != size:
            part = _made(len(y), groups * inputs, counts, y.dtype, last)
        tail = weight.strides[2:]
        starts = sum(p.tap * s for p, s in zip(phase, tail, strict=True))
        strides = [p.step * s for p, s in zip(phase, tail, strict=True)]
        steps = _tap_steps((weight.strides[0], *strides), (outputs,), turned)
        rows = _Rows(
            weight.ctypes.data + starts, steps, weight.strides[1], weight.strides[0] * outputs
        )
        _correlate(y, last, rows, None, turned, groups, outputs, inputs, part, False)
        if part is not place:
            place[...] = part
    return np.ascontiguousarray(out) if back else out


def inner_correlation(x: Any, y: Any, axes: Axes, groups: int) -> Any:
    """Sum ``y[n, o, p] * x[n, c, p * stride - before + k * apart]`` over examples and windows.

    Parameters
    ----------
    x
        Shape ``(N, C, *spatial)``.
    y
        Shape ``(N, O, *counts)``.
    axes, groups
        As for `correlation`.

    Returns
    -------
    array or None
        Shape ``(O, C // groups, *kernel)``; `None` if there is no kernel for it.
    """
    if not _computed((x, y)):
        return None
    y, last, _ = _laid(y, y.shape[2:])
    x = _in_order(x, last)
    inputs, outputs = x.shape[1] // groups, y.shape[1] // groups
    out = np.empty((y.shape[1], inputs, *[a.taps for a in axes]), x.dtype)
    found = inner_plan(Problem(x.dtype, x.shape, last, axes, groups, inputs, outputs))
    found.run(x.ctypes.data, y.ctypes.data, out.ctypes.data)
    return out


# --- arrays -------------------------------------------------------------------------


def _computed(arrays: Sequence[Any]) -> bool:
    dtype = arrays[0].dtype
    return (
        dtype in FLOATS
        and all(type(v) is np.ndarray and v.dtype == dtype and v.size for v in arrays)
        and expected()
    )


def _laid(x: Any, windows: Sequence[int]) -> tuple[Any, bool, bool]:
    """Return an array in one of the two orders, whether examples are last, and were first before.

    If each example has few windows, vectors over all examples are longer.
    """
    if not x.flags.c_contiguous and x.transpose((*range(1, x.ndim), 0)).flags.c_contiguous:
        return x, True, False
    few = len(x) > 1 and math.prod(windows) < TUNING.conv_windows
    return _in_order(x, few), few, few


def _in_order(x: Any, last: bool) -> Any:
    """Return an array that is contiguous in memory, or with its examples last."""
    if not last:
        return np.ascontiguousarray(x)
    return _batch_first(np.ascontiguousarray(x.transpose((*range(1, x.ndim), 0))))


def _batch_first(x: Any) -> Any:
    return x.transpose((x.ndim - 1, *range(x.ndim - 1)))


def _made(count: int, channels: int, size: tuple[int, ...], dtype: Any, last: bool) -> Any:
    """Return a new array."""
    if last:
        return _batch_first(np.empty((channels, *size, count), dtype))
    return np.empty((count, channels, *size), dtype)


@functools.lru_cache(512)
def _tap_steps(strides: tuple[int, ...], channels: tuple[int, ...], axes: Axes) -> Any:
    """Return the offsets of the weights of taps from the first one, in bytes."""
    total = np.zeros(1, np.int64)
    for step, length in zip(strides, (channels[0], *[a.taps for a in axes]), strict=True):
        total = (total[:, None] + step * np.arange(length, dtype=np.int64)).ravel()
    return total


class _Part(NamedTuple):
    """The elements of an axis with one phase, the windows that contain them, and their taps."""

    first: int
    axis: Axis
    tap: int  # the first one
    step: int  # to the next one


@functools.lru_cache(512)
def _phases(axis: Axis) -> list[_Part]:
    """Return the phases of an axis: elements with equal remainders by the stride."""
    found = []
    for first in range(min(axis.stride, axis.length)):
        number = -(-(axis.length - first) // axis.stride)
        ahead = [first + axis.before - k * axis.apart for k in range(axis.taps)]
        taps = [k for k, at in enumerate(ahead) if at % axis.stride == 0][::-1]  # by windows
        if not taps:
            found.append(_Part(first, Axis(0, 1, 0, 1, number, axis.windows), 0, 1))
            continue
        step = taps[1] - taps[0] if len(taps) > 1 else 1
        start = ahead[taps[0]] // axis.stride
        apart = abs(step) * axis.apart // axis.stride if len(taps) > 1 else 1
        windows = Axis(len(taps), apart, -start, 1, number, axis.windows)
        found.append(_Part(first, windows, taps[0], step))
    return found


# --- runs ---------------------------------------------------------------------------


class _Rows(NamedTuple):
    """The weights: their address, and the distances of taps, outputs and groups, in bytes."""

    address: int
    taps: Any
    step: int
    group: int


def _correlate(
    x: Any,
    last: bool,
    weights: _Rows,
    bias: Any,
    axes: Axes,
    groups: int,
    inputs: int,
    outputs: int,
    out: Any,
    positive: bool,
) -> None:
    planned, high = plan(Problem(x.dtype, x.shape, last, axes, groups, inputs, outputs))
    weight = _turned(weights, high, groups, outputs, x.dtype)
    bias = np.zeros(groups * outputs, x.dtype) if bias is None else np.ascontiguousarray(bias)
    others = {"bias": bias.ctypes.data, "positive": positive}
    planned.run(x.ctypes.data, weight.ctypes.data, out.ctypes.data, **others)


def _turned(weights: _Rows, high: int, groups: int, outputs: int, dtype: Any) -> Any:
    """Return the weights in the order in which the tiles of a correlation read them."""
    tiles, taps = -(-outputs // high), len(weights.taps)
    out = np.empty(groups * tiles * taps * high, dtype)
    table = array("q", (weights.address, weights.taps.ctypes.data, out.ctypes.data))
    table.extend((weights.step, weights.group, outputs, tiles, taps))
    parts = min(groups * tiles, thread_count()) if out.size >= TUNING.conv_weights else 1
    kernel = address_of(packing_weights(code_of(dtype), high))
    launch(kernel, table.buffer_info()[0], groups * tiles, 1, parts)
    return out
