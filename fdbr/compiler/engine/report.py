"""Reports on the programs of a jitted function."""

from collections.abc import Iterable
from typing import Any

import attrs
import numpy as np

from fdbr.compiler.engine.compiled_trace import CompiledTrace
from fdbr.compiler.engine.specialization import Specialization
from fdbr.compiler.ir.program import Program

__all__ = ["Kept", "Report", "report_of"]


@attrs.frozen
class Kept:
    """One captured program.

    Attributes
    ----------
    arguments
        The avals of the leaves of the arguments.
    answers
        The outcomes that Python control flow got, which guards check.
    steps
        The numbers of steps as captured and after the passes.
    seconds
        The time that the passes took, without the compilation of kernels.
    kernels
        The number of kernels.
    code_bytes
        The size of the machine code of the kernels.
    kernel_seconds
        The time that compiling these took; 0 if they were found in the cache on disk.
    memory
        Bytes of temporaries and results while it runs, and of constant arrays.
    runs
        The number of replays.
    why
        Why it was captured.
    unrolled
        Reasons why loops were captured iteration by iteration.
    defect
        The error inside the compiler that made it run step by step; empty if there was none.
    """

    arguments: tuple[str, ...]
    answers: tuple[Any, ...]
    steps: tuple[int, int]
    seconds: float
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
        The name of the function.
    traces
        One `Kept` for each trace.
    eager
        How often the function was run eagerly, without a program.
    obstacles
        The latest reasons for that, one for each signature.
    sizes
        For arguments that have had several sizes: which axes, and how many kernels the last size
        needed that no other had.
    """

    name: str
    traces: tuple[Kept, ...]
    eager: int
    obstacles: tuple[str, ...]
    sizes: tuple[str, ...] = ()

    @property
    def is_compiled(self) -> bool:
        """Whether there is a program that runs as compiled code."""
        return any(not kept.defect for kept in self.traces)

    def __str__(self) -> str:
        lines = [f"{self.name}: {_count(len(self.traces), 'trace')}"]
        for number, kept in enumerate(self.traces, 1):
            before, after = kept.steps
            lines.append(f"{number}. for {_short(kept.arguments)}, {kept.why}")
            how = f"not compiled, as {kept.defect}" if kept.defect else f"{after} after the passes"
            lines.append(
                f"   {_count(before, 'step')}, {how}, replayed {_count(kept.runs, 'time')}"
            )
            if not kept.defect:
                lines.append(f"   {_costs(kept)}")
            if kept.answers:
                lines.append(f"   guards: {_short(kept.answers)}")
            lines += [f"   {why}" for why in kept.unrolled]
        lines += self.sizes
        if self.eager:
            lines.append(f"run without a trace {_count(self.eager, 'time')}:")
            lines += [f"   {obstacle}" for obstacle in self.obstacles]
        return "\n".join(lines)


def report_of(name: str, entries: Iterable[Specialization]) -> Report:
    """Return the report on the traces of a function."""
    entries = list(entries)
    return Report(
        name,
        tuple(_kept(trace) for entry in entries for trace in entry.traces),
        sum(entry.eager for entry in entries),
        tuple(dict.fromkeys(entry.obstacle for entry in entries if entry.eager)),
        _sizes(entries),
    )


def _sizes(entries: Iterable[Specialization]) -> tuple[str, ...]:
    """Return texts on the axes that have had several sizes."""
    families: dict[Any, list[CompiledTrace]] = {}
    for entry in entries:
        families.setdefault(entry.family, []).extend(entry.traces[:1])
    texts: list[str] = []
    for traces in families.values():
        shapes = [[v.kind.shape for v in trace.raw.inputs] for trace in traces]
        if len({len(leaves) for leaves in shapes}) != 1:  # captured variables have become inputs
            continue
        found = [
            f"axis {axis} of argument {number}: sizes {_short(seen)}"
            for number, of_leaf in enumerate(zip(*shapes, strict=True), 1)
            for axis, sizes in enumerate(zip(*of_leaf, strict=True))
            if len(seen := tuple(dict.fromkeys(sizes))) > 1
        ]
        if found:
            *others, last = (trace.code.sources for trace in traces)
            new = len(last.difference(*others))
            texts += found
            texts.append(
                f"these sizes share machine code: of {_count(len(last), 'kernel')} for the last "
                f"one {new} had not been compiled for another"
            )
    return tuple(texts)


def _costs(kept: Kept) -> str:
    """Return a text on the cost of compilation, and the memory that programs hold."""
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
    """Return the bytes of the constant arrays in a program."""
    operands = [v for step in program.steps for v in getattr(step, "operands", ())]
    arrays = {id(v): v.nbytes for v in operands if isinstance(v, np.ndarray)}
    return sum(arrays.values())


def _kept(compiled: CompiledTrace) -> Kept:
    code_bytes, kernel_seconds = compiled.code.machine_code()
    return Kept(
        tuple(str(variable.kind) for variable in compiled.raw.inputs),
        compiled.answers,
        (len(compiled.raw.steps), len(compiled.program.steps)),
        compiled.code.seconds,
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
    """Return the first values of a tuple as text, with the number of those left out."""
    texts = [str(value) for value in values]
    more = len(texts) - most
    shown = ", ".join(text if len(text) <= 40 else f"{text[:37]}..." for text in texts[:most])
    return f"{shown or 'no arguments'}{f', and {more} more' * (more > 0)}"
