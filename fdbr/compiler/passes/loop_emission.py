"""Emission of a program in which repeated steps are loops."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from fdbr.compiler.ir import op
from fdbr.compiler.ir.loops import LOOP, PARTS, ROW, Loop, stack_kind
from fdbr.compiler.ir.program import Instruction, Kind, Program, Step, Variable, kind_of
from fdbr.compiler.passes.loop_bodies import Body, body_of
from fdbr.compiler.passes.loop_dataflow import Iterations
from fdbr.compiler.passes.rules.views import full_key, view_of
from fdbr.compiler.passes.sequences import Run, runs
from fdbr.compiler.passes.steps import renamed
from fdbr.core.primitive import Primitive

__all__ = ["Emission", "Rolled"]

_JOINED = 4  # operands of a concatenation from which on it may be taken from a loop's results
_FEW = 8  # results of single iterations that may be read without making the loop too costly


class Rolled:
    """An emitted loop, and the results that are read.

    Attributes
    ----------
    found, turns
        The iterations that were found, and those that are in the loop.
    taken
        The number of single values that are read from its stacked results.
    """

    def __init__(self, found: Iterations, body: Body) -> None:
        self.found, self.iterations, self.body = found, body.iterations, body
        self.taken = 0
        self._carry = [Variable(kind) for kind in body.carried]
        self._lasts: dict[tuple[int, int], Variable] = {}
        self._stacks: dict[tuple[int, int], Variable] = {}

    def final(self, number: int, result: int) -> Variable:
        """Return a step's result in the last iteration."""
        place = number, result
        if place in self.body.nexts:
            return self._carry[self.body.nexts.index(place)]
        if place not in self._lasts:
            self._lasts[place] = Variable(self.body.made(place).kind)
        return self._lasts[place]

    def stack(self, number: int, result: int) -> Variable:
        """Return a step's results in all iterations, stacked."""
        place = number, result
        if place not in self._stacks:
            kind = self.body.made(place).kind
            self._stacks[place] = Variable(stack_kind(kind, self.iterations.count))
        return self._stacks[place]

    def step(self, roll: Callable[[Program], Program]) -> Instruction:
        """Return the loop as a step of the program."""
        body = self.body
        outputs = [*body.outputs, *map(body.made, self._lasts), *map(body.made, self._stacks)]
        program = Program("iteration", tuple(body.inputs), tuple(body.steps), tuple(outputs))
        loop = Loop(
            roll(program),
            self.iterations.count,
            len(self._carry),
            len(self._lasts),
            tuple(body.rows),
            tuple(body.data),
            *body.guards,
        )
        outs = (*self._carry, *self._lasts.values(), *self._stacks.values())
        return Instruction(LOOP, tuple(body.operands), {"loop": loop}, outs, True, body.remat)


