"""One large computation of NumPy's, divided among threads.

NumPy computes on one thread, all but products of matrices.  Its functions let other threads of
Python run meanwhile, so pieces of one large array can be computed side by side.

The caller works too, and never waits for a piece that nobody has begun: it takes that itself.  So
there is no deadlock if all threads are busy, or if a piece is itself divided.
"""

import contextlib
import contextvars
import functools
import os
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Lock
from typing import Any

__all__ = ["available", "divide", "parts", "slices"]


def available() -> int:
    """The number of threads that this process may use: one a core, ``OMP_NUM_THREADS`` at most."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    limit = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return min(cores or 1, int(limit)) if limit.isdecimal() and int(limit) else cores or 1


@functools.cache
def _helpers(process: int) -> tuple[ThreadPoolExecutor | None, int]:
    """The threads of a process beside the caller's, and their number.

    A process that was forked has none of its parent's threads, so it makes its own.
    """
    count = available() - 1
    return (ThreadPoolExecutor(count, "fdbr") if count else None), count


class _Job:
    """Pieces, of which each thread takes the next until there is none."""

    def __init__(self, work: Callable[[Any], object], pieces: Iterable[Any]) -> None:
        self.work = work
        self.waiting = deque(pieces)
        self.unfinished = len(self.waiting)
        self.finished = Event()
        self.error: BaseException | None = None
        self.lock = Lock()

    def help(self) -> None:
        """Work on pieces; after an error only clear them away."""
        while True:
            try:
                piece = self.waiting.popleft()
            except IndexError:
                return
            try:
                if self.error is None:
                    self.work(piece)
            except BaseException as error:  # it is raised in the thread of the caller
                self.error = error
            with self.lock:
                self.unfinished -= 1
                if not self.unfinished:
                    self.finished.set()


def divide(work: Callable[[Any], object], pieces: Iterable[Any]) -> None:
    """Call ``work`` with each of the pieces, on several threads.

    Parameters
    ----------
    work
        A function of one piece, which writes its result somewhere.  It sees the context
        variables of the caller, such as `numpy.errstate`.
    pieces
        Of at least some hundred microseconds together: to begin and end takes thirty.

    Raises
    ------
    BaseException
        What ``work`` raised for a piece; others are then not begun.

    >>> import numpy as np
    >>> x, out = np.arange(4.0), np.empty(4)
    >>> divide(lambda piece: np.sqrt(x[piece], out=out[piece]), [slice(2), slice(2, 4)])
    >>> out
    array([0.        , 1.        , 1.41421356, 1.73205081])
    """
    job = _Job(work, pieces)
    if not job.unfinished:
        return
    executor, count = _helpers(os.getpid())
    # Where there is no further thread, as when Python ends, there are fewer to help.
    with contextlib.suppress(RuntimeError):
        for _ in range(min(count, job.unfinished - 1)):
            executor.submit(contextvars.copy_context().run, job.help)  # type: ignore[union-attr]
    job.help()
    job.finished.wait()
    if job.error is not None:
        error, job.error = job.error, None
        try:
            raise error
        finally:
            del error  # it refers to this frame


def slices(array: Any, size: int) -> list[slice]:
    """The first axis of an array in slices of about so many bytes each: pieces for `divide`."""
    return parts(len(array), array.nbytes // size)


def parts(count: int, number: int) -> list[slice]:
    """So many elements in a number of slices, of which none is much smaller than the others."""
    number = min(count, max(1, number))
    return [slice(i * count // number, (i + 1) * count // number) for i in range(number)]
