"""Rematerialisation: recompute cheap results in the kernels that read them."""

from typing import Any

import attrs

from fdbr.compiler.backend import Backend, backend_of
from fdbr.compiler.ir.broadcast_layout import best_split, splits
from fdbr.compiler.ir.program import (
    Fused,
    Instruction,
    Program,
    Step,
    Variable,
    is_variable,
    kind_of,
)
from fdbr.compiler.passes.steps import fits, readers_of, renamed_all

__all__ = ["rematerialize"]

_INSTEAD = 1.25
"""By how much the arrays that are read instead of a stored value may be larger than it."""

Chain = list[Instruction]
"""Steps that compute a value from the operands of a kernel, in order."""


def rematerialize(program: Program) -> Program:
    """Drop results of kernels that all their readers, also kernels, can recompute.

    A reader recomputes a value if that takes a few additions and multiplications of its other
    operands: ``x * x`` is not stored for the backward pass if ``x`` is.  It may also read another
    array instead: that takes as long, but saves writing the value.
    """
    backend, readers = backend_of(program), readers_of(program)
    kept = {v for v in program.outputs if is_variable(v)}
    chains: dict[Step, dict[Variable, Chain]] = {}
    gone: set[Variable] = set()
    for kernel in program.steps:
        if type(kernel) is not Fused:
            continue
        makers = {out: step for step in kernel.steps for out in step.outs}
        for out in kernel.outs:
            later = readers.get(out, ())
            if out in kept or not later or not all(type(step) is Fused for step in later):
                continue
            found = [_chain(out, makers, step, gone, backend) for step in later]
            if all(found):
                gone.add(out)
                for step, chain in zip(later, found, strict=True):
                    chains.setdefault(step, {})[out] = chain
                    # The operands of the recomputation must stay stored.
                    kept.update(v for part in chain for v in part.reads)
    if not gone:
        return program
    rows = backend.costs.rows
    return program.replace(
        _without(step, chains.get(step, {}), gone, rows) for step in program.steps
    )


def _chain(
    wanted: Variable,
    makers: dict[Variable, Instruction],
    reader: Any,
    gone: set[Variable],
    backend: Backend,
) -> Chain:
    """Return the steps by which a kernel recomputes a value from other operands; none if none."""
    room, plain = _INSTEAD * wanted.kind.nbytes, _is_plain(reader)
    given = {v for v in reader.reads if v is not wanted and v not in gone}
    chain: Chain = []
    made: set[Variable] = set()

    def make(variable: Variable) -> bool:
        nonlocal room
        if variable in made:
            return True
        step = makers.get(variable)
        if step is None and not plain:
            return False
        if step is None:  # the value of another kernel, or an input
            room -= variable.kind.nbytes
            given.add(variable)
            return variable not in gone and room >= 0
        if not fits(step, reader, backend):
            return False
        needed = [o for o in step.operands if is_variable(o) and o not in given and o not in made]
        if not all(map(make, needed)):
            return False
        chain.append(step)
        made.add(variable)
        return sum(map(backend.cost, chain)) <= backend.costs.access

    return chain if make(wanted) else []


def _is_plain(kernel: Fused) -> bool:
    """Return whether a kernel is elementwise, and so independent of its rows."""
    return all(
        step.primitive.facts.elementwise and step.outs[0].kind.shape == kernel.domain
        for step in kernel.steps
    )


def _without(step: Step, chains: dict[Variable, Chain], gone: set[Variable], rows: int) -> Step:
    """Return a kernel with recomputed operands, and without the results that are not read."""
    if type(step) is not Fused:
        return step
    names: dict[Variable, Variable] = {}
    parts: list[Instruction] = []
    for chain in chains.values():
        parts += [_renamed(part, names) for part in chain if part.outs[0] not in names]
    parts += [_renamed(part, names, new=False) for part in step.steps]
    outs = tuple(v for v in step.outs if v not in gone)
    if not chains and len(outs) == len(step.outs):
        return step
    step = attrs.evolve(step, steps=tuple(parts), outs=outs)
    if not chains or not _is_plain(step):
        return step
    shapes = {kind_of(o).shape for part in parts for o in part.operands}
    allowed = frozenset.intersection(*(splits(shape, step.domain) for shape in shapes))
    return attrs.evolve(step, split=best_split(step.domain, allowed, shapes, rows))


def _renamed(step: Instruction, names: dict[Variable, Variable], new: bool = True) -> Instruction:
    """Return a step with renamed operands, and new variables for its results."""
    operands = renamed_all(step.operands, names)
    outs = step.outs
    if new:
        outs = tuple(Variable(v.kind) for v in outs)
        names.update(zip(step.outs, outs, strict=True))
    return attrs.evolve(step, operands=operands, outs=outs)
