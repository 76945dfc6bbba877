"""The kernels of products beside convolutions, and how they are run.

Both go through *rows*: the last spatial axis with all examples, examples last.  A correlation is
a sum over *taps*, a channel and a position of the kernel each: of a tap's weight times a row of
``x`` that begins at the tap's offset.
"""

import functools
from array import array
from typing import Any, NamedTuple

import numpy as np

from fdbr.compiler.backends.cpu import vectors
from fdbr.compiler.backends.cpu.background import address_of
from fdbr.compiler.backends.cpu.launching import launch_on, thread_count

__all__ = ["Layout", "Weights", "offsets", "run_correlation", "run_inner"]

_WORTH = 1_000_000  # multiplications from which on more threads than one pay
_STEP = 4  # products that take as long as what a tile does besides, for each tap
_CACHED = 1 << 18  # bytes that stay in a processor's cache

_CORRELATION = """tile = product({code!r}, {outputs}, {wide})
def kernel(table, start, stop, thread):
    x, offsets, x_rows, x_group = word(table, 2), word(table, 3), word(table, 4), word(table, 5)
    w, w_offsets, step, w_group = word(table, 6), word(table, 7), word(table, 8), word(table, 9)
    out, out_step, out_rows = word(table, 10), word(table, 11), word(table, 12)
    bias, taps, outputs, part = word(table, 13), word(table, 14), word(table, 15), word(table, 16)
    rows, length, units = word(table, 17), word(table, 18), word(table, 1)
    across = (length + {block} - 1) // {block}
    parts = (outputs + part - 1) // part
    unit = take(table, 0)
    while unit < units:
        i = min(unit % across * {block}, length - {block}) * {size}
        row = unit // across % rows
        o = unit // (across * rows) % parts * part
        group = unit // (across * rows * parts)
        end = min(o + part, outputs)
        here = x + group * x_group + word(x_rows, row) + i
        there = out + word(out_rows, row) + i
        while o < end:
            o = min(o, outputs - {outputs})
            whole = group * outputs + o
            tile(here, offsets, w + group * w_group + o * step, w_offsets, step,
                 there + whole * out_step, out_step, bias + whole * {size}, taps)
            o += {outputs}
        unit = take(table, 0)
"""

_INNER = """tile = inner({code!r}, {outputs}, {wide})
def kernel(table, start, stop, thread):
    x, offsets, x_rows, x_group = word(table, 2), word(table, 3), word(table, 4), word(table, 5)
    y, y_step, y_rows = word(table, 6), word(table, 7), word(table, 8)
    out, taps, outputs = word(table, 9), word(table, 10), word(table, 11)
    rows, length, part = word(table, 12), word(table, 13), word(table, 14)
    scratch = word(table, 15) + thread * {outputs} * {wide} * {size}
    units = word(table, 1)
    found = pointer(scratch, {code}(0))
    across = (taps + {wide} - 1) // {wide}
    down = (outputs + {outputs} - 1) // {outputs}
    unit = take(table, 0)
    while unit < units:
        for row in range(0, rows, part):
            k = min(unit % across * {wide}, taps - {wide})
            o = min(unit // across % down * {outputs}, outputs - {outputs})
            group = unit // (across * down)
            whole = group * outputs + o
            tile(x + group * x_group, offsets + 8 * k, x_rows, y + whole * y_step, y_step, y_rows,
                 row, min(row + part, rows), length, scratch)
            total = pointer(out + (whole * taps + k) * {size}, {code}(0))
            for a in range(unit // across % down * {outputs} - o, {outputs}):
                for b in range(unit % across * {wide} - k, {wide}):
                    before = total[a * taps + b] if row else {code}(0)
                    total[a * taps + b] = before + found[a * {wide} + b]
        unit = take(table, 0)
"""

_TEXTS = {"product": _CORRELATION, "inner": _INNER}


class Layout(NamedTuple):
    """How rows and taps lie in memory; distances are in bytes.

    Attributes
    ----------
    taps
        Where a row begins for each tap of a group, counted from where it does for none.
    rows
        Where rows begin.
    group
        From one group to the next.
    """

    taps: Any
    rows: Any
    group: int


class Weights(NamedTuple):
    """How weights lie in memory; distances are in bytes.

    Attributes
    ----------
    taps
        Where the weight of each tap of a group lies for the first output.
    output, group
        From one output or group to the next.
    """

    taps: Any
    output: int
    group: int


