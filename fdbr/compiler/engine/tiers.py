"""Tiered execution: a program runs step by step at first, and compiled once that pays."""

import contextlib
import logging
import math
import sys
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

from fdbr.compiler.backend import RefusedError, Run, backend_of, fuse_operations, lay_out
from fdbr.compiler.engine.budget import Budget, compiling, passing, patience, set_patience
from fdbr.compiler.engine.garbage_collection import collecting_seldom
from fdbr.compiler.interpret import stepwise
from fdbr.compiler.ir.loops import LOOP, loop_of
from fdbr.compiler.ir.program import Fused, Instruction, Program
from fdbr.compiler.passes import optimise
from fdbr.compiler.passes.bias_fusion import fuse_biases
from fdbr.compiler.passes.decompose import decompose, expand
from fdbr.compiler.passes.donate import donate
from fdbr.compiler.passes.fuse_small import fuse_small
from fdbr.compiler.passes.fuse_updates import fuse_updates
from fdbr.compiler.passes.loop_fusion import fuse_loops
from fdbr.compiler.passes.lower_loops import lower_loops
from fdbr.compiler.passes.open_loops import may_open
from fdbr.compiler.passes.rematerialize import rematerialize
from fdbr.compiler.passes.roll_loops import roll_loops
from fdbr.compiler.passes.schedule_guards import schedule_guards
from fdbr.compiler.passes.sum_rows import sum_rows
from fdbr.errors.checks import name_of

__all__ = ["PASSES", "Code", "block_passed", "set_patience"]

_log = logging.getLogger("fdbr.jit")

PASSES = (
    lower_loops,
    roll_loops,
    expand,
    lay_out,
    decompose,
    optimise,
    fuse_operations,
    fuse_biases,
    fuse_loops,
    rematerialize,
    fuse_small,
    sum_rows,
    donate,
)
_EARLY = PASSES.index(fuse_loops)  # passes that come before those about loops over arrays
_AT_ONCE = 8  # kernels of one program that are compiled at a time
_FEWER = 0.7  # of the kernels that were missing when steps were faster than what has kernels
_RICH = 3  # times what is lost: enough to compile a kernel on a processor that others want
_TRIED = 3  # runs after which it is known how long one takes


