"""Compile kernels for another process: see `background`."""

import contextlib
import os
import pickle
import sys
import threading
from queue import SimpleQueue
from typing import Any

from fdbr.backends.cpu.runtime import compiling

__all__ = ["serve"]

_LAST = 19  # the highest niceness there is


def serve(niceness: int) -> None:
    """Compile what is asked for on the standard input, until it ends.

    What is urgent has ``niceness``; the rest is done where nobody else wants the processor.
    """
    with contextlib.suppress(OSError, AttributeError):
        os.nice(niceness)
    patient = _Patient(gives_way=niceness > 0)
    with os.fdopen(os.dup(1), "wb") as out, contextlib.suppress(EOFError, OSError):
        os.dup2(2, 1)  # what others print does not get in between
        while True:
            source, urgent = pickle.load(sys.stdin.buffer)
            answer = _answer(source) if urgent else patient.answer(source)
            pickle.dump(answer, out)
            out.flush()


class _Patient:
    """A thread that compiles where nobody else wants the processor."""

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
    """Have this thread run where nobody else wants the processor; if there is but one, rarely."""
    alone = len(os.sched_getaffinity(0)) == 1 if hasattr(os, "sched_getaffinity") else False
    if alone or sys.platform != "linux":  # elsewhere threads have no priorities of their own
        return
    with contextlib.suppress(OSError):
        os.nice(_LAST)
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def _answer(source: str) -> Any:
    try:
        return compiling.code_of(source), ""
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"
