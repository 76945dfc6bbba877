"""Kernels of fused steps that reduce elements by a user's combining function.

The states of the reduction are kept in *lanes*: several partial states side by side, so that each
element of the next vector is combined with its own lane.  At the end the lanes are halved until one
is left.

- Along the last axes, each row in turn uses the lanes.
- Along the first axes, each thread has a lane per column.
- Along all axes, each thread has lanes for all its elements.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fdbr.backends.cpu.codegen.element_code import Elements, cost
from fdbr.backends.cpu.codegen.formulas import CODES
from fdbr.backends.cpu.codegen.written import Join, Output, Written, literal, store, stored
from fdbr.compiler.ir import op
from fdbr.compiler.ir.broadcast_layout import Place, place
from fdbr.compiler.ir.program import Fused, Instruction, Variable, kind_of
from fdbr.compiler.ir.reductions import join_of

__all__ = ["write_joins"]

_LANES = 64  # several vectors, so that no combination waits for the previous one

Lines = list[str]


def write_joins(fused: Fused) -> Written:
    """Return the kernel of elementwise steps and users' reductions."""
    writer = _Writer(fused)
    joins = [_Join(writer, step) for step in fused.steps if join_of(step) is not None]
    long = [join for join in joins if not join.of_rows]
    body = _flat(writer, joins) if writer.flat else _by_rows(writer, joins, bool(long))
    return writer.written(body, tuple([join.joined for join in long]))


class _Writer:
    """Hold the operands, outputs and values of a kernel, and their names."""

    def __init__(self, fused: Fused) -> None:
        self.fused = fused
        self.columns = math.prod(fused.domain[fused.split :])
        self.rows = math.prod(fused.domain[: fused.split])
        self.flat = fused.split == len(fused.domain)
        self.makers = {out: step for step in fused.steps for out in step.outs}
        self.inputs: dict[Any, tuple[str, Any]] = {}
        self.outputs: list[Output] = []
        self.elements = Elements()
        self.full: dict[Variable, str] = {}  # the memory of results with an element per index
        self.loops = 0

    def output(self, output: Output) -> str:
        """Return the name of new memory to write an output to."""
        self.outputs.append(output)
        return f"o{len(self.outputs) - 1}"

    def load(self, operand: Any) -> tuple[str, str]:
        """Return an expression for the operand's element, and its dtype."""
        kind = kind_of(operand)
        code = CODES[kind.dtype]
        if type(operand) is not Variable and kind.size == 1:
            return literal(operand, code), code
        where = place(kind.shape, self.fused.domain, self.fused.split)
        if kind.size == 1 or where is None:
            where = Place(1, 1, False)
        key = operand if type(operand) is Variable else id(operand)
        name, _ = self.inputs.setdefault(key, (f"a{len(self.inputs)}", operand))
        at = "r"
        if where.count == 1:
            # Of a single element: LLVM would unswitch the loop on every condition on index 0.
            at = "r" if self.rows == 1 and not where.columns else ""
        elif where.repeat * where.count != self.rows or where.repeat != 1:
            at = "r" if where.repeat == 1 else f"(r // {where.repeat})"
            if where.repeat * where.count != self.rows:
                at = f"({at} % {where.count})"
        index = at or "0"
        if where.columns and not self.flat and self.columns > 1:
            index = f"{at} * {self.columns} + c" if at else "c"
        text = f"{name}[{index}]"
        return (f"({text} != 0)" if code == "b1" else text), code

    def written(self, body: Lines, joins: tuple[Join, ...]) -> Written:
        """Wrap a body into a complete kernel."""
        inputs = tuple(operand for _, operand in self.inputs.values())
        lines = [
            f"{name} = data(table, {i}, {stored(kind_of(operand).dtype)}(0))"
            for i, (name, operand) in enumerate(self.inputs.values())
        ]
        count = len(inputs)
        refuses = self.elements.refuses
        if refuses:
            wrong = self.output(Output(None, (1,), np.dtype(bool), False, 1))
            lines.append("bad = False")
            body = [*body, "if bad:", f"    {wrong}[0] = u1(1)"]
        for i, output in enumerate(self.outputs):
            lines.append(f"o{i} = data(table, {count + i}, {stored(output.dtype)}(0))")
        text = "\n".join("    " + line for line in [*lines, *body])
        source = f"{self.elements.source}def kernel(table, start, stop, thread):\n{text}\n"
        weight = self.columns * sum(map(cost, self.fused.steps))
        outputs = tuple(self.outputs)
        return Written(source, inputs, outputs, self.rows, weight, refuses, joins=joins)


