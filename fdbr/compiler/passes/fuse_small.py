"""Steps on small arrays become kernels of many steps."""

from itertools import chain
from typing import Any

from fdbr.compiler.backends.cpu.small_kernels import is_small
from fdbr.compiler.ir.program import Fused, Program, Small, Step, Variable

__all__ = ["FEWEST", "fuse_small"]

FEWEST = 4  # steps from which on a kernel costs less than they do
_MOST = 40  # steps of one kernel: LLVM's time grows faster than their number


def fuse_small(program: Program) -> Program:
    """Put steps on small arrays together; each waits until others want what it makes.

    Those that make up a fused kernel too: this one has no rows, and its loops are longer.
    """
    runs: list[list[Any]] = [[]]
    made: set[Variable] = set()
    waiting: list[Any] = []
    for step in chain.from_iterable(map(_parts, program.steps)):
        small = is_small(step)
        if len(waiting) >= _MOST if small else not made.isdisjoint(step.reads):
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
        if number % 2 == 0 or len(run) < FEWEST:
            steps += run
        else:
            outs = [v for step in run for v in step.outs if last.get(v, 0) > number]
            steps.append(Small(tuple(run), tuple(outs)))
    return program.replace(steps)


def _parts(step: Step) -> tuple[Any, ...]:
    """The steps of a kernel that a kernel for small arrays can do, or else the step."""
    return step.steps if type(step) is Fused and all(map(is_small, step.steps)) else (step,)
