"""Constant folding: compute steps that depend on constants alone."""

import math
from typing import Any

import numpy as np

from fdbr.compiler.ir.guards import same
from fdbr.compiler.ir.program import (
    Guard,
    Instruction,
    Program,
    Step,
    Variable,
    has_effect,
    is_variable,
    kind_of,
)
from fdbr.compiler.ir.python_numbers import apply
from fdbr.compiler.passes.steps import renamed, renamed_outputs
from fdbr.core.array_modules import is_locked, lock, owner

__all__ = ["fold_constants"]

_LARGE = 1 << 20  # bytes from which on a result must not be larger than its operands


def fold_constants(program: Program) -> Program:
    """Replace steps on constants by their results.

    The results are read-only.  A large result of small operands, such as a broadcast, is still
    computed when the program runs.  A guard on a constant that holds is dropped.
    >>> from fdbr.core.primitive import registry
    >>> six = Variable(kind_of(6.0))
    >>> step = Instruction(registry["multiply"], (2.0, 3.0), {}, (six,))
    >>> print(fold_constants(Program("f", (), (step,), (six,))))
    program f()
      return 6.0
    """
    names: dict[Variable, Any] = {}
    steps: list[Step] = []
    for step in program.steps:
        step = renamed(step, names)
        if type(step) is Guard:
            if not is_variable(step.operand) and same(step.question(step.operand), step.answer):
                continue
        elif type(step) is Instruction and _is_foldable(step):
            names.update(zip(step.outs, _results(step), strict=True))
            continue
        steps.append(step)
    if len(steps) == len(program.steps):
        return program
    return renamed_outputs(program, steps, names)


def _is_foldable(step: Instruction) -> bool:
    if any(map(is_variable, step.operands)) or has_effect(step):
        return False
    made = sum(_bytes(out) for out in step.outs)
    return made <= _LARGE or made <= sum(map(_bytes, step.operands))


def _bytes(operand: Any) -> int:
    """Return the size of a value in memory; a broadcast array counts as what it repeats."""
    kind = kind_of(operand)
    strides = getattr(operand, "strides", None) or (1,) * len(kind.shape)
    lengths = [n for n, stride in zip(kind.shape, strides, strict=True) if stride]
    return math.prod(lengths) * np.dtype(kind.dtype).itemsize


def _results(step: Instruction) -> list[Any]:
    with np.errstate(all="ignore"):  # NumPy has already warned in the captured run
        out = apply(step.primitive, step.operands, dict(step.params))
    return [_frozen(part, step.operands) for part in (out if step.several else (out,))]


def _frozen(value: Any, operands: tuple[Any, ...]) -> Any:
    """Return a read-only value: a copy if it shares an operand's memory."""
    if not hasattr(value, "dtype") or is_locked(value):
        return value
    whole = owner(value)
    if any(owner(operand) is whole for operand in operands):
        value = value.copy(order="K")
    return lock(value)
