"""Which steps of a program run in sequences, and the kernels that do them.

A value in a sequence is memory, and how it lies there is known when the program is compiled: so
slices, permutations and most changes of shape are nothing at all, and kernels find their operands
at addresses that are written down before.
"""

from collections.abc import Container, Sequence
from typing import Any

import attrs
import numpy as np

from fdbr.compiler.backends.cpu.blas import is_blas_product, product_call
from fdbr.compiler.backends.cpu.element_code import cost
from fdbr.compiler.backends.cpu.formulas import CODES
from fdbr.compiler.backends.cpu.fused_kernels import write
from fdbr.compiler.backends.cpu.kernel import by_numpy
from fdbr.compiler.backends.cpu.looks import LOOKS, Look, looked, sliced
from fdbr.compiler.backends.cpu.native_copies import copied, filled, ordered_look
from fdbr.compiler.backends.cpu.native_forms import native_form, parts_of
from fdbr.compiler.backends.cpu.sequence import Advance, Aim, Call, Check, Record, Slot, Turns
from fdbr.compiler.backends.cpu.small_forms import pad_key
from fdbr.compiler.backends.cpu.small_kernels import is_plain_loop, loop_weight, write_small
from fdbr.compiler.backends.cpu.small_matmuls import is_small_product, write_product
from fdbr.compiler.backends.cpu.written import Output, Written
from fdbr.compiler.ir.loops import Loop, is_guarded, loop_of
from fdbr.compiler.ir.program import (
    Fused,
    Guard,
    Instruction,
    Kind,
    Program,
    Small,
    Step,
    Variable,
    has_effect,
    is_variable,
    kind_of,
)
from fdbr.compiler.passes.loop_fusion import reduction_of
from fdbr.compiler.passes.rules.views import view_of

__all__ = ["Built", "Natives", "Run", "gathered"]

WORTH = 500_000  # additions from which on more threads than one pay
_LONG = 50_000_000  # additions of a sequence, after which Python has a turn
_SOON = 1e-6  # of a step
_FEW = 3  # simple steps that Python does as fast
_COPIES = frozenset({"unslice", "pad_zeros", "concat", "stack"})
_ASKED: dict[Any, str] = {bool: "b", int: "i", float: "f"}


@attrs.frozen(eq=False)
class Run:
    """Steps that follow one another and that one sequence does.

    Attributes
    ----------
    roots
        The values in whose memory it works.
    """

    steps: tuple[Step, ...]
    roots: list[Variable] = attrs.field(factory=list)

    @property
    def reads(self) -> list[Variable]:
        """What steps read."""
        return [*self.roots, *(v for step in self.steps for v in step.reads)]

    @property
    def outs(self) -> list[Variable]:
        """What they make."""
        return [v for step in self.steps for v in step.outs]


