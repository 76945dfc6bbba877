"""Meetings with other processes, and the results that a run which begins anew is given again."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

__all__ = [
    "cotangents_were_exchanged",
    "log_of_collectives",
    "collective_count",
    "collectives_are_refused",
    "met",
    "note_cotangents",
    "note_collective",
    "refusing_collectives",
    "rewind",
]


class _Counts(threading.local):
    """The number of times that this thread did something together with other processes."""

    count = 0
    cotangents = False


_counts = _Counts()


def collective_count() -> int:
    """A number that grows with each thing that this thread does together with other processes."""
    return _counts.count


def note_collective() -> None:
    """To be called where something is done, or would be, together with other processes."""
    _counts.count += 1


def note_cotangents() -> None:
    """Note that a backward pass has exchanged cotangents other than zero with other processes."""
    _counts.cotangents = True


def cotangents_were_exchanged() -> bool:
    """Whether `note_cotangents` was called in this thread since this function was called last."""
    found, _counts.cotangents = _counts.cotangents, False
    return found


_refused: ContextVar[bool] = ContextVar("refused", default=False)


@contextlib.contextmanager
def refusing_collectives() -> Iterator[None]:
    """Have no program captured of what is done together with other processes."""
    token = _refused.set(True)
    try:
        yield
    finally:
        _refused.reset(token)


def collectives_are_refused() -> bool:
    """Whether what is done together with other processes is not to be captured."""
    return _refused.get()


class _Log:
    """The results that a run got from other processes, for a run of the same that follows it.

    The run that follows begins anew, but the others have gone on: what they have given is read
    from here.
    """

    __slots__ = ("_around", "_at", "_last", "_results")

    def __init__(self, around: "_Log | None") -> None:
        self._around = around
        self._at = 0
        self._last = False
        self._results: list[Any] = []

    def rewind(self, last: bool) -> None:
        self._at, self._last = 0, last

    def met(self, key: Any, meet: Callable[[], Any]) -> Any:
        """The result of a meeting: the known one, or that of a new one."""
        if self._at == len(self._results):
            self._results.append((key, *_tried(self._around, key, meet)))
        known, result, error = self._results[self._at]
        if self._last:
            self._results[self._at] = None
        if known != key:
            raise RuntimeError(
                f"fdbr.jit: a function that was run again called {key} where it had called {known} "
                "before; it must be pure"
            )
        self._at += 1
        if error is not None:
            raise error
        return result


def _tried(around: _Log | None, key: Any, meet: Callable[[], Any]) -> tuple[Any, Any]:
    try:
        return (meet() if around is None else around.met(key, meet)), None
    except BaseException as error:  # the others have seen it, too, and will not come again
        return None, error


_log: ContextVar[_Log | None] = ContextVar("log", default=None)


def met(key: Any, meet: Callable[[], Any]) -> Any:
    """The results of other processes; a run that has to begin anew is given the same as before.

    ``key`` tells what is done, and is equal for equal things.
    """
    log = _log.get()
    return meet() if log is None else log.met(key, meet)


@contextlib.contextmanager
def log_of_collectives() -> Iterator[None]:
    """A block in which a function is run, and perhaps once more from its beginning."""
    token = _log.set(_Log(_log.get()))
    try:
        yield
    finally:
        _log.reset(token)


def rewind(last: bool = False) -> None:
    """Begin anew: what has been got from other processes in the block is given again.

    In the ``last`` run nothing is kept for another one.
    """
    log = _log.get()
    if log is not None:
        log.rewind(last)
