"""Batches read by processes, and handed out in order."""

import contextlib
import itertools
import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Iterable, Iterator
from multiprocessing import connection as connections
from multiprocessing import resource_tracker, util
from typing import Any

from fdbr.train.data.prefetching.memory import Packed, flattened, received, unflattened
from fdbr.train.data.prefetching.workers import END, Failure, work
from fdbr.train.loop.interrupts import TERMINATED

__all__ = ["Processes"]

_NAME = "fdbr.train.prefetch"
_MASKS = hasattr(signal, "pthread_sigmask")  # Windows has none

_MOST = 64
"""Requests that a worker is sent at most before it has answered: some hundred fill a pipe, and then
both sides would wait for each other to read."""


class Processes:
    """The worker processes of a source: started once, they read epoch after epoch.

    They end with `close`, when this object is garbage collected, at exit of the program, and when
    the program is killed.  Each iteration that is under way has workers for itself.
    """

    __slots__ = ("__weakref__", "_crews", "_idle", "_owner")

    def __init__(self) -> None:
        self._owner = 0
        self._crews: list[_Crew] = []
        self._idle: list[_Crew] = []

    def __reduce__(self) -> tuple[Any, ...]:  # a copy has workers of its own
        return Processes, ()

    def batches(
        self, source: Any, number: int, start: int, places: Iterable[int], workers: int, ahead: int
    ) -> Iterator[Any]:
        """The batches at some places of an epoch, in their order."""
        crew = self._leased(workers)
        usable = False
        try:
            crew.begin(source, number, start)
            yield from crew.in_order(iter(places), min(ahead, _MOST * workers))
            usable = True
        except GeneratorExit:
            usable = True
            raise
        finally:
            if usable and not crew.is_last:
                self._idle.append(crew)
            else:
                self._crews.remove(crew)
                crew.end()

    def _leased(self, workers: int) -> "_Crew":
        """Workers that no other iteration uses."""
        if self._owner != os.getpid():  # those of a process of which this one is a fork are its own
            self._owner = os.getpid()
            self._crews, self._idle = [], []
            # A finalizer of multiprocessing's: it runs before that terminates and joins its
            # children at exit, and not in a fork.
            util.Finalize(self, _end_all, (self._crews,), exitpriority=10)
        try:
            return self._idle.pop()
        except IndexError:
            crew = _Crew(workers)
            self._crews.append(crew)
            return crew

    def close(self) -> None:
        """End the processes, those of an iteration that is under way with it."""
        if self._owner != os.getpid():
            return
        for crew in self._crews:
            crew.is_last = True
        while self._idle:
            crew = self._idle.pop()
            self._crews.remove(crew)
            crew.end()


def _end_all(crews: "list[_Crew]") -> None:
    while crews:
        crews.pop().end()


class _Worker:
    """A process, its connection, and the places that it was asked for and has not sent.

    It is behind while it may be reading for an epoch that was left, and lost when it has ended.
    """

    __slots__ = ("connection", "is_behind", "is_lost", "places", "process")

    def __init__(self, process: Any, connection: Any) -> None:
        self.process = process
        self.connection = connection
        self.places: set[int] = set()
        self.is_behind = self.is_lost = False

    def send(self, *message: Any) -> None:
        with contextlib.suppress(OSError):  # it has died, which is noticed where an answer is due
            self.connection.send(message)


