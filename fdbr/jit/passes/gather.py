"""Steps on small arrays, one after the other, become one kernel."""

from fdbr.jit.kernels.small import runs
from fdbr.jit.program import Program, Small, Step, Variable

__all__ = ["gather"]

_FEWEST = 4  # steps from which on a kernel costs less than they do


def gather(program: Program) -> Program:
    """Put runs of steps on small arrays together."""
    last: dict[Variable, int] = {v: -1 for v in program.outputs if type(v) is Variable}
    for position in range(len(program.steps) - 1, -1, -1):
        for variable in program.steps[position].reads:
            last.setdefault(variable, position)
    steps: list[Step] = []
    position = 0
    for small, run in runs(program.steps):
        position += len(run)
        if not small or len(run) < _FEWEST:
            steps += run
            continue
        outs = [
            v
            for step in run
            for v in step.outs
            if last.get(v, 0) == -1 or last.get(v, 0) >= position
        ]
        steps.append(Small(tuple(run), tuple(outs)))
    return program.replace(steps)
