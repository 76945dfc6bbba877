"""NumPy computations on large arrays, divided among threads.

NumPy computes on one thread, except for matrix products.  Its functions release the GIL, so threads
can compute pieces of one large array in parallel.

The calling thread works too: it takes every piece that no other thread has begun.  So there is no
deadlock if all threads are busy, or if a piece is itself divided.
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
    """Return the number of threads to use: one for each core, at most ``OMP_NUM_THREADS``."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    limit = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return min(cores or 1, int(limit)) if limit.isdecimal() and int(limit) else cores or 1


@functools.cache
def _helpers(process: int) -> tuple[ThreadPoolExecutor | None, int]:
    """Return the pool of helper threads of a process, and their number.

    A forked process has none of its parent's threads, so it gets a pool of its own.
    """
    count = available() - 1
    return (ThreadPoolExecutor(count, "fdbr-divide") if count else None), count


class _Job:
    """Pieces of work; each thread takes the next one until none is left."""

    finished: Event  # of several pieces

    def __init__(self, work: Callable[[Any], object], pieces: Iterable[Any]) -> None:
        self.work = work
        self.waiting = deque(pieces)
        self.unfinished = len(self.waiting)
        self.error: BaseException | None = None
        self.lock = Lock()

    def help(self) -> None:
        """Work on pieces; after an error, remove the remaining ones without work."""
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
        Their work should take at least some hundred microseconds together, because starting and
        joining the threads takes thirty.

    Raises
    ------
    BaseException
        The error that ``work`` raised for a piece; the remaining pieces are skipped.

    >>> import numpy as np
    >>> x, out = np.arange(4.0), np.empty(4)
    >>> divide(lambda piece: np.sqrt(x[piece], out=out[piece]), [slice(2), slice(2, 4)])
    >>> out
    array([0.        , 1.        , 1.41421356, 1.73205081])
    """
    job = _Job(work, pieces)
    if job.unfinished <= 1:  # without an event, which takes as long as a small array's operation
        for piece in job.waiting:
            work(piece)
        return
    job.finished = Event()
    executor, count = _helpers(os.getpid())
    # While Python shuts down no thread can start, and the caller does all the work.
    with contextlib.suppress(RuntimeError):
        for _ in range(min(count, job.unfinished - 1)):
            executor.submit(contextvars.copy_context().run, job.help)  # type: ignore[union-attr]
    job.help()
    job.finished.wait()
    del job.work  # a helper that is busy still has the job queued, and would keep its arrays
    if job.error is not None:
        error, job.error = job.error, None
        try:
            raise error
        finally:
            del error  # break the reference cycle with this frame


def slices(array: Any, size: int) -> list[slice]:
    """Divide the first axis of an array into slices of about ``size`` bytes each, for `divide`."""
    return parts(len(array), array.nbytes // size)


def parts(count: int, number: int) -> list[slice]:
    """Divide ``count`` elements into ``number`` slices of nearly equal length."""
    number = min(count, max(1, number))
    return [slice(i * count // number, (i + 1) * count // number) for i in range(number)]
