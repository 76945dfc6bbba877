"""Programs that run entirely as machine code, as the records of a sequence."""

from typing import Any
from weakref import WeakKeyDictionary

import attrs
import numpy as np

from fdbr.backends.cpu.codegen.formulas import CODES
from fdbr.backends.cpu.exec.memory.buffer_assignment import Plan, plan
from fdbr.backends.cpu.exec.sequence import Record, Slot
from fdbr.backends.cpu.exec.sequence_building import Builder
from fdbr.backends.cpu.exec.sequencing import Natives
from fdbr.compiler.ir.program import Kind, Program, Variable, is_variable, kind_of

__all__ = ["NativeBlock", "native_block", "require"]


@attrs.frozen(eq=False)
class NativeBlock:
    """The records of a program, the slots of its results, and the memory of both."""

    records: list[Record]
    sources: list[Slot]
    roots: list[Any]
    memory: Plan


_known: WeakKeyDictionary[Program, NativeBlock] = WeakKeyDictionary()


def native_block(program: Program) -> NativeBlock:
    """Return the records of a program; they are cached, because graphs are compiled repeatedly."""
    found = _known.get(program)
    if found is None:
        builder = Builder(_natives(program))
        built = builder.build(program.steps, 0)
        sources = builder.results(program.outputs, len(program.steps))
        memory = plan(program, builder.own, builder.looks, builder.scratch, builder.early)
        built.leave_out(memory.inside)
        roots = [*built.roots().values(), *(slot.root for slot in sources)]
        roots = [root for root in roots if is_variable(root) and root not in builder.moving]
        found = _known[program] = NativeBlock(built.records, sources, roots, memory)
    return found


def _natives(program: Program) -> Natives:
    """Return the native forms of a program's steps.

    Raises
    ------
    NotImplementedError
        If a step has none.
    """
    natives = Natives(program, True, {v for step in program.steps for v in step.reads})
    made: set[Variable] = set()
    for step in program.steps:
        if not natives.is_native(step, made, whole=True):
            raise NotImplementedError(f"{step} has no machine code")
        made.update(step.outs)
    for value in (*program.inputs, *program.outputs):
        kind = kind_of(value)
        require(kind)
    return natives


def require(kind: Kind) -> None:
    """Raise an error if kernels cannot read and write values of an aval."""
    if kind.dtype not in CODES or kind.module not in (None, np) or not kind.size:
        raise NotImplementedError(f"kernels cannot read and write {kind}")
