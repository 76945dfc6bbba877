"""The reference interpreter: runs a program step by step by the rules of dispatch."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

from fdbr.compiler.ir.guards import GuardFailure, same
from fdbr.compiler.ir.loops import loop_of
from fdbr.compiler.ir.program import Guard, Program, is_variable, unfused
from fdbr.compiler.ir.python_numbers import apply

__all__ = ["GuardFailure", "interpret", "same"]


def interpret(
    program: Program, leaves: Sequence[Any], rounded: Callable[[Any], Any] | None = None
) -> list[Any]:
    """Return the outputs of a program.

    Parameters
    ----------
    program, leaves
        The program, and its inputs.
    rounded
        What replaces each result of a step, if given: results with other rounding errors show
        how much such errors change the outputs.

    Raises
    ------
    GuardFailure
        If a guard fails.
    """
    values: dict[Any, Any] = dict(zip(program.inputs, leaves, strict=True))

    def value(operand: Any) -> Any:
        return values[operand] if is_variable(operand) else operand

    for step in unfused(program.steps):
        if isinstance(step, Guard):
            answer = step.question(value(step.operand))
            if not same(answer, step.answer):
                raise GuardFailure(step.index, answer)
            continue
        operands = tuple(map(value, step.operands))
        loop = loop_of(step)
        if loop is not None:
            body, *back = [
                functools.partial(_iteration, program, rounded) for program in loop.programs
            ]
            out = loop.iterations(body, operands, *back)
        else:
            out = apply(step.primitive, operands, dict(step.params))
        results = out if step.several else (out,)
        values.update(zip(step.outs, map(rounded, results) if rounded else results, strict=True))
    return [value(output) for output in program.outputs]


def _iteration(
    body: Program, rounded: Callable[[Any], Any] | None, *leaves: Any
) -> list[Any]:
    return interpret(body, leaves, rounded)
