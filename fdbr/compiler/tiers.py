"""Tiered execution: a program runs step by step at first, and compiled once that pays."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from fdbr.compiler.backends.cpu.codegen import generate
from fdbr.compiler.backends.cpu.stepwise import stepwise
from fdbr.compiler.ir.loops import LOOP, loop_of
from fdbr.compiler.ir.program import Instruction, Program
from fdbr.compiler.passes import optimise
from fdbr.compiler.passes.batch_last_layout import lay_batch_last
from fdbr.compiler.passes.bias_fusion import fuse_biases
from fdbr.compiler.passes.decompose import decompose
from fdbr.compiler.passes.donate import donate
from fdbr.compiler.passes.fuse_small import fuse_small
from fdbr.compiler.passes.loop_fusion import fuse_loops
from fdbr.compiler.passes.producer_fusion import fuse_producers
from fdbr.compiler.passes.rematerialize import rematerialize
from fdbr.compiler.passes.roll_loops import roll_loops
from fdbr.compiler.passes.schedule_guards import schedule_guards
from fdbr.compiler.passes.sum_rows import sum_rows
from fdbr.compiler.passes.window_fusion import fuse_windows

__all__ = ["PASSES", "Code", "set_patience"]

PASSES = (
    roll_loops,
    lay_batch_last,
    decompose,
    optimise,
    fuse_windows,
    fuse_biases,
    fuse_loops,
    fuse_producers,
    rematerialize,
    fuse_small,
    sum_rows,
    donate,
)
_EVER = 1e-3  # seconds that the passes and the generation of code take, for every program
_EACH = 1e-4  # and for each step

_patience = 1.0


def set_patience(factor: float) -> float:
    """Change how long a program runs step by step, in what compilation takes; the old factor.

    With 0, programs are compiled at once, and kernels are waited for.
    """
    global _patience
    old, _patience = _patience, factor
    return old


class Code:
    """A program, and what runs it.

    A new one runs step by step at once.  When it has done so for as long as the passes take, it
    goes through them; kernels of what comes out are compiled in the background, and NumPy stands
    in for each until it is there.

    Parameters
    ----------
    program
        As it was captured.
    waits
        Whether it is compiled before it runs, so that all runs give the same bits.
    passes
        What it goes through; `PASSES`, if nothing is said.
    products
        Whether small products of matrices may be done by kernels.

    Attributes
    ----------
    program
        What runs: after the passes, if it has gone through them.
    run
        From the inputs to the outputs.
    optimised
        Whether it has gone through the passes.
    kernels
        Those of its kernels that may not be compiled yet.
    seconds
        What the passes and the generation of code took.
    """

    __slots__ = (
        *("_bodies", "_limit", "_passes", "_products", "_spent"),
        *("kernels", "optimised", "program", "run", "seconds"),
    )

    run: Callable[..., tuple[Any, ...]]

    def __init__(
        self,
        program: Program,
        waits: bool = False,
        passes: Sequence[Callable[[Program], Program]] | None = None,
        products: bool = True,
    ) -> None:
        self.program = program
        self._passes = PASSES if passes is None else passes
        self._products = products
        self._bodies = _bodies(program)
        self.optimised = False
        self.kernels: list[Any] = []
        self.seconds = self._spent = 0.0
        self._limit = _patience * (_EVER + _EACH * len(program.steps))
        if waits or not self._limit:
            self.optimise(waits=True)
        else:
            self.run = self._stepwise(program)

    def _stepwise(self, program: Program) -> Callable[..., tuple[Any, ...]]:
        run: Any = None
        program = schedule_guards(program)  # effects last

        def timed(*leaves: Any) -> tuple[Any, ...]:
            nonlocal run
            start = time.perf_counter()
            run = run or stepwise(program.inputs, program.steps, program.outputs)
            outs: tuple[Any, ...] = run(*leaves)
            self._spent += time.perf_counter() - start
            if self._spent >= self._limit:
                self.optimise()
            return outs

        return timed

    def optimise(self, waits: bool = False) -> None:
        """Put the program through the passes, and generate code."""
        start = time.perf_counter()
        program = self.program
        for body in self._bodies if waits else ():
            body.finish()
        program = _passed(program, self._passes)
        code: Any = generate(program, products=self._products, waits=waits)
        self.program, self.run, self.optimised = program, code, True
        self.kernels = [] if waits else code.kernels
        self.seconds = time.perf_counter() - start

    def waiting(self) -> int:
        """How many kernels have not taken their place yet."""
        self.kernels = [kernel for kernel in self.kernels if not kernel.settled]
        return len(self.kernels) + sum(body.waiting() for body in self._bodies)

    def finish(self) -> None:
        """Have everything compiled that is known to be needed, and wait for it."""
        if not self.optimised:
            self.optimise(waits=True)
        for body in self._bodies:
            body.finish()
        for kernel in self.kernels:
            kernel.settle()
        self.kernels = []


def _passed(program: Program, passes: Sequence[Callable[[Program], Program]]) -> Program:
    """A program after passes, through which the bodies of its loops go, too."""
    for run in passes:
        program = run(program)
    if not any(map(loop_of, program.steps)):
        return program
    return program.replace([_with_body_passed(step, passes) for step in program.steps])


def _with_body_passed(step: Any, passes: Sequence[Callable[[Program], Program]]) -> Any:
    loop = loop_of(step)
    if loop is None:
        return step
    params = {"loop": attrs.evolve(loop, body=_passed(loop.body, passes))}
    return Instruction(LOOP, step.operands, params, step.outs, step.several, step.region)


def _bodies(program: Program) -> list[Any]:
    """The bodies of loops in a program, which are programs themselves."""
    steps = [step for step in program.steps if isinstance(step, Instruction)]
    values = [value for step in steps for value in step.params.values()]
    return [body for value in values for body in getattr(value, "bodies", ())]
