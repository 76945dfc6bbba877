"""Rules for negations, which sums, differences and constants absorb.

The sign of zeros is preserved: so ``-(x - y)`` is not ``y - x``, which is 0.0 for equal operands.
"""

from typing import Any

import numpy as np

from fdbr.compiler.ir import op
from fdbr.compiler.ir.program import Instruction, Variable, kind_of
from fdbr.compiler.passes.rules.table import Facts, Found, Same, applied, instead, rule
from fdbr.core.array_modules import lock


@rule(op.NEGATIVE)
def twice(step: Instruction, facts: Facts) -> Found:
    """Simplify ``-(-x)`` to ``x``."""
    maker = facts.made_by(step.operands[0], op.NEGATIVE)
    return Same(maker.operands[0]) if maker else None


@rule(op.MULTIPLY)
def by_minus_one(step: Instruction, facts: Facts) -> Found:
    """Rewrite ``x * -1`` as ``-x``; not for complex numbers: infinity times -1 has a NaN."""
    for x, y in (step.operands, step.operands[::-1]):
        kind = kind_of(x)
        if facts.number(y) == -1 and kind == step.outs[0].kind and kind.dtype.kind in "if":
            return applied(step, op.NEGATIVE, x)
    return None


@rule(op.ADD)
def plus_negative(step: Instruction, facts: Facts) -> Found:
    """Rewrite ``x + (-y)`` as ``x - y``."""
    for x, y in (step.operands, step.operands[::-1]):
        taken = _taken(step, facts, y)
        if taken is not None:
            return applied(step, op.SUBTRACT, x, taken)
    return None


@rule(op.SUBTRACT)
def minus_negative(step: Instruction, facts: Facts) -> Found:
    """Rewrite ``x - (-y)`` as ``x + y``."""
    x, y = step.operands
    taken = _taken(step, facts, y)
    return None if taken is None else applied(step, op.ADD, x, taken)


def _taken(step: Instruction, facts: Facts, operand: Any) -> Any:
    """Return the negated operand, if the negation may be absorbed."""
    maker = facts.only_made_by(operand, op.NEGATIVE)
    if maker is None:
        return None
    # The most negative narrow integer equals its negation, and unsigned ones wrap around.
    mine = operand.kind.dtype
    return maker.operands[0] if mine.kind in "fc" or mine == step.outs[0].kind.dtype else None


@rule(op.MULTIPLY, op.DIVIDE)
def of_negatives(step: Instruction, facts: Facts) -> Found:
    """Rewrite ``-x * -y`` as ``x * y``, and ``-x * 2`` as ``x * -2``."""
    if step.outs[0].kind.dtype.kind != "f":
        return None
    makers = [facts.only_made_by(operand, op.NEGATIVE) for operand in step.operands]
    if not any(makers):
        return None
    inner = [
        _negated(operand) if maker is None else maker.operands[0]
        for maker, operand in zip(makers, step.operands, strict=True)
    ]
    floating = all(
        maker is None or kind_of(o).dtype.kind == "f"
        for maker, o in zip(makers, inner, strict=True)
    )
    return instead(step, *inner) if floating and all(o is not None for o in inner) else None


def _negated(constant: Any) -> Any:
    """Return a constant with the other sign; `None` if its dtype has no signs."""
    if type(constant) is Variable:
        return None
    if type(constant) in (int, float):
        return -constant
    if isinstance(constant, np.ndarray | np.generic) and constant.dtype.kind == "f":
        return lock(np.negative(constant)) if constant.ndim == 0 else None
    return None
