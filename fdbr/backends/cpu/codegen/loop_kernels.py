"""Loops over steps on small arrays as one kernel, whose iterations are a machine-code loop.

The carry is kept in the memory of its final value.  Pointers advance to the rows that an iteration
reads and writes.  The trip count and the first rows are read from an array, so loops of other
lengths use the same kernel.
"""

import math
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from fdbr.backends.cpu.codegen.element_code import cost
from fdbr.backends.cpu.codegen.formulas import CODES
from fdbr.backends.cpu.codegen.small_kernels import is_small, write_step
from fdbr.backends.cpu.codegen.small_writer import Writer
from fdbr.backends.cpu.codegen.written import Output, Written, stored
from fdbr.backends.cpu.exec.views import Look, steps_of
from fdbr.compiler.ir.loops import Loop, loop_of
from fdbr.compiler.ir.program import Instruction, Kind, Small, Variable, kind_of, unfused

__all__ = ["write_loop"]

_MOST = 400  # steps of an iteration: LLVM's compile time grows faster than their number
_LARGEST = 1024  # elements of the carry


def write_loop(step: Instruction) -> Written | None:
    """Return the kernel of a loop, or `None` if it runs in Python."""
    loop = loop_of(step)
    if loop is None:
        return None
    parts = _parts(loop)
    if parts is None or not _fits(loop, step):
        return None
    try:
        return _Kernel(step, loop, parts).written()
    except OverflowError:  # an integer that does not fit into an array
        return None


def _parts(loop: Loop) -> list[Instruction] | None:
    """Return the steps of the body, or `None` if some are not on small arrays."""
    parts: Any = unfused(loop.body.steps)
    return parts if len(parts) <= _MOST and all(map(is_small, parts)) else None


def _fits(loop: Loop, step: Instruction) -> bool:
    """Return whether kernels support the dtypes and shapes of all inputs and outputs."""
    kinds = [variable.kind for variable in loop.body.inputs]
    made = list(map(kind_of, loop.body.outputs))
    for kind in (*kinds, *made):
        if kind.dtype not in CODES or not 0 < kind.size <= _LARGEST:
            return False
        if not kind.is_number and not issubclass(kind.type, np.ndarray | np.generic):
            return False
    if any(kind.is_number for kind in made) or not all(map(_is_variable, loop.body.outputs)):
        return False
    return all(kind_of(operand).size for operand in (*step.operands, *step.outs))


def _is_variable(value: Any) -> bool:
    return type(value) is Variable


