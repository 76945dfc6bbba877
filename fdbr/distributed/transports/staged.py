"""Arrays on devices by way of host memory, where there is no other."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr.core.array_modules import array_module, on_device, to_numpy
from fdbr.distributed.calls import Record
from fdbr.distributed.transports.interface import Transport

__all__ = ["Direct", "Staged", "settle"]


class Staged:
    """Copies to host memory, which another transport moves, and copies back."""

    name = ""
    device = None

    def __init__(self, host: Transport) -> None:
        self.host = host

    def all_reduce(self, buffer: Any, op: str) -> None:
        _through(lambda there: self.host.all_reduce(there, op), buffer)

    def reduce(self, buffer: Any, op: str, root: int) -> None:
        _through(lambda there: self.host.reduce(there, op, root), buffer)

    def reduce_scatter(self, buffer: Any, out: Any, op: str) -> None:
        given = to_numpy(buffer)
        _into(out, lambda there: self.host.reduce_scatter(given, there, op))

    def broadcast(self, buffer: Any, root: int) -> None:
        _through(lambda there: self.host.broadcast(there, root), buffer)

    def all_gather(self, buffer: Any, out: Any) -> None:
        given = to_numpy(buffer)
        _into(out, lambda there: self.host.all_gather(given, there))

    def gather(self, buffer: Any, out: Any, root: int) -> None:
        given = to_numpy(buffer)
        if out is None:
            self.host.gather(given, None, root)
        else:
            _into(out, lambda there: self.host.gather(given, there, root))

    def scatter(self, buffer: Any, out: Any, root: int) -> None:
        given = None if buffer is None else to_numpy(buffer)
        _into(out, lambda there: self.host.scatter(given, there, root))

    def all_to_all(self, buffer: Any, out: Any) -> None:
        given = to_numpy(buffer)
        _into(out, lambda there: self.host.all_to_all(given, there))

    def send(self, record: Record, buffers: list[Any], to: int, tag: int) -> None:
        self.host.send(record, [to_numpy(buffer) for buffer in buffers], to, tag)

    def receive(self, record: Record, buffers: list[Any], source: int, tag: int) -> None:
        there = [np.empty(buffer.shape, buffer.dtype) for buffer in buffers]
        self.host.receive(record, there, source, tag)
        for buffer, value in zip(buffers, there, strict=True):
            _write(buffer, value)

    def beside(self, host: Transport, timeout: float | None = None) -> "Staged":
        return type(self)(host)

    def failed(self, error: BaseException) -> None:
        pass


class Direct(Staged):
    """Collectives of another transport that reads and writes the memory of devices itself.

    Its messages go by way of host memory.
    """

    def all_reduce(self, buffer: Any, op: str) -> None:
        settle(buffer)
        self.host.all_reduce(buffer, op)

    def reduce(self, buffer: Any, op: str, root: int) -> None:
        settle(buffer)
        self.host.reduce(buffer, op, root)

    def reduce_scatter(self, buffer: Any, out: Any, op: str) -> None:
        settle(buffer)
        self.host.reduce_scatter(buffer, out, op)

    def broadcast(self, buffer: Any, root: int) -> None:
        settle(buffer)
        self.host.broadcast(buffer, root)

    def all_gather(self, buffer: Any, out: Any) -> None:
        settle(buffer)
        self.host.all_gather(buffer, out)

    def gather(self, buffer: Any, out: Any, root: int) -> None:
        settle(buffer)
        self.host.gather(buffer, out, root)

    def scatter(self, buffer: Any, out: Any, root: int) -> None:
        settle(out)
        self.host.scatter(buffer, out, root)

    def all_to_all(self, buffer: Any, out: Any) -> None:
        settle(buffer)
        self.host.all_to_all(buffer, out)


def settle(array: Any) -> None:
    """Wait until what writes to an array on a device has been done: others read it by themselves.

    Arrays in host memory are written to before a program continues.
    """
    cuda = getattr(array_module(array), "cuda", None)
    if cuda is not None:
        with on_device(array):
            cuda.get_current_stream().synchronize()


def _through(move: Callable[[Any], None], buffer: Any) -> None:
    """Move what a buffer holds, by way of host memory."""
    there = to_numpy(buffer)
    move(there)
    _write(buffer, there)


def _into(out: Any, move: Callable[[Any], None]) -> None:
    """Have host memory written to, and then a buffer."""
    there = np.empty(out.shape, out.dtype)
    move(there)
    _write(out, there)


def _write(buffer: Any, value: Any) -> None:
    with on_device(buffer):
        buffer[...] = array_module(buffer).asarray(value)
