"""Sequences: kernels and checks that run one after the other in one call.

Where a sequence stops, because a kernel is not compiled yet, Python computes that step by NumPy,
and continues the sequence behind it.  If a check fails or a kernel refuses, Python raises.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

from fdbr.backends.cpu.exec.kernel import RefusedError
from fdbr.backends.cpu.exec.sequence_runner import runner
from fdbr.backends.cpu.exec.sequence_tables import (
    ADVANCE,
    AIM,
    BEGIN,
    FIRST,
    REFUSED,
    REPEAT,
    Tables,
    Template,
    Writer,
)
from fdbr.backends.cpu.exec.views import Look
from fdbr.backends.cpu.runtime.background import Awaited, Request, ensure_running, request_for
from fdbr.backends.cpu.runtime.compiling import address_of
from fdbr.compiler.interpret import unboxed
from fdbr.compiler.ir.guards import same
from fdbr.compiler.ir.interpreter import GuardFailure
from fdbr.compiler.ir.program import Guard, Variable, is_variable

__all__ = [
    *(
        "Advance",
        "Aim",
        "Call",
        "Check",
        "Code",
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
    instead
        Makes the function that replaces it by NumPy.
    refuses
        Whether the last slot is a byte that it sets when it refuses.
    weight
        Its estimated cost, in additions.
    """

    code: str | int
    slots: tuple[Slot, ...]
    rows: int
    instead: Callable[[], Callable[..., None]]
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


class Code:
    """The machine code of a program's kernels, as words that tables refer to.

    Attributes
    ----------
    words
        The address of each kernel; 0 until it is compiled.
    """

    def __init__(self, sources: Sequence[str | int], waits: bool) -> None:
        self.words = np.zeros(max(1, len(sources)), np.int64)
        self.numbers: dict[str | int, int] = {}
        self.waiting: dict[int, _Word] = {}
        self._kept: list[Any] = []  # keeps machine code in memory
        for source in sources:
            if source in self.numbers:
                continue
            number = self.numbers[source] = len(self.numbers)
            if isinstance(source, int):
                self.words[number] = source
                self._kept.append(source)
            elif waits:
                self.words[number] = address = address_of(source)
                self._kept.append(address)
            else:
                awaited = _Word(request_for(source), self.words, number)
                if awaited.is_there:
                    self._kept.append(awaited.request)
                else:
                    self.waiting[number] = awaited

    def place(self, source: str | int) -> int:
        """Return the address of the word for a kernel."""
        return int(self.words.ctypes.data) + 8 * self.numbers[source]


class _Word(Awaited):
    """A kernel of sequences that is not compiled yet: they call the address in a word."""

    __slots__ = ("number", "words")

    def __init__(self, request: Request, words: Any, number: int) -> None:
        super().__init__(request)
        self.words, self.number = words, number

    def install(self) -> None:
        self.words[self.number] = self.request.wait()


class Commands:
    """The records of a sequence, ready to run.

    Parameters
    ----------
    records
        The records, in order.
    code
        The kernels of the program.
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
        code: Code,
        arguments: Sequence[Any],
        starts: dict[Variable, int],
        free: bool,
    ) -> None:
        self.records = records
        self._code = code
        self._instead: dict[int, Any] = {}
        self._places: dict[Any, int] = {}
        self._counters: dict[Any, int] = {}
        self.kept = [slot.root for slot in _slots(records) if type(slot.root) is not Variable]
        self.template = self._written(arguments, starts, free)
        self.run = runner()

    def _written(
        self, arguments: Sequence[Any], starts: dict[Variable, int], free: bool
    ) -> Template:
        writer = Writer()
        numbers = {id(value): i + 1 for i, value in enumerate(arguments)}
        patches = []
        for slot in _slots(self.records):
            if slot.key in self._places:
                continue
            start = slot.look.start * slot.dtype.itemsize
            number = numbers.get(id(slot.root))
            inside = number is None and slot.root in starts if is_variable(slot.root) else False
            if inside:
                first = starts[slot.root] + start
            elif number is None and is_variable(slot.root):
                first = 0
            else:
                first = 0 if number is not None else slot.root.ctypes.data + start
            place = self._places[slot.key] = writer.place(first, slot.strides, inside)
            if number is not None:
                patches.append((number, place, start))
        records = [self._line(writer, i, record) for i, record in enumerate(self.records)]
        return writer.finish(patches, records, free)

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
        return self._code.place(record.code), writer.table(places), record.rows, byte

    def resume(self, number: int | None, tables: Tables, *arguments: Any) -> None:
        """Execute the record that the runner has stopped at, and continue until the end.

        Raises
        ------
        GuardFailure
            If a guard fails.
        RefusedError
            If a kernel refuses.
        """
        while number is not None:
            number += self.instead_of(number, tables)
            tables.words[FIRST] = number
            number = self.run(tables.words, *arguments)

    def instead_of(self, number: int, tables: Tables) -> int:
        """Execute a record by NumPy and return 1; return 0 if its kernel is compiled by now."""
        if number & REFUSED:
            raise RefusedError
        record = self.records[number]
        arrays = [
            tables.array(self._places[slot.key], slot.look.shape, slot.strides, slot.dtype)
            for slot in record.slots
        ]
        if isinstance(record, Check):
            answer = record.guard.question(unboxed(arrays[0], record.guard.operand.kind))
            if not same(answer, record.guard.answer):
                raise self._failure(record, answer, tables)
            return 1
        assert isinstance(record, Call)
        place = self._code.numbers[record.code]
        awaited = self._code.waiting[place]
        if awaited.is_there:
            return 0
        if awaited.requested:
            ensure_running()
        start = time.perf_counter()
        if number not in self._instead:
            self._instead[number] = record.instead()
        self._instead[number](*arrays)
        awaited.seconds += time.perf_counter() - start
        return 1

    def _failure(self, check: Check, answer: Any, tables: Tables) -> GuardFailure:
        failure = GuardFailure(check.guard.index, answer)
        for loop in check.loops:
            iteration = loop.length - int(tables.words[self._counters[loop]])
            failure = loop.failure(iteration, failure)
        return failure


def _slots(records: Sequence[Record]) -> list[Slot]:
    return [slot for record in records for slot in record.slots]