class Code:
    """A program, and what runs it.

    A new one runs step by step at once.  When there is a budget for it, it goes through the passes;
    kernels of what comes out are compiled in the background, and NumPy stands in for each until it
    is there.  Where a pass or the generation of code raises an error, which is a defect of fdbr, it
    goes on running step by step, and a warning says so.

    Parameters
    ----------
    program
        As it was captured.
    waits
        Whether it is compiled before it runs, so that all runs give the same bits.
    passes
        What it goes through; `PASSES`, if nothing is said.
    products
        Whether kernels may do small products of matrices, and what no pass has put in one.
    alone
        Whether its own runs pay for it; else whoever calls `advance` has a budget for it.

    Attributes
    ----------
    program
        What runs: after the passes, if it has gone through them.
    run
        From the inputs to the outputs.
    optimised
        Whether it has gone through the passes.
    settled
        Whether all its kernels are there, too, so that it will run as it does now.
    kernels
        Those of its kernels that may not be compiled yet.
    sources
        Those of all its kernels.
    memory
        Bytes that its results take while it runs.
    seconds
        What the passes and the generation of code took.
    pace
        The seconds that the fastest run took, since it runs as it does now.
    defect
        Why it cannot be compiled; empty if it can.
    """

    __slots__ = (
        *("_alone", "_bodies", "_captured", "_left", "_passes", "_products", "_refuses"),
        *("_run", "_runs", "_steps", "_steps_pace", "defect", "kernels", "memory", "optimised"),
        *("__weakref__", "pace", "program", "run", "seconds", "settled", "sources"),
    )

    run: Run
    _run: Run

    def __init__(
        self,
        program: Program,
        waits: bool = False,
        passes: Sequence[Callable[[Program], Program]] | None = None,
        products: bool = True,
        alone: bool = True,
    ) -> None:
        if passes is None:
            with contextlib.suppress(Exception):  # which `optimise` will meet, and tell of
                if may_open(program):  # it is to hold for other numbers of turns now
                    program = roll_loops(program)
        self.program = program
        self._captured = _Steps(program)
        self._passes = PASSES if passes is None else passes
        self._products = products
        self._alone = alone
        self._bodies = _bodies(program)
        self.optimised = self.settled = self._refuses = False
        self._steps: _Steps | None = None
        self._runs, self.pace = 0, math.inf
        self._steps_pace, self._left = math.inf, math.inf
        self.kernels: list[Any] = []
        self.sources: set[str] = set()
        self.memory = 0
        self.seconds = 0.0
        self.defect = ""
        if waits or not patience():
            self.optimise(waits=True)
        else:
            self._run = self._steps = _Steps(program)
            self._start(self._run)

    def _start(self, run: Run) -> None:
        """Have something run from now on."""
        self._runs, self.pace = 0, math.inf
        if self._alone and self._refuses:
            run = self._never_refusing(run)
        self.run = self._accounting(run) if self._alone and not self.settled else run

    def run_or_step(self, *leaves: Any) -> tuple[Any, ...]:
        """Run the program, step by step as it was captured where a kernel refuses the numbers.

        That is before it has overwritten an input, and before it has had an effect.
        """
        try:
            return self.run(*leaves)
        except RefusedError:
            return self._captured(*leaves)

    def _never_refusing(self, run: Run) -> Run:
        captured = self._captured

        def refusing_nothing(*leaves: Any) -> tuple[Any, ...]:
            try:
                return run(*leaves)
            except RefusedError:
                return captured(*leaves)

        return refusing_nothing

    @property
    def running(self) -> Program:
        """The program as it runs now: which inputs it writes over depends on that."""
        return self._steps.make() if self._steps and self.run is self._steps else self.program

    def _accounting(self, run: Run) -> Run:
        budget = Budget(often=math.inf)  # turns of a loop are no calls
        alive = weakref.ref(self)  # what runs must not keep what it belongs to

        def accounted(*leaves: Any) -> tuple[Any, ...]:
            start = time.perf_counter()
            outs = run(*leaves)
            seconds = time.perf_counter() - start
            code = alive()
            if code is not None:
                code.took(seconds)
                budget.ran(seconds)
                code.advance(budget)
            return outs

        return accounted

    @property
    def state(self) -> str:
        """The way in which it runs at present, for logs."""
        if self.defect:
            return "it runs step by step for ever"
        if self.settled:
            return "compiled code is in use"
        if not self.optimised:
            return "it runs step by step until compiling it pays"
        return f"{len(self.kernels)} kernels are compiled in the background as they pay"

    def took(self, seconds: float) -> None:
        """Note how long a run took, all around it included."""
        self._runs += 1
        if self._runs > 1:  # the first one prepares what runs
            self.pace = min(self.pace, seconds)

    def is_slower(self, seconds: float) -> bool:
        """Whether runs are known to take longer than that."""
        return self._runs > _TRIED and self.pace > seconds

    def is_faster(self, seconds: float) -> bool:
        """Whether it is known to be able to run faster than that."""
        pace = self.pace if self._runs > _TRIED else math.inf
        return min(pace, math.inf if self.settled else self._steps_pace) < seconds

    def is_best(self, eager: float) -> bool:
        """Whether it is to run like this for ever, and not as the function itself does."""
        return self.settled and (not eager or self.pace <= eager)

    def advance(self, budget: Budget) -> None:
        """Go on towards compiled code, as far as there is a budget for it."""
        if not self.optimised:
            backend = backend_of(self.program)
            if budget.affords(backend.takes_to_prepare() + passing.of(len(self.program.steps))):
                start = time.perf_counter()
                backend.prepare()
                self.optimise()
                budget.spend(time.perf_counter() - start)
        elif not self.settled:
            self.kernels = [kernel for kernel in self.kernels if not kernel.settled]
            self._ask(budget)
            self._settle()
            self._choose()
        if self.optimised:
            for body in self._bodies:
                body.advance(budget)

    def _ask(self, budget: Budget) -> None:
        """Have kernels compiled in the background, first those that take NumPy longest."""
        asked = [kernel for kernel in self.kernels if kernel.asked]
        takes = sum(compiling.of(kernel.length) for kernel in asked)
        for kernel in asked:
            kernel.hurry(budget.affords(_RICH * compiling.of(kernel.length)))
        if len(asked) >= min(_AT_ONCE, len(self.kernels)):
            return
        coming = [kernel for kernel in self.kernels if not kernel.asked]
        for kernel in sorted(coming, key=_seconds, reverse=True):
            takes += compiling.of(kernel.length)
            if not budget.affords(takes):
                break
            kernel.ask()

    @collecting_seldom()
    def optimise(self, waits: bool = False) -> None:
        """Put the program through the passes, and generate code."""
        start = time.perf_counter()
        program, steps = self.program, len(self.program.steps)
        for body in self._bodies if waits else ():
            body.finish()
        try:
            program = _passed(program, self._passes)
            with _naming("the generation of code"):
                code: Any = backend_of(program).generate(program, self._products, waits)
        except _DefectError as error:
            self._stay(error)
            return
        self.program, self.optimised = program, True
        self.sources, self.memory = code.sources, code.memory
        self._refuses = code.refuses
        self.kernels = [] if waits else [kernel for kernel in code.kernels if not kernel.settled]
        self._steps_pace, self._run = self.pace, code
        if self.kernels and self._runs > _TRIED:  # NumPy in the place of all kernels is no faster
            self._left = len(self.kernels)
        else:
            self._start(code)
        self._settle()
        self.seconds = time.perf_counter() - start
        if not (waits or self._alone or self.settled):  # which tells of itself
            _log.info("%s: passes took %.2g s; %s", program.name, self.seconds, self.state)
        if not waits:
            passing.saw(steps, self.seconds)

    def _stay(self, error: "_DefectError") -> None:
        """Run step by step for ever."""
        self.defect = str(error)
        self.optimised = self.settled = True
        if self._steps is None:
            self._steps = _Steps(self.program)
        self._run = self._steps
        self._start(self._run)
        _tell(self.program, error)

    def _settle(self) -> None:
        """See whether all kernels are there."""
        if not self.defect and not self.kernels and all(body.settled for body in self._bodies):
            self.settled, self._steps = True, None
            if not self._alone:
                _log.info("%s: compiled code is in use", self.program.name)
            self._start(self._run)

    def _choose(self) -> None:
        """Take the steps of before, as long as they are faster than NumPy in place of kernels."""
        if self._steps is None:
            return
        if self._left < math.inf:  # steps run
            if len(self.kernels) < _FEWER * self._left:
                self._left = math.inf
                self._start(self._run)
        elif self.is_slower(self._steps_pace):
            self._left = len(self.kernels)
            self._start(self._steps)

    def machine_code(self) -> tuple[int, float]:
        """Bytes of the machine code of its kernels, and the seconds that compiling it took."""
        return backend_of(self.program).measures(self.sources)

    def waiting(self) -> int:
        """The number of kernels that have not taken their place yet."""
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
        self._settle()

    def rehearse(self, *leaves: Any) -> tuple[Any, ...]:
        """Run, for guards, and for code that depends on how arrays lie in memory; without outputs.

        What would be written over is left out, as it would take copies of all of that.
        """
        run, program = self.run, self.running
        if program.overwritten:
            steps = [step for step in program.steps if not (type(step) is Fused and step.over)]
            left = program.replace(steps, ())
            if run is self._steps:
                run = stepwise(left.inputs, left.steps, left.outputs)
            else:
                run = backend_of(left).generate(left, self._products, waits=self.settled)
        with contextlib.suppress(RefusedError):  # there are steps for that
            run(*leaves)
        return ()