class _Crew:
    """Some workers that read one epoch at a time."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._workers: list[_Worker] = []
        self._packed: Packed | None = None
        self._epochs = 0  # that were begun: answers for earlier ones are dropped
        self.is_last = False  # whether it ends with the iteration that uses it

    def begin(self, source: Any, number: int, start: int) -> None:
        """Have all workers read an epoch of a source, as that is now."""
        self._workers = [one for one in self._workers if _is_alive(one)]
        parts = _flattened(source)
        known = self._packed is not None and self._packed.holds(parts)
        if not known:
            self._close_packed()
            self._packed = Packed.of(parts)
        del parts
        for worker in self._workers if not known else ():
            self._send_source(worker)
        for _ in range(self._size - len(self._workers)):
            self._workers.append(_started())
            self._send_source(self._workers[-1])
        self._epochs += 1
        for worker in self._workers:
            worker.is_behind = bool(worker.places)
            worker.places.clear()
            worker.send("epoch", self._epochs, number, start)

    def _send_source(self, worker: _Worker) -> None:
        assert self._packed is not None
        worker.send("source")
        with contextlib.suppress(OSError):
            self._packed.send(worker.connection)

    def in_order(self, places: Iterator[int], ahead: int) -> Iterator[Any]:
        """The batches at some places of the epoch, in their order."""
        arrived: dict[int, Any] = {}
        expected: deque[int] = deque()
        count = ahead
        while True:
            for place in itertools.islice(places, count):
                self._ask(place)
                expected.append(place)
            if not expected:
                return
            place, count = expected.popleft(), 1
            while place not in arrived:
                self._take_in(place, arrived)
            batch = arrived.pop(place)
            if batch is END:
                return
            if isinstance(batch, Failure):
                raise batch.error()
            yield batch

    def _ask(self, place: int) -> None:
        worker = min(self._workers, key=lambda one: (one.is_lost, len(one.places) + one.is_behind))
        worker.places.add(place)
        worker.send("place", place)

    def _take_in(self, place: int, arrived: dict[int, Any]) -> None:
        """Wait for some worker, and take in what it has sent; raise if the one that owes died."""
        owner = next(worker for worker in self._workers if place in worker.places)
        if owner.is_lost:
            raise _death(owner, place)
        by_connection = {one.connection: one for one in self._workers if not one.is_lost}
        ready = connections.wait([*by_connection, owner.process.sentinel])
        for one in ready:
            worker = by_connection.get(one)
            if worker is None:
                continue
            try:
                parts = received(one)
            except (EOFError, OSError):
                worker.is_lost = True  # it matters when the turn of its places comes
                continue
            epoch, at, batch = unflattened(parts)
            worker.is_behind = False
            if epoch == self._epochs:
                worker.places.discard(at)
                arrived[at] = batch
        if ready == [owner.process.sentinel] and not owner.connection.poll():
            owner.is_lost = True

    def end(self) -> None:
        """End all workers: by themselves, if they do it soon."""
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.send("end")  # a fork of this process may hold the connection open
            worker.connection.close()
        patience = time.monotonic() + 0.5
        for worker in workers:
            worker.process.join(max(0.0, patience - time.monotonic()))
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join(1)
            with contextlib.suppress(ValueError):
                worker.process.close()
        self._close_packed()

    def _close_packed(self) -> None:
        packed, self._packed = self._packed, None
        if packed is not None:
            packed.close()


def _is_alive(worker: _Worker) -> bool:
    if worker.process.is_alive() and not worker.is_lost:
        return True
    worker.connection.close()
    return False


def _flattened(value: Any) -> Any:
    try:
        return flattened(value)
    except Exception as error:
        raise TypeError(
            f"{_NAME}: batches cannot be sent to other processes: {error}. Classes and functions "
            "in them must be found in a module, by their name: no lambdas and no functions within "
            "functions; or give processes=False"
        ) from error


_server_of: list[int] = []
"""The process that has a server from which workers are forked."""


def _context() -> Any:
    """The way in which processes are started."""
    if multiprocessing.current_process().daemon:
        raise RuntimeError(
            f"{_NAME}: this process is a daemon, as those of multiprocessing.Pool are, and may "
            "start no processes; give processes=False, or run it in a "
            "concurrent.futures.ProcessPoolExecutor"
        )
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    if _server_of and _server_of[0] != os.getpid():  # a fork cannot use the server of its parent
        return multiprocessing.get_context("spawn")
    _server_of[:] = [os.getpid()]
    context = multiprocessing.get_context("forkserver")
    # Processes are forked from one that has imported what they need: that takes milliseconds.
    context.set_forkserver_preload(["__main__", work.__module__])
    return context


def _started() -> _Worker:
    context = _context()
    ours, theirs = context.Pipe()
    process = context.Process(target=work, args=(theirs,), name="fdbr-prefetch", daemon=True)
    try:
        with _uninterrupted():
            process.start()
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return _Worker(process, ours)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Have Ctrl-C wait, here and in what is started: workers end when their program says so."""
    if _MASKS:
        resource_tracker.ensure_running()  # which would let Ctrl-C through, if it began within
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        if _MASKS:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _death(worker: _Worker, place: int) -> RuntimeError:
    worker.process.join(5)
    code = worker.process.exitcode
    code = -signal.SIGTERM if code == TERMINATED else code
    if code is not None and code < 0:
        with contextlib.suppress(ValueError):
            code = signal.Signals(-code).name
        how = f"was ended by {code}"
        advice = "the system may have been short of memory: give fewer workers, or a smaller ahead"
    else:
        how = f"ended with exit status {code}"
        advice = (
            "its last words are on the standard error stream. A program that starts processes "
            'begins its work under `if __name__ == "__main__":`, as they import it'
        )
    return RuntimeError(
        f"{_NAME}: the worker process {worker.process.pid} {how} before it had sent batch {place} "
        f"of the epoch; {advice}"
    )
