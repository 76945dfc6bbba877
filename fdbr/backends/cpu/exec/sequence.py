"""Sequences: kernels and checks that run one after the other in one call.

If a check fails or a kernel refuses, the sequence stops, and Python raises the error.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import attrs
import numpy as np

from fdbr.backends.cpu.exec.sequence_tables import (
    ADVANCE,
    AIM,
    BEGIN,
    REFUSED,
    REPEAT,
    Tables,
    Template,
    Writer,
)
from fdbr.backends.cpu.exec.views import Look
from fdbr.compiler.backend import RefusedError
from fdbr.compiler.interpret import unboxed
from fdbr.compiler.ir.interpreter import GuardFailure
from fdbr.compiler.ir.program import Guard, Variable, is_variable

__all__ = [
    *(
        "Advance",
        "Aim",
        "Call",
        "Check",
        "Commands",
        "Record",
        "Slot",
        "Iterations",
    ),
]


@attrs.frozen
class Slot:
    """Elements that a kernel reads or writes.

    Attributes
    ----------
    root
        The value whose memory they are in, or a constant array.
    look
        The view of that memory.
    dtype
        The dtype.
    """

    root: Any
    look: Look
    dtype: Any

    @property
    def key(self) -> Any:
        """A key that is equal for equal elements."""
        return id(self.root), self.look.start, self.look.strides, self.look.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """The bytes from one element to the next along each axis."""
        return tuple(step * self.dtype.itemsize for step in self.look.strides)


@attrs.frozen
class Call:
    """A call of a kernel.

    Attributes
    ----------
    code
        A source in the kernel language, or the address of machine code.
    slots
        The slots in its table.
    rows
        The number of rows.
    refuses
        Whether the last slot is a byte that it sets when it refuses.
    weight
        Its estimated cost, in additions.
    """

    code: str | int
    slots: tuple[Slot, ...]
    rows: int
    refuses: bool = False
    weight: int = 0


@attrs.frozen
class Check:
    """A guard whose outcome follows from the bits of a value.

    Attributes
    ----------
    guard
        The guard.
    slot
        The slot of the value.
    loops
        The surrounding loops, the innermost first.
    """

    guard: Guard
    slot: Slot
    loops: tuple[Any, ...] = ()

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The slot of the value."""
        return (self.slot,)

    @property
    def bits(self) -> int:
        """The bits that the value must have."""
        value = np.zeros(1, self.slot.dtype)
        value[0] = self.guard.answer
        bits = int(value.view(f"i{value.dtype.itemsize}")[0])
        return bits if value.itemsize == 8 else bits & (1 << 8 * value.itemsize) - 1


@attrs.frozen
class Aim:
    """Sets a slot that advances with iterations to its address in the first one."""

    slot: Slot
    base: Slot
    offset: int

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The slot that is set, and the one that it is relative to."""
        return self.slot, self.base


@attrs.frozen
class Advance:
    """Moves a slot by some bytes."""

    slot: Slot
    bytes: int

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The slot that moves."""
        return (self.slot,)


@attrs.frozen(eq=False)
class Iterations:
    """The beginning of a loop, or, with ``back``, its end: the number of records to jump back."""

    loop: Any
    back: int = 0

    slots = ()


Record = Call | Check | Aim | Advance | Iterations


class Commands:
    """The records of a sequence.

    Parameters
    ----------
    records
        The records, in order.
    arguments
        The values whose memory is passed in each run, in order.
    starts
        For the other values, their offsets in the program's memory; rows of loops have none.
    free
        Whether the GIL is released meanwhile.
    """

    def __init__(
        self,
        records: Sequence[Record],
        arguments: Sequence[Any],
        starts: dict[Variable, int],
        free: bool,
    ) -> None:
        self.records, self._arguments, self._starts, self._free = records, arguments, starts, free
        self._places: dict[Any, int] = {}
        self._counters: dict[Any, int] = {}
        self._codes: Mapping[str, int] = {}

    def template(self, codes: Mapping[str, int]) -> Template:
        """Return the tables, with the addresses of kernels by their sources."""
        self._codes = codes  # keeps machine code in memory
        writer = Writer()
        numbers = {id(value): i + 1 for i, value in enumerate(self._arguments)}
        patches = []
        for slot in _slots(self.records):
            if slot.key in self._places:
                continue
            start = slot.look.start * slot.dtype.itemsize
            number = numbers.get(id(slot.root))
            inside = number is None and is_variable(slot.root) and slot.root in self._starts
            if inside:
                first = self._starts[slot.root] + start
            elif number is None and is_variable(slot.root):
                first = 0
            else:
                first = 0 if number is not None else slot.root.ctypes.data + start
            place = self._places[slot.key] = writer.place(first, slot.strides, inside)
            if number is not None:
                patches.append((number, place, start))
        records = [self._line(writer, i, record) for i, record in enumerate(self.records)]
        return writer.finish(patches, records, self._free)

    def _line(self, writer: Writer, i: int, record: Record) -> tuple[int, int, int, int]:
        places = [self._places[slot.key] for slot in record.slots]
        if isinstance(record, Check):
            return 0, places[0], record.slot.dtype.itemsize, record.bits
        if isinstance(record, Aim):
            return AIM, places[0], places[1], record.offset
        if isinstance(record, Advance):
            return ADVANCE, places[0], record.bytes, 0
        if isinstance(record, Iterations):
            if record.loop not in self._counters:
                self._counters[record.loop] = writer.word()
            word = self._counters[record.loop]
            if record.back:
                return REPEAT, word, i - record.back, 0
            return BEGIN, word, record.loop.length, 0
        byte = places[-1] if record.refuses else 0
        code = record.code if isinstance(record.code, int) else self._codes[record.code]
        return code, writer.table(places), record.rows, byte

    def stop(self, number: int, tables: Tables) -> NoReturn:
        """Raise the error of the record at which the runner has stopped.

        Raises
        ------
        GuardFailure
            If a guard fails.
        RefusedError
            If a kernel refuses.
        """
        if number & REFUSED:
            raise RefusedError
        check = self.records[number]
        assert isinstance(check, Check)
        slot, guard = check.slot, check.guard
        array = tables.array(self._places[slot.key], slot.look.shape, slot.strides, slot.dtype)
        answer = guard.question(unboxed(array, guard.operand.kind))
        failure = GuardFailure(guard.index, answer)
        for loop in check.loops:
            iteration = loop.length - int(tables.words[self._counters[loop]])
            failure = loop.failure(iteration, failure)
        raise failure


def _slots(records: Sequence[Record]) -> list[Slot]:
    return [slot for record in records for slot in record.slots]
