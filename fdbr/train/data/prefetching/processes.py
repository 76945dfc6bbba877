"""Batches read by processes, and handed out in order."""

import contextlib
import itertools
import multiprocessing
import os
import signal
import time
from collections.abc import Iterable, Iterator
from multiprocessing import connection as connections
from multiprocessing import resource_tracker
from typing import Any

import attrs

from fdbr.train.data.prefetching.memory import Packed, pack, receive
from fdbr.train.data.prefetching.workers import END, Failure, work

__all__ = ["by_processes"]

_NAME = "fdbr.train.prefetch"
_MASKS = hasattr(signal, "pthread_sigmask")  # Windows has none


@attrs.define(eq=False)
class _Worker:
    """A process, its connection, and the places that it was asked for and has not sent."""

    process: Any
    connection: Any
    places: set[int] = attrs.field(factory=set)

    def ask(self, place: int) -> None:
        self.places.add(place)
        with contextlib.suppress(OSError):  # it has died, which is noticed when its turn comes
            self.connection.send(place)


def by_processes(
    source: Any, number: int, start: int, places: Iterable[int], workers: int, ahead: int
) -> Iterator[Any]:
    """The batches at some places of an epoch, in their order."""
    packed = _packed((source, number, start))
    crew: list[_Worker] = []
    try:
        crew += _started(workers, packed)
        yield from _in_order(crew, iter(places), ahead)
    finally:
        packed.close()
        _end(crew)


def _packed(value: Any) -> Packed:
    try:
        return pack(value)
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


def _started(workers: int, packed: Packed) -> Iterator[_Worker]:
    context = _context()
    for _ in range(workers):
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
        worker = _Worker(process, ours)
        yield worker
        with contextlib.suppress(OSError):
            packed.send(ours)


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


def _in_order(crew: list[_Worker], places: Iterator[int], ahead: int) -> Iterator[Any]:
    arrived: dict[int, Any] = {}
    expected: list[int] = []
    for place in itertools.islice(places, ahead):
        crew[len(expected) % len(crew)].ask(place)
        expected.append(place)
    while expected:
        place = expected.pop(0)
        while place not in arrived:
            _take_in(crew, place, arrived)
        batch = arrived.pop(place)
        if batch is END:
            return
        if isinstance(batch, Failure):
            raise batch.error()
        for further in itertools.islice(places, 1):
            min(crew, key=lambda worker: len(worker.places)).ask(further)
            expected.append(further)
        yield batch


def _take_in(crew: list[_Worker], place: int, arrived: dict[int, Any]) -> None:
    """Wait for some worker, and take in what it has sent; an error if the one that owes is dead."""
    owner = next(worker for worker in crew if place in worker.places)
    by_connection = {worker.connection: worker for worker in crew if worker.places}
    ready = connections.wait([*by_connection, owner.process.sentinel])
    for one in ready:
        worker = by_connection.get(one)
        if worker is None:
            continue
        try:
            at, batch = receive(one)
        except (EOFError, OSError):
            worker.process.join(5)
            if worker is owner:
                raise _death(owner, place) from None
            time.sleep(0.01)  # another's turn will come
            continue
        worker.places.discard(at)
        arrived[at] = END if isinstance(batch, str) and batch == END else batch
    if ready == [owner.process.sentinel] and not owner.connection.poll():
        raise _death(owner, place)


def _death(worker: _Worker, place: int) -> RuntimeError:
    worker.process.join(5)
    code = worker.process.exitcode
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


def _end(crew: list[_Worker]) -> None:
    """Have all workers end: by themselves, if they do it soon."""
    for worker in crew:
        worker.connection.close()
    patience = time.monotonic() + 0.5
    for worker in crew:
        worker.process.join(max(0.0, patience - time.monotonic()))
        for end in (worker.process.terminate, worker.process.kill):
            if worker.process.is_alive():
                end()
                worker.process.join(1)
        with contextlib.suppress(ValueError):
            worker.process.close()
