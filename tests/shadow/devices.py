"""The devices of the shadow module, and what was done on them."""

import contextlib
import itertools
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

COUNT = 2

_threads = threading.local()


class Device:
    """One of the devices; as a context it is the current one of its thread, as CuPy's are."""

    def __init__(self, device: Any = None) -> None:
        self.id = current() if device is None else int(getattr(device, "id", device))
        if not 0 <= self.id < COUNT:
            raise RuntimeError(f"invalid device ordinal {self.id}")

    def __enter__(self) -> "Device":
        _stack().append(self.id)
        return self

    def __exit__(self, *error: Any) -> None:
        _stack().pop()

    def use(self) -> None:
        """Make it the current one of its thread."""
        _stack()[-1] = self.id

    def synchronize(self) -> None:
        """Wait for what was launched."""
        wait()

    def __int__(self) -> int:
        return self.id

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Device) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<shadow device {self.id}>"


def _stack() -> list[int]:
    if not hasattr(_threads, "stack"):
        _threads.stack = [0]
    return _threads.stack


def current() -> int:
    """The number of the thread's current device."""
    return _stack()[-1]


def check(device: int) -> None:
    """The error of an operation on an array that lies elsewhere: here no device sees another."""
    if device != current():
        raise ValueError(
            f"The device where the array resides ({device}) is different from the current device "
            f"({current()}). Peer access is unavailable between these devices."
        )


class Tally:
    """What was done: kernels launched, and times that the host waited for the device.

    The counters are none of Python's variables, so that `fdbr.jit` does not watch them.
    """

    def __init__(self) -> None:
        self.counters = {"launches": itertools.count(), "waits": itertools.count()}

    @property
    def launches(self) -> int:
        return self.counters["launches"].__reduce__()[1][0]

    @property
    def waits(self) -> int:
        return self.counters["waits"].__reduce__()[1][0]


_tallies: ContextVar[tuple[Tally, ...]] = ContextVar("tallies", default=())


@contextlib.contextmanager
def counting() -> Iterator[Tally]:
    """Count what is done in the context."""
    tally = Tally()
    token = _tallies.set((*_tallies.get(), tally))
    try:
        yield tally
    finally:
        _tallies.reset(token)


def launch() -> None:
    """A kernel starts."""
    for tally in _tallies.get():
        next(tally.counters["launches"])


def wait() -> None:
    """The host waits for a value."""
    for tally in _tallies.get():
        next(tally.counters["waits"])
