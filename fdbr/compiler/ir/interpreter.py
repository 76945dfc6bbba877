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
    program: Program,
    leaves: Sequence[Any],
    rounded: Callable[[Any, tuple[Any, ...]], Any] | None = None,
) -> list[Any]:
    """Return the outputs of a program.

    Parameters
    ----------
    program, leaves
        The program, and its inputs.
    rounded
        Returns what replaces a result of a step, from the result and the operands: results with
        other rounding errors show how much such errors change the outputs.

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
        results: Sequence[Any] = out if step.several else (out,)
        if rounded is not None:
            results = [rounded(result, operands) for result in results]
        values.update(zip(step.outs, results, strict=True))
    return [value(output) for output in program.outputs]


def _iteration(body: Program, rounded: Any, *leaves: Any) -> list[Any]:
    return interpret(body, leaves, rounded)
