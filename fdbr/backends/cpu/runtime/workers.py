"""Threads that compile kernels, while the thread that needs them waits.

An error of a signal handler ends the wait immediately.  The threads then stop after their current
kernel, and Python's exit waits for that.
"""

import _thread
import contextlib
import os
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from fdbr.core.util.threads import available

__all__ = ["BusyError", "compute", "finish", "gate"]

Item = TypeVar("Item")
Result = TypeVar("Result")

_PAUSE = 0.005  # seconds before an item that another process computes is tried again
# Pauses after which this process computes the item, because the other process may be suspended.
_MOST_PAUSES = 2000


class BusyError(Exception):
    """Another process or thread computes the same result, and will write it to the cache."""


class Gate:
    """Keeps the process from forking while threads are inside LLVM.

    Otherwise the child would inherit locks that are never released, and half-changed data.
    """

    def __init__(self) -> None:
        self._entrance, self._left, self._inside = threading.RLock(), threading.Condition(), 0

    def __enter__(self) -> None:
        with self._entrance, self._left:
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._left:
            self._inside -= 1
            self._left.notify_all()

    def close(self) -> None:
        """Let no thread enter, and wait until all have left."""
        self._entrance.acquire()
        with self._left:
            while self._inside:
                self._left.wait()

    def open(self) -> None:
        """Let threads enter again."""
        self._entrance.release()


gate = Gate()


class _Batch(Generic[Item, Result]):
    """Items for threads.  Each thread takes the next item until none is left.

    An interrupt of the waiting thread must leave no lock acquired, so results go through a
    `SimpleQueue`, and threads are not objects of `threading`, which also change what is shared.
    """

    def __init__(self, work: Callable[[Item, bool], Result], items: Sequence[Item]) -> None:
        self.work, self.items = work, items
        self.done: SimpleQueue[tuple[Item, Any, BaseException | None] | None] = SimpleQueue()
        self.waiting: deque[Item] = deque()
        self.pauses: Counter[Item] = Counter()
        self.ended = False

    def serve(self) -> None:
        while not self.ended:
            try:
                item = self.waiting.popleft()
            except IndexError:
                return
            try:
                with gate:
                    if self.ended:  # perhaps Python ends, too
                        return
                    result = self.work(item, self.pauses[item] < _MOST_PAUSES)
                self.done.put((item, result, None))
            except BusyError:
                self.pauses[item] += 1
                self.waiting.append(item)
                time.sleep(_PAUSE)
            except BaseException as error:  # it is raised in the thread that waits
                self.done.put((item, None, error))

    def start(self, items: Sequence[Item]) -> None:
        self.waiting.extend(items)
        started = 0
        # A thread that starts while Python shuts down raises an error, or never runs.
        if not sys.is_finalizing():
            with contextlib.suppress(RuntimeError):
                for _ in range(min(available(), len(items))):
                    _thread.start_new_thread(self.serve, ())
                    started += 1
        if not started:
            self.serve()

    def wait(self) -> dict[Item, Result]:
        found: dict[Item, Result] = {}
        self.start(self.items)
        while len(found) < len(self.items):
            answer = self.done.get()
            if answer is None:
                self.start([item for item in self.items if item not in found])
                continue
            item, result, error = answer
            if error is not None:
                raise error
            found[item] = result
        return found


_batches: WeakSet[_Batch[Any, Any]] = WeakSet()


def _continue_in_child() -> None:
    for batch in list(_batches):  # of a signal handler that forks while its thread waits
        batch.waiting.clear()
        batch.done.put(None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_continue_in_child)


def finish() -> None:
    """Wait until threads have finished their current items, before Python ends."""
    for batch in list(_batches):
        batch.ended = True
    gate.close()
    gate.open()


def compute(work: Callable[[Item, bool], Result], items: Sequence[Item]) -> dict[Item, Result]:
    """Return the results of ``work`` for different items, computed in threads.

    Parameters
    ----------
    work
        A function of an item, and of whether it may raise a `BusyError`: then the item is computed
        later.
    items
        The items.

    Raises
    ------
    BaseException
        The error that ``work`` raised for an item; the remaining items are skipped.
    """
    batch = _Batch(work, items)
    _batches.add(batch)
    try:
        return batch.wait()
    finally:
        batch.ended = True
        _batches.discard(batch)
