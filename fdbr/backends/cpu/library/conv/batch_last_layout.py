"""The layout pass for convolutions: arrays keep examples last between convolutions.

Convolutions compute on arrays ``(C, *spatial, N)``.  Left to themselves they would transpose arrays
before and after each.  This pass makes all steps between them work in this order: elementwise
steps, reductions and pooling.  Sums over all axes but the channels, as in batch norm, become sums
over contiguous rows.
"""

from typing import Any

from fdbr.backends.cpu.library.conv.program_primitives import (
    CONVOLUTIONS,
    EXAMPLES_LAST,
    PUT_LAST,
    back,
    forward,
    last,
)
from fdbr.compiler.backend import backend_of
from fdbr.compiler.ir import op
from fdbr.compiler.ir.program import Instruction, Program, Step, Variable, kind_of
from fdbr.core.primitive import Primitive

__all__ = ["lay_batch_last"]

_STATISTICS = frozenset({op.STANDARDIZE, op.RESCALE})


def lay_batch_last(program: Program) -> Program:
    """Lay out arrays with examples last, if the program has convolutions."""
    if not any(type(s) is Instruction and s.primitive in CONVOLUTIONS for s in program.steps):
        return program
    if not backend_of(program).has_own(PUT_LAST):
        return program
    turning = _Turning()
    for step in program.steps:
        turning.take(step)
    outputs = [turning.original(output) for output in program.outputs]
    return program.replace(turning.steps, outputs)


class _Turning:
    """Builds the new steps, and records the orders in which each array exists."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.twins: dict[Variable, Variable] = {}  # the variables with examples last
        self.missing: set[Variable] = set()  # variables that exist with examples last only

    def take(self, step: Step) -> None:
        """Add a step in the order that suits it."""
        if type(step) is not Instruction or not self._turned(step):
            for variable in step.reads:
                self.original(variable)
            self.steps.append(step)

    def original(self, operand: Any) -> Any:
        """Return an operand with examples first, permuted if need be."""
        if type(operand) is Variable and operand in self.missing:
            self.missing.remove(operand)
            axes = back(len(operand.kind.shape))
            self._add(op.PERMUTE, (self.twins[operand],), {"axes": axes}, (operand,))
        return operand

    def _twin(self, operand: Any) -> Any:
        """Return an operand with examples last, permuted if need be."""
        if operand not in self.twins:
            shape = operand.kind.shape
            made = self._new(operand, [shape[axis] for axis in forward(len(shape))])
            self.twins[operand] = made
            self.steps.append(Instruction(PUT_LAST, (operand,), {}, (made,)))
        return self.twins[operand]

    def _new(self, like: Variable, shape: Any) -> Variable:
        return Variable(like.kind.array(shape))

    def _add(self, primitive: Primitive, operands: Any, params: Any, outs: Any) -> None:
        self.steps.append(Instruction(primitive, tuple(operands), params, tuple(outs)))

    def _outs(self, step: Instruction) -> tuple[Variable, ...]:
        """Return new variables with examples last for the results of a step."""
        for out in step.outs:
            shape = out.kind.shape
            self.twins[out] = self._new(out, [shape[axis] for axis in forward(len(shape))])
            self.missing.add(out)
        return tuple(self.twins[out] for out in step.outs)

    def _put(
        self, step: Instruction, primitive: Any, operands: Any, params: Any, outs: Any
    ) -> bool:
        self.steps.append(
            Instruction(primitive, tuple(operands), params, outs, step.several, step.remat)
        )
        return True

    # --- by class of step ---

    def _turned(self, step: Instruction) -> bool:
        """Add a step with examples last; return whether that is possible."""
        if step.primitive in EXAMPLES_LAST:
            return self._windows(step, *EXAMPLES_LAST[step.primitive])
        if not any(type(o) is Variable and o in self.twins for o in step.operands):
            return False
        if step.primitive.facts.fold or step.primitive in _STATISTICS:
            return self._reduction(step)
        if step.primitive.facts.elementwise:
            return self._elementwise(step)
        return False

    def _windows(self, step: Instruction, turned: tuple[int, ...], whole: bool) -> bool:
        given = [step.operands[i] for i in turned]
        rank = len(kind_of(given[0]).shape)
        geometry = step.params["geometry"]
        if rank != len(geometry.kernel) + 2 or not all(type(o) is Variable for o in given):
            return False
        if step.primitive not in CONVOLUTIONS and not any(o in self.twins for o in given):
            return False
        operands = [
            self._twin(o) if i in turned else self.original(o) for i, o in enumerate(step.operands)
        ]
        outs = self._outs(step) if whole else step.outs
        return self._put(step, last[step.primitive], operands, step.params, outs)

    def _elementwise(self, step: Instruction) -> bool:
        (out,) = step.outs
        shape = out.kind.shape
        whole = [o for o in step.operands if type(o) is Variable and o.kind.shape == shape]
        if not out.kind.is_array or not any(o in self.twins for o in whole):
            return False
        if not all(kind_of(o).is_array or not kind_of(o).shape for o in step.operands):
            return False
        operands = [self._aligned(o, len(shape)) for o in step.operands]
        return self._put(step, step.primitive, operands, step.params, self._outs(step))

    def _aligned(self, operand: Any, rank: int) -> Any:
        """Return an operand such that it broadcasts to arrays with examples last."""
        kind = kind_of(operand)
        if not kind.shape:
            return operand
        if type(operand) is Variable and operand in self.twins and len(kind.shape) == rank:
            return self.twins[operand]
        shape = (1,) * (rank - len(kind.shape)) + kind.shape
        turned = tuple(shape[axis] for axis in forward(rank))
        if type(operand) is not Variable:
            return kind.xp.ascontiguousarray(operand.reshape(shape).transpose(forward(rank)))
        if shape[0] not in (1, kind.size):
            return self._twin(operand)
        made = self._new(operand, turned)
        self._add(op.RESHAPE, (self.original(operand),), {"to": turned}, (made,))
        return made

    def _reduction(self, step: Instruction) -> bool:
        (x,) = step.operands
        rank = len(x.kind.shape)
        axes = tuple(sorted((axis - 1) % rank for axis in step.params["axes"]))
        params = {**step.params, "axes": axes}
        kept = step.primitive in _STATISTICS or params.get("keepdims", False)
        if kept:
            return self._put(step, step.primitive, (self.twins[x],), params, self._outs(step))
        (out,) = step.outs
        left = [axis for axis in range(rank) if axis not in step.params["axes"]]
        if 0 not in left or len(left) == 1:
            return self._put(step, step.primitive, (self.twins[x],), params, step.outs)
        order = back(len(left))
        made = self._new(out, [out.kind.shape[axis] for axis in forward(len(left))])
        self._put(step, step.primitive, (self.twins[x],), params, (made,))
        self._add(op.PERMUTE, (made,), {"axes": order}, (out,))
        return True
