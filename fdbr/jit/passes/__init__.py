"""Passes: functions from program to program."""

from fdbr.jit.passes.common import share_common
from fdbr.jit.passes.dead import drop_dead
from fdbr.jit.passes.fold import fold
from fdbr.jit.passes.products import batch_products
from fdbr.jit.passes.schedule import schedule
from fdbr.jit.passes.simplify import simplify
from fdbr.jit.program import Program

__all__ = [
    "batch_products",
    "drop_dead",
    "fold",
    "optimise",
    "schedule",
    "share_common",
    "simplify",
]


_MOST = 8  # turns; a program that needs more is left as it is then


def optimise(program: Program) -> Program:
    """The program after all passes: it gives the same, sooner.

    >>> import fdbr, numpy as np
    >>> from fdbr.jit.recording import record
    >>> f = fdbr.grad(lambda xs: np.sum(xs[0] * np.sin(xs[0])))
    >>> print(optimise(record(f, f, [np.ones(2)]).program))
    program <lambda>(v0: float64[2])
      v1: float64[2] = sin(v0)
      v2: float64[2] = cos(v0)
      v3: float64[2] = multiply(v0, v2)
      v4: float64[2] = add(v1, v3)
      return v4
    """
    program = _cleaned(drop_dead(program))
    batched = batch_products(schedule(program))
    return program if batched is program else _cleaned(batched)


def _cleaned(program: Program) -> Program:
    """The program after the passes that leave less of it, until none does."""
    program = share_common(program)
    for _ in range(_MOST):
        simpler = simplify(program)
        program = share_common(fold(simpler))
        if program is simpler:
            break
    return program
