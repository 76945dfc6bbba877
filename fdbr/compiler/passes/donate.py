"""Donation: new values overwrite donated inputs."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

import attrs

from fdbr.compiler.backend import Backend, backend_of
from fdbr.compiler.ir import op
from fdbr.compiler.ir.program import Fused, Instruction, Program, Step, Variable, is_variable
from fdbr.compiler.ir.reductions import fold_of
from fdbr.compiler.passes.cannot_fail import uncertain_first
from fdbr.compiler.passes.steps import readers_of

__all__ = ["donate", "is_long"]

_LONG = 1 << 18  # bytes of an input from which on its gradient should be freed early

Sharing = Mapping[Variable, Set[Variable]]
"""For each variable, the donated inputs whose memory it may share."""


def donate(program: Program) -> Program:
    """Let kernels write results over donated inputs.

    Before the first of them starts, all guards and steps that may fail have run, and so have all
    other readers of the overwritten inputs.  Kernels on large inputs run as soon as that is so:
    then the gradient of a parameter does not stay in memory until all others are computed.
    """
    backend = backend_of(program)
    sharing = _sharing(program, backend)
    if not sharing:
        return program
    ends = _ends(program, backend)
    program, ends = _with_copies(program, ends)
    outputs = {v for v in program.outputs if is_variable(v)}
    shown = frozenset().union(*(sharing.get(v, ()) for v in outputs))
    read = Counter(root for kernel in ends for v in kernel.reads for root in sharing.get(v, ()))
    free = {v for v, times in read.items() if times == 1 and v not in shown}
    changed = {kernel: _over(kernel, free) for kernel in ends}
    rest = [step for step in program.steps if step not in changed or changed[step] is step]
    kernels = [new for old, new in changed.items() if new is not old]
    return program.replace(_placed(rest, kernels, sharing, backend))


def _ends(program: Program, backend: Backend) -> list[Fused]:
    """Return the kernels that produce only outputs, and may overwrite their operands."""
    outputs = {v for v in program.outputs if is_variable(v)}
    readers = readers_of(program)
    return [
        step
        for step in program.steps
        if type(step) is Fused
        and _is_one_pass(step, backend)
        and outputs.issuperset(step.outs)
        and not any(out in readers for out in step.outs)
    ]


def _with_copies(program: Program, ends: Sequence[Fused]) -> tuple[Program, list[Fused]]:
    """Let kernels also copy an input that is an output of the program without being donated.

    An optimizer's new state may be the gradient itself.  Its memory belongs to the caller, and the
    memory of the old state is free for a copy of it; otherwise it would be copied where results
    are returned, in a separate pass over memory.
    """
    donated = program.donated
    kept = {v for v in program.outputs if is_variable(v)}.intersection(program.inputs) - donated
    copies: dict[Variable, Variable] = {}
    new: dict[Step, Fused] = {}
    for kernel in ends:
        operands = list(kernel.reads)
        kinds = Counter(v.kind for v in operands if v in donated)
        kinds.subtract(out.kind for out in kernel.outs)
        for v in operands:
            if v in kept and v not in copies and kinds[v.kind] > 0 and _is_copied(v, kernel):
                kinds[v.kind] -= 1
                out = copies[v] = Variable(v.kind)
                copy = Instruction(op.POSITIVE, (v,), {}, (out,))
                last = new.get(kernel, kernel)
                parts = (*last.steps, copy)
                new[kernel] = attrs.evolve(last, steps=parts, outs=(*last.outs, out))
    if not new:
        return program, list(ends)
    steps = [new.get(step, step) for step in program.steps]
    outputs = [copies.get(v, v) if is_variable(v) else v for v in program.outputs]
    return program.replace(steps, outputs=outputs), [new.get(kernel, kernel) for kernel in ends]


def _is_copied(operand: Variable, kernel: Fused) -> bool:
    """Return whether a kernel that reads an operand can store a copy of it."""
    return operand.kind.shape == kernel.domain and operand.kind.dtype.kind in "iuf"


def _is_one_pass(kernel: Fused, backend: Backend) -> bool:
    """Return whether a kernel reads no element after overwriting it, and cannot fail."""
    folds = {out for step in kernel.steps if fold_of(step) is not None for out in step.outs}
    return all(
        (fold_of(step) is not None or backend.is_total(step)) and folds.isdisjoint(step.reads)
        for step in kernel.steps
    )


def _placed(
    steps: Sequence[Step], kernels: Sequence[Fused], sharing: Sharing, backend: Backend
) -> Iterator[Step]:
    """Yield the steps, with the kernels that overwrite inputs at their positions."""
    large = [kernel for kernel in kernels if any(is_long(v) for v in kernel.over.values())]
    rest = [kernel for kernel in kernels if kernel not in large]
    made: dict[Variable, int] = {}
    read: dict[Variable, int] = {}
    first = -1
    if large:
        steps, first = uncertain_first(steps, backend)
        for position, step in enumerate(steps):
            made.update(dict.fromkeys(step.outs, position))
            for variable in step.reads:
                read.update(dict.fromkeys(sharing.get(variable, ()), position))
    due: dict[int, list[Fused]] = {}
    for kernel in large:
        known = [made.get(v, -1) for v in kernel.reads]
        seen = [read.get(v, -1) for v in kernel.over.values()]
        due.setdefault(max(first, *known, *seen), []).append(kernel)
    yield from due.get(-1, ())
    for position, step in enumerate(steps):
        yield step
        yield from due.get(position, ())
    yield from rest


def is_long(variable: Variable) -> bool:
    """Return whether a variable is so large that its memory should be freed early."""
    return variable.kind.nbytes >= _LONG


def _over(kernel: Fused, free: Set[Variable]) -> Fused:
    """Return a kernel that overwrites operands with the avals of its results, where it can."""
    operands = [v for v in kernel.reads if v in free and v.kind.shape == kernel.domain]
    over: dict[Variable, Variable] = {}
    for out in kernel.outs:
        for operand in operands:
            if operand.kind == out.kind and operand not in over.values():
                over[out] = operand
                break
    return attrs.evolve(kernel, over=over) if over else kernel


def _sharing(program: Program, backend: Backend) -> Sharing:
    sharing: dict[Any, Set[Variable]] = {v: {v} for v in program.donated if backend.is_large(v)}
    for step in program.steps if sharing else ():
        below = [sharing[v] for v in step.reads if v in sharing]
        if below and isinstance(step, Instruction) and not step.primitive.facts.fresh:
            sharing.update(dict.fromkeys(step.outs, frozenset().union(*below)))
    return sharing
