"""Helpers of passes: renaming of operands, readers of variables, and what a kernel can compute."""

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from fdbr.compiler.backend import Backend
from fdbr.compiler.ir.broadcast_layout import place
from fdbr.compiler.ir.program import (
    Fused,
    Guard,
    Instruction,
    Program,
    Small,
    Step,
    Variable,
    kind_of,
)

__all__ = [
    "count_reads",
    "fits",
    "last_remats",
    "readers_of",
    "renamed",
    "renamed_all",
    "renamed_outputs",
]

Names = Mapping[Variable, Any]
"""Replacements of variables, by other variables or constants."""


def renamed(step: Step, names: Names) -> Step:
    """Return a step with its operands renamed; the step itself if none has a new name."""
    if type(step) is Instruction:
        operands = step.operands
        for operand in operands:
            if type(operand) is Variable and operand in names:
                break
        else:
            return step
        return Instruction(step.primitive, renamed_all(operands, names), *_rest(step))
    if type(step) is Guard:
        (operand,) = renamed_all((step.operand,), names)
        return step if operand is step.operand else attrs.evolve(step, operand=operand)
    assert isinstance(step, Fused | Small)
    steps: Any = tuple(renamed(inner, names) for inner in step.steps)
    return attrs.evolve(step, steps=steps)


def _rest(step: Instruction) -> tuple[Any, ...]:
    return step.params, step.outs, step.several, step.remat


def renamed_all(operands: Iterable[Any], names: Names) -> tuple[Any, ...]:
    """Return operands, with variables replaced that have a new name."""
    return tuple(
        [
            names.get(operand, operand) if type(operand) is Variable else operand
            for operand in operands
        ]
    )


def renamed_outputs(program: Program, steps: Iterable[Step], names: Names) -> Program:
    """Return a program with other steps, and renamed outputs."""
    return program.replace(steps, renamed_all(program.outputs, names))


def count_reads(program: Program) -> dict[Variable, int]:
    """Return how often each variable is read, by steps and as an output."""
    counts: dict[Variable, int] = {}
    for step in program.steps:
        operands = step.operands if type(step) is Instruction else step.reads
        for operand in operands:
            if type(operand) is Variable:
                counts[operand] = counts.get(operand, 0) + 1
    for operand in program.outputs:
        if type(operand) is Variable:
            counts[operand] = counts.get(operand, 0) + 1
    return counts


def readers_of(program: Program) -> dict[Variable, list[Step]]:
    """Return the steps that read each variable."""
    readers: dict[Variable, list[Step]] = {}
    for step in program.steps:
        for variable in step.reads:
            readers.setdefault(variable, []).append(step)
    return readers


def fits(step: Instruction, kernel: Fused, backend: Backend) -> bool:
    """Return whether a kernel can also compute a step, for each of its elements."""
    if not backend.is_elementwise(step) or step.outs[0].kind.shape != kernel.domain:
        return False
    shapes = [kind_of(operand).shape for operand in step.operands]
    return all(place(shape, kernel.domain, kernel.split) is not None for shape in shapes)


def last_remats(program: Program) -> dict[Variable, int]:
    """Return the last rematerialisation scope that each variable depends on, if any.

    Values of different scopes must not be merged, because the memory of all scopes would be needed
    at once.
    """
    remats: dict[Variable, int] = {}
    if not any(type(step) is Instruction and step.remat for step in program.steps):
        return remats
    for step in program.steps:
        if type(step) is Instruction:
            last = max([step.remat, *(remats.get(v, 0) for v in step.reads)])
            if last:
                remats.update(dict.fromkeys(step.outs, last))
    return remats
