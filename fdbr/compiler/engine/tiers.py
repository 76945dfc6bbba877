"""Tiered execution: a program is interpreted at first, and compiled once that pays."""

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
from fdbr.compiler.engine.budget import Budget, passing, patience, set_patience
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
from fdbr.compiler.passes.rematerialize import rematerialize
from fdbr.compiler.passes.roll_loops import roll_loops
from fdbr.compiler.passes.schedule_guards import schedule_guards
from fdbr.compiler.passes.sum_rows import sum_rows
from fdbr.errors.checks import is_interrupt, name_of

__all__ = ["PASSES", "Code", "set_patience"]

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
_TRIED = 3  # runs after which the fastest one is a reliable measurement


class Code:
    """A program, and the code that runs it at present.

    A new one is interpreted step by step at once.  When the budget allows, it goes through the
    passes, and its kernels are compiled.  Where a pass or the code generator raises an error, which
    is a defect of fdbr, the program stays interpreted, and a warning says so.

    Parameters
    ----------
    program
        The program as captured.
    waits
        Whether it is compiled before it runs, so that all runs give the same bits.
    passes
        The passes; `PASSES` by default.
    products
        Whether kernels may compute small matrix products, and steps that no pass has fused.
    alone
        Whether its own runs pay for its compilation; otherwise the caller of `advance` has a
        budget for it.

    Attributes
    ----------
    program
        The program after the passes, once it has gone through them.
    run
        The function from the inputs to the outputs.
    optimised
        Whether it has gone through the passes.
    settled
        Whether all its kernels are compiled as well, so that ``run`` is final.
    sources
        The sources of all kernels.
    memory
        Bytes of temporaries and results while it runs.
    seconds
        The time that the passes and the code generation took.
    pace
        The seconds of the fastest run since ``run`` was set.
    defect
        Why it cannot be compiled; empty if it can.
    """

    __slots__ = (
        *("_alone", "_loop_bodies", "_captured", "_passes", "_products", "_refuses"),
        *(
            "_run",
            "_runs",
            "_interpreter",
            "_interpreter_pace",
            "defect",
            "memory",
            "optimised",
        ),
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
        self.program = program
        self._captured = _Interpreter(program)
        self._passes = PASSES if passes is None else passes
        self._products = products
        self._alone = alone
        self._loop_bodies = _loop_bodies(program)
        self.optimised = self.settled = self._refuses = False
        self._interpreter: _Interpreter | None = None
        self._runs, self.pace = 0, math.inf
        self._interpreter_pace = math.inf
        self.sources: set[str] = set()
        self.memory = 0
        self.seconds = 0.0
        self.defect = ""
        if waits or not patience():
            self.optimise(waits=True)
        else:
            self._run = self._interpreter = _Interpreter(program)
            self._start(self._run)

    def _start(self, run: Run) -> None:
        """Run something from now on, and forget the pace of what ran before."""
        self._runs, self.pace = 0, math.inf
        if self._alone and self._refuses:
            run = self._falling_back(run)
        self.run = self._accounting(run) if self._alone and not self.settled else run

    def run_or_step(self, *leaves: Any) -> tuple[Any, ...]:
        """Run the program; interpret it as captured if a kernel refuses its operands.

        Kernels refuse before an input is overwritten, and before a side effect.
        """
        try:
            return self.run(*leaves)
        except RefusedError:
            return self._captured(*leaves)

    def _falling_back(self, run: Run) -> Run:
        captured = self._captured

        def falling_back(*leaves: Any) -> tuple[Any, ...]:
            try:
                return run(*leaves)
            except RefusedError:
                return captured(*leaves)

        return falling_back

    @property
    def running(self) -> Program:
        """The program as it runs now; it says which inputs are overwritten."""
        return (
            self._interpreter.make()
            if self._interpreter and self.run is self._interpreter
            else self.program
        )

    def _accounting(self, run: Run) -> Run:
        budget = Budget(often=math.inf)  # iterations of a loop say nothing about later calls
        alive = weakref.ref(self)  # a strong reference would be a cycle through `run`

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
        """A description of how it runs at present, for logs."""
        if self.defect:
            return "it is interpreted step by step"
        if self.settled:
            return "compiled code is in use"
        if not self.optimised:
            return "it is interpreted step by step until compiling it pays"
        return "the bodies of its loops are interpreted until compiling them pays"

    def took(self, seconds: float) -> None:
        """Record how long a run took, including the checks around it."""
        self._runs += 1
        if self._runs > 1:  # the first run allocates and prepares
            self.pace = min(self.pace, seconds)

    def is_slower(self, seconds: float) -> bool:
        """Return whether runs are known to take longer than some seconds."""
        return self._runs > _TRIED and self.pace > seconds

    def is_faster(self, seconds: float) -> bool:
        """Return whether it is known to be able to run faster than some seconds."""
        pace = self.pace if self._runs > _TRIED else math.inf
        return min(pace, math.inf if self.settled else self._interpreter_pace) < seconds

    def is_best(self, eager: float) -> bool:
        """Return whether its code is final, and not slower than the function itself."""
        return self.settled and (not eager or self.pace <= eager)

    def advance(self, budget: Budget) -> None:
        """Continue towards compiled code, as far as the budget allows."""
        if not self.optimised:
            if budget.affords(passing.of(len(self.program.steps))):
                start = time.perf_counter()
                self.optimise()
                budget.spend(time.perf_counter() - start)
        elif not self.settled:
            self._settle()
        if self.optimised:
            for body in self._loop_bodies:
                body.advance(budget)

    @collecting_seldom()
    def optimise(self, waits: bool = False) -> None:
        """Run the passes, and generate code."""
        start = time.perf_counter()
        program, steps = self.program, len(self.program.steps)
        try:
            program = _run_passes(program, self._passes)
            with _naming_part("the generation of code"):
                code: Any = backend_of(program).generate(program, self._products)
        except _DefectError as error:
            self._keep_interpreting(error)
            return
        self.program, self.optimised = program, True
        self._loop_bodies = _loop_bodies(program)
        for body in self._loop_bodies if waits else ():
            body.finish()
        self.sources, self.memory = code.sources, code.memory
        self._refuses = code.refuses
        self._interpreter_pace, self._run = self.pace, code
        self._start(code)
        self._settle()
        self.seconds = time.perf_counter() - start
        if not (waits or self._alone or self.settled):  # those cases are logged elsewhere
            _log.info("%s: passes took %.2g s; %s", program.name, self.seconds, self.state)
        if not waits:
            passing.saw(steps, self.seconds)

    def _keep_interpreting(self, error: "_DefectError") -> None:
        """Keep interpreting the program, and warn."""
        self.defect = str(error)
        self.optimised = self.settled = True
        if self._interpreter is None:
            self._interpreter = _Interpreter(self.program)
        self._run = self._interpreter
        self._start(self._run)
        _warn(self.program, error)

    def _settle(self) -> None:
        """Make the code final if all kernels are compiled."""
        if not self.defect and all(body.settled for body in self._loop_bodies):
            self.settled, self._interpreter = True, None
            if not self._alone:
                _log.info("%s: compiled code is in use", self.program.name)
            self._start(self._run)

    def machine_code(self) -> tuple[int, float]:
        """Return the bytes of machine code of the kernels, and the seconds they took to compile."""
        return backend_of(self.program).measures(self.sources)

    def waiting(self) -> int:
        """Return the number of kernels that are not installed yet."""
        return sum(body.waiting() for body in self._loop_bodies)

    def finish(self) -> None:
        """Compile everything, and wait for it."""
        if not self.optimised:
            self.optimise(waits=True)
        for body in self._loop_bodies:
            body.finish()
        self._settle()

    def rehearse(self, *leaves: Any) -> tuple[Any, ...]:
        """Run without returning outputs, to test guards and to specialise code to memory layouts.

        Updates of inputs are left out, as they would need copies of all these inputs.
        """
        run, program = self.run, self.running
        if program.overwritten:
            steps = [step for step in program.steps if not (type(step) is Fused and step.over)]
            left = program.replace(steps, ())
            if run is self._interpreter:
                run = stepwise(left.inputs, left.steps, left.outputs)
            else:
                run = backend_of(left).generate(left, self._products)
        with contextlib.suppress(RefusedError):  # a real run is interpreted then
            run(*leaves)
        return ()


class _Interpreter:
    """Interprets a program step by step; its code is made in the first run."""

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
        """Prepare the code, and return the program that it runs."""
        if self._made is None:
            with collecting_seldom():
                program = fuse_updates(schedule_guards(self.program))  # side effects last
                self._made = stepwise(program.inputs, program.steps, program.outputs)
                self.program = program
        return self.program


class _DefectError(Exception):
    """A pass or the code generator has raised the error that is this one's cause."""


@contextlib.contextmanager
def _naming_part(part: str) -> Iterator[None]:
    """Name the part of the compiler in which an error was raised."""
    try:
        yield
    except Exception as error:
        if is_interrupt(error):
            raise
        raise _DefectError(f"{part} raised {type(error).__name__}: {error}") from error


def _warn(program: Program, error: _DefectError) -> None:
    """Warn that a program stays interpreted, and why."""
    _log.debug("%s", error, exc_info=error)
    warnings.warn(
        f"fdbr.jit: {program.name} is not compiled, and runs step by step: {error}. Results are "
        "right; this is a defect of fdbr. Please report it, with what logging under the name "
        "fdbr.jit prints at the level DEBUG; fdbr.disable_jit() runs the function without programs",
        RuntimeWarning,
        stacklevel=_depth_of_user(),
    )


def _depth_of_user() -> int:
    """Return the number of frames up to the innermost line outside fdbr, for warnings."""
    depth, frame = 1, sys._getframe(1)
    while frame.f_back and str(frame.f_globals.get("__name__", "")).partition(".")[0] == "fdbr":
        depth, frame = depth + 1, frame.f_back
    return depth


def _run_passes(program: Program, passes: Sequence[Callable[[Program], Program]]) -> Program:
    """Return a program after passes, which also transform the bodies of its loops."""
    for run in passes:
        with _naming_part(f"the pass {name_of(run)}"):
            program = run(program)
    if not any(map(loop_of, program.steps)):
        return program
    return program.replace([_run_passes_on_body(step, passes) for step in program.steps])


def _run_passes_on_body(step: Any, passes: Sequence[Callable[[Program], Program]]) -> Any:
    loop = loop_of(step)
    if loop is None:
        return step
    back = loop.back and _run_passes(loop.back, passes)
    params = {"loop": attrs.evolve(loop, body=_run_passes(loop.body, passes), back=back)}
    return Instruction(LOOP, step.operands, params, step.outs, step.several, step.remat)


def _loop_bodies(program: Program) -> list[Any]:
    """Return the bodies of loops that are not lowered, which are `Code` themselves."""
    found: list[Any] = []
    for step in program.steps:
        loop = loop_of(step)
        for inner in () if loop is None else loop.programs:
            found += _loop_bodies(inner)
        values = step.params.values() if isinstance(step, Instruction) else ()
        found += [body for value in values for body in getattr(value, "bodies", ())]
    return found
