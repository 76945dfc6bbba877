"""Loops over steps on small arrays as one kernel, whose iterations are a machine-code loop.

The carry is kept in the memory of its final value.  Pointers advance to the rows that an iteration
reads and writes.  The trip count and the first rows are read from an array, so loops of other
lengths use the same kernel.  A loop that a guard ends evaluates it in machine code, and a loop in
a body is a loop in the kernel.

Nothing bounds the number of iterations of a loop that a guard ends.  So its kernel releases
CPython's lock, and about every millisecond acquires it and checks for signals, as Python's own
loops do.  If a signal's handler raises an error, all such loops end, and the kernel's caller raises
the error.
"""

import ctypes
import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import attrs
import numpy as np

from fdbr.backends.cpu.codegen.formulas import CODES
from fdbr.backends.cpu.codegen.small_forms import is_of_numbers, write_number
from fdbr.backends.cpu.codegen.small_kernels import is_small, loop_weight, write_step, written
from fdbr.backends.cpu.codegen.small_writer import Writer
from fdbr.backends.cpu.codegen.written import Written, stored
from fdbr.backends.cpu.exec.views import Look, steps_of
from fdbr.compiler.ir.loops import Loop, loop_of
from fdbr.compiler.ir.program import (
    Guard,
    Instruction,
    Program,
    Small,
    Variable,
    kind_of,
    unfused,
)

__all__ = ["write_loop"]

_MOST = 4000  # steps of an iteration: LLVM's compile time grows faster than their number
_LARGEST = 1024  # elements of a value of an iteration
_OFTEN = 1 << 22  # additions between checks for signals, about a millisecond

# A kernel works without CPython's lock between these statements.
_RELEASED = "thread_state = called(numbers[0])"
_ACQUIRED = "called(numbers[1], thread_state)"
_FUNCTIONS = (
    *("PyEval_SaveThread", "PyEval_RestoreThread", "PyErr_CheckSignals"),
    *("PyMem_RawRealloc", "PyMem_RawFree"),
)
_DTYPES: dict[str, Any] = {code: dtype for dtype, code in CODES.items()}


def write_loop(step: Instruction) -> Written | None:
    """Return the kernel of a loop, or `None` if it runs in Python."""
    loop = loop_of(step)
    if loop is None or _count(loop) > _MOST or not _fits(step, loop):
        return None
    writer = Writer(Small((step,), step.outs))
    kernel = _Kernel(writer)
    try:
        kernel.loop(step, loop)
    except OverflowError:  # an integer that does not fit into an array
        return None
    return kernel.written(_weight(loop))


def _parts(loop: Loop) -> list[Any]:
    """Return the steps of an iteration, and of its pullback."""
    return [part for program in loop.programs for part in unfused(program.steps)]


def _inner(loop: Loop) -> list[Loop]:
    """Return the loops in the body of another one."""
    return [one for one in map(loop_of, _parts(loop)) if one is not None]


def _count(loop: Loop) -> int:
    """Return the number of steps of an iteration, with those of the loops inside."""
    return len(_parts(loop)) + sum(map(_count, _inner(loop)))


def _weight(loop: Loop) -> int:
    """Return the approximate cost of a loop in additions; of an open one, that of an iteration."""
    steps = [part for part in _parts(loop) if type(part) is not Guard and loop_of(part) is None]
    return loop.length * (loop_weight(steps) + sum(map(_weight, _inner(loop))))


def _fits(step: Instruction, loop: Loop) -> bool:
    """Return whether a kernel can do a loop, and all that is in it."""
    kinds = [variable.kind for program in loop.programs for variable in program.inputs]
    made = [kind_of(output) for program in loop.programs for output in program.outputs]
    for kind in (*kinds, *made):
        if kind.dtype not in CODES or not 0 < kind.size <= _LARGEST:
            return False
        if not kind.is_number and not issubclass(kind.type, np.ndarray | np.generic):
            return False
    if not all(kind_of(operand).size for operand in (*step.operands, *step.outs)):
        return False
    return all(_is_part(part, loop) for part in _parts(loop))


