"""Reports on the programs of a jitted function."""

from collections.abc import Iterable
from typing import Any

import attrs
import numpy as np

from fdbr.compiler.engine.compiled_trace import CompiledTrace
from fdbr.compiler.engine.specializations import EARLY, Specialization
from fdbr.compiler.ir.program import Program

__all__ = ["Kept", "Report", "report_of"]


@attrs.frozen
class Kept:
    """One captured program.

    Attributes
    ----------
    arguments
        The kinds of the leaves of the arguments.
    answers
        The answers that Python control flow got, which guards check.
    steps
        How many steps there were as captured, and after the passes; the same number twice, if it
        has not gone through them yet.
    compiled
        Whether it has gone through the passes.
    seconds
        What that took, the compilation of kernels aside.
    waiting
        How many of its kernels were not compiled when they ran last, so that NumPy stood in.
    kernels
        How many there are.
    code_bytes
        Those of the machine code of the kernels that are there.
    kernel_seconds
        What compiling these took; nothing, if they were found on disk.
    memory
        Bytes that results take while it runs, and those of arrays that are no arguments.
    runs
        How often it was replayed.
    why
        Why it was captured.
    unrolled
        Why loops in it were captured turn by turn.
    defect
        What has gone wrong in the compiler, so that it runs step by step; empty if nothing has.
    """

    arguments: tuple[str, ...]
    answers: tuple[Any, ...]
    steps: tuple[int, int]
    compiled: bool
    seconds: float
    waiting: int
    kernels: int
    code_bytes: int
    kernel_seconds: float
    memory: int
    runs: int
    why: str
    unrolled: tuple[str, ...]
    defect: str


@attrs.frozen
class Report:
    """The programs of a jitted function, and their state; print it to read it.

    Attributes
    ----------
    name
        The function's.
    traces
        One `Kept` for each.
    eager
        How often the function was run as it is, without a program.
    obstacles
        Why, the last time for each kind of arguments.
    """

    name: str
    traces: tuple[Kept, ...]
    eager: int
    obstacles: tuple[str, ...]

    @property
    def is_compiled(self) -> bool:
        """Whether one of the programs runs with all its kernels compiled."""
        return any(kept.compiled and not kept.waiting for kept in self.traces)

    def __str__(self) -> str:
        lines = [f"{self.name}: {_count(len(self.traces), 'trace')}"]
        for number, kept in enumerate(self.traces, 1):
            before, after = kept.steps
            lines.append(f"{number}. for {_short(kept.arguments)}, {kept.why}")
            how = f"{after} after the passes" if kept.compiled else "not compiled yet"
            how = f"not compiled, as {kept.defect}" if kept.defect else how
            how += f" ({_count(kept.waiting, 'kernel')} to come)" if kept.waiting else ""
            lines.append(
                f"   {_count(before, 'step')}, {how}, replayed {_count(kept.runs, 'time')}"
            )
            if kept.compiled:
                lines.append(f"   {_costs(kept)}")
            if kept.answers:
                lines.append(f"   guards: {_short(kept.answers)}")
            lines += [f"   {why}" for why in kept.unrolled]
        if self.eager:
            lines.append(f"run without a trace {_count(self.eager, 'time')}:")
            lines += [f"   {obstacle}" for obstacle in self.obstacles]
        if EARLY in self.obstacles and not self.is_compiled:
            lines.append(
                "compiled code is not in use yet: fdbr.jit(f, compile='now') compiles in the "
                "first call"
            )
        return "\n".join(lines)


def report_of(name: str, entries: Iterable[Specialization]) -> Report:
    """The report on the traces of a function."""
    entries = list(entries)
    return Report(
        name,
        tuple(_kept(trace) for entry in entries for trace in entry.traces),
        sum(entry.eager for entry in entries),
        tuple(dict.fromkeys(entry.obstacle for entry in entries if entry.eager)),
    )


def _costs(kept: Kept) -> str:
    """The cost of compilation, and the memory that is held for it."""
    held = f"{_bytes(kept.memory)} of results and constants"
    passes = f"passes took {kept.seconds:.2g} s"
    if not kept.kernels:
        return f"{passes}; {held}"
    return (
        f"{passes}, {_count(kept.kernels, 'kernel')} {kept.kernel_seconds:.2g} s; "
        f"{_bytes(kept.code_bytes)} of machine code, {held}"
    )


def _bytes(number: int) -> str:
    return f"{number} bytes" if number < 1000 else f"{number / 1000:,.0f} kB"


def _constants(program: Program) -> int:
    """The bytes of the arrays in a program."""
    operands = [v for step in program.steps for v in getattr(step, "operands", ())]
    arrays = {id(v): v.nbytes for v in operands if isinstance(v, np.ndarray)}
    return sum(arrays.values())


def _kept(compiled: CompiledTrace) -> Kept:
    code_bytes, kernel_seconds = compiled.code.machine_code()
    return Kept(
        tuple(str(variable.kind) for variable in compiled.raw.inputs),
        compiled.answers,
        (len(compiled.raw.steps), len(compiled.program.steps)),
        compiled.code.optimised and not compiled.code.defect,
        compiled.code.seconds,
        compiled.code.waiting(),
        len(compiled.code.sources),
        code_bytes,
        kernel_seconds,
        compiled.code.memory + _constants(compiled.raw),
        compiled.runs,
        compiled.why,
        compiled.unrolled,
        compiled.code.defect,
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _short(values: tuple[Any, ...], most: int = 8) -> str:
    """Some values in a row, the first of many."""
    texts = [str(value) for value in values]
    more = len(texts) - most
    shown = ", ".join(text if len(text) <= 40 else f"{text[:37]}..." for text in texts[:most])
    return f"{shown or 'no arguments'}{f', and {more} more' * (more > 0)}"
