"""The main loop of the background process that compiles kernels: see `background`."""

import contextlib
import os
import pickle
import sys
import threading
from queue import SimpleQueue
from typing import Any

from fdbr.backends.cpu.runtime import compiling

__all__ = ["serve"]

_LAST = 19  # the highest niceness of POSIX systems


def serve(niceness: int) -> None:
    """Compile the kernels requested on the standard input, until it ends.

    Urgent requests run with ``niceness``; the others only on processors that are idle.
    """
    with contextlib.suppress(OSError, AttributeError):
        os.nice(niceness)
    patient = _Patient(gives_way=niceness > 0)
    with os.fdopen(os.dup(1), "wb") as out, contextlib.suppress(EOFError, OSError):
        os.dup2(2, 1)  # so that other output does not mix with the answers
        while True:
            source, urgent = pickle.load(sys.stdin.buffer)
            answer = _answer(source) if urgent else patient.answer(source)
            pickle.dump(answer, out)
            out.flush()


class _Patient:
    """A thread that compiles on idle processors."""

    def __init__(self, gives_way: bool) -> None:
        self._sources: SimpleQueue[str] = SimpleQueue()
        self._answers: SimpleQueue[Any] = SimpleQueue()
        threading.Thread(target=self._serve, args=[gives_way], daemon=True).start()

    def _serve(self, gives_way: bool) -> None:
        if gives_way:
            _give_way()
        while True:
            self._answers.put(_answer(self._sources.get()))

    def answer(self, source: str) -> Any:
        self._sources.put(source)
        return self._answers.get()


def _give_way() -> None:
    """Give this thread idle priority; with a single processor it would hardly ever run."""
    alone = len(os.sched_getaffinity(0)) == 1 if hasattr(os, "sched_getaffinity") else False
    if alone or sys.platform != "linux":  # only Linux has priorities of single threads
        return
    with contextlib.suppress(OSError):
        os.nice(_LAST)
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def _answer(source: str) -> Any:
    try:
        return compiling.code_of(source), ""
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"
