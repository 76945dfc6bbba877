"""Kernels of fused steps that reduce elements by a user's combining function.

The states of the reduction are kept in *lanes*: several partial states side by side, so that each
element of the next vector is combined with its own lane.  At the end the lanes are halved until one
is left.

- Along the last axes, each row in turn uses the lanes.
- Along the first axes, each thread has a lane per column.
- Along all axes, each thread has lanes for all its elements.
"""

from collections.abc import Sequence

import numpy as np

from fdbr.backends.cpu.codegen.formulas import CODES
from fdbr.backends.cpu.codegen.fused_writer import Block, Writer
from fdbr.backends.cpu.codegen.written import Join, Output, store
from fdbr.compiler.ir.program import Instruction, kind_of
from fdbr.compiler.ir.reductions import join_of

__all__ = ["join_body"]

_LANES = 64  # several vectors, so that no combination waits for the previous one

Lines = list[str]


def join_body(writer: Writer) -> tuple[Lines, tuple[Join, ...]]:
    """Return the statements of a kernel, and how the results of its threads are combined."""
    joins = [_Join(writer, step) for step in writer.fused.steps if join_of(step) is not None]
    long = [join for join in joins if not join.of_rows]
    found: Lines = []
    if long:
        flag = writer.output(Output(None, (1,), np.dtype(np.int64), True, 1))
        place = len(writer.outputs) - 1
        found = [f"{flag}[thread] = i8(1)"]
        for join in long:
            join.flag = place
    lines = _flat(writer, joins) if writer.flat else _by_rows(writer, joins, bool(long))
    return [*lines, *found], tuple([join.joined for join in long])


class _Join:
    """Generate one reducing step: its lanes, and the memory of its results."""

    def __init__(self, writer: Writer, step: Instruction) -> None:
        self.writer, self.step = writer, step
        (shape, axes), fused = join_of(step) or ((), ()), writer.fused
        self.codes = [CODES[kind_of(operand).dtype] for operand in step.operands]
        self.whole = len(axes) == len(shape)
        self.of_rows = not self.whole and axes[-1] == len(shape) - 1
        self.flag = -1
        self.count = writer.columns if not (self.of_rows or writer.flat) else _LANES
        if self.of_rows:
            self.count = min(_LANES, 1 << (writer.columns.bit_length() - 1))
        rest = () if self.whole else fused.domain[fused.split :]
        self.places: list[int] = []  # the indices of outputs, one per part of the state
        self.lanes: list[str] = []
        for out in step.outs:
            self.places.append(len(writer.outputs))
            own = out in fused.outs
            if self.of_rows and own:
                writer.output(Output(out, out.kind.shape, out.kind.dtype, False, 1))
            elif not self.of_rows:
                writer.output(Output(out if own else None, rest, out.kind.dtype, True, 1))
            else:
                self.places[-1] = -1
            if self.whole or self.of_rows:
                lanes = Output(None, (self.count,), out.kind.dtype, True, 1)
                self.lanes.append(writer.output(lanes))
            else:
                self.lanes.append(f"o{self.places[-1]}")

    @property
    def joined(self) -> Join:
        """Return the description by which the results of threads are combined."""
        return Join(self.step.params["combine"], tuple(self.places), self.flag)

    def at(self, lane: str) -> list[str]:
        """Return the elements of a lane."""
        return [f"{name}[thread * {self.count} + {lane}]" for name in self.lanes]

    def read(self, lane: str) -> list[str]:
        """Return expressions for the values of a lane."""
        pairs = zip(self.at(lane), self.codes, strict=True)
        return [f"({text} != 0)" if code == "b1" else text for text, code in pairs]

    def put(self, lane: str, texts: Sequence[str]) -> Lines:
        """Return the statements that write a lane after all its values are computed."""
        names = [f"n{i}" for i in range(len(texts))]
        lines = [f"{name} = {text}" for name, text in zip(names, texts, strict=True)]
        for place, name, out in zip(self.at(lane), names, self.step.outs, strict=True):
            lines.append(store(place, name, out.kind.dtype))
        return lines

    def element(self, lane: str, first: bool) -> Lines:
        """Return the statements that combine the element of row ``r``, column ``c`` with a lane."""
        block = Block(self.writer, _next(self.writer), False)
        values = [block.value(operand, {})[0] for operand in self.step.operands]
        if first:
            return [*block.lines, *self.put(lane, values)]
        return [*block.lines, *self.merged(lane, values)]

    def merged(self, lane: str, values: Sequence[str]) -> Lines:
        """Return the statements that combine values with a lane."""
        own = [f"p{i}" for i in range(len(values))]
        others = [f"q{i}" for i in range(len(values))]
        lines = [f"{p} = {text}" for p, text in zip(own, self.read(lane), strict=True)]
        lines += [f"{q} = {text}" for q, text in zip(others, values, strict=True)]
        return lines + self.put(lane, self.writer.elements.joined(self.step, own, others))

    def halved(self) -> Lines:
        """Return the statements that combine all lanes into the first."""
        lines, count = [], self.count
        while count > 1:
            half = count // 2
            lines.append(f"for l in range({half}):")
            lines += _inside(self.merged("l", self.read(f"l + {count - half}")))
            count -= half
        return lines

    def stored(self, place: str) -> Lines:
        """Return the statements that write the result, which is in the first lane."""
        return [
            store(f"o{i}[{place}]", text, out.kind.dtype)
            for i, text, out in zip(self.places, self.read("0"), self.step.outs, strict=True)
            if i >= 0
        ]