class _Kernel:
    """Generate the kernel of a loop."""

    def __init__(self, step: Instruction, loop: Loop, parts: Sequence[Instruction]) -> None:
        self.step, self.loop, self.parts = step, loop, parts
        self.writer = Writer(Small(tuple(parts), ()))
        self.heads: list[str] = []  # the statements at the start of each iteration
        self.places: list[int] = [loop.length]

    def written(self) -> Written:
        """Generate the kernel."""
        writer, loop = self.writer, self.loop
        writer.inputs["places"] = "places", None
        carries = self._inputs()
        outs = [self._output(i, out) for i, out in enumerate(self.step.outs)]
        for start, carried in zip(carries, outs, strict=False):
            writer.copy(start, carried)
        before, writer.lines = writer.lines, []
        inputs = loop.body.inputs
        for variable, carried in zip(inputs[: loop.carried], outs, strict=False):
            writer.looks[variable] = attrs.evolve(carried, shape=variable.kind.shape)
        for part in self.parts:
            write_step(writer, part)
        self._results(outs)
        scratch = []
        for code, size in writer.scratch.items():
            dtype = next(d for d, name in CODES.items() if name == code)
            writer.outputs.append(Output(None, (size,), dtype, False, 1))
            scratch.append(f"s_{code}")
        given: list[Any] = [operand for _, operand in writer.inputs.values()]
        given[0] = np.array(self.places, np.int64)
        names = [name for name, _ in writer.inputs.values()]
        names += [f"o{i}" for i in range(len(outs))] + scratch
        dtypes = [kind_of(operand).dtype for operand in given]
        dtypes += [output.dtype for output in writer.outputs]
        lines = [
            f"{name} = data(table, {i}, {stored(dtype)}(0))"
            for i, (name, dtype) in enumerate(zip(names, dtypes, strict=True))
        ]
        refuses = any(line.strip().startswith("bad |=") for line in writer.lines)
        if refuses:
            lines += [f"wrong = data(table, {len(names)}, u1(0))", "bad = False"]
            writer.outputs.append(Output(None, (1,), np.dtype(bool), False, 1))
        lines += [*before, "for turn in range(places[0]):"]
        lines += ["    " + line for line in (*self.heads, *writer.lines)] or ["    pass"]
        lines += ["wrong[0] = u1(bad)"] if refuses else []
        text = "\n".join("    " + line for line in lines)
        weight = loop.length * sum(
            cost(part) * max(kind_of(o).size for o in (*part.operands, *part.outs))
            for part in self.parts
        )
        return Written(
            f"{writer.elements.source}def kernel(table, start, stop, thread):\n{text}\n",
            tuple(given),
            tuple(writer.outputs),
            1,
            weight,
            refuses,
        )

    def _inputs(self) -> list[Look]:
        """Add the operands as inputs, and return the views of the initial carry."""
        writer, loop = self.writer, self.loop
        first, second = loop.carried, loop.carried + len(loop.rows)
        starts = []
        for i, operand in enumerate(self.step.operands[:first]):
            starts.append(self._input(f"c{i}", operand, kind_of(operand).shape))
        inputs = loop.body.inputs
        arrays = self.step.operands[first:second]
        for i, (array, place) in enumerate(zip(arrays, loop.rows, strict=True)):
            self._row(f"x{i}", array, inputs[first + i], *place)
        for i, values in enumerate(loop.data):
            variable = inputs[second + i]
            array = np.array(values, variable.kind.dtype)
            self._row(f"d{i}", array, variable, 0, 1)
        consts = inputs[second + len(loop.data) :]
        for i, (operand, variable) in enumerate(
            zip(self.step.operands[second:], consts, strict=True)
        ):
            writer.looks[variable] = self._input(f"e{i}", operand, variable.kind.shape)
        return starts

    def _input(self, name: str, operand: Any, shape: tuple[int, ...]) -> Look:
        self.writer.inputs[name] = name, operand
        return Look(name, 0, steps_of(shape), shape, CODES[kind_of(operand).dtype])

    def _row(self, name: str, array: Any, variable: Variable, start: int, step: int) -> None:
        """Read a row of an array in each iteration."""
        self._input(name, array, kind_of(array).shape)
        self.writer.looks[variable] = self._moving(name, variable.kind, start, step)

    def _moving(self, name: str, kind: Kind, start: int, step: int) -> Look:
        """Return the view of the row of an array that belongs to an iteration."""
        code, dtype = CODES[kind.dtype], stored(kind.dtype)
        index = f"places[{len(self.places)}] + turn * {step}"
        self.places.append(start)
        where = f"address({name}) + ({index}) * {kind.nbytes}"
        self.heads.append(f"{name}_now = within({name}, {where}, {dtype}(0))")
        return Look(f"{name}_now", 0, steps_of(kind.shape), kind.shape, code)

    def _output(self, i: int, out: Variable) -> Look:
        """Return the view of a result: a whole carried value, or one row of a stacked one."""
        kept = self.loop.carried + self.loop.lasts
        self.writer.outputs.append(Output(out, out.kind.shape, out.kind.dtype, False, 1))
        name, shape = f"o{i}", out.kind.shape
        if i < kept:
            return Look(name, 0, steps_of(shape), shape, CODES[out.kind.dtype])
        return self._moving(name, kind_of(self.loop.body.outputs[i]), 0, 1)

    def _results(self, outs: Sequence[Look]) -> None:
        """Emit the writes of results; the carry is last, since others may be views of it."""
        writer, carried = self.writer, self.loop.carried
        made = [writer.look(output) for output in self.loop.body.outputs]
        for source, target in list(zip(made, outs, strict=True))[carried:]:
            writer.copy(source, target)
        own = {look.memory for look in outs[:carried]}
        pairs = list(zip(made[:carried], outs, strict=False))
        sources = [
            self._aside(source) if source.memory in own and source != target else source
            for source, target in pairs
        ]
        for source, (_, target) in zip(sources, pairs, strict=True):
            if source != target:
                writer.copy(source, target)

    def _aside(self, source: Look) -> Look:
        """Copy a value that is about to be overwritten."""
        code, size = source.code, math.prod(source.shape)
        start = self.writer.scratch.get(code, 0)
        self.writer.scratch[code] = start + size
        copy = Look(f"s_{code}", start, steps_of(source.shape), source.shape, code)
        self.writer.copy(source, copy)
        return copy