def _seconds(kernel: Any) -> float:
    return float(kernel.seconds)


class _Steps:
    """Runs a program step by step; the code for that is made when it is needed."""

    __slots__ = ("_made", "program")

    def __init__(self, program: Program) -> None:
        self.program = program
        self._made: Any = None

    def __call__(self, *leaves: Any) -> tuple[Any, ...]:
        if self._made is None:
            self.make()
        outs: tuple[Any, ...] = self._made(*leaves)
        return outs

    def make(self) -> Program:
        """The program as it runs."""
        if self._made is None:
            with collecting_seldom():
                program = fuse_updates(schedule_guards(self.program))  # effects last
                self._made = stepwise(program.inputs, program.steps, program.outputs)
                self.program = program
        return self.program


def block_passed(program: Program) -> Program:
    """A block of a graph after the passes: steps on small arrays are as few kernels as can be.

    Of a program of such steps alone nothing is asked that is about loops over large arrays.
    """
    try:
        passed = _passed(program, PASSES[:_EARLY])
        if not all(map(backend_of(passed).is_small, passed.steps)):
            passed = _passed(passed, PASSES[_EARLY:])
        with _naming("the pass fuse_small"):
            return fuse_small(passed, 1)
    except _DefectError as error:
        _tell(program, error)
        return program


