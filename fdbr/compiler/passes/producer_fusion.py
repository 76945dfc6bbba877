"""Move cheap consumers into the kernel of their producer, if less memory is kept then."""

from collections.abc import Iterable
from typing import Any

import attrs

from fdbr.compiler.backends.interface import Backend, backend_of
from fdbr.compiler.ir.program import Fused, Instruction, Program, Step, Variable, is_variable
from fdbr.compiler.passes.steps import fits, readers_of

__all__ = ["fuse_producers"]


def fuse_producers(program: Program) -> Program:
    """The program with fewer results of kernels that are kept for later ones.

    The way back through `gelu` needs its slope, a function of two arrays that the way forward
    has at hand: the slope is one.
    """
    kept = {v for v in program.outputs if is_variable(v)}
    backend, readers = backend_of(program), readers_of(program)
    makers = {out: step for step in program.steps if type(step) is Fused for out in step.outs}
    changed: dict[Step, Fused] = {}  # by the kernels that were there at first

    def now(step: Any) -> Fused:
        return changed.get(step, step)

    for later in program.steps:
        if type(later) is not Fused:
            continue
        for first in dict.fromkeys(makers[v] for v in later.reads if v in makers):
            sole = {
                v
                for v in now(first).outs
                if v not in kept and all(step is later for step in readers.get(v, ()))
            }
            found = _moved(now(first), now(later), sole, backend)
            if found is not None:
                changed[first], changed[later] = found
    if not changed:
        return program
    return program.replace(changed.get(step, step) for step in program.steps)


def _moved(
    first: Fused, later: Fused, sole: set[Variable], backend: Backend
) -> tuple[Fused, Fused] | None:
    """Two kernels with steps of the later one in the earlier one, if less lies between them then.

    ``sole`` are the results of the earlier one that nobody else reads.
    """
    before = sole.intersection(later.reads)
    # Its sums over rows are there only when it is through.
    given = {*first.reads, *(v for v in first.outs if v.kind.shape == first.domain)}
    moving: list[Instruction] = []
    for step in later.steps:
        ready = step.reads and given.issuperset(step.reads)
        if ready and fits(step, first, backend) and step.outs[0] not in later.outs:
            moving.append(step)
            given.add(step.outs[0])
    rest = tuple(step for step in later.steps if step not in moving)
    read = {v for step in rest for v in step.reads}
    new = [step.outs[0] for step in moving if step.outs[0] in read]
    if _bytes(new) >= _bytes(before - read):
        return None
    outs = tuple(v for v in first.outs if v not in before or v in read)
    return (
        attrs.evolve(first, steps=(*first.steps, *moving), outs=(*outs, *new)),
        attrs.evolve(later, steps=rest),
    )


def _bytes(variables: Iterable[Variable]) -> int:
    return sum(v.kind.nbytes for v in variables)
