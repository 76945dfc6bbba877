"""Lowering of control-flow primitives to the loops that kernels and sequences support."""

from fdbr.compiler.ir.loops import LOWERED
from fdbr.compiler.ir.program import Instruction, Program, Step

__all__ = ["lower_loops"]


def lower_loops(program: Program) -> Program:
    """Replace control-flow primitives by loops, where that is possible.

    The bodies of loops go through the passes, too, so nested loops are lowered as well.
    """
    steps: list[Step] = []
    for step in program.steps:
        lowered = LOWERED.get(step.primitive) if isinstance(step, Instruction) else None
        found = lowered(step) if lowered is not None else None  # type: ignore[arg-type]
        steps += [step] if found is None else found
    return (
        program
        if len(steps) == len(program.steps)
        and all(a is b for a, b in zip(steps, program.steps, strict=True))
        else program.replace(steps)
    )