class _DefectError(Exception):
    """A pass or the generation of code has raised an error, which is the cause of this one."""


@contextlib.contextmanager
def _naming(part: str) -> Iterator[None]:
    """Say in which part of the compiler an error was raised."""
    try:
        yield
    except Exception as error:
        raise _DefectError(f"{part} raised {type(error).__name__}: {error}") from error


def _tell(program: Program, error: _DefectError) -> None:
    """Warn that a program stays as it is, and why."""
    _log.debug("%s", error, exc_info=error)
    warnings.warn(
        f"fdbr.jit: {program.name} is not compiled, and runs step by step: {error}. Results are "
        "right; this is a defect of fdbr. Please report it, with what logging under the name "
        "fdbr.jit tells at the level DEBUG; fdbr.disable_jit() does without programs",
        RuntimeWarning,
        stacklevel=_depth_of_user(),
    )


def _depth_of_user() -> int:
    """The number of frames up to the innermost line that is not fdbr's, for warnings."""
    depth, frame = 1, sys._getframe(1)
    while frame.f_back and str(frame.f_globals.get("__name__", "")).partition(".")[0] == "fdbr":
        depth, frame = depth + 1, frame.f_back
    return depth


def _passed(program: Program, passes: Sequence[Callable[[Program], Program]]) -> Program:
    """A program after passes, through which the bodies of its loops go, too."""
    for run in passes:
        with _naming(f"the pass {name_of(run)}"):
            program = run(program)
    if not any(map(loop_of, program.steps)):
        return program
    return program.replace([_with_body_passed(step, passes) for step in program.steps])


def _with_body_passed(step: Any, passes: Sequence[Callable[[Program], Program]]) -> Any:
    loop = loop_of(step)
    if loop is None:
        return step
    params = {"loop": attrs.evolve(loop, body=_passed(loop.body, passes))}
    return Instruction(LOOP, step.operands, params, step.outs, step.several, step.remat)


def _bodies(program: Program) -> list[Any]:
    """The bodies of loops in a program, which are programs themselves."""
    steps = [step for step in program.steps if isinstance(step, Instruction)]
    values = [value for step in steps for value in step.params.values()]
    return [body for value in values for body in getattr(value, "bodies", ())]