class Natives:
    """What is known of a program's steps before memory is planned.

    Parameters
    ----------
    products
        Whether kernels may do what no pass has put in one, products above all.
    passed_on
        The results that are read soon after they are made.
    """

    def __init__(
        self, program: Program, products: bool, own: bool, passed_on: Container[Variable]
    ) -> None:
        self.products = products
        self.own = own
        self.passed_on = passed_on
        self.uses: dict[Any, int] = {}
        self._forms: dict[Step, Written | None] = {}
        self._loops: dict[Loop, bool] = {}
        for step in program.steps:
            for variable in step.reads:
                self.uses[variable] = self.uses.get(variable, 0) + 1

    def form(self, step: Step) -> Written | None:
        """The kernel of a step; `None` if it has none."""
        if step not in self._forms:
            self._forms[step] = native_form(step, self.passed_on)
        return self._forms[step]

    def is_native(self, step: Step, made: Container[Variable]) -> bool:
        """Whether a step can be part of a sequence that has made some values already."""
        if isinstance(step, Guard):
            return _is_check(step, made)
        if isinstance(step, Fused):
            rows = int(np.prod(step.domain[: step.split], dtype=int))
            columns = int(np.prod(step.domain[step.split :], dtype=int))
            return rows == 1 or rows * columns * sum(map(cost, step.steps)) < WORTH
        if isinstance(step, Small):
            return True
        if has_effect(step):
            return False
        loop = loop_of(step)
        if loop is not None and self.form(step) is None:
            return self._is_native_loop(step, loop)
        if (form := self.form(step)) is not None:
            return form.rows == 1 or form.rows * form.weight < WORTH
        if is_look(step):
            return True
        return self.products and self._is_simple(step)

    def _is_native_loop(self, step: Instruction, loop: Loop) -> bool:
        """Whether machine code runs all of a loop's turns."""
        if loop not in self._loops:
            kinds = [kind_of(value) for value in (*step.operands, *step.outs)]
            kinds += [kind_of(value) for value in (*loop.body.inputs, *loop.body.outputs)]
            made: set[Variable] = set()
            same = zip(step.operands, loop.body.inputs[: loop.carried], step.outs, strict=False)
            found = not loop.is_open  # a sequence has as many turns as were recorded
            found = found and all(len({kind_of(x).dtype for x in three}) == 1 for three in same)
            found = found and all(kind.dtype in CODES and kind.size for kind in kinds)
            found = found and all(map(_is_plain_data, loop.data, _data_inputs(loop)))
            for inner in loop.body.steps if found else ():
                if not self.is_native(inner, made):
                    found = False
                    break
                made.update(inner.outs)
            self._loops[loop] = found
        return self._loops[loop]

    def _is_simple(self, step: Instruction) -> bool:
        """Whether a step that no pass has put in a kernel can have one to itself."""
        if self.is_small_product(step):
            weight = write_product(step).weight * write_product(step).rows
            return weight < 8 * WORTH
        if not self.own and is_blas_product(step):
            return True
        if loop_weight((step,)) >= WORTH:
            return False
        return is_plain_loop(step) or reduction(step) is not None

    def is_small_product(self, step: Step) -> bool:
        """Whether a kernel does a product."""
        if not isinstance(step, Instruction) or not self.products:
            return False
        if step.primitive.name not in ("matmul", "matmul_transposed"):
            return False
        kinds = [kind_of(operand) for operand in (*step.operands, *step.outs)]
        same = all(kind.is_array and kind.dtype == kinds[-1].dtype for kind in kinds)
        if not same or min(len(kind.shape) for kind in kinds) < 2:
            return False
        second = step.operands[1]
        return is_small_product(step, self.uses.get(second, 0) if is_variable(second) else 1)


def reduction(step: Instruction) -> Fused | None:
    """A reduction over the first axes, the last ones or all, as a kernel; `None` for others."""
    found = reduction_of(step)
    if found is None or len(step.outs) != 1 or not is_numpy_array(step.operands[0]):
        return None
    (name, axes), domain = found, step.operands[0].kind.shape
    rank = len(domain)
    if step.outs[0].kind.is_number or not rank:
        return None
    if axes == tuple(range(rank - len(axes), rank)) and len(axes) < rank:
        return Fused((step,), domain, rank - len(axes), step.outs)
    if axes == tuple(range(len(axes))) and name in ("sum", "mean") and axes:
        return Fused((step,), domain, len(axes), step.outs)
    return None


def is_numpy_array(operand: Any) -> bool:
    """Whether an operand is a variable that is one of NumPy's arrays."""
    return is_variable(operand) and operand.kind.is_array


def _data_inputs(loop: Loop) -> Sequence[Variable]:
    first = loop.carried + len(loop.rows)
    return loop.body.inputs[first : first + len(loop.data)]


def _is_plain_data(values: Sequence[Any], variable: Variable) -> bool:
    """Whether the values of the turns are numbers, or arrays of numbers, of one kind."""
    try:
        array = np.array(list(values), variable.kind.dtype)
    except (TypeError, ValueError, OverflowError):
        return False
    return array.shape == (len(values), *variable.kind.shape)


def is_look(step: Step) -> bool:
    """Whether a step gives its operand, looked at in another way."""
    if not isinstance(step, Instruction) or step.primitive.name not in LOOKS:
        return False
    operand, out = step.operands[0], step.outs[0]
    if type(operand) is not Variable or not operand.kind.is_array or not out.kind.size:
        return False
    if (
        out.kind.is_number
        or operand.kind.dtype not in CODES
        or operand.kind.dtype != out.kind.dtype
    ):
        return False
    if step.primitive.name != "slice":
        return True
    return view_of(operand.kind.shape, step.params["key"]) is not None


def _is_check(guard: Guard, made: Container[Variable]) -> bool:
    asked, operand = _ASKED.get(guard.question), guard.operand
    if asked is None or type(operand) is not Variable or operand not in made:
        return False
    kind = operand.kind
    return not kind.is_number and kind.size == 1 and kind.dtype.kind == asked


