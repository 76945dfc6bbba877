"""Passes: functions from program to program."""

from fdbr.compiler.ir.program import Program
from fdbr.compiler.passes.batch_matmuls import batch_matmuls
from fdbr.compiler.passes.constant_folding import fold_constants
from fdbr.compiler.passes.cse import cse
from fdbr.compiler.passes.dce import dce
from fdbr.compiler.passes.schedule_guards import schedule_guards
from fdbr.compiler.passes.simplify import simplify

__all__ = [
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