def _is_part(part: Any, loop: Loop) -> bool:
    """Return whether a kernel can do a step of a loop's body."""
    if type(part) is Guard:
        return part.index == loop.until and type(part.operand) is Variable and part.question is bool
    inner = loop_of(part)
    if inner is not None:
        return _fits(part, inner)
    return is_small(part, in_loop=True) or is_of_numbers(part)


class _Kernel:
    """Generate the kernel of a loop.

    Attributes
    ----------
    numbers
        The integers that the kernel reads from an array: addresses of functions first, then trip
        counts and first rows.
    loops
        The number of loops so far, which makes names unique.
    open
        Whether there are checks for signals.
    """

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.numbers: list[int] = list(_addresses())
        self.loops = 0
        self.open = False
        writer.inputs["numbers"] = "numbers", None

    def written(self, weight: int) -> Written:
        """Return the kernel."""
        writer = self.writer
        writer.inputs["numbers"] = "numbers", np.array(self.numbers, np.int64)
        if self.open:
            writer.lines = ["stopped = False", _RELEASED, *writer.lines, _ACQUIRED]
        return attrs.evolve(written(writer, weight), interruptible=self.open)

    def loop(self, step: Instruction, loop: Loop) -> None:
        """Emit a loop."""
        writer, number = self.writer, self.loops
        self.loops += 1
        index, first, second = f"n{number}", loop.carried, loop.carried + len(loop.rows)
        inputs, kept = loop.body.inputs, loop.carried + loop.lasts
        count = len(step.operands) - (len(step.outs) if loop.back is not None else 0)
        starts = [writer.look(operand) for operand in step.operands[:first]]
        results = [writer.target(out) for out in step.outs]
        outs = results if loop.back is None else [self._room(start) for start in starts]
        for start, carried, variable in zip(starts, outs, inputs, strict=False):
            writer.copy(start, carried)
            writer.looks[variable] = carried
        heads: list[str] = []
        rows = [*zip(step.operands[first:second], loop.rows, strict=True)]
        data = inputs[second : second + len(loop.data)]
        for values, variable in zip(loop.data, data, strict=True):
            rows.append((np.array(list(values), variable.kind.dtype), (0, 1)))
        for (array, (row, by)), variable in zip(rows, inputs[first:], strict=False):
            moving = self._moving(writer.look(array), row, by, index, heads)
            writer.looks[variable] = moving
        consts = list(map(writer.look, step.operands[second:count]))
        writer.looks.update(zip(inputs[second + len(loop.data) :], consts, strict=True))
        outs = [*outs[:kept], *(self._moving(o, 0, 1, index, heads) for o in outs[kept:])]
        before, writer.lines = writer.lines, heads
        head = self._steps(loop.body, f"goes_on{number}")
        self._results(loop.body.outputs, loop.carried, outs)
        body, writer.lines = writer.lines, before
        if loop.back is None:
            self._repeat(loop, number, head, body)
            return
        log = _Log(number, outs)
        writer.lines += log.begun()
        assert head is not None
        self._repeat(loop, number, [*head, *log.grown()], [*log.kept(writer), *body])
        for operand, result in zip(step.operands[count:], results, strict=True):
            writer.copy(writer.look(operand), result)
        targets = len(results)
        carries = loop.back.inputs[targets : targets + first]
        writer.looks.update(zip(loop.back.inputs, results, strict=False))
        writer.looks.update(zip(carries, log.looks, strict=True))
        writer.looks.update(zip(loop.back.inputs[targets + first :], consts, strict=True))
        before, writer.lines = writer.lines, [f"{index} = {index} - 1", *log.pointers()]
        self._steps(loop.back)
        self._results(loop.back.outputs, targets, results)
        body, writer.lines = writer.lines, before
        goes_on = f"({index} > 0) & (not stopped)"
        writer.lines += [f"goes_on{number} = {goes_on}", f"while goes_on{number}:"]
        writer.lines += _indented([*body, *self._checked(loop, index)])
        writer.lines += [f"    goes_on{number} = {goes_on}", *log.ended()]

    def _steps(self, program: Program, goes_on: str = "") -> list[str] | None:
        """Emit the steps of an iteration.

        Those up to a guard are returned instead, with the statement that sets whether the loop
        ``goes_on``.
        """
        writer, head = self.writer, None
        for part in unfused(program.steps):
            if type(part) is Guard:
                head, writer.lines = writer.lines, []
                outcome = writer.look(part.operand).at([], 0)
                head.append(f"{goes_on} = {outcome if part.answer else f'not {outcome}'}")
                continue
            assert type(part) is Instruction
            inner = loop_of(part)
            if inner is not None:
                self.loop(part, inner)
            elif is_of_numbers(part):
                write_number(writer, part)
            else:
                write_step(writer, part)
        return head

    def _repeat(self, loop: Loop, number: int, head: list[str] | None, body: list[str]) -> None:
        """Emit the iterations, with a ``head`` that computes whether there is a next one."""
        writer, index, length = self.writer, f"n{number}", f"numbers[{len(self.numbers)}]"
        self.numbers.append(loop.length)
        if head is None and (loop.length <= _often(loop) or not _has_open(loop)):
            writer.lines += [f"for {index} in range({length}):"]
            writer.lines += _indented(body or ["pass"])
            return
        self.open, goes_on = True, f"goes_on{number}"
        if head is None:
            head = [f"{goes_on} = {index} < {length}"]
        elif loop.lasts:  # values of a last iteration that there may not be
            head.append(f"bad |= ({index} == 0) & (not {goes_on})")
        head.append(f"{goes_on} = {goes_on} & (not stopped)")
        if any("bad |=" in line for line in (*head, *body)):
            body = [*body, "stopped = stopped | bad"]  # the results are not used
        body = [*body, f"{index} = {index} + 1", *self._checked(loop, index)]
        writer.lines += [f"{index} = i8(0)", f"{goes_on} = not stopped", f"while {goes_on}:"]
        writer.lines += _indented([*head, f"if {goes_on}:", *_indented(body)])

    def _checked(self, loop: Loop, index: str) -> list[str]:
        """Return the statements that check for signals from time to time."""
        return [
            f"if ({index} & {_often(loop) - 1}) == 0:",
            f"    {_ACQUIRED}",
            "    stopped = stopped | ((called(numbers[2]) & 4294967295) != 0)",
            f"    {_RELEASED}",
        ]

    def _moving(self, whole: Look, start: int, by: int, index: str, heads: list[str]) -> Look:
        """Return the view of the row of an array that belongs to an iteration."""
        name, dtype = f"r{self.loops}_{len(heads)}", _DTYPES[whole.code]
        first, apart = f"numbers[{len(self.numbers)}]", whole.strides[0]
        self.numbers.append(start)
        row = f"(({first} + {index} * {by}) * {apart} + {whole.start}) * {dtype.itemsize}"
        where = f"address({whole.memory}) + {row}"
        heads.append(f"{name} = within({whole.memory}, {where}, {stored(dtype)}(0))")
        return Look(name, 0, whole.strides[1:], whole.shape[1:], whole.code)

    def _results(self, made: Sequence[Any], carried: int, outs: Sequence[Look]) -> None:
        """Emit the writes of results; the carry is last, since others may be views of it."""
        writer = self.writer
        sources = list(map(writer.look, made))
        for source, target in list(zip(sources, outs, strict=False))[carried:]:
            writer.copy(source, target)
        pairs = list(zip(sources[:carried], outs, strict=False))
        sources = [
            self._aside(source) if _is_within(source, target, outs[:carried]) else source
            for source, target in pairs
        ]
        for source, (_, target) in zip(sources, pairs, strict=True):
            if source != target:
                writer.copy(source, target)

    def _room(self, like: Look) -> Look:
        """Allocate scratch memory for a value."""
        memory, start = self.writer.room(like.code, math.prod(like.shape))
        return Look(memory, start, steps_of(like.shape), like.shape, like.code)

    def _aside(self, source: Look) -> Look:
        """Copy a value that is about to be overwritten."""
        copy = self._room(source)
        self.writer.copy(source, copy)
        return copy


