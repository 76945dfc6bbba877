"""Compilation of a program: the passes, and then the code generator of its back end."""

import contextlib
import logging
import sys
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

from fdbr.compiler.backend import RefusedError, Run, backend_of
from fdbr.compiler.engine.garbage_collection import collecting_seldom
from fdbr.compiler.interpret import stepwise
from fdbr.compiler.ir.loops import LOOP, loop_of
from fdbr.compiler.ir.program import Fused, Instruction, Program
from fdbr.compiler.passes import PASSES
from fdbr.compiler.passes.fuse_updates import fuse_updates
from fdbr.compiler.passes.schedule_guards import schedule_guards
from fdbr.errors.checks import name_of, recoverable

__all__ = ["Code"]

_log = logging.getLogger("fdbr.jit")


class Code:
    """A program, and the compiled code that runs it.

    If a pass or the code generator raises an error, which is a defect of fdbr, the program is
    interpreted step by step, and a warning says so.

    Parameters
    ----------
    program
        The program as captured.
    passes
        The passes; `PASSES` by default.
    products
        Whether kernels may compute small matrix products, and steps that no pass has fused.
    interpreted
        The number of runs that are interpreted before the program is compiled.  It counts runs
        rather than seconds, so that equal calls give equal bits.

    Attributes
    ----------
    program
        The program after the passes, once it is compiled.
    run
        The function from the inputs to the outputs.
    compiled
        Whether it has been compiled.
    sources
        The sources of the kernels.
    memory
        Bytes of temporaries and results while it runs.
    seconds
        The time that the passes and the code generation took.
    defect
        Why it cannot be compiled; empty if it can.
    """

    __slots__ = (
        *("__weakref__", "_captured", "_passes", "_products"),
        *("compiled", "defect", "memory", "program", "run", "seconds", "sources"),
    )

    run: Run

    def __init__(
        self,
        program: Program,
        passes: Sequence[Callable[[Program], Program]] | None = None,
        products: bool = True,
        interpreted: int = 0,
    ) -> None:
        self.program = program
        self._captured = _Interpreter(program)
        self._passes = PASSES if passes is None else passes
        self._products = products
        self.compiled = False
        self.sources: set[str] = set()
        self.memory = 0
        self.seconds = 0.0
        self.defect = ""
        if interpreted:
            self.run = self._interpreting(interpreted)
        else:
            self.compile()

    def run_or_step(self, *leaves: Any) -> tuple[Any, ...]:
        """Run the program; interpret it as captured if a kernel refuses its operands.

        Kernels refuse before an input is overwritten, and before a side effect.
        """
        try:
            return self.run(*leaves)
        except RefusedError:
            return self._captured(*leaves)

    def _interpreting(self, runs: int) -> Run:
        alive, captured = weakref.ref(self), self._captured  # a strong reference would be a cycle
        left = runs

        def interpreting(*leaves: Any) -> tuple[Any, ...]:
            nonlocal left
            left -= 1
            code = alive()
            if left < 0 and code is not None:
                code.compile()
                return code.run_or_step(*leaves)
            return captured(*leaves)

        return interpreting

    def compile(self) -> None:
        """Run the passes and generate code, unless that has been done."""
        if self.compiled:
            return
        start = time.perf_counter()
        try:
            with collecting_seldom():
                program = _run_passes(self.program, self._passes)
                with _naming_part("the generation of code"):
                    code: Any = backend_of(program).generate(program, self._products)
            for body in _loop_bodies(program):
                body.compile()
        except _DefectError as error:
            self.defect = str(error)
            self.program = self._captured.make()
            self.run, self.compiled = self._captured, True
            _warn(self.program, error)
            return
        self.program, self.run, self.compiled = program, code, True
        self.sources, self.memory = code.sources, code.memory
        self.seconds = time.perf_counter() - start

    def machine_code(self) -> tuple[int, float]:
        """Return the bytes of machine code of the kernels, and the seconds they took to compile."""
        return backend_of(self.program).measures(self.sources)

    def rehearse(self, *leaves: Any) -> tuple[Any, ...]:
        """Run without returning outputs, to test guards and to specialise code to memory layouts.

        Updates of inputs are left out, as they would need copies of all these inputs.
        """
        run, program = self.run, self.program
        if program.overwritten:
            steps = [step for step in program.steps if not (type(step) is Fused and step.over)]
            left = program.replace(steps, ())
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
    except recoverable() as error:
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
    """Return the bodies of loops that are not lowered, which have `Code` of their own."""
    found: list[Any] = []
    for step in program.steps:
        loop = loop_of(step)
        for inner in () if loop is None else loop.programs:
            found += _loop_bodies(inner)
        values = step.params.values() if isinstance(step, Instruction) else ()
        found += [body for value in values for body in getattr(value, "bodies", ())]
    return found
