"""Folds: steps that combine the elements of an array along axes."""

from fdbr.compiler.ir.program import Instruction, Variable

__all__ = ["fold_of"]


def fold_of(step: Instruction) -> tuple[str, tuple[int, ...]] | None:
    """How a step combines elements, and the axes along which it does; `None` if it does not.

    Neither does one of no elements, or whose result has another dtype.
    """
    name = step.primitive.fold
    if not name or not step.operands or type(step.operands[0]) is not Variable:
        return None
    kind = step.operands[0].kind
    if kind.dtype != step.outs[0].kind.dtype or not kind.size:
        return None
    return name, tuple(sorted(step.params["axes"]))
