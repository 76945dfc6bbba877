"""Folds: steps that combine the elements of an array along axes."""

from fdbr.compiler.ir import op
from fdbr.compiler.ir.program import Instruction, Variable, kind_of

__all__ = ["fold_of", "join_of"]


def fold_of(step: Instruction) -> tuple[str, tuple[int, ...]] | None:
    """The operation by which a step combines elements, and the axes; `None` if it does not.

    Neither does one of no elements, or whose result has another dtype.
    """
    name = step.primitive.facts.fold
    if not name or not step.operands or type(step.operands[0]) is not Variable:
        return None
    kind = step.operands[0].kind
    if kind.dtype != step.outs[0].kind.dtype or not kind.size:
        return None
    return name, tuple(sorted(step.params["axes"]))


def join_of(step: Instruction) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The shape of the states that a step joins as its user says, and the axes along which.

    `None` if it does something else, or if there are none.
    """
    if step.primitive is not op.REDUCE:
        return None
    shape = max((kind_of(operand).shape for operand in step.operands), key=len)
    return (shape, tuple(sorted(step.params["axes"]))) if 0 not in shape else None