class _Block:
    """Collect the statements of one loop body, in which each value is computed once."""

    def __init__(self, writer: _Writer) -> None:
        writer.loops += 1
        self.writer, self.number = writer, writer.loops
        self.lines: list[str] = []
        self.names: dict[Any, tuple[str, str]] = {}

    def value(self, operand: Any) -> tuple[str, str]:
        """Return the name and dtype of an operand's element, and append its statements."""
        writer = self.writer
        key: Any = operand if type(operand) is Variable else id(operand)
        step = writer.makers.get(operand) if type(operand) is Variable else None
        if key in self.names:
            return self.names[key]
        if step is None:
            text, code = writer.load(operand)
            if type(operand) is not Variable and kind_of(operand).size == 1:
                return text, code
        elif step.primitive in (op.RESHAPE, op.BROADCAST_TO):
            return self.value(step.operands[0])
        else:
            pairs = [self.value(o) for o in step.operands]
            texts, codes = [t for t, _ in pairs], [c for _, c in pairs]
            text = writer.elements.element(step, texts, codes, self.lines)
            code = CODES[operand.kind.dtype]
        name = f"x{len(self.names)}_{self.number}"
        self.lines.append(f"{name} = {text}")
        self.names[key] = (name, code)
        return name, code


class _Join:
    """Generate one reducing step: its lanes, and the memory of its results."""

    def __init__(self, writer: _Writer, step: Instruction) -> None:
        self.writer, self.step = writer, step
        (shape, axes), fused = join_of(step) or ((), ()), writer.fused
        self.codes = [CODES[kind_of(operand).dtype] for operand in step.operands]
        self.whole = len(axes) == len(shape)
        self.of_rows = not self.whole and axes[-1] == len(shape) - 1
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
        return Join(self.step.params["combine"], tuple(self.places))

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
        for target, name, out in zip(self.at(lane), names, self.step.outs, strict=True):
            lines.append(store(target, name, out.kind.dtype))
        return lines

    def element(self, lane: str, first: bool) -> Lines:
        """Return the statements that combine the element of row ``r``, column ``c`` with a lane."""
        block = _Block(self.writer)
        values = [block.value(operand)[0] for operand in self.step.operands]
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


def _inside(lines: Sequence[str]) -> Lines:
    return ["    " + line for line in lines]


def _full(writer: _Writer, place: str) -> Lines:
    """Return the statements that write the results with an element per index."""
    block = _Block(writer)
    lines: Lines = []
    for out in writer.fused.outs:
        if join_of(writer.makers[out]) is None:
            text, _ = block.value(out)
            lines.append(store(f"{writer.full[out]}[{place}]", text, out.kind.dtype))
    return [*block.lines, *lines]


def _outputs(writer: _Writer) -> None:
    for out in writer.fused.outs:
        if join_of(writer.makers[out]) is None:
            output = Output(out, out.kind.shape, out.kind.dtype, False, 1)
            writer.full[out] = writer.output(output)


def _flat(writer: _Writer, joins: Sequence[_Join]) -> Lines:
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


def _by_rows(writer: _Writer, joins: Sequence[_Join], long: bool) -> Lines:
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
