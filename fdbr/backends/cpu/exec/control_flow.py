"""Control flow in one call of machine code: each basic block is some records of a sequence.

Each register has a fixed address in the program's memory.  Behind the registers is the workspace of
blocks, which they share because only one runs at a time.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from fdbr.backends.cpu.exec.block_log import BOTTOM, WORD, Log, copied_out, padded
from fdbr.backends.cpu.exec.memory.buffer_assignment import Plan, aligned
from fdbr.backends.cpu.exec.memory.workspaces import give, taker
from fdbr.backends.cpu.exec.native_blocks import native_block, require
from fdbr.backends.cpu.exec.native_copies import ordered_look
from fdbr.backends.cpu.exec.sequence import Call, Code, Commands, Jump, Record, Slot
from fdbr.backends.cpu.exec.sequence_tables import (
    BACK,
    FIRST,
    JUMPS,
    LOG,
    MOVE,
    NOTE,
    POP,
    PUSH,
    REFUSED,
    ROOM,
    STOP,
    WHEN,
    Tables,
    Writer,
)
from fdbr.compiler.ir.basic_blocks import BasicBlock
from fdbr.compiler.ir.program import (
    Kind,
    Program,
    Variable,
    is_variable,
    kind_of,
    unfused,
)

__all__ = ["ControlFlow"]

_LONG = 50_000_000  # additions after which Python checks for signals
# Estimated seconds: of Python for a block, of NumPy for a step, and of both for a missing kernel.
_BLOCK, _STEP, _INSTEAD = 1e-5, 1.3e-6, 8e-5


# --- records ------------------------------------------------------------------------


@attrs.define(eq=False)
class _Entry:
    """The first record of a block."""

    record: int = -1


@attrs.frozen(eq=False)
class _Plain(Jump):
    """A record that consists of an operation, slots and a number."""

    code: int
    slots: tuple[Slot, ...] = ()
    number: int = 0

    def line(self, writer: Writer, places: list[int]) -> tuple[int, int, int, int]:
        if len(places) == 2:
            return self.code, places[0], places[1], self.number
        return self.code, places[0] if places else 0, self.number, 0


@attrs.frozen(eq=False)
class _When(Jump):
    """A jump to a block if a byte has a value."""

    slots: tuple[Slot, ...]
    byte: int
    entry: _Entry

    def line(self, writer: Writer, places: list[int]) -> tuple[int, int, int, int]:
        return WHEN, places[0], self.entry.record, self.byte


@attrs.frozen(eq=False)
class _Back(Jump):
    """A jump to the block whose number is in the log."""

    entries: tuple[_Entry | None, ...]
    slots: tuple[Slot, ...] = ()

    def line(self, writer: Writer, places: list[int]) -> tuple[int, int, int, int]:
        records = [-1 if entry is None else entry.record for entry in self.entries]
        return BACK, writer.numbers(records), 0, 0


@attrs.frozen(eq=False)
class _Stop(Jump):
    """A stop in a block; ``known`` if the function ends there."""

    block: int
    known: bool
    slots: tuple[Slot, ...] = ()

    def line(self, writer: Writer, places: list[int]) -> tuple[int, int, int, int]:
        return STOP, 0, 0, 0


# --- blocks -------------------------------------------------------------------------


class ControlFlow:
    """Basic blocks as machine code.

    Parameters
    ----------
    blocks
        The blocks; `None` for those that are not known yet.
    keeps
        Whether the values that they read are logged.
    shown
        Registers, with avals, that are written before a run or read after it.
    waits
        Whether kernels are compiled at once.
    noted
        For blocks that read a log: the number of blocks that may appear in it.

    Raises
    ------
    NotImplementedError
        If a step of a block has no machine code.
    """

    def __init__(
        self,
        blocks: Sequence[BasicBlock | None],
        keeps: bool,
        shown: Sequence[tuple[int, Kind]],
        waits: bool,
        noted: int = 0,
    ) -> None:
        self._blocks, self._keeps, self._noted = blocks, keeps, noted
        for _, kind in shown:
            require(kind)
        self._starts: dict[Variable, int] = {}
        self._registers = _registers([block for block in blocks if block is not None], shown)
        base = 0
        for variable in self._registers.values():
            self._starts[variable] = base
            base += aligned(variable.kind.nbytes)
        self._base, self._size, weight = base, base, 1
        self._entries = [_Entry() for _ in blocks]
        self._records: list[Record] = []
        parts: list[list[Record]] = []
        for number, block in enumerate(blocks):
            if block is None:
                parts.append([])
                continue
            self._entries[number].record = len(self._records)
            self._add(number, block)
            parts.append(self._records[self._entries[number].record :])
            weight = max(weight, sum(r.weight for r in parts[-1] if isinstance(r, Call)))
        self._jumps = max(64, _LONG // weight)
        self._code = Code([r.code for r in self._records if isinstance(r, Call)], waits)
        self._kernels = [
            [self._code.numbers[r.code] for r in part if isinstance(r, Call)] for part in parts
        ]
        self._commands = Commands(self._records, self._code, (), self._starts, True)
        self._run = self._commands.run
        starts = tuple(self._starts[self._registers[register]] for register, _ in shown)
        kinds = tuple(kind for _, kind in shown)
        self._kinds = kinds
        memory = Plan({}, kinds, starts, self._size, {})
        self._take = taker(memory, range(len(kinds)), [self._commands.template])

    def missing(self, visits: Sequence[int]) -> tuple[list[Any], float]:
        """Return the kernels that are not compiled yet, and the cost of replacing them by NumPy.

        The cost is a share of what Python takes for all blocks, if they are run ``visits`` times.
        The kernels that matter most come first.
        """
        left = {n for n, word in self._code.waiting.items() if not word.settled}
        shares: dict[int, float] = {}
        whole = 1e-9
        for block, kernels, times in zip(self._blocks, self._kernels, visits, strict=True):
            if block is None:
                continue
            steps = len(unfused(block.program.steps))
            whole += times * (_BLOCK + steps * _STEP)
            for kernel in kernels:
                if kernel in left:
                    seconds = times * (_INSTEAD + steps / len(kernels) * _STEP)
                    shares[kernel] = shares.get(kernel, 0.0) + seconds
        order = sorted(shares, key=shares.__getitem__, reverse=True)
        return [self._code.waiting[kernel] for kernel in order], sum(shares.values()) / whole

    @property
    def sources(self) -> set[str]:
        """The sources of all kernels."""
        return {source for source in self._code.numbers if type(source) is str}

    def run(
        self,
        start: int,
        given: Sequence[Any],
        log: Log | None,
        results: Mapping[int, Sequence[int]],
    ) -> tuple[int, list[Any]] | None:
        """Run from a block on; return `None` at something that is not known.

        Parameters
        ----------
        start
            The number of the block.
        given
            Values for the first of the shown registers; `None` for those without.
        log
            The log that is written or read, if there is one; when it is read, the number of the
            first block has been removed.
        results
            Which of the shown registers to read at the end, by the number of the last block.

        Returns
        -------
        tuple
            The number of the last block, and values.
        """
        block = self._take()
        try:
            arrays = block.arrays
            for array, value in zip(arrays, given, strict=False):
                if value is not None:
                    array[...] = value
            end = self._ran(block.tables[0], start, log)
            if end is None:
                return None
            return end, [copied_out(arrays[i], self._kinds[i]) for i in results[end]]
        finally:
            give(block)

    def _ran(self, tables: Tables, start: int, log: Log | None) -> int | None:
        words = tables.words
        words[FIRST] = self._entries[start].record
        if log is not None:
            _show(words, log, 0 if self._keeps else WORD)
        while True:
            words[JUMPS] = self._jumps
            number = self._run(words)
            assert number is not None
            if number & REFUSED:
                return None
            record = self._records[number]
            if isinstance(record, _Stop):
                if log is not None and self._keeps:
                    log.used = int(words[LOG]) - log.words.ctypes.data
                return record.block if record.known else None
            if isinstance(record, _Plain):
                assert record.code == ROOM
                assert log is not None
                log.used = int(words[LOG]) - log.words.ctypes.data
                log.grow()
                _show(words, log)
            elif isinstance(record, _Back):
                end = (int(words[LOG]) - log.words.ctypes.data) // WORD  # type: ignore[union-attr]
                if record.entries[log.words[end - 1]] is None:  # type: ignore[union-attr]
                    return None
            elif isinstance(record, Call):
                number += self._commands.instead_of(number, tables)
            words[FIRST] = number

    def _add(self, number: int, block: BasicBlock) -> None:
        """Add the records of a block."""
        program = block.program
        native = native_block(program)
        sources = native.sources
        given, taken = self._place(block, program)
        self._place_roots(native.roots, native.memory, given | taken)
        records = self._records
        if self._keeps:
            room = sum(padded(variable.kind) for variable in program.inputs)
            records.append(_Plain(ROOM, (), room + WORD))
            records += [_Plain(PUSH, (_raw(v),), padded(v.kind)) for v in program.inputs]
            records.append(_Plain(NOTE, (), number + 1))
        for variable in reversed(list(taken)):
            records.append(_Plain(POP, (_raw(variable),), padded(variable.kind)))
        records += native.records
        self._write(block, sources, given)
        self._go_on(number, block, sources)

    def _place(
        self, block: BasicBlock, program: Program
    ) -> tuple[dict[Variable, int], dict[Variable, int]]:
        """Assign memory to inputs: registers, or workspace that is filled from the log."""
        given, taken = {}, {}
        end = self._base
        for variable, register in zip(program.inputs, block.reads, strict=True):
            if register is None:
                taken[variable] = self._starts[variable] = end
                end += aligned(variable.kind.nbytes)
            else:
                given[variable] = register
                self._starts[variable] = self._starts[self._registers[register]]
        self._end = end
        return given, taken

    def _place_roots(self, roots: Sequence[Any], memory: Plan, known: Any) -> None:
        """Assign memory to the results of a block."""
        end = self._end + aligned(memory.size)
        for root in dict.fromkeys(r for r in roots if is_variable(r) and r not in known):
            if root in memory.places:
                self._starts[root] = self._end + memory.start(root)
            else:  # an output
                self._starts[root] = end
                end += aligned(root.kind.nbytes)
        self._end = end
        self._size = max(self._size, end)

    def _room(self, size: int) -> Slot:
        slot = _memory(size)
        self._starts[slot.root] = self._end
        self._end += aligned(size)
        self._size = max(self._size, self._end)
        return slot

    def _write(self, block: BasicBlock, sources: Sequence[Slot], given: Any) -> None:
        """Copy results to registers; values that are read from registers are saved first."""
        pairs = []
        for source, register in zip(sources, block.writes, strict=True):
            if register is not None:
                size = source.dtype.itemsize * math.prod(source.look.shape)
                pairs.append((source, register, size, source.root in given))
        for register, other in block.moves:
            slot = _raw(self._registers[other])
            pairs.append((slot, register, slot.look.shape[0], True))
        moves = []
        for source, register, size, is_read in pairs:
            if is_read and len(pairs) > 1:
                aside = self._room(size)
                self._records.append(_Plain(MOVE, (source, aside), size))
                source = aside
            moves.append(_Plain(MOVE, (source, _raw(self._registers[register])), size))
        self._records += moves

    def _go_on(self, number: int, block: BasicBlock, sources: Sequence[Slot]) -> None:
        entries, records = self._entries, self._records
        if block.asks:
            for answer, following in block.nexts.items():
                if self._blocks[following] is not None:
                    records.append(_When((sources[0],), int(answer), entries[following]))
            records.append(_Stop(number, False))
        elif self._noted:
            found: list[_Entry | None] = [None] * (self._noted + 1)
            found[BOTTOM] = _Entry(len(records) + 1)
            for noted, following in block.nexts.items():
                found[noted + 1] = entries[following]
            records.append(_Back(tuple(found)))
            records.append(_Stop(number, True))
        else:
            records.append(_Stop(number, True))


def _show(words: Any, log: Log, read: int = 0) -> None:
    """Set the end of the log in the head, without some bytes that have been read."""
    address = log.words.ctypes.data
    words[LOG], words[LOG + 1] = address + log.used - read, address + log.words.nbytes


def _registers(
    blocks: Sequence[BasicBlock], shown: Sequence[tuple[int, Kind]]
) -> dict[int, Variable]:
    """Return the registers, as memory that is large enough for all their values."""
    sizes: dict[int, int] = {}
    found: list[tuple[int | None, Kind]] = list(shown)
    for block in blocks:
        found += zip(block.reads, (v.kind for v in block.program.inputs), strict=True)
        found += zip(block.writes, map(kind_of, block.program.outputs), strict=True)
    for register, kind in found:
        if register is not None:
            sizes[register] = max(sizes.get(register, 1), kind.nbytes)
    near: dict[int, list[int]] = {}
    for block in blocks:
        for register, other in block.moves:
            near.setdefault(register, []).append(other)
            near.setdefault(other, []).append(register)
    waiting = sorted(near, key=lambda register: sizes.get(register, 1))
    while waiting:  # registers that are moved to each other need equal sizes
        register = waiting.pop()
        size = sizes.setdefault(register, 1)
        for other in near[register]:
            if sizes.get(other, 0) < size:
                sizes[other] = size
                waiting.append(other)
    return {register: _memory(size).root for register, size in sizes.items()}


def _memory(size: int) -> Slot:
    variable = Variable(Kind(np.ndarray, (size,), np.dtype(np.uint8)))
    return Slot(variable, ordered_look((size,)), np.dtype(np.uint8))


def _raw(variable: Variable) -> Slot:
    """Return the slot of a value that has memory of its own."""
    return Slot(variable, ordered_look(variable.kind.shape), variable.kind.dtype)
