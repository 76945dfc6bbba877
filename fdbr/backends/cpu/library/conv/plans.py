"""Plans of correlations: the division into blocks, and the kernels."""

import functools
import math
from array import array
from typing import Any, NamedTuple

import numpy as np

from fdbr.backends.cpu.codegen.node_values import code_of
from fdbr.backends.cpu.library.conv.correlation_kernels import correlating
from fdbr.backends.cpu.library.conv.inner_kernels import inner
from fdbr.backends.cpu.library.conv.packing import FIELDS
from fdbr.backends.cpu.runtime.machine import address_of, vector_bytes
from fdbr.backends.cpu.runtime.pool import launch, thread_count
from fdbr.backends.cpu.tuning import TUNING

__all__ = ["Axes", "Axis", "CorrelationPlan", "Problem", "inner_plan", "plan"]

_ALIGNED = 64


class Axis(NamedTuple):
    """The windows along an axis.

    Attributes
    ----------
    taps, apart, before
        The elements of a window, their distance, and the padding before (negative if windows
        begin after the first element).
    stride, windows
        The distance of windows, and their number.
    length
        The number of elements.
    """

    taps: int
    apart: int
    before: int
    stride: int
    windows: int
    length: int


Axes = tuple[Axis, ...]


class Problem(NamedTuple):
    """Everything that a plan depends on; ``last``: examples are the last axis in memory."""

    dtype: Any
    shape: tuple[int, ...]
    last: bool
    axes: Axes
    groups: int
    inputs: int
    outputs: int


class CorrelationPlan:
    """A kernel, and its table without the addresses of arrays."""

    def __init__(self, address: int, places: Any, entries: dict[str, int], work: int) -> None:
        self.address, self.places = address, places
        threads = thread_count() if work >= TUNING.conv_thread else 1
        self.threads = min(threads, entries["units"])
        self.space = entries["space"]
        entries = {"counter": 0, "places": places.ctypes.data, **entries}
        self.words = array("q", [entries.get(name, 0) for name in FIELDS])

    def run(self, x: int, weight: int, out: int, **others: int) -> None:
        """Run it, with scratch memory of its own."""
        scratch = np.empty(self.threads * self.space + _ALIGNED, np.uint8)
        words = array("q", self.words)
        given = {"x": x, "weight": weight, "out": out, "scratch": _aligned(scratch), **others}
        for name, value in given.items():
            words[_PLACES[name]] = value
        launch(self.address, words.buffer_info()[0], self.threads, 1, self.threads)


_PLACES = {name: number for number, name in enumerate(FIELDS)}


