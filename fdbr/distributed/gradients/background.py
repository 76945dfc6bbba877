"""Collectives that continue while the program computes."""

import contextlib
import queue
import threading
import time
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import attrs

from fdbr.distributed.communicator import Communicator
from fdbr.distributed.transports.patience import cores

__all__ = ["Background", "Pending", "observing", "seen"]

Span = tuple[str, float, float]
_observer: ContextVar[Callable[[Span], None] | None] = ContextVar("observer", default=None)


@contextlib.contextmanager
def observing(seen: Callable[[Span], None]) -> Any:
    """Have ``seen((name, begin, end))`` called for what continues in the background of a block."""
    token = _observer.set(seen)
    try:
        yield
    finally:
        _observer.reset(token)


def seen(name: str, began: float) -> None:
    """Tell who observes of what has just ended."""
    observer = _observer.get()
    if observer is not None:
        observer((name, began, time.perf_counter()))


class Pending:
    """The outcome of a task in the background."""

    __slots__ = ("_done", "_error", "_seen", "_task", "_value", "name")

    def __init__(self, name: str, task: Callable[[], Any]) -> None:
        self.name = name
        self._task: Callable[[], Any] | None = task
        self._done = threading.Event()
        self._value: Any = None
        self._error: BaseException | None = None
        self._seen = _observer.get()

    def run(self) -> None:
        """Do the task, in the thread of the background."""
        assert self._task is not None
        began = time.perf_counter()
        try:
            self._value = self._task()
        except BaseException as error:
            self._error = error
        self._task = None
        if self._seen is not None:
            self._seen((self.name, began, time.perf_counter()))
        self._done.set()

    def result(self) -> Any:
        """The result, when it is there; or the error that it has raised."""
        if not self._done.is_set():
            began = time.perf_counter()
            self._done.wait()
            seen("wait", began)
        if self._error is not None:
            raise self._error
        return self._value


class Background:
    """A thread that calls collectives of its own, in the order in which they are asked for.

    Its communicator is a duplicate, so that what it calls does not meet what the program calls.
    The two continue at once: whatever waits, or copies, leaves Python to the other.

    Attributes
    ----------
    comm
        The communicator of its collectives.
    has_core
        Whether each rank has a core for it beside that of the program.  Two ranks on two cores
        took 0.70 and 0.75 of one rank's step with overlap, and 0.58 and 0.72 without: the thread
        that reduces takes its time from backward.
    """

    def __init__(self, comm: Communicator) -> None:
        spare = comm.backend != "mpi" or cores() > comm.intra_size
        self.has_core = all(map(any, comm.transport.all_gather_bytes(bytes([spare]))))
        self.comm = attrs.evolve(comm, transport=comm.transport.duplicate())
        self._tasks: queue.SimpleQueue[Pending | None] = queue.SimpleQueue()
        name = f"collectives of rank {comm.rank}"
        threading.Thread(target=_work, args=(self._tasks,), name=name, daemon=True).start()
        weakref.finalize(self, self._tasks.put, None)
        if hasattr(self.comm.transport, "at_return"):  # ranks that are threads
            put = self._tasks.put
            self.comm.transport.at_return = lambda leave: put(Pending("return", leave))

    @classmethod
    def of(cls, comm: Communicator) -> "Background":
        """That of a communicator; all ranks ask for it at the same place, if it is the first."""
        found = _known.get(comm.transport)
        if found is None:
            found = _known[comm.transport] = cls(comm)
        return found

    def begin(self, name: str, task: Callable[[], Any]) -> Pending:
        """Have a task done, after those before it."""
        pending = Pending(name, task)
        self._tasks.put(pending)
        return pending


_known: weakref.WeakKeyDictionary[Any, Background] = weakref.WeakKeyDictionary()


def _work(tasks: Any) -> None:
    while (pending := tasks.get()) is not None:
        pending.run()
        del pending  # what it has made is not kept until there is more to do
