"""Fusion of updates of donated inputs, in programs that are interpreted."""

from collections.abc import Iterator

from fdbr.compiler.backend import Backend, backend_of
from fdbr.compiler.ir.program import Fused, Instruction, Program, Step, Variable, kind_of
from fdbr.compiler.passes.donate import donate, is_long
from fdbr.compiler.passes.steps import readers_of

__all__ = ["fuse_updates"]


def fuse_updates(program: Program) -> Program:
    """Fuse the elementwise steps that overwrite large donated inputs.

    `donate` decides where the kernels run.  All other steps stay unfused.
    """
    if not any(map(is_long, program.donated)):
        return program
    groups = _groups(program, backend_of(program))
    outputs = {v for v in program.outputs if type(v) is Variable}
    steps: list[Step] = [step for step in program.steps if step not in groups]
    for group in dict.fromkeys(groups.values()):
        parts = tuple(step for step in program.steps if groups.get(step) == group)
        outs = tuple(step.outs[0] for step in parts if step.outs[0] in outputs)
        shape = outs[0].kind.shape
        steps.append(Fused(parts, shape, len(shape), outs))  # type: ignore[arg-type]
    return program.replace(_taken_apart(donate(program.replace(steps))))


def _taken_apart(program: Program) -> Iterator[Step]:
    for step in program.steps:
        if type(step) is Fused and not step.over:
            yield from step.steps
        else:
            yield step


def _groups(program: Program, backend: Backend) -> dict[Step, int]:
    """Return the steps that only such steps and outputs depend on, with their group numbers.

    Steps of a group are connected by the values that they read.
    """
    readers = readers_of(program)
    groups: dict[Step, int] = {}
    names: dict[int, int] = {}

    def name(number: int) -> int:
        while names[number] != number:
            number = names[number]
        return number

    for step in reversed(program.steps):
        if type(step) is Instruction and _is_update(step, backend):
            behind = readers.get(step.outs[0], ())
            if all(reader in groups for reader in behind):
                number = groups[step] = names[len(names)] = len(names)
                for reader in behind:
                    names[name(groups[reader])] = number
    return {step: name(number) for step, number in groups.items()}


def _is_update(step: Instruction, backend: Backend) -> bool:
    out = step.outs[0]
    if not (out.kind.is_array and is_long(out) and backend.is_total(step)):
        return False
    shapes = [kind_of(operand).shape for operand in step.operands]
    return all(shape in ((), out.kind.shape) for shape in shapes)
