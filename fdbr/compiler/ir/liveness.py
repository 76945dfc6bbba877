"""Liveness: the last uses of a program's values."""

from collections.abc import Iterable, Sequence
from typing import Any

from fdbr.compiler.ir.program import Step, Variable, is_variable

__all__ = ["last_uses"]


def last_uses(steps: Sequence[Step], outputs: Iterable[Any]) -> dict[int, list[Variable]]:
    """Return the variables that are dead after each step, by the step's position."""
    kept = {output for output in outputs if is_variable(output)}
    ends: dict[int, list[Variable]] = {}
    for position in range(len(steps) - 1, -1, -1):
        step = steps[position]
        for variable in (*step.outs, *step.reads):
            if variable not in kept:
                kept.add(variable)
                ends.setdefault(position, []).append(variable)
    return ends
