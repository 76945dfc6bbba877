"""The devices of the shadow module, and what was done on them."""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

COUNT = 2

_threads = threading.local()
_tallies: list["Tally"] = []


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


@dataclass
class Tally:
    """What was done: kernels launched, and times that the host waited for the device."""

    launches: int = 0
    waits: int = 0


@contextlib.contextmanager
def counting() -> Iterator[Tally]:
    """Count what is done in the context."""
    tally = Tally()
    _tallies.append(tally)
    try:
        yield tally
    finally:
        _tallies.remove(tally)


def launch() -> None:
    """A kernel starts."""
    for tally in _tallies:
        tally.launches += 1


def wait() -> None:
    """The host waits for a value."""
    for tally in _tallies:
        tally.waits += 1