def gathered(program: Program, natives: Natives) -> list[Step | Run]:
    """The steps of a program, as many as can be in sequences.

    What Python does comes before a sequence unless it reads what that makes.
    """
    found: list[Step | Run] = []
    waiting: list[Step] = []
    made: set[Variable] = set()
    weight, guarded, begun = 0, False, False

    def flush() -> None:
        nonlocal weight, guarded
        found.extend([Run(tuple(waiting))] if _pays(waiting, natives) else waiting)
        waiting.clear()
        made.clear()
        weight, guarded = 0, False

    for step in program.steps:
        native = natives.is_native(step, made)
        if isinstance(step, Fused) and step.over and not begun:
            flush()
            begun = True
        if native:
            if weight > _LONG:
                flush()
            waiting.append(step)
            made.update(step.outs)
            guarded |= is_guarded(step)
            weight += _weight(step)
            continue
        ends = guarded or begun or is_guarded(step) or has_effect(step)
        if ends or not made.isdisjoint(step.reads):
            flush()
        found.append(step)
    flush()
    return found


def _weight(step: Step) -> int:
    if isinstance(step, Guard) or is_look(step):
        return 0
    loop = loop_of(step)
    if loop is not None:
        return loop.length * sum(map(_weight, loop.body.steps))
    return loop_weight(parts_of(step))


def _pays(steps: Sequence[Step], natives: Natives) -> bool:
    """Whether a sequence is faster than Python."""
    real = [step for step in steps if not is_look(step) and not isinstance(step, Guard)]
    return len(real) >= _FEW or any(
        isinstance(step, Fused | Small) or loop_of(step) or natives.form(step) is not None
        for step in real
    )


@attrs.define(eq=False)
class Built:
    """The records of a sequence.

    Attributes
    ----------
    records
        What is done.
    joined
        For those that copy a part of what is joined to its place, the part and the whole: if the
        part lies there already, they are left out.
    """

    records: list[Record] = attrs.field(factory=list)
    joined: dict[int, tuple[Variable, Variable]] = attrs.field(factory=dict)

    def roots(self) -> dict[int, Any]:
        """The values in whose memory it works."""
        return {id(slot.root): slot.root for record in self.records for slot in record.slots}