@functools.lru_cache(256)
def offsets(count: int, step: int) -> Any:
    """So many offsets, one after the other."""
    return np.arange(count, dtype=np.int64) * step


@functools.cache
def _kernel(kind: str, code: str, outputs: int = 1, wide: int = 1) -> int:
    """The address of a kernel with tiles of so many outputs, and vectors or taps."""
    names = {
        "code": code,
        "outputs": outputs,
        "wide": wide,
        "size": np.dtype(code).itemsize,
        "block": wide * vectors.lanes(code),
    }
    return address_of(_TEXTS[kind].format(**names))


def _launch(kernel: int, table: list[int], units: int, work: int, threads: int) -> None:
    """Run a kernel, of which each thread takes the next unit until there is none.

    So a thread whose processor is busy with something else keeps nobody waiting.
    """
    words = array("q", (0, units, *table))
    threads = threads if work >= _WORTH else 1
    launch_on(threads, kernel, words.buffer_info()[0], threads)


def _tile(outputs: int, across: int) -> tuple[int, int]:
    """The tile that takes the least time, with what lies over the edges."""
    fitting = [
        tile for tile in vectors.correlation_tiles() if tile[0] <= outputs and tile[1] <= across
    ]
    if not fitting:
        high = min(outputs, vectors.correlation_tiles()[0][0])
        return high, min(across, max(2, 16 // high), 8)

    def time(tile: tuple[int, int]) -> int:
        high, wide = tile
        return -(-outputs // high) * -(-across // wide) * (high * wide + _STEP)

    return min(fitting, key=time)


def run_correlation(
    x: Any,
    layout: Layout,
    weight: Any,
    weights: Weights,
    out: Any,
    rows: Any,
    length: int,
    bias: Any,
    groups: int,
) -> None:
    """Write a correlation to rows of ``out``.

    Parameters
    ----------
    x, layout
        What is correlated.
    weight, weights
        By what.
    out, rows
        The result, of which each entry of the first axis is an output; where its rows begin.
    length
        How many numbers a row has: as many as a vector at least.
    bias
        A number for each output, with which its sums begin.
    groups
        Into how many parts channels and outputs are divided.
    """
    code, outputs = out.dtype.str[1:], len(out) // groups
    high, wide = _tile(outputs, length // vectors.lanes(code))
    # So many outputs at a time that their weights stay in the cache while all rows come by.
    part = max(1, _CACHED // ((len(layout.taps) + 1) * out.itemsize * high)) * high
    across = -(-length // (wide * vectors.lanes(code)))
    units = across * len(rows) * -(-outputs // part) * groups
    table = [
        *(x.ctypes.data, layout.taps.ctypes.data, layout.rows.ctypes.data, layout.group),
        *(weight.ctypes.data, weights.taps.ctypes.data, weights.output, weights.group),
        *(out.ctypes.data, out.strides[0], rows.ctypes.data, bias.ctypes.data),
        *(len(layout.taps), outputs, part, len(rows), length),
    ]
    work = len(layout.taps) * len(out) * len(rows) * length
    kernel = _kernel("product", code, high, wide)
    _launch(kernel, table, units, work, min(thread_count(), units))


def run_inner(
    x: Any, layout: Layout, y: Any, rows: Any, length: int, out: Any, groups: int
) -> None:
    """Write the inner products of rows of ``x`` and ``y``, for each output and tap.

    Parameters
    ----------
    x, layout
        Of which each tap is a row.
    y, rows
        Of which each entry of the first axis is an output; where its rows begin.
    length
        How many numbers a row has.
    out
        The result: for each output those of the taps of its group.
    groups
        Into how many parts channels and outputs are divided.
    """
    code, outputs, taps = out.dtype.str[1:], len(y) // groups, len(layout.taps)
    high, wide = map(min, vectors.inner_tile(), (outputs, taps))
    part = max(1, _CACHED // ((high + wide) * length * out.itemsize))
    units = -(-outputs // high) * -(-taps // wide) * groups
    threads = min(thread_count(), units)
    scratch = np.empty(threads * high * wide, out.dtype)
    table = [
        *(x.ctypes.data, layout.taps.ctypes.data, layout.rows.ctypes.data, layout.group),
        *(y.ctypes.data, y.strides[0], rows.ctypes.data),
        *(out.ctypes.data, taps, outputs, len(rows), length, part, scratch.ctypes.data),
    ]
    work = taps * len(y) * len(rows) * length
    _launch(_kernel("inner", code, high, wide), table, units, work, threads)
