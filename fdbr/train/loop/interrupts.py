"""Ctrl-C, put off until an iteration is done."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Protocol

__all__ = ["Interrupt", "Together", "put_off", "stop_together"]

_NOTICE = (
    b"\nfdbr.train.fit: interrupted; the run ends after this iteration, with its stages done. "
    b"Press Ctrl-C again to stop at once.\n"
)


class Interrupt:
    """Whether a run shall end because of Ctrl-C."""

    __slots__ = ("pressed", "process")

    def __init__(self) -> None:
        self.pressed = False
        self.process = os.getpid()

    def ends(self, iteration: int) -> bool:
        """Whether a run has no iterations after one that is done."""
        if _together is None or self.process != os.getpid():
            return self.pressed
        return _together.ends(self, iteration)


class Together(Protocol):
    """Processes whose runs must end with the same iteration."""

    @property
    def quiet(self) -> bool:
        """Whether another process tells the user that Ctrl-C was heard."""

    def begins(self, run: Interrupt) -> None:
        """A run begins within no other."""

    def is_over(self, run: Interrupt) -> None:
        """It is over."""

    def ends(self, run: Interrupt, iteration: int) -> bool:
        """Whether a run has no iterations after one that is done."""


_together: Together | None = None


def stop_together(together: Together) -> None:
    """Have processes agree about where runs end."""
    global _together
    _together = together


_runs: list[Interrupt] = []
"""Of the runs in the main thread, in the order in which they were begun.  The first one ends: the
others may be within its step, or its stages, which need their results."""


@contextlib.contextmanager
def put_off() -> Iterator[Interrupt]:
    """A block in which Ctrl-C is noted, and a second one has its usual effect.

    That is so in the main thread, and where nobody else has a handler of the signal.
    """
    own = Interrupt()
    if not _takes_part():
        yield own
        return
    _runs.append(own)
    if _together is not None and len(_runs) == 1:
        _together.begins(own)
    try:
        yield own
    finally:
        _runs.remove(own)
        if _together is not None:
            _together.is_over(own)
        if not _runs and _in_main_thread() and signal.getsignal(signal.SIGINT) is _note:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _takes_part() -> bool:
    if not _in_main_thread():
        return False
    current = signal.getsignal(signal.SIGINT)
    if current is signal.default_int_handler:
        signal.signal(signal.SIGINT, _note)
        return True
    return current is _note


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _note(number: int, frame: FrameType | None) -> None:
    if not _runs or _runs[0].pressed:
        signal.default_int_handler(number, frame)
    if _runs[0].process != os.getpid():
        return  # a worker that was forked from the run: it ends with it
    _runs[0].pressed = True
    if _together is not None and _together.quiet:
        return
    with contextlib.suppress(OSError):
        os.write(2, _NOTICE)  # print may be in the middle of something
