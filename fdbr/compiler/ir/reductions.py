"""Reduction steps: their operation and axes."""

from fdbr.compiler.ir import op
from fdbr.compiler.ir.program import Instruction, Variable, kind_of

__all__ = ["fold_of", "join_of"]


def fold_of(step: Instruction) -> tuple[str, tuple[int, ...]] | None:
    """Return the operation and axes of a reduction step; `None` for other steps.

    Reductions of no elements, or to another dtype, do not count either.
    """
    name = step.primitive.facts.fold
    if not name or not step.operands or type(step.operands[0]) is not Variable:
        return None
    kind = step.operands[0].kind
    if kind.dtype != step.outs[0].kind.dtype or not kind.size:
        return None
    return name, tuple(sorted(step.params["axes"]))


def join_of(step: Instruction) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the shape and axes of a step that reduces states by a user's function.

    The result is `None` for other steps, and for reductions of no elements.
    """
    if step.primitive is not op.REDUCE:
        return None
    shape = max((kind_of(operand).shape for operand in step.operands), key=len)
    return (shape, tuple(sorted(step.params["axes"]))) if 0 not in shape else None
