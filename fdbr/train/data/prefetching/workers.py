"""The work of a process that reads batches: it is given places in epochs, and sends batches.

The program sends messages, each a tuple: ``("source",)``, after which the source follows;
``("epoch", ticket, number, start)``, for all places after it; ``("place", index)``; ``("end",)``.
A place is answered by the ticket, the place, and the batch.  Places of an epoch that was left are
not read any more.
"""

import contextlib
import enum
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any

import attrs

from fdbr.train.data.prefetching.memory import Packed, flattened, received, unflattened
from fdbr.train.loop.interrupts import TERMINATED

__all__ = ["END", "Failure", "reader_of", "work"]


class _End(enum.Enum):
    END = 0


END = _End.END
"""In the place of a batch: there are no more."""


@attrs.frozen
class Failure:
    """An error in a process, in a form that can be sent whatever it is."""

    pickled: bytes | None
    text: str
    traceback: str
    process: int

    @classmethod
    def of(cls, error: BaseException) -> "Failure":
        """That of an error that has just been caught."""
        text = "".join(traceback.format_exception_only(error)).strip()
        pickled = None
        with contextlib.suppress(Exception):
            pickled = pickle.dumps(error)
            pickle.loads(pickled)  # not all that can be pickled can be made again
            return cls(pickled, text, _trace(error), os.getpid())
        return cls(None, text, _trace(error), os.getpid())

    def error(self) -> BaseException:
        """The error, with a note of where it arose."""
        made: BaseException | None = None
        if self.pickled is not None:
            with contextlib.suppress(Exception):
                made = pickle.loads(self.pickled)
        if not isinstance(made, BaseException):
            made = RuntimeError(f"fdbr.train.prefetch: {self.text}")
        made.add_note(f"It was raised in the worker process {self.process}:\n{self.traceback}")
        return made


def _trace(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)).rstrip()


def reader_of(source: Any, number: int, start: int) -> Callable[[int], Any]:
    """A function that reads the batch at a place of an epoch, or gives `END`.

    Of a source that can only be read in order, the places must come in order, from ``start`` on.
    """
    reader = getattr(source, "reader", None)
    if reader is not None:
        read: Callable[[int], Any] = reader(number)
        return read
    batches = iter(source.epoch(number, start))
    return lambda place: next(batches, END)


def work(connection: Any) -> None:
    """Read the batches that are asked for, until nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asks
    ending = _Ending()
    signal.signal(signal.SIGTERM, ending)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # Nobody is there any more:
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        _serve(connection, ending)


class _Ending:
    """A handler of SIGTERM, which ends a worker when it has read what it was asked for.

    The signal may have come to all processes of a program, as from a batch system: then the one
    that asks finishes its iteration, for which it needs those batches.
    """

    def __init__(self) -> None:
        self.was_told = False
        self.is_waiting = False

    def __call__(self, number: int, frame: Any) -> None:
        self.was_told = True
        if self.is_waiting:
            sys.exit(TERMINATED)


def _serve(connection: Any, ending: _Ending) -> None:
    places: deque[int] = deque()
    source: Any = None
    ticket = 0
    read: Callable[[int], Any] = _no_epoch
    accepts = True
    while accepts or places:
        told = ending.was_told
        while accepts and (message := _message(connection, ending, wait=not places)):
            what, *content = message
            if what == "place":
                places.extend(content)
            elif what == "epoch":
                places.clear()
                ticket, number, start = content
                read = _reader(source, number, start)
            elif what == "source":
                read, source = _no_epoch, None  # whose memory is freed before
                source = received(connection, shared=True)
            else:
                return
        accepts = not told
        if places:
            _answer(connection, ticket, places.popleft(), read)
    sys.exit(TERMINATED)


def _message(connection: Any, ending: _Ending, wait: bool) -> Any:
    """The next message; `None` if there is none and it is not waited for, or SIGTERM has come."""
    if not wait:
        return connection.recv() if connection.poll() else None
    ending.is_waiting = True
    if ending.was_told:
        return None
    message = connection.recv()
    ending.is_waiting = False
    return message


def _end_with_parent() -> None:
    """Wait for the end of the process that asks, and end in the middle of whatever is read."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _no_epoch(place: int) -> Any:
    raise RuntimeError("no epoch was begun")


def _reader(parts: Any, number: int, start: int) -> Callable[[int], Any]:
    """`reader_of` a source in parts; its error is raised for each place."""
    try:
        return reader_of(unflattened(parts), number, start)
    except BaseException as error:
        return _failing(error)


def _failing(error: BaseException) -> Callable[[int], Any]:
    def read(place: int) -> Any:
        raise error

    return read


def _answer(connection: Any, ticket: int, place: int, read: Callable[[int], Any]) -> None:
    try:
        packed = Packed.of(flattened((ticket, place, read(place))))
    except BaseException as error:
        packed = Packed.of(flattened((ticket, place, Failure.of(error))))
    try:
        packed.send(connection)
    finally:
        packed.close()