def _aligned(scratch: Any) -> int:
    return -(-scratch.ctypes.data // _ALIGNED) * _ALIGNED


def _flattened(problem: Problem) -> tuple[int, Axes]:
    """Return the number of examples, and the axes in memory, where examples may be the last."""
    count, axes = problem.shape[0], problem.axes
    if not problem.last:
        return count, axes
    if axes[-1].stride > 1:
        return 1, (*axes, Axis(1, 1, 0, 1, count, count))
    taps, apart, before, stride, windows, length = axes[-1]
    end = Axis(taps, apart * count, before * count, stride, windows * count, length * count)
    return 1, (*axes[:-1], end)


def _places(axes: Axes) -> Any:
    """Return starts of rows of ``x``, by positions and windows of leading axes; -1 if outside."""
    lengths = [a.length for a in axes[1:]]
    apart = [math.prod(lengths[i:]) for i in range(len(lengths) + 1)]
    total, inside = np.zeros((1, 1), np.int64), np.ones((1, 1), bool)
    for axis, step in zip(axes[:-1], apart, strict=False):
        at = np.arange(axis.taps)[:, None] * axis.apart + np.arange(axis.windows) * axis.stride
        at -= axis.before
        here = (at >= 0) & (at < axis.length)
        shape = len(total) * axis.taps, total.shape[1] * axis.windows
        total = (total[:, None, :, None] + (at * step)[None, :, None]).reshape(shape)
        inside = (inside[:, None, :, None] & here[None, :, None]).reshape(shape)
    return np.ascontiguousarray(np.where(inside, total, -1), np.int64)


def _common(problem: Problem) -> tuple[dict[str, int], Any, int, int]:
    """Return the entries that both kernels share, the starts, and the counts of windows, taps."""
    examples, axes = _flattened(problem)
    places, end = _places(axes), axes[-1]
    size = math.prod([a.length for a in axes])
    leads, rows = places.shape
    entries = {
        "examples": examples,
        "channels": problem.inputs,
        "leads": leads,
        "wide": end.taps,
        "rows": rows,
        "columns": end.windows,
        "length": end.length,
        "stride": end.stride,
        "apart": end.apart,
        "before": end.before,
        "channel": size,
        "example": problem.groups * problem.inputs * size,
        "group": problem.inputs * size,
        "outputs": problem.outputs,
    }
    return entries, places, rows * end.windows, problem.inputs * leads * end.taps


def _block_entries(problem: Problem, windows: int, block: int, depth: int) -> dict[str, int]:
    """Return the entries for blocks of some windows and taps."""
    size = problem.dtype.itemsize
    lanes = vector_bytes() // size
    pitch = block + lanes
    return {
        "block": block,
        "taps": depth,
        "pitch": pitch,
        "space": _share((depth * pitch + lanes) * size, 1, _ALIGNED),
        "out.example": problem.groups * problem.outputs * windows,
    }


def _share(number: int, parts: int, multiple: int = 1) -> int:
    """Return the size of each of some parts, rounded up to a multiple."""
    return -(-number // (parts * multiple)) * multiple


def _near(stride: int) -> int:
    return stride if stride <= 2 else 0


@functools.lru_cache(1024)
def plan(problem: Problem) -> tuple[CorrelationPlan, int]:
    """Return the plan of a correlation, and the number of outputs in its tiles."""
    entries, places, windows, taps = _common(problem)
    size, outputs = problem.dtype.itemsize, problem.outputs
    lanes = vector_bytes() // size
    high, wide = _tile(outputs, windows, lanes)
    grain = wide * lanes
    depth = _share(taps, -(-taps // TUNING.conv_depth))
    most = max(TUNING.conv_block // (depth * size) // grain, 1) * grain
    number = entries["examples"] * problem.groups
    wanted = -(-TUNING.thread_units * thread_count() // number)
    blocks = max(-(-windows // most), min(wanted, windows // (4 * grain)), 1)
    block = _share(windows, blocks, grain)
    blocks = -(-windows // block)
    parts = max(1, min(-(-thread_count() // (number * blocks)), outputs // high))
    share = _share(outputs, parts, high)
    parts = -(-outputs // share)
    entries |= _block_entries(problem, windows, block, depth) | {
        "blocks": blocks,
        "shares": parts,
        "share": share,
        "units": number * blocks * parts,
        "out.step": windows,
    }
    source = correlating(
        code_of(problem.dtype), lanes, high, outputs % high, wide, _near(entries["stride"])
    )
    work = number * outputs * windows * taps
    return CorrelationPlan(address_of(source), places, entries, work), high


def _tile(outputs: int, windows: int, lanes: int) -> tuple[int, int]:
    """Return the tile of a correlation with the lowest estimated time."""
    tiles = ((12, 2), (8, 3), (6, 4)) if vector_bytes() == 64 else ((6, 2), (4, 3), (4, 2))
    if outputs < 4:
        return outputs, 4
    across = -(-windows // lanes)

    def time(tile: tuple[int, int]) -> int:
        high, wide = tile
        full, rest = divmod(outputs, high)
        return (full * (high * wide + 2) + bool(rest) * max(rest * wide + 2, 8)) * -(
            -across // wide
        )

    return min([(min(high, outputs), wide) for high, wide in tiles], key=time)


@functools.lru_cache(1024)
def inner_plan(problem: Problem) -> CorrelationPlan:
    """Return the plan of the inner products of windows."""
    entries, places, windows, taps = _common(problem)
    size, outputs = problem.dtype.itemsize, problem.outputs
    lanes = vector_bytes() // size
    high, wide = (4, 6) if vector_bytes() == 64 else (4, 3)
    high, wide = min(high, outputs), min(wide, taps)
    shares = max(-(-taps // (TUNING.conv_depth // 2)), -(-thread_count() // problem.groups))
    if problem.groups == 1:
        shares = -(-shares // thread_count()) * thread_count()
    depth = _share(taps, shares, wide)
    shares = -(-taps // depth)
    # Blocks do not depend on the number of threads, because they fix the order of additions.
    block = _share(windows, -(-windows * size // TUNING.conv_row), lanes)
    entries |= _block_entries(problem, windows, block, depth) | {
        "shares": shares,
        "units": problem.groups * shares,
        "out.step": taps,
        "weight.step": windows,
        "weight.group": outputs * windows,
    }
    source = inner(
        code_of(problem.dtype), lanes, high, outputs % high, wide, _near(entries["stride"])
    )
    work = entries["examples"] * problem.groups * outputs * windows * taps
    return CorrelationPlan(address_of(source), places, entries, work)
