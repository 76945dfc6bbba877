"""Sums of rows outside of kernels are computed by the BLAS."""

import attrs

from fdbr.compiler.backend import backend_of
from fdbr.compiler.ir import op
from fdbr.compiler.ir.program import Instruction, Program, Step, kind_of

__all__ = ["sum_rows"]


def sum_rows(program: Program) -> Program:
    """Rewrite sums along the first axis of matrices as `SUM_OF_ROWS`, if the back end has it.

    >>> import numpy as np
    >>> from fdbr.compiler.capture.tracing import capture
    >>> f = lambda xs: [xs[0].sum(axis=0)]
    >>> print(sum_rows(capture(f, f, [np.ones((2, 3))]).program))
    program <lambda>(v0: float64[2,3])
      v1: float64[3] = sum_of_rows(v0)
      return v1
    """
    if not backend_of(program).has_own(op.SUM_OF_ROWS):
        return program
    return program.replace(map(_by_blas, program.steps))


def _by_blas(step: Step) -> Step:
    if (
        type(step) is Instruction
        and step.primitive is op.SUM
        and step.params == {"axes": (0,), "keepdims": False}
        and len(kind_of(step.operands[0]).shape) == 2
    ):
        return attrs.evolve(step, primitive=op.SUM_OF_ROWS, params={})
    return step
