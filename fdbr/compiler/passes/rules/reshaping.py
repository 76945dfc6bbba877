"""Rules for reshapes, permutations and broadcasts, and for reductions of these."""

import math

from fdbr.compiler.ir import op
from fdbr.compiler.ir.program import Instruction, kind_of
from fdbr.compiler.passes.rules.table import Facts, Found, Same, applied, between, rule


@rule(op.RESHAPE)
def reshaped(step: Instruction, facts: Facts) -> Found:
    """Simplify consecutive reshapes to the last one."""
    (x,) = step.operands
    kind = step.outs[0].kind
    if kind_of(x) == kind:
        return Same(x)
    maker = facts.made_by(x, op.RESHAPE)
    if maker is None or not (kind.shape or kind_of(maker.operands[0]).is_array):
        return None  # reshaping a scalar to () keeps it a scalar, not an array
    return applied(step, op.RESHAPE, maker.operands[0], to=kind.shape)


@rule(op.PERMUTE)
def permuted(step: Instruction, facts: Facts) -> Found:
    """Merge two permutations of axes."""
    (x,) = step.operands
    axes = step.params["axes"]
    if axes == tuple(range(len(axes))):
        return Same(x)
    maker = facts.made_by(x, op.PERMUTE)
    if maker is None:
        return None
    inner = maker.params["axes"]
    return applied(step, op.PERMUTE, maker.operands[0], axes=tuple(inner[a] for a in axes))


@rule(op.MATRIX_TRANSPOSE)
def transposed(step: Instruction, facts: Facts) -> Found:
    """Rewrite a matrix transpose as a permutation of axes."""
    rank = len(step.outs[0].kind.shape)
    axes = (*range(rank - 2), rank - 1, rank - 2)
    return applied(step, op.PERMUTE, step.operands[0], axes=axes)


@rule(op.FLIP)
def flipped(step: Instruction, facts: Facts) -> Found:
    """Simplify two reversals: ``flip(flip(x)) = x``."""
    (x,) = step.operands
    maker = facts.made_by(x, op.FLIP)
    again = maker is not None and sorted(maker.params["axes"]) == sorted(step.params["axes"])
    return Same(maker.operands[0]) if maker and again else None


@rule(op.BROADCAST_TO)
def repeated(step: Instruction, facts: Facts) -> Found:
    """Merge consecutive broadcasts, and a broadcast after a reshape that adds leading axes."""
    (x,) = step.operands
    kind = step.outs[0].kind
    if kind_of(x) == kind:
        return Same(x)
    maker = facts.made_by(x, op.BROADCAST_TO, op.RESHAPE)
    if maker is None:
        return None
    first = maker.operands[0]
    if maker.primitive is op.RESHAPE:
        shape, mine = kind_of(first).shape, kind_of(x).shape
        if mine[: len(mine) - len(shape)] + shape != mine or math.prod(shape) != kind_of(x).size:
            return None
    return applied(step, op.BROADCAST_TO, first, to=kind.shape)


# --- sums ---------------------------------------------------------------------------


@rule(op.SUM, op.MEAN, op.MAX, op.MIN)
def over_nothing(step: Instruction, facts: Facts) -> Found:
    """Replace a reduction over axes of length 1, or over none, by its operand."""
    (x,) = step.operands
    mine, kind = kind_of(x), step.outs[0].kind
    if mine.dtype != kind.dtype or mine.size != kind.size or not mine.size:
        return None
    if mine == kind:
        return Same(x)
    return applied(step, op.RESHAPE, x, to=kind.shape) if kind.is_array else None


@rule(op.SUM, op.MEAN)
def of_repetitions(step: Instruction, facts: Facts) -> Found:
    """Rewrite a sum over broadcast axes as a multiple of the operand."""
    maker = facts.made_by(step.operands[0], op.BROADCAST_TO)
    kind = step.outs[0].kind
    if maker is None or kind.dtype.kind not in "fc" or kind.dtype.itemsize < 4:
        return None
    whole, x = maker.outs[0].kind.shape, maker.operands[0]
    count = math.prod(whole[axis] for axis in step.params["axes"])
    if not _is_repeated(kind_of(x).shape, whole, step.params["axes"]) or not count:
        return None
    factor = 1 if step.primitive is op.MEAN else count
    if kind_of(x).shape == kind.shape:
        return applied(step, op.MULTIPLY, x, factor) if factor != 1 else Same(x)
    if not kind.is_array or kind_of(x).size != kind.size:
        return None
    if factor == 1:
        return applied(step, op.RESHAPE, x, to=kind.shape)
    if not facts.only_made_by(step.operands[0], op.BROADCAST_TO):
        return None  # the broadcast has other readers, so a step would be added
    middle, reshape = between(step, kind, op.RESHAPE, x, to=kind.shape)
    return [reshape, applied(step, op.MULTIPLY, middle, factor)]


def _is_repeated(shape: tuple[int, ...], whole: tuple[int, ...], axes: tuple[int, ...]) -> bool:
    """Return whether a shape has length 1 along some axes of the shape that it broadcasts to."""
    aligned = (1,) * (len(whole) - len(shape)) + shape
    return all(aligned[axis] == 1 for axis in axes)
