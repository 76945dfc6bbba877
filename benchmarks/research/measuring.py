"""Timing a program from a cold start, in a process of its own for each library."""

import os
import tempfile
from multiprocessing.connection import Connection
from types import ModuleType
from typing import Any

import attrs

from benchmarks import research
from benchmarks.measuring import disagreement
from benchmarks.research.running import COMPARED, LIBRARIES, FixedNoise, start
from benchmarks.worker import FailedError, LateError, Process, answering

__all__ = ["Measured", "Plan", "measure"]


@attrs.frozen
class Plan:
    """What is measured.

    Attributes
    ----------
    libraries
        Of `LIBRARIES`.
    counts
        Numbers of calls, rising, after which the time is taken.
    limit
        Seconds after which a process is not waited for any longer.
    starts
        How often each is begun anew; the least times count.
    """

    libraries: tuple[str, ...] = LIBRARIES
    counts: tuple[int, ...] = (1, 10, 100, 1000)
    limit: float = 60.0
    starts: int = 1
    threads: int = 2
    tiny: bool = False


@attrs.frozen
class Measured:
    """A program in each library.

    Attributes
    ----------
    seconds
        By library, then by the number of calls: what they took altogether, the first included.
        A number that was not reached within ``limit`` is missing.
    notes
        Why a library has no times, or that it computes something else.
    """

    program: str
    title: str
    sizes: dict[str, Any]
    limit: float
    seconds: dict[str, dict[int, float]] = attrs.field(factory=dict)
    notes: dict[str, str] = attrs.field(factory=dict)

    def ratio(self, library: str, other: str, calls: int) -> tuple[str, float] | None:
        """How many times as long as another library one takes, and ``"="``, ``"<"`` or ``">"``.

        Where one of them has not come so far in time the ratio is known to be above or below.
        """
        if not {library, other} <= self.seconds.keys():
            return None
        ours, theirs = self.seconds[library].get(calls), self.seconds[other].get(calls)
        if ours is None and theirs is None:
            return None
        sign = ">" if ours is None else "<" if theirs is None else "="
        return sign, (ours or self.limit) / (theirs or self.limit)


def measure(name: str, plan: Plan) -> Measured:
    """Time a program in each library, one after the other, and compare what they compute."""
    program = research.load(name)
    sizes = attrs.asdict(program.TINY if plan.tiny else program.Sizes())
    measured = Measured(name, program.TITLE, sizes, plan.limit)
    expected: list[Any] = []
    for library in plan.libraries:
        try:
            runs = [_timed(library, program, name, plan) for _ in range(plan.starts)]
        except FailedError as error:
            measured.notes[library] = str(error)
            continue
        measured.seconds[library] = {
            count: min(taken)
            for count in plan.counts
            if len(taken := [seconds[count] for seconds, _ in runs if count in seconds])
        }
        results = runs[0][1]
        common = min(len(results), len(expected))  # whoever was late has fewer
        if apart := disagreement(results[:common], expected[:common], program.RTOL):
            measured.notes[library] = apart
        expected = expected or results
    return measured


def _timed(
    library: str, program: ModuleType, name: str, plan: Plan
) -> tuple[dict[int, float], list[Any]]:
    """The seconds by numbers of calls, and the results to compare."""
    seconds: dict[int, float] = {}
    results: list[Any] = []
    draws = getattr(program, "RANDOM", False)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
        process = Process(_serve, library, name, cache, plan.tiny)
        try:
            process.ask("start")
            made, taken = 0, 0.0
            for count in plan.counts:
                more, new = process.ask(count - made, within=plan.limit - taken)
                made, taken = count, taken + more
                seconds[count] = taken
                if not draws:
                    results += new[: COMPARED - len(results)]
            if draws:  # of numbers that are the library's own nothing can be compared
                results = process.ask("compare", within=plan.limit)
        except LateError:
            pass  # the numbers that were not reached are missing
        finally:
            process.end()
    return seconds, results


def _serve(pipe: Connection, library: str, name: str, cache: str, tiny: bool) -> None:
    """What the process does."""
    os.environ["FDBR_CACHE_DIR"] = cache
    os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)
    run: Any = None

    def answer(what: Any) -> Any:
        nonlocal run
        if what == "start":
            run = start(library, name, tiny)
            return None
        if what == "compare":
            return start(library, name, tiny, FixedNoise()).loop(COMPARED)[1]
        return run.loop(what)

    answering(pipe, answer)
