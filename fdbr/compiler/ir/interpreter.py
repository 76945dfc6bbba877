"""The reference: a program run step by step, as the engine would run it."""

from collections.abc import Iterator, Sequence
from typing import Any

from fdbr.compiler.ir.guards import same
from fdbr.compiler.ir.numbers import apply
from fdbr.compiler.ir.program import Fused, Guard, Instruction, Program, Small, is_variable

__all__ = ["GuardFailure", "interpret", "same"]


class GuardFailure(Exception):
    """A decision turned out otherwise than in the recording.

    Attributes
    ----------
    index
        The decision's number in the run.
    answer
        What it said now.
    """

    def __init__(self, index: int, answer: Any) -> None:
        super().__init__(index, answer)
        self.index = index
        self.answer = answer


def interpret(program: Program, leaves: Sequence[Any]) -> list[Any]:
    """The outputs of a program.

    Raises
    ------
    GuardFailure
        If a guard does not hold.
    """
    values: dict[Any, Any] = dict(zip(program.inputs, leaves, strict=True))

    def value(operand: Any) -> Any:
        return values[operand] if is_variable(operand) else operand

    for step in _flat(program):
        if isinstance(step, Guard):
            answer = step.question(value(step.operand))
            if not same(answer, step.answer):
                raise GuardFailure(step.index, answer)
            continue
        out = apply(step.primitive, tuple(map(value, step.operands)), dict(step.params))
        values.update(zip(step.outs, out if step.several else (out,), strict=True))
    return [value(output) for output in program.outputs]


def _flat(program: Program) -> Iterator[Guard | Instruction]:
    """The steps, with those of kernels one by one."""
    for step in program.steps:
        if type(step) in (Fused, Small):
            yield from step.steps  # type: ignore[union-attr]
        else:
            yield step  # type: ignore[misc]
