"""The end of all ranks when one of them fails, or is done before the others.

- An exception that nobody catches ends all ranks at once, with its traceback first.
- A program that is over says so to those that still wait for it, which end with `RankFailedError`.
- A process that is killed ends the others, too: MPI's launcher sees to that.
"""

import atexit
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from fdbr.distributed.errors import DistributedError, RankFailedError
from fdbr.distributed.transports.notices import Notices

__all__ = ["install"]

_CAUSES, _CONSEQUENCES = 0.1, 1.5
"""Seconds that ranks other than the first leave to it for its own traceback of the same error; and
that all ranks leave to the one whose failure is the cause of theirs."""

_LEAVING = 0.3
"""Seconds in which all programs come to their ends, where they end alike."""


def install(notices: Notices, flush: Callable[[float], None]) -> None:
    """Have failures of this process end all others, and others know when it is over.

    Parameters
    ----------
    notices
        The post between the processes.
    flush
        ``flush(seconds)`` waits until what was sent has arrived.
    """
    process = os.getpid()
    before, before_in_threads = sys.excepthook, threading.excepthook
    program_over = [False]

    def hook(kind: type[BaseException], error: BaseException, traceback: Any) -> None:
        if os.getpid() != process:  # a worker that was forked from this rank
            before(kind, error, traceback)
            return
        _leave_to_others(notices, error)
        _tell(notices, lambda: before(kind, error, traceback))
        _end(notices, 130 if issubclass(kind, KeyboardInterrupt) else 1)

    def hook_in_threads(arguments: Any) -> None:
        kind, error = arguments.exc_type, arguments.exc_value
        if os.getpid() != process or program_over[0] or issubclass(kind, SystemExit):
            before_in_threads(arguments)
            return
        _leave_to_others(notices, error)
        _tell(notices, lambda: before_in_threads(arguments))
        _end(notices, 1)

    def leave() -> None:
        program_over[0] = True
        if os.getpid() == process and not notices.mpi.Is_finalized():
            flush(5.0)
            notices.leave("has come to the end of its program", _LEAVING)

    sys.excepthook = hook
    threading.excepthook = hook_in_threads
    atexit.register(leave)


def _leave_to_others(notices: Notices, error: BaseException) -> None:
    """Let those go first whose tracebacks say more: the end of theirs is the end of this rank."""
    seconds = _CAUSES if notices.rank else 0.0
    if isinstance(error, RankFailedError):
        seconds += _CONSEQUENCES
    elif isinstance(error, DistributedError | KeyboardInterrupt) and notices.rank:
        seconds += 0.5 * _CONSEQUENCES
    time.sleep(seconds)


def _tell(notices: Notices, show: Callable[[], object]) -> None:
    sys.stdout.flush()
    print(f"fdbr.distributed: rank {notices.rank} of {notices.size} failed:", file=sys.stderr)
    show()
    sys.stderr.flush()


def _end(notices: Notices, code: int) -> None:
    time.sleep(0.05)  # so that the launcher has read what was written
    notices.mpi.COMM_WORLD.Abort(code)
