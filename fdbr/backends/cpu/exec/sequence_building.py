"""The records of sequences: the kernels of a program's steps, and the memory of values.

Values in a sequence are strided views of memory whose layout is known at compile time.  So slices,
permutations and most reshapes cost nothing, and the addresses of kernels' operands are written to
tables beforehand.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from fdbr.backends.cpu.codegen.formulas import CODES
from fdbr.backends.cpu.codegen.nest_kernels import write_nest
from fdbr.backends.cpu.codegen.small_kernels import is_plain_loop, write_small
from fdbr.backends.cpu.codegen.written import Output, Written
from fdbr.backends.cpu.exec.native_copies import copied, filled, ordered_look
from fdbr.backends.cpu.exec.sequence import Advance, Aim, Call, Check, Iterations, Record, Slot
from fdbr.backends.cpu.exec.sequencing import Natives, data_inputs, is_look, reduction
from fdbr.backends.cpu.exec.views import Look, looked, sliced
from fdbr.backends.cpu.library.matmul.blas import is_blas_product, product_call
from fdbr.backends.cpu.library.matmul.small import write_product
from fdbr.compiler.ir import op
from fdbr.compiler.ir.loops import Loop, loop_of
from fdbr.compiler.ir.program import (
    Guard,
    Instruction,
    Kind,
    Small,
    Step,
    Variable,
    is_variable,
    kind_of,
)
from fdbr.compiler.ir.subarrays import placed

__all__ = ["Builder", "Built"]

_SOON = 1e-6  # a fraction of a step, to order events within it
_COPIES = op.JOINS | op.EMBEDDINGS


@attrs.define(eq=False)
class Built:
    """The records of a sequence.

    Attributes
    ----------
    records
        The records, in order.
    joined
        For records that copy an operand into a concatenation, the operand and the result: they are
        dropped if the operand is computed there.
    """

    records: list[Record] = attrs.field(factory=list)
    joined: dict[int, tuple[Variable, Variable]] = attrs.field(factory=dict)

    def leave_out(self, inside: Mapping[Variable, Variable]) -> None:
        """Drop the copies of operands that are computed inside the concatenation."""
        self.records[:] = [
            record
            for number, record in enumerate(self.records)
            if number not in self.joined
            or inside.get(self.joined[number][0]) is not self.joined[number][1]
        ]
        self.joined.clear()

    def roots(self) -> dict[int, Any]:
        """Return the values in whose memory the records work."""
        return {id(slot.root): slot.root for record in self.records for slot in record.slots}


class Builder:
    """Builds the sequences of a program.

    Attributes
    ----------
    looks
        For values that are views, the value that owns the memory, and the view.
    scratch
        Scratch memory, with the first and last step that needs it.
    own
        The values that have memory of their own.
    early
        Values whose memory is needed before the step that defines them: the results of loops.
    moving
        Rows that iterations of loops read and write, whose address changes in each.
    """

    def __init__(self, natives: Natives) -> None:
        self.natives = natives
        self.looks: dict[Variable, tuple[Any, Look]] = {}
        self.scratch: dict[Variable, list[float]] = {}
        self.own: set[Variable] = set()
        self.early: dict[Variable, float] = {}
        self.moving: set[Variable] = set()
        self._loops: tuple[Loop, ...] = ()
        self._copies: dict[Any, Slot] = {}
        self._constants: dict[int, tuple[Any, Any]] = {}
        self._position: float = 0
        self._built = Built()
        self._apart: float = 1

    def build(self, steps: Sequence[Step], first: int) -> Built:
        """Return the records of steps; ``first`` is the first one's position in the program."""
        self._built = Built()
        for position, step in enumerate(steps, first):
            self._position = position
            self._add(step)
        return self._built

    def slot(self, operand: Any) -> Slot:
        """Return the slot of an operand."""
        kind = kind_of(operand)
        if type(operand) is not Variable:
            if id(operand) not in self._constants:
                array = np.ascontiguousarray(np.asarray(operand, kind.dtype))
                self._constants[id(operand)] = operand, array.reshape(kind.shape)
            array = self._constants[id(operand)][1]
            return Slot(array, ordered_look(kind.shape), kind.dtype)
        root, look = self.looks.get(operand, (operand, None))
        if is_variable(root) and root in self.scratch:
            self.scratch[root][1] = self._position
        return Slot(root, look or ordered_look(kind.shape), kind.dtype)

    def in_order(self, slot: Slot) -> Slot:
        """Return a slot with contiguous elements, copied if need be."""
        if slot.look.is_ordered():
            return slot
        found = self._copies.get(slot.key)
        if found is None:
            found = self._copies[slot.key] = self.room(slot.look.shape, slot.dtype)
            self._built.records.append(copied(slot, found))
        self.scratch[found.root][1] = self._position
        return found

    def room(self, shape: tuple[int, ...], dtype: Any) -> Slot:
        """Return a slot of scratch memory for this step."""
        variable = Variable(Kind(np.ndarray, shape, dtype))
        self.scratch[variable] = [self._position, self._position]
        return Slot(variable, ordered_look(shape), dtype)

    def _add(self, step: Step) -> None:
        records = self._built.records
        if isinstance(step, Guard):
            records.append(Check(step, self.slot(step.operand), self._loops))
            return
        if is_look(step):
            assert isinstance(step, Instruction)
            self._look(step)
            return
        if isinstance(step, Small):
            self._written(write_small(step, self._lying), lying=True)
        elif (form := self.natives.form(step)) is not None:
            self._written(form)
        else:
            assert isinstance(step, Instruction)
            loop = loop_of(step)
            if loop is None:
                self._single(step)
            else:
                self._loop(step, loop)

    def _loop(self, step: Instruction, loop: Loop) -> None:
        """Add the records of a loop, which carries its state in the memory of its final values."""
        end = self._position
        start = end - 1 if not self._loops else end - self._apart
        records, known = self._built.records, set(self.scratch)
        outs = []
        for out in step.outs:
            self._mine(out, start)
            outs.append(self.slot(out))
        first, second = loop.carried, loop.carried + len(loop.rows)
        inputs, kept = loop.body.inputs, loop.carried + loop.lasts
        for operand, variable, slot in zip(step.operands[:first], inputs, outs, strict=False):
            records.append(copied(self.slot(operand), slot))
            self.looks[variable] = slot.root, slot.look
        rows: dict[Variable, tuple[Slot, int, int]] = {}
        for operand, variable, place in zip(
            step.operands[first:second], inputs[first:second], loop.rows, strict=True
        ):
            self._row(variable, self.slot(operand), place, rows)
        for values, variable in zip(loop.data, data_inputs(loop), strict=True):
            array = np.ascontiguousarray(np.array(list(values), variable.kind.dtype))
            slot = Slot(array, ordered_look(array.shape), array.dtype)
            self._row(variable, slot, (0, 1), rows)
        for operand, variable in zip(
            step.operands[second:], inputs[second + len(loop.data) :], strict=True
        ):
            slot = self.slot(operand)
            self.looks[variable] = slot.root, slot.look
        targets = []
        for stack in outs[kept:]:
            target = Variable(Kind(np.ndarray, stack.look.shape[1:], stack.dtype))
            self._row(target, stack, (0, 1), rows)
            targets.append(self.slot(target))
        beginning = len(records)
        self._body(loop, start, end)
        self._position = end
        self._turned(loop, [*outs[:kept], *targets])
        moving = {
            slot.key: slot
            for record in records[beginning:]
            for slot in record.slots
            if is_variable(slot.root) and slot.root in rows
        }
        aims: list[Record] = []
        for slot in moving.values():
            base, first_row, apart = rows[slot.root]
            size = slot.dtype.itemsize
            aims.append(Aim(slot, base, (first_row + slot.look.start) * size))
            records.append(Advance(slot, apart * size))
        if len(records) > beginning:
            back = len(records) - beginning
            records[beginning:beginning] = [*aims, Iterations(loop)]
            records.append(Iterations(loop, back))
        for variable in known:
            if self.scratch[variable][1] > start:
                self.scratch[variable][1] = end

    def _mine(self, out: Variable, start: float) -> None:
        """Give a loop's result memory of its own from the beginning of the loop."""
        if self._loops:
            self.scratch[out] = [start, self._position]
        else:
            self.own.add(out)
            self.early[out] = start + _SOON

    def _row(
        self,
        variable: Variable,
        array: Slot,
        place: tuple[int, int],
        rows: dict[Variable, tuple[Slot, int, int]],
    ) -> None:
        """Make a value a row of an array that starts at one row and advances in each iteration."""
        strides, shape = array.look.strides, array.look.shape
        root = Variable(variable.kind)
        self.moving.add(root)
        rows[root] = array, place[0] * strides[0], place[1] * strides[0]
        self.looks[variable] = root, Look("", 0, strides[1:], shape[1:], "")

    def _body(self, loop: Loop, start: float, end: float) -> None:
        """Add the records of one iteration, at fractional positions before that of the loop."""
        outer, apart, copies = self._loops, self._apart, dict(self._copies)
        self._loops = (loop, *outer)
        self._apart = (end - start) / (len(loop.body.steps) + 2)
        before = set(self.own)
        for number, step in enumerate(loop.body.steps, 1):
            self._position = start + number * self._apart
            self._add(step)
            for out in self.own - before:
                self.own.discard(out)
                self.scratch[out] = [self._position, self._position]
        self._loops, self._apart = outer, apart
        self._copies = copies  # copies in the body are valid in one iteration only

    def _turned(self, loop: Loop, targets: Sequence[Slot]) -> None:
        """End an iteration: copy its results to their targets, the carried ones last."""
        records = self._built.records
        sources = [self.slot(output) for output in loop.body.outputs]
        carried = {target.root for target in targets[: loop.carried]}
        for source, target in list(zip(sources, targets, strict=True))[loop.carried :]:
            records.append(copied(source, target))
        pairs = list(zip(sources, targets, strict=True))[: loop.carried]
        pairs = [(source, target) for source, target in pairs if source.key != target.key]
        for i, (source, target) in enumerate(pairs):
            if is_variable(source.root) and source.root in carried:
                aside = self.room(source.look.shape, source.dtype)
                records.append(copied(source, aside))
                pairs[i] = aside, target
        records.extend(copied(source, target) for source, target in pairs)

    def _look(self, step: Instruction) -> None:
        slot, out = self.slot(step.operands[0]), step.outs[0]
        look = looked(slot.look, step)
        if look is not None:
            self.looks[out] = slot.root, look
            return
        self.own.add(out)
        target = Slot(out, ordered_look(slot.look.shape), slot.dtype)
        self._built.records.append(copied(slot, target))

    def _single(self, step: Instruction) -> None:
        records, out = self._built.records, step.outs[0]
        target = self.slot(out)
        self.own.add(out)
        if self.natives.is_small_product(step):
            self._product(step)
        elif is_blas_product(step):
            a, b = map(self.slot, step.operands)
            records.append(product_call(step, a, b, target, self.in_order))
        elif step.primitive in _COPIES:
            self._copy(step, target)
        elif not is_plain_loop(step):
            fused = reduction(step)
            assert fused is not None
            self._written(write_nest(fused, (), self.natives.gapped))
        else:
            alone = Small((step,), (out,))
            self._written(write_small(alone, self._lying), lying=True)

    def _copy(self, step: Instruction, target: Slot) -> None:
        records = self._built.records
        if step.primitive in op.EMBEDDINGS:
            records.append(filled(target))
        for operand, key in placed(step):
            if step.primitive in op.JOINS and type(operand) is Variable:
                self._built.joined[len(records)] = operand, step.outs[0]
            part = attrs.evolve(target, look=sliced(target.look, key))
            records.append(copied(self.slot(operand), part))

    def _product(self, step: Instruction) -> None:
        """Add a matrix product; a transposed matrix is copied once if all batches share it."""
        a, b = map(self.slot, step.operands)
        out = step.outs[0]
        once = len(out.kind.shape) == 2
        turned = step.primitive is op.MATMUL_TRANSPOSED
        if turned and once:
            strides, shape = b.look.strides[::-1], b.look.shape[::-1]
            b = self.in_order(
                attrs.evolve(b, look=attrs.evolve(b.look, strides=strides, shape=shape))
            )
        written = write_product(step, once)
        along = b.look.strides[-2 if turned and not once else -1]
        scratch = b if along == 1 else self.room(written.outputs[1].shape, out.kind.dtype)
        slots = a, b, self.slot(out), scratch
        weight = written.rows * written.weight
        record = Call(written.source, slots, written.rows, weight=weight)
        self._built.records.append(record)

    def _lying(self, variable: Variable) -> Look | None:
        found = self.looks.get(variable)
        return None if found is None else found[1]

    def _written(self, written: Written, lying: bool = False) -> None:
        """Add the call of a kernel, and of the division that completes a mean."""
        slots = []
        for i, operand in enumerate(written.inputs):
            slot = self.slot(operand)
            free = i in written.strided or (i in written.pitched and slot.look.is_gapped())
            slots.append(slot if lying or free else self.in_order(slot))
        ends = []
        for output in written.outputs:
            if output.over is not None:
                slot = slots[written.inputs.index(output.over)]
                self.looks[output.variable] = slot.root, slot.look  # type: ignore[index]
                continue
            slots.append(self._target(output))
            if output.divisor != 1:
                ends.append(_division(slots[-1], output.divisor))
        weight = written.rows * written.weight
        call = Call(written.source, tuple(slots), written.rows, written.refuses, weight)
        self._built.records += [call, *ends]

    def _target(self, output: Output) -> Slot:
        if output.variable is None:
            return self.room(output.shape, np.dtype(output.dtype))
        self.own.add(output.variable)
        return Slot(output.variable, ordered_look(output.shape), np.dtype(output.dtype))


_DIVIDE = """
def kernel(table, start, stop, thread):
    out, by = data(table, 0, {code}(0)), data(table, 1, {code}(0))
    for i in range(start, stop):
        out[i] = out[i] / by[0]
"""


def _division(slot: Slot, divisor: int) -> Call:
    """Return the call that divides a sum to get a mean."""
    number = np.array([divisor], slot.dtype)
    by = Slot(number, ordered_look((1,)), slot.dtype)
    size = int(np.prod(slot.look.shape, dtype=int))

    source = _DIVIDE.format(code=CODES[slot.dtype])
    return Call(source, (slot, by), size, weight=8 * size)
