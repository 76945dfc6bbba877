"""The work of a process that reads batches: it is given places in an epoch, and sends batches."""

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable
from typing import Any

import attrs

from fdbr.train.data.prefetching.memory import pack, receive

__all__ = ["END", "Failure", "reader_of", "work"]

END = "end"
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
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # Nobody is there any more:
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            read = reader_of(*receive(connection, shared=True))
        except (EOFError, OSError):
            raise
        except BaseException as error:
            read = _failing(error)
        while True:
            place = connection.recv()
            _answer(connection, place, read)


def _end_with_parent() -> None:
    """Wait for the end of the process that asks, and end in the middle of whatever is read."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _failing(error: BaseException) -> Callable[[int], Any]:
    def read(place: int) -> Any:
        raise error

    return read


def _answer(connection: Any, place: int, read: Callable[[int], Any]) -> None:
    try:
        packed = pack((place, read(place)))
    except BaseException as error:
        packed = pack((place, Failure.of(error)))
    try:
        packed.send(connection)
    finally:
        packed.close()