def _next(writer: Writer) -> int:
    """Return a number for the names of one more loop."""
    writer.loops += 1
    return writer.loops


def _inside(lines: Sequence[str]) -> Lines:
    return ["    " + line for line in lines]


def _full(writer: Writer, place: str) -> Lines:
    """Return the statements that write the results with an element per index."""
    block = Block(writer, _next(writer), False)
    lines: Lines = []
    for out in writer.fused.outs:
        if join_of(writer.makers[out]) is None:
            text, _ = block.value(out, {})
            lines.append(store(f"{writer.full[out]}[{place}]", text, out.kind.dtype))
    return [*block.lines, *lines]


def _outputs(writer: Writer) -> None:
    for out in writer.fused.outs:
        if join_of(writer.makers[out]) is None:
            over, kind = writer.fused.over.get(out), out.kind
            output = Output(out, kind.shape, kind.dtype, False, 1, over)
            writer.full[out] = writer.output(output)


def _flat(writer: Writer, joins: Sequence[_Join]) -> Lines:
    """Emit a loop over all elements, which takes as many at once as there are lanes."""
    _outputs(writer)

    def loop(lane: str, first: bool) -> Lines:
        parts = [join.element(lane, first) for join in joins]
        return [*_full(writer, "r"), *(line for part in parts for line in part)]

    lines = [
        f"for r in range(start, min(start + {_LANES}, stop)):",
        *_inside(loop("r - start", True)),
    ]
    inner = [f"for r in range(b, min(b + {_LANES}, stop)):", *_inside(loop("r - b", False))]
    lines += [f"for b in range(start + {_LANES}, stop, {_LANES}):", *_inside(inner)]
    for join in joins:
        lines.append(f"for l in range(1, min({_LANES}, stop - start)):")
        lines += _inside(join.merged("0", join.read("l")))
        lines += join.stored("thread")
    return lines


def _by_rows(writer: Writer, joins: Sequence[_Join], long: bool) -> Lines:
    """Emit a loop over rows; a reduction along rows starts from the first row."""
    _outputs(writer)

    def row(first: bool) -> Lines:
        lines: Lines = []
        over = [join for join in joins if not join.of_rows]
        full = _full(writer, f"r * {writer.columns} + c")
        parts = [join.element("c", first) for join in over]
        inside = [*full, *(line for part in parts for line in part)]
        if inside:
            lines += [f"for c in range({writer.columns}):", *_inside(inside)]
        for join in joins:
            if join.of_rows:
                lines += _along(join, writer.columns)
        return lines

    if not long:
        return ["for r in range(start, stop):", *_inside(row(True))]
    lines = ["for r in range(start, min(start + 1, stop)):", *_inside(row(True))]
    lines += ["for r in range(start + 1, stop):", *_inside(row(False))]
    for join in joins:
        if join.whole:
            lines += [*join.halved(), *join.stored("thread")]
    return lines


def _along(join: _Join, columns: int) -> Lines:
    """Return the statements that combine the elements of one row."""
    count = join.count
    blocks, rest = divmod(columns, count)
    lines = [f"for c in range({count}):", *_inside(join.element("c", True))]

    def more(block: str, number: int) -> Lines:
        inside = [f"c = {block} * {count} + l", *join.element("l", False)]
        return [f"for l in range({number}):", *_inside(inside)]

    if blocks > 1:
        lines += [f"for b in range(1, {blocks}):", *_inside(more("b", count))]
    if rest:
        lines += more(str(blocks), rest)
    return [*lines, *join.halved(), *join.stored("r")]
