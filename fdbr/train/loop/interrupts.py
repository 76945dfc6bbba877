"""Ctrl-C and SIGTERM, put off until an iteration is done."""

import contextlib
import os
import signal
import threading
import traceback
from collections.abc import Iterator
from multiprocessing import parent_process
from types import FrameType
from typing import Any, Protocol

__all__ = ["TERMINATED", "Interrupt", "Terminated", "Together", "put_off", "stop_together"]

TERMINATED = 128 + signal.SIGTERM
"""The exit status of a process that SIGTERM has ended, as a shell tells it."""

_NOTICES = {
    signal.SIGINT: b"\nfdbr.train.fit: interrupted; the run ends after this iteration, with its "
    b"stages done. Press Ctrl-C again to stop at once.\n",
    signal.SIGTERM: b"\nfdbr.train.fit: terminated; the run ends after this iteration, with its "
    b"stages done, and then the process. A second SIGTERM ends it at once.\n",
}

_USUAL: dict[int, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}
"""The handlers that a run replaces while it continues."""


class Terminated(SystemExit):
    """Raised where a run has ended because of SIGTERM, so that the process ends, too."""


class Interrupt:
    """Whether a run shall end because of a signal, and whether that ends the process."""

    __slots__ = ("pressed", "process", "terminates")

    def __init__(self) -> None:
        self.pressed = False
        self.terminates = False
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
    """A block in which Ctrl-C and SIGTERM are noted, and a second one has its usual effect.

    That is so in the main thread, and where the program has no handler of the signal.  After
    SIGTERM the block ends with `Terminated`.
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
    except GeneratorExit:
        # Its stages have ended before it, and an exception may not come out of a `close`.
        _leave(own)
        if own.terminates and own.process == os.getpid():
            _end_by(signal.SIGTERM)
        raise
    finally:
        _leave(own)
    if own.terminates:
        raise Terminated(TERMINATED)


def _leave(own: Interrupt) -> None:
    """Have a run take part no more; the last one brings the usual handlers back."""
    if own not in _runs:
        return
    _runs.remove(own)
    if _together is not None:
        _together.is_over(own)
    if not _runs and _in_main_thread():
        for number, usual in _USUAL.items():
            if signal.getsignal(number) is _note:
                signal.signal(number, usual)


def _takes_part() -> bool:
    if not _in_main_thread():
        return False
    taken = False
    for number, usual in _USUAL.items():
        current = signal.getsignal(number)
        if current == usual and not (number == signal.SIGTERM and _is_in_pool()):
            signal.signal(number, _note)
            current = _note
        taken |= current is _note
    return taken


def _is_in_pool() -> bool:
    """Whether this is the call of a ProcessPoolExecutor.

    Its workers take SystemExit for the result of a call, and wait for the next one; their program,
    which has told them to terminate, would wait for them for ever.
    """
    frames = (frame.f_globals.get("__name__") for frame, _ in traceback.walk_stack(None))
    return parent_process() is not None and "concurrent.futures.process" in frames


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _note(number: int, frame: FrameType | None) -> None:
    if not _runs or (_runs[0].terminates if number == signal.SIGTERM else _runs[0].pressed):
        _end_by(number)
        return
    run = _runs[0]
    if run.process != os.getpid():
        return  # a worker that was forked from the run: it ends with it
    run.pressed = True
    run.terminates |= number == signal.SIGTERM
    if _together is not None and _together.quiet:
        return
    with contextlib.suppress(OSError):
        os.write(2, _NOTICES[signal.Signals(number)])  # print may be in the middle of something


def _end_by(number: int) -> None:
    """Have a signal its usual effect."""
    if number == signal.SIGINT:
        signal.default_int_handler(number, None)
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


def _in_fork() -> None:
    """Have SIGTERM end a process that was forked from a run: the run's pool may send it."""
    if signal.getsignal(signal.SIGTERM) is _note:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_fork)
