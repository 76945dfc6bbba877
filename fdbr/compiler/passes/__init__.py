"""Passes: functions from program to program, and the order in which they run."""

from fdbr.compiler.backend import fuse_operations, lay_out
from fdbr.compiler.ir.program import Program
from fdbr.compiler.passes.batch_matmuls import batch_matmuls
from fdbr.compiler.passes.bias_fusion import fuse_biases
from fdbr.compiler.passes.constant_folding import fold_constants
from fdbr.compiler.passes.cse import cse
from fdbr.compiler.passes.dce import dce
from fdbr.compiler.passes.decompose import decompose, expand
from fdbr.compiler.passes.donate import donate
from fdbr.compiler.passes.fuse_small import fuse_small
from fdbr.compiler.passes.loop_fusion import fuse_loops
from fdbr.compiler.passes.lower_loops import lower_loops
from fdbr.compiler.passes.rematerialize import rematerialize
from fdbr.compiler.passes.roll_loops import roll_loops
from fdbr.compiler.passes.schedule_guards import schedule_guards
from fdbr.compiler.passes.simplify import simplify
from fdbr.compiler.passes.sum_rows import sum_rows

__all__ = [
    "PASSES",
    "batch_matmuls",
    "dce",
    "fold_constants",
    "optimise",
    "schedule_guards",
    "cse",
    "simplify",
]


_MOST = 8  # rounds; a program that needs more is left as it is then


def optimise(program: Program) -> Program:
    """Return the program after the algebraic passes: it computes the same in fewer steps.

    >>> import fdbr, numpy as np
    >>> from fdbr.compiler.capture.tracing import capture
    >>> f = fdbr.grad(lambda xs: np.sum(xs[0] * np.sin(xs[0])))
    >>> print(optimise(capture(f, f, [np.ones(2)]).program))
    program <lambda>(v0: float64[2])
      v1: float64[2] = sin(v0)
      v2: float64[2] = cos(v0)
      v3: float64[2] = multiply(v0, v2)
      v4: float64[2] = add(v1, v3)
      return v4
    """
    program = _cleaned(dce(program))
    batched = batch_matmuls(schedule_guards(program))
    return program if batched is program else _cleaned(batched)


def _cleaned(program: Program) -> Program:
    """Return the program after the passes that shorten it, repeated until none does."""
    program = cse(program)
    for _ in range(_MOST):
        simpler = simplify(program)
        program = cse(fold_constants(simpler))
        if program is simpler:
            break
    return program


PASSES = (
    lower_loops,  # loops become steps of kernels, or programs of their own
    roll_loops,  # steps that repeat become a loop
    expand,  # steps with a program of their own become its steps
    lay_out,  # arrays get the memory layout that the back end's kernels prefer
    decompose,  # operations become those that can be fused
    optimise,  # the algebraic passes
    fuse_operations,  # steps become operations of the back end
    fuse_biases,  # products take the sums that follow them
    fuse_loops,  # elementwise steps and reductions become kernels
    rematerialize,  # cheap results are computed again instead of stored
    fuse_small,  # steps on small arrays become kernels
    sum_rows,  # sums along rows become products
    donate,  # results take the memory of donated arguments
)
"""The passes, in their order."""
