"""Fusion of steps on small arrays into kernels of many steps."""

from itertools import chain
from typing import Any

from fdbr.compiler.backend import Backend, backend_of
from fdbr.compiler.ir.program import Fused, Program, Small, Step, Variable

__all__ = ["fuse_small"]


def fuse_small(program: Program, fewest: int | None = None) -> Program:
    """Fuse steps on small arrays; each is delayed until another step reads its result.

    Steps of fused kernels on small arrays are included, because a kernel of small steps has no
    rows and longer loops.  Runs of less than ``fewest`` steps, by default those that do not pay,
    are left as they are.
    """
    backend = backend_of(program)
    costs = backend.costs
    fewest = costs.fewest_small if fewest is None else fewest
    runs: list[list[Any]] = [[]]
    made: set[Variable] = set()
    waiting: list[Any] = []
    for step in chain.from_iterable(_parts(step, backend) for step in program.steps):
        small = backend.is_small(step)
        if len(waiting) >= costs.most_small if small else not made.isdisjoint(step.reads):
            runs += [waiting, []]
            waiting, made = [], set()
        if small:
            waiting.append(step)
            made.update(step.outs)
        else:
            runs[-1].append(step)
    runs.append(waiting)
    last = {v: len(runs) for v in program.outputs if type(v) is Variable}
    for number in range(len(runs) - 1, -1, -1):
        for step in runs[number]:
            for variable in step.reads:
                last.setdefault(variable, number)
    steps: list[Step] = []
    for number, run in enumerate(runs):
        if number % 2 == 0 or len(run) < fewest:
            steps += run
        else:
            outs = [v for step in run for v in step.outs if last.get(v, 0) > number]
            steps.append(Small(tuple(run), tuple(outs)))
    return program.replace(steps)


def _parts(step: Step, backend: Backend) -> tuple[Any, ...]:
    """Return the steps of a kernel if all are small, or else the step itself."""
    if type(step) is Small or (type(step) is Fused and all(map(backend.is_small, step.steps))):
        return step.steps
    return (step,)