class Emission:
    """Builds the new program.

    Parameters
    ----------
    program
        The program.
    found
        The loops in it, in order.
    """

    def __init__(self, program: Program, found: Sequence[Iterations]) -> None:
        self.old = program
        self.steps: Sequence[Step] = program.steps
        self.made: dict[Variable, tuple[int, int]] = {}
        self.readers: dict[Variable, list[int]] = {}
        for position, step in enumerate(self.steps):
            for variable in step.reads:
                self.readers.setdefault(variable, []).append(position)
            for number, out in enumerate(step.outs):
                self.made[out] = position, number
        for output in program.outputs:
            if type(output) is Variable:
                self.readers.setdefault(output, []).append(len(self.steps))
        self._found = found
        self._owners: dict[int, Rolled] = {}
        self._rolled: list[Rolled] = []
        self._names: dict[Variable, Any] = {}
        self._lines: list[Any] = []

    def program(self, roll: Callable[[Program], Program]) -> Program:
        """Return the new program; ``roll`` finds the loops in the bodies of loops."""
        position = 0
        for iterations in self._found:
            self._plain(position, iterations.start)
            body = body_of(self, iterations)
            if body is None:
                self._plain(iterations.start, iterations.stop)
            else:
                self._plain(iterations.start, body.iterations.start)
                self._loop(Rolled(iterations, body))
                self._plain(body.iterations.stop, iterations.stop)
            position = iterations.stop
        self._plain(position, len(self.steps))
        outputs = [self.value(output) for output in self.old.outputs]
        lines = [line.step(roll) if type(line) is Rolled else line for line in self._lines]
        return self.old.replace(lines, outputs)

    def costly(self) -> Iterable[Iterations]:
        """Yield the loops that do not pay, because single iterations' results are read."""
        for rolled in self._rolled:
            iterations = rolled.iterations
            if rolled.taken > max(_FEW, iterations.count * iterations.period // 4):
                yield rolled.found

    # --- steps ---------------------------------------------------------------------

    def _loop(self, rolled: Rolled) -> None:
        self._rolled.append(rolled)
        self._lines.append(rolled)
        iterations = rolled.iterations
        self._owners.update(dict.fromkeys(range(iterations.start, iterations.stop), rolled))
        for total in rolled.body.sums:
            self._names[total.total] = total.emit(self, rolled)

    def _plain(self, start: int, stop: int) -> None:
        for step in self.steps[start:stop]:
            if _joins(step) and self._joined(step):
                continue
            names = {v: self.value(v) for v in step.reads}
            self._lines.append(renamed(step, {v: n for v, n in names.items() if n is not v}))

    def emit(self, primitive: Primitive, *operands: Any, kind: Kind, **params: Any) -> Variable:
        """Emit a step, and return its result."""
        out = Variable(kind)
        self._lines.append(Instruction(primitive, operands, params, (out,)))
        return out

    # --- values --------------------------------------------------------------------

    def value(self, operand: Any) -> Any:
        """Return the value in the new program for one of the old program."""
        if type(operand) is not Variable:
            return operand
        if operand in self._names:
            return self._names[operand]
        position, result = self.made.get(operand, (-1, 0))
        rolled = self._owners.get(position)
        if rolled is None:
            return operand
        number, iteration = rolled.body.place(position)
        if number in rolled.body.taken_out:  # the loop reads a row instead, so slice again
            step: Any = self.steps[position]
            sources = map(self.value, step.operands)
            new = self.emit(step.primitive, *sources, kind=operand.kind, **step.params)
        elif iteration == rolled.iterations.count - 1:
            new = rolled.final(number, result)
        else:
            new = self._row(rolled.stack(number, result), iteration, operand.kind)
        rolled.taken += iteration < rolled.iterations.count - 1
        self._names[operand] = new
        return new

    def _row(self, stack: Variable, index: int, kind: Kind) -> Variable:
        if kind.is_array and kind.shape:
            return self.emit(op.SLICE, stack, kind=kind, key=index)
        return self.emit(ROW, stack, kind=kind, index=index, form=kind)

    # --- sequences of values -------------------------------------------------------

    def label(self, operand: Any) -> Any:
        """Return the array or loop that a value is taken from, and its index: see `runs`."""
        if type(operand) is not Variable:
            return None
        position, result = self.made.get(operand, (-1, 0))
        if position < 0:
            return None
        step: Any = self.steps[position]
        if type(step) is Instruction and step.primitive is op.SLICE:
            (source,) = step.operands
            if type(source) is not Variable:
                return None
            view = view_of(kind_of(source).shape, step.params["key"])
            if view is not None and not self._is_of_one_iteration(source):
                return (source, view.form), np.array(view.first)
        rolled = self._owners.get(position)
        if rolled is None or operand in self._names:
            return None
        number, iteration = rolled.body.place(position)
        return (rolled, number, result), np.array([iteration])

    def _is_of_one_iteration(self, source: Any) -> bool:
        if type(source) is not Variable or source in self._names:
            return False
        position, _ = self.made.get(source, (-1, 0))
        rolled = self._owners.get(position)
        if rolled is None:
            return False
        number, iteration = rolled.body.place(position)
        return number not in rolled.body.taken_out and iteration != rolled.iterations.count - 1

    def stacked(self, run: Run, operands: Sequence[Any]) -> tuple[Any, int, int]:
        """Return an array that contains the values of a run, the first row, and the step."""
        first = operands[run.start]
        position, result = self.made[first]
        if type(run.key[0]) is Rolled:
            rolled, number, result = run.key
            return rolled.stack(number, result), int(run.first[0]), int(run.step[0])
        step: Any = self.steps[position]
        key = full_key(kind_of(step.operands[0]).shape, step.params["key"])
        kind = stack_kind(first.kind, run.count)
        source = self.value(step.operands[0])
        steps = tuple(run.step.tolist())
        out = self.emit(PARTS, source, kind=kind, key=key, steps=steps, count=run.count)
        return out, 0, 1

    def whole(self, run: Run, operands: Sequence[Any]) -> Any:
        """Return an array of exactly the values of a run, along its first axis."""
        array, start, step = self.stacked(run, operands)
        length = array.kind.shape[0]
        if (start, step, run.count) == (0, 1, length):
            return array
        stop = start + step * run.count
        key = slice(start, stop if stop >= 0 else None, step)
        kind = stack_kind(kind_of(operands[run.start]), run.count)
        return self.emit(op.SLICE, array, kind=kind, key=key)

    def gathered(self, operands: Sequence[Any]) -> Any:
        """Return an array of values along its first axis, whatever they are taken from."""
        parts: list[Any] = []
        place = 0
        kind = kind_of(operands[0])
        for run in (*runs(self.label, operands), None):
            stop = len(operands) if run is None else run.start
            if stop > place:
                alone = [self.value(operand) for operand in operands[place:stop]]
                stacked = stack_kind(kind, len(alone))
                parts.append(self.emit(op.STACK, *alone, kind=stacked, axis=0))
            if run is not None:
                parts.append(self.whole(run, operands))
                place = run.stop
        if len(parts) == 1:
            return parts[0]
        return self.emit(op.CONCAT, *parts, kind=stack_kind(kind, len(operands)), axis=0)

    def _joined(self, step: Any) -> bool:
        """Emit a concatenation of loops' results as operations on their stacks, if it is one."""
        found = list(runs(self.label, step.operands))
        kinds = set(map(kind_of, step.operands))
        (out,) = step.outs
        if not found or len(kinds) > 1 or next(iter(kinds)).dtype != out.kind.dtype:
            return False
        shape = next(iter(kinds)).shape
        axis = step.params["axis"]
        whole = self.gathered(step.operands)
        order = [*range(1, axis + 1), 0, *range(axis + 1, len(shape) + 1)]
        if axis:
            turned = tuple(whole.kind.shape[i] for i in order)
            kind = out.kind.array(turned)
            whole = self.emit(op.PERMUTE, whole, kind=kind, axes=tuple(order))
        if step.primitive is op.CONCAT:
            whole = self.emit(op.RESHAPE, whole, kind=out.kind, to=out.kind.shape)
        self._names[out] = whole
        return True


def _joins(step: Any) -> bool:
    """Return whether a step concatenates so many values that some may come from loops."""
    join = type(step) is Instruction and step.primitive in (op.STACK, op.CONCAT)
    return join and len(step.operands) >= _JOINED
