"""A process of its own for a workload in one library.

There a library is as its users have it: with memory, thread pools and settings that no other
library has touched.  The process waits between turns, and takes no time then.
"""

import multiprocessing
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

from benchmarks import libraries, memory, workloads

__all__ = ["FailedError", "First", "LateError", "Process", "Worker", "answering"]

CHECKED_CALLS = 3  # several, so that a training step's update is compared too


class FailedError(Exception):
    """Why a library has no times."""


class LateError(Exception):
    """A process has not answered in time."""


class First(NamedTuple):
    """The results of the first calls, and how many seconds the very first took."""

    results: list[list[np.ndarray]]
    seconds: float


class Process:
    """A process that answers questions, from here.

    Parameters
    ----------
    serve
        What it does: ``serve(pipe, *arguments)``; see `answering`.
    """

    def __init__(self, serve: Callable[..., None], *arguments: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, *arguments), daemon=True)
        self._process.start()
        theirs.close()

    def ask(self, what: Any, within: float | None = None) -> Any:
        """What it answers, if need be within some seconds.

        Raises
        ------
        FailedError
            With the reason in words.
        LateError
            If there is no answer in time; nothing more can be asked then.
        """
        try:
            self._pipe.send(what)
            if within is not None and not self._pipe.poll(max(within, 0)):
                self._process.kill()
                raise LateError(f"no answer within {within:.1f} s")
            answer = self._pipe.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            self._process.join(5)
            raise FailedError(f"its process ended with {self._process.exitcode}") from None
        if isinstance(answer, FailedError):
            raise answer
        return answer

    def end(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.join(5)
        self._process.kill()


def answering(pipe: Connection, answer: Callable[[Any], Any]) -> None:
    """Answer questions until nobody will ask any more; errors are answers, too."""
    try:
        while True:
            what = pipe.recv()
            try:
                pipe.send(answer(what))
            except libraries.AbsentError as error:
                pipe.send(FailedError(str(error)))
            except Exception as error:  # of whatever kind: a library's failure is a result
                failed = FailedError(f"fails: {type(error).__name__}: {_first_line(error)}")
                failed.add_note(traceback.format_exc())
                pipe.send(failed)
    except EOFError:
        return


class Worker(Process):
    """The process of a workload, from here.

    Parameters
    ----------
    library, workload
        Their names.
    changes
        Sizes of the workload that differ from its own.
    """

    def __init__(
        self, library: str, workload: str, changes: dict[str, int], threads: int, tiny: bool
    ) -> None:
        super().__init__(_serve, library, workload, changes, threads, tiny)

    def first(self) -> First:
        """Make the first calls.

        Raises
        ------
        FailedError
            With the reason in words.
        """
        return self.ask("first")

    def loop(self, number: int) -> float:
        """Make some calls; the seconds they took."""
        return self.ask(number)

    def memory(self) -> dict[str, int]:
        """The peaks in bytes, by name; none where the system does not tell.

        ``whole``: the most that the process has had since it began, first calls, compilation and
        timing included.
        ``growth``, the same for all libraries: by how much the process outgrows what it was after
        the library had been imported and had run (and compiled) a tiny network.  It covers
        parameters, data, what compilers left behind, and whatever a step takes at its peak.
        ``arrays``, for libraries that compute with NumPy: by how much NumPy's memory grows in a
        step, without parameters and data.
        """
        return self.ask("memory")


def _serve(
    pipe: Connection,
    library: str,
    workload: str,
    changes: dict[str, int],
    threads: int,
    tiny: bool,
) -> None:
    """What the process does."""
    module = workloads.load(workload)
    sizes = workloads.resized(module, changes, tiny)
    run: Any = None
    before = 0

    def answer(what: Any) -> Any:
        nonlocal run, before
        if what == "first":
            before = _warmed(library, threads)
            run = libraries.start(library, module, sizes, threads)
            return _first(run)
        return _memory(library, run, before) if what == "memory" else run.loop(what)

    answering(pipe, answer)


def _warmed(library: str, threads: int) -> int:
    """Import the library and run a tiny network in it; the memory in use then."""
    if library in libraries.LIBRARIES:
        tiny = workloads.load("mlp")
        libraries.start(library, tiny, tiny.TINY, threads).loop(3)
    return memory.resident() if memory.known() else 0


def _first(run: libraries.Run) -> First:
    start = time.perf_counter()
    results = [run.results()]
    seconds = time.perf_counter() - start
    first = First(results + [run.results() for _ in range(CHECKED_CALLS - 1)], seconds)
    run.settle()
    return first


def _memory(library: str, run: libraries.Run, before: int) -> dict[str, int]:
    if not memory.known():
        return {}
    whole = memory.most()
    memory.resident()  # what is free does not count as in use
    steps = memory.peak(lambda: run.loop(3))
    found = {"whole": max(whole, steps), "growth": steps - before}
    if library in libraries.WITH_NUMPY:
        found["arrays"] = memory.array_peak(lambda: run.loop(1))
    return found


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:100] if lines else ""