class Builder:
    """Sequences in the making, for all of a program.

    Attributes
    ----------
    looks
        For values that lie in the memory of others, of which, and how.
    scratch
        For memory that the program knows nothing of, the first step that needs it and the last.
    own
        The values that have memory of their own.
    early
        Those that need it before the step that makes them: the results of loops.
    moving
        The rows that the turns of loops read and write, each another one.
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
        """The records of steps, of which the first has a position in the program."""
        self._built = Built()
        for position, step in enumerate(steps, first):
            self._position = position
            self._add(step)
        return self._built

    def slot(self, operand: Any) -> Slot:
        """Where an operand is."""
        kind = kind_of(operand)
        if type(operand) is not Variable:
            if id(operand) not in self._constants:
                array = np.ascontiguousarray(np.asarray(operand, kind.dtype))
                self._constants[id(operand)] = operand, array.reshape(kind.shape)
            array = self._constants[id(operand)][1]
            return Slot(array, ordered_look(kind.shape), kind.dtype)
        root, look = self.looks.get(operand, (operand, None))
        if root in self.scratch:
            self.scratch[root][1] = self._position
        return Slot(root, look or ordered_look(kind.shape), kind.dtype)

    def in_order(self, slot: Slot) -> Slot:
        """Elements in their order: a copy, if they lie in another one."""
        if slot.look.is_ordered():
            return slot
        found = self._copies.get(slot.key)
        if found is None:
            found = self._copies[slot.key] = self.room(slot.look.shape, slot.dtype)
            self._built.records.append(copied(slot, found))
        self.scratch[found.root][1] = self._position
        return found

    def room(self, shape: tuple[int, ...], dtype: Any) -> Slot:
        """Memory that this step needs."""
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
        form = self.natives.form(step)
        if isinstance(step, Small):
            self._written(step, write_small(step, self._lying), lying=True)
        elif form is not None:
            self._written(step, form)
        else:
            assert isinstance(step, Instruction)
            loop = loop_of(step)
            if loop is None:
                self._single(step)
            else:
                self._loop(step, loop)

    def _loop(self, step: Instruction, loop: Loop) -> None:
        """All turns of a loop, whose state is in the memory of its last values."""
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
        for values, variable in zip(loop.data, _data_inputs(loop), strict=True):
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
            records[beginning:beginning] = [*aims, Turns(loop)]
            records.append(Turns(loop, back))
        for variable in known:
            if self.scratch[variable][1] > start:
                self.scratch[variable][1] = end

    def _mine(self, out: Variable, start: float) -> None:
        """Have a result of a loop have memory of its own from the loop's beginning on."""
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
        """Have a value be a row of an array: the first one at first, and then so many further."""
        strides, shape = array.look.strides, array.look.shape
        root = Variable(variable.kind)
        self.moving.add(root)
        rows[root] = array, place[0] * strides[0], place[1] * strides[0]
        self.looks[variable] = root, Look("", 0, strides[1:], shape[1:], "")

    def _body(self, loop: Loop, start: float, end: float) -> None:
        """The records of one turn, at positions before that of the loop."""
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
        self._copies = copies  # others are of this turn alone

    def _turned(self, loop: Loop, targets: Sequence[Slot]) -> None:
        """What ends a turn: its results are put where they are wanted, those carried at last."""
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
        name = step.primitive.name
        if self.natives.is_small_product(step):
            self._product(step)
        elif name in ("matmul", "matmul_transposed") and is_blas_product(step):
            a, b = map(self.slot, step.operands)
            records.append(product_call(step, a, b, target, self.in_order))
        elif name in _COPIES:
            self._copy(step, target)
        elif not is_plain_loop(step):
            fused = reduction(step)
            assert fused is not None
            self._written(fused, write(fused))
        else:
            alone = Small((step,), (out,))
            self._written(step, write_small(alone, self._lying), lying=True)

    def _copy(self, step: Instruction, target: Slot) -> None:
        records, name, look = self._built.records, step.primitive.name, target.look
        if name in ("unslice", "pad_zeros"):
            key = step.params["key"] if name == "unslice" else pad_key(step)
            records.append(filled(target))
            part = attrs.evolve(target, look=sliced(look, key))
            records.append(copied(self.slot(step.operands[0]), part))
            return
        axis, start = step.params["axis"] % len(look.shape), 0
        before = (slice(None),) * axis
        for operand in step.operands:
            slot = self.slot(operand)
            if name == "stack":
                key = (*before, start)
                start += 1
            else:
                stop = start + slot.look.shape[axis]
                key, start = (*before, slice(start, stop)), stop
            if type(operand) is Variable:
                self._built.joined[len(records)] = operand, step.outs[0]
            records.append(copied(slot, attrs.evolve(target, look=sliced(look, key))))

    def _product(self, step: Instruction) -> None:
        """A product that a kernel does; a matrix that many read is turned once for all."""
        a, b = map(self.slot, step.operands)
        out = step.outs[0]
        once = len(out.kind.shape) == 2
        turned = step.primitive.name == "matmul_transposed"
        if turned and once:
            strides, shape = b.look.strides[::-1], b.look.shape[::-1]
            b = self.in_order(
                attrs.evolve(b, look=attrs.evolve(b.look, strides=strides, shape=shape))
            )
        written = write_product(step, once)
        along = b.look.strides[-2 if turned and not once else -1]
        scratch = b if along == 1 else self.room(written.outputs[1].shape, out.kind.dtype)
        numpy_turned = turned and not once

        def by_numpy(a: Any, b: Any, out: Any, _: Any) -> None:
            np.matmul(a, b.swapaxes(-1, -2) if numpy_turned else b, out=out)

        slots = a, b, self.slot(out), scratch
        weight = written.rows * written.weight
        record = Call(written.source, slots, written.rows, lambda: by_numpy, weight=weight)
        self._built.records.append(record)

    def _lying(self, variable: Variable) -> Look | None:
        found = self.looks.get(variable)
        return None if found is None else found[1]

    def _written(self, step: Any, written: Written, lying: bool = False) -> None:
        """The call of a kernel, and of what ends it."""
        slots = []
        for i, operand in enumerate(written.inputs):
            slot = self.slot(operand)
            slots.append(slot if lying or i in written.strided else self.in_order(slot))
        ends = []
        for output in written.outputs:
            if output.over is not None:
                slot = slots[written.inputs.index(output.over)]
                self.looks[output.variable] = slot.root, slot.look  # type: ignore[index]
                continue
            slots.append(self._target(output))
            if output.divisor != 1:
                ends.append(_division(slots[-1], output.divisor))
        steps = parts_of(step)
        instead = lambda: by_numpy(steps, written, 1)  # noqa: E731
        weight = written.rows * written.weight
        call = Call(written.source, tuple(slots), written.rows, instead, written.refuses, weight)
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
    """A sum becomes a mean."""
    number = np.array([divisor], slot.dtype)
    by = Slot(number, ordered_look((1,)), slot.dtype)
    size = int(np.prod(slot.look.shape, dtype=int))

    def divide(out: Any, by: Any) -> None:
        out /= by[0]

    source = _DIVIDE.format(code=CODES[slot.dtype])
    return Call(source, (slot, by), size, lambda: divide, weight=8 * size)
