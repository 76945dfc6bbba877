"""What the process does in which kernels are compiled: see `background`."""

import contextlib
import os
import pickle
import sys
from typing import Any

from fdbr.compiler.backends.cpu import compiling

__all__ = ["serve"]

_TENTH = 10  # the niceness of what gets a tenth of a processor beside something else


def _give_way(niceness: int) -> None:
    """Have whoever wants the processor have it; where there is but one, all but a tenth of it."""
    alone = len(os.sched_getaffinity(0)) == 1 if hasattr(os, "sched_getaffinity") else False
    with contextlib.suppress(OSError, AttributeError):
        os.nice(min(niceness, _TENTH) if alone else niceness)
    if niceness and not alone and hasattr(os, "SCHED_IDLE"):
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def serve(niceness: int) -> None:
    """Compile what is asked for on the standard input, until it ends."""
    _give_way(niceness)
    with os.fdopen(os.dup(1), "wb") as out, contextlib.suppress(EOFError, OSError):
        os.dup2(2, 1)  # what others print does not get in between
        while True:
            source = pickle.load(sys.stdin.buffer)
            try:
                answer: Any = compiling.code_of(source), ""
            except Exception as error:
                answer = None, f"{type(error).__name__}: {error}"
            pickle.dump(answer, out)
            out.flush()
