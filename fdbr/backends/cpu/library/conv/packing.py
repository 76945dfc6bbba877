"""Kernels that pack windows in the cache, the first part of correlations.

A *tap* is a channel and a kernel position; its row has the element of every window of a block.
Distances are in elements unless stated otherwise.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from fdbr.backends.cpu.codegen.kernel_builder import Function, Kernel, Number
from fdbr.backends.cpu.codegen.llvm_prelude import HEAD
from fdbr.backends.cpu.codegen.llvm_text import Module

__all__ = ["FIELDS", "Packing", "heights"]

FIELDS = (
    *("counter", "units", "x", "weight", "out", "bias", "places", "scratch", "space"),
    *("examples", "channels", "leads", "wide", "rows", "columns", "length", "stride", "apart"),
    *("before", "channel", "example", "group", "outputs", "weight.step", "weight.group"),
    *("out.step", "out.example", "block", "blocks", "taps", "pitch", "shares", "share", "positive"),
)
"""The table's entries, in order.

The counter of units of work and their number; five addresses; the scratch memory, and its bytes for
each thread; the numbers of examples and channels, of kernel positions along all axes but the last,
of positions along the last, of rows of windows, and of windows in each; along the last axis its
length, the distance of windows, the distance of elements in one, and the padding before; the
distances of channels, examples and groups of ``x``; the number of outputs in a group; the distances
of their weights, and of those of groups, in bytes; the distances of rows and examples of the
result; the windows of a block, blocks of an example, taps of a block, and the distance of rows in
it; the number of shares of the outputs, and the outputs in each; and whether negative results are
replaced by zero.
"""


class Packing(Kernel):
    """A kernel under construction that packs blocks of windows, and then computes with them.

    Threads take units of work as long as there are any.

    Parameters
    ----------
    code, lanes
        The type of numbers, and the numbers of a vector.
    stride
        The distance of windows along the last axis if that is 1 or 2, and else 0.
    """

    def __init__(self, code: str, lanes: int, stride: int) -> None:
        self.code, self.width = code, lanes
        numbers = dict.fromkeys(("x", "weight", "out", "bias", "scratch"), code)
        pointers = {"counter": "i8", "places": "i8", **numbers}
        super().__init__(FIELDS, {name: pointers[name] for name in FIELDS if name in pointers})
        self._pack = _packing(self.module, code, lanes, stride, pointers)
        word = self.word
        self.taps = word["channels"] * word["leads"] * word["wide"]
        self.windows = word["rows"] * word["columns"]
        self.memory = word["scratch"].by(self.register("%part") * word["space"])

    def function(self, name: str, parameters: Mapping[str, str]) -> Function:
        """Return a function of the kernel's module, under construction."""
        return Function(self.module, name, parameters)

    @contextmanager
    def units(self) -> Iterator[Number]:
        """Emit a loop over the units that no other thread has taken."""
        begin, body, after = self.label(), self.label(), self.label()
        self.jump(begin)
        self.begin(begin)
        unit = self.register(self.add("atomicrmw add ptr %table, i64 1 monotonic, align 8"))
        self.branch((unit < self.word["units"]).value.text, body, after)
        self.begin(body)
        yield unit
        self.jump(begin)
        self.begin(after)

    def pack(self, x: Number, first: Number, stop: Number, begin: Number, count: Number) -> None:
        """Emit the packing of some taps of a block of windows."""
        table = self.register("%table", "*i8")
        self.call_function(self._pack, table, x, first, stop, begin, count, self.memory)

    def whole(self) -> str:
        """Return the module; units are counted in the table, which threads share."""
        return self.text(HEAD.replace(" noalias", ""))


def _packing(
    module: Module, code: str, lanes: int, stride: int, pointers: Mapping[str, str]
) -> Function:
    """Return the function that packs the elements of windows, with zeros for the padding.

    Vectors may be written beyond the end of a row: the next row is written later, and there is
    space behind the last one.
    """
    numbers = dict.fromkeys(("first", "last", "begin", "count"), "i8")
    kernel = Function(
        module, "pack", {"table": "*i8", "x": f"*{code}", **numbers, "block": f"*{code}"}
    )
    _, x, first, last, begin, count, block = kernel.parameters
    kernel.load_table(FIELDS, pointers, "in.table")
    word, zero = kernel.word, kernel.constant(0, code, lanes)
    columns, step, wide, leads = (word[name] for name in ("columns", "stride", "wide", "leads"))

    def elements(here: Number, at: Number) -> Number:
        """Emit the elements from one on, with zeros outside of the row.

        Vectors that lie within the row are read without masks, which cost more than loads.
        """
        long = word["length"].spread(lanes)
        if not stride:
            index = kernel.count_up(lanes) * step.spread(lanes) + at.spread(lanes)
            return kernel.load(here + index, mask=index.within(long))
        whole = (at >= 0) & (at + stride * lanes <= word["length"])
        edge = kernel.computed_if(~whole, lambda: adjacent(here, at, long), zero)
        return kernel.computed_if(whole, lambda: adjacent(here, at), edge)

    def adjacent(here: Number, at: Number, long: Number | None = None) -> Number:
        """Emit the elements from one on that are ``stride`` apart, masked by a row's length."""

        def read(start: Number) -> Number:
            inside = long and (kernel.count_up(lanes) + start.spread(lanes)).within(long)
            return kernel.load(here + start, lanes, inside)

        if stride == 1:
            return read(at)
        return kernel.shuffled(read(at), read(at + lanes), [2 * k for k in range(lanes)])

    first_row, first_column = begin // columns, begin % columns
    last_row = (begin + count - 1) // columns
    with kernel.each(first, last) as k:
        to = block + (k - first) * word["pitch"]
        shift = k % wide * word["apart"] - word["before"]
        of_channel = x + k // wide // leads * word["channel"]
        of_lead = word["places"] + k // wide % leads * word["rows"]

        def row(r: Number, column: Number, done: Number) -> tuple[Number, Number]:
            many = kernel.apply("smin", columns - column, count - done)
            begin, there = kernel.load(of_lead + r), to + done
            outside = begin < 0
            with kernel.when(outside), kernel.each(0, many, lanes) as v:
                kernel.store(there + v, zero)
            with kernel.when(~outside):
                here, start = of_channel + begin, column * step + shift
                with kernel.each(0, many, lanes) as v:
                    kernel.store(there + v, elements(here, start + v * step))
            return kernel.index(0), done + many

        kernel.repeat(first_row, last_row + 1, row, first_column, kernel.index(0))
        kernel.store(to + count, zero)
    kernel.end()
    return kernel


def heights(high: int, rest: int) -> list[int]:
    """Return the heights of tiles that a kernel needs."""
    return [high, rest] if rest and rest != high else [high]
