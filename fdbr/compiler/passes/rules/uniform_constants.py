"""Rules for constants with equal elements, and for selections with a constant condition."""

from typing import Any

import numpy as np

from fdbr.compiler.ir import op
from fdbr.compiler.ir.program import Instruction, kind_of
from fdbr.compiler.passes.rules.table import Facts, Found, Same, applied, instead, rule
from fdbr.core.array_modules import lock

_LARGE = 1 << 20  # bytes from which on an array is made at run time instead of stored as constant


@rule(op.WHERE, kind="elementwise")
def of_one_number(step: Instruction, facts: Facts) -> Found:
    """Replace a constant with equal elements by an array without axes, if the shape stays.

    A broadcast variable is replaced by its operand in the same way.
    """
    kind = step.outs[0].kind
    if not kind.shape or not kind.is_array:
        return None
    operands = list(step.operands)
    shapes = [kind_of(operand).shape for operand in operands]
    changed = False
    for position, shape in enumerate(shapes):
        if not shape:
            continue
        smaller = _smaller(operands[position], facts)
        if smaller is None:
            continue
        others = [*shapes[:position], smaller.shape, *shapes[position + 1 :]]
        if np.broadcast_shapes(*others) == kind.shape:
            operands[position], shapes, changed = smaller.value, others, True
    return instead(step, *operands) if changed else None


class _Smaller:
    __slots__ = ("shape", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self.shape = kind_of(value).shape


def _smaller(operand: Any, facts: Facts) -> _Smaller | None:
    """Return a smaller value that broadcasts to an operand; `None` if there is none."""
    maker = facts.made_by(operand, op.BROADCAST_TO)
    if maker is not None:
        return _Smaller(maker.operands[0])
    element = facts.element(operand)
    return None if element is None else _Smaller(lock(np.asarray(element)))


@rule(op.FULL_LIKE)
def filled(step: Instruction, facts: Facts) -> Found:
    """Replace a small result that does not depend on its operand's elements by a constant."""
    kind = step.outs[0].kind
    if not kind.is_array or kind.nbytes > _LARGE:
        return None
    return Same(lock(kind.xp.full(kind.shape, step.params["value"], dtype=kind.dtype)))


@rule(op.WHERE)
def decided(step: Instruction, facts: Facts) -> Found:
    """Simplify ``where(constant, a, b)`` to ``a`` or ``b``."""
    condition, x, y = step.operands
    element = facts.element(condition)
    if element is None:
        return None
    chosen, kind = x if element else y, step.outs[0].kind
    mine = kind_of(chosen)
    if mine == kind or not kind.is_array or not mine.is_array:
        return Same(chosen)
    if mine.dtype == kind.dtype:
        return applied(step, op.BROADCAST_TO, chosen, to=kind.shape)
    if mine.shape != kind.shape:
        return None
    astype = op.ASTYPE_INEXACT if kind.dtype.kind in "fc" else op.ASTYPE_EXACT
    return applied(step, astype, chosen, to=kind.dtype)


@rule(op.WHERE)
def between_equals(step: Instruction, facts: Facts) -> Found:
    """Simplify ``where(condition, x, x)`` to ``x``."""
    _, x, y = step.operands
    return Same(x) if x is y else None