class _Log:
    """Memory in which a loop keeps the carry of each iteration, a row for each.

    Attributes
    ----------
    looks
        The views of the carried values in a row.
    """

    def __init__(self, number: int, carries: Sequence[Look]) -> None:
        self.index, self.goes_on = f"n{number}", f"goes_on{number}"
        self.memory, self.capacity = f"memory{number}", f"capacity{number}"
        self.carries = carries
        self.looks = [
            Look(f"k{number}_{i}", 0, steps_of(c.shape), c.shape, c.code)
            for i, c in enumerate(carries)
        ]
        sizes = [math.prod(c.shape) * _DTYPES[c.code].itemsize for c in carries]
        self.offsets = [sum(-(-size // 8) * 8 for size in sizes[:i]) for i in range(len(sizes))]
        self.row = sum(-(-size // 8) * 8 for size in sizes)

    def begun(self) -> list[str]:
        """Return the statements that begin without memory."""
        return [f"{self.memory} = i8(0)", f"{self.capacity} = i8(0)"]

    def grown(self) -> list[str]:
        """Return the statements that make room for a row; the kernel refuses if there is none."""
        more = f"{self.capacity} * 2 + 64"
        return [
            f"if {self.goes_on} & ({self.index} == {self.capacity}):",
            f"    grown = called(numbers[3], {self.memory}, ({more}) * {self.row})",
            "    bad |= grown == 0",
            f"    {self.goes_on} = {self.goes_on} & (grown != 0)",
            f"    {self.memory} = select(grown == 0, {self.memory}, grown)",
            f"    {self.capacity} = select(grown == 0, {self.capacity}, {more})",
        ]

    def pointers(self) -> list[str]:
        """Return the statements that point to the row of an iteration."""
        # The memory is that of no array, but no other access overlaps it.
        return [
            f"{look.memory} = within(numbers, {self.memory} + {self.index} * {self.row} "
            f"+ {offset}, {stored(_DTYPES[look.code])}(0))"
            for look, offset in zip(self.looks, self.offsets, strict=True)
        ]

    def kept(self, writer: Writer) -> list[str]:
        """Return the statements that copy the carry into a row."""
        before, writer.lines = writer.lines, self.pointers()
        for carry, look in zip(self.carries, self.looks, strict=True):
            writer.copy(carry, look)
        found, writer.lines = writer.lines, before
        return found

    def ended(self) -> list[str]:
        """Return the statements that free the memory."""
        return [f"called(numbers[4], {self.memory})"]


def _often(loop: Loop) -> int:
    """Return after how many iterations, a power of two, a loop checks for signals."""
    weight = max(_weight(attrs.evolve(loop, length=1)), 1)
    return 1 << (_OFTEN // weight).bit_length()


def _has_open(loop: Loop) -> bool:
    """Return whether there is a loop that a guard ends among the steps of another one."""
    return any(one.is_open or _has_open(one) for one in _inner(loop))


def _is_within(source: Look, target: Look, carries: Sequence[Look]) -> bool:
    """Return whether a new value is a view of a carried one, other than of itself as it is."""
    if source == target:
        return False
    return any(
        source.memory == carry.memory
        and carry.start <= source.start < carry.start + math.prod(carry.shape)
        for carry in carries
    )


def _indented(lines: Iterable[str]) -> list[str]:
    return ["    " + line for line in lines]


@functools.cache
def _addresses() -> tuple[int, ...]:
    """Return the addresses of the functions of CPython that kernels call."""
    found = (getattr(ctypes.pythonapi, name) for name in _FUNCTIONS)
    return tuple([ctypes.cast(function, ctypes.c_void_p).value or 0 for function in found])
