"""Messages of arrays on devices from one rank to another, over NCCL.

NCCL's own messages have no tags, and a device that sends waits until the other one receives.  Here
a thread sends, so that a rank continues, and the bytes of all messages to one rank go one after the
other over a channel of their own.  The other rank learns from a header, which goes by host memory
and finds its way by the message's tag, which of them it is; those that lie before it are put aside
until they are asked for.
"""

import atexit
import contextlib
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr.distributed.errors import DistributedError
from fdbr.distributed.transports.cliques import Clique, until

__all__ = ["HEADER", "Incoming", "Outgoing", "header_of"]

_KEY = 128  # bytes of NCCL's unique id
_KEPT = 64  # messages whose lengths a header tells
HEADER = _KEY + 8 * (1 + _KEPT)
"""Bytes of a header: the unique id, which message it is, and the lengths up to it."""


def header_of(size: int) -> Any:
    """Room for a header."""
    return np.zeros(size, np.uint8)


class Outgoing:
    """The messages of this rank to another one.

    Parameters
    ----------
    cuda
        The interface of the devices: `cupy.cuda`.
    device
        The number of this rank's.
    to
        The other rank in words, for messages.
    """

    def __init__(self, cuda: Any, device: int, to: str) -> None:
        self._cuda = cuda
        self._nccl = cuda.nccl
        self._device = device
        self._to = to
        self._key = self._nccl.get_unique_id()
        self._lengths: deque[int] = deque(maxlen=_KEPT)
        self._count = 0
        self._waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._serve, name=f"nccl to {to}", daemon=True)
        self._thread.start()
        _open.add(self)

    def put(self, data: Any) -> Any:
        """Send bytes, which nobody writes to any more; the header by which they are found."""
        if self._error is not None:
            raise DistributedError(
                f"fdbr.distributed.send: NCCL could not send to {self._to}: {self._error}"
            ) from self._error
        if data.size:
            with self._cuda.Device(self._device):
                ready = self._cuda.Event(disable_timing=True)
                ready.record(self._cuda.get_current_stream())
            self._waiting.put((data, ready))
            self._lengths.append(data.size)
            self._count += 1
        header = header_of(HEADER)
        header[:_KEY] = np.frombuffer(self._key, np.uint8)
        numbers = header[_KEY:].view(np.int64)
        numbers[0] = self._count if data.size else 0
        numbers[1 : 1 + len(self._lengths)] = self._lengths
        return header

    def close(self, timeout: float) -> None:
        """Wait until all has been sent."""
        self._waiting.put(None)
        self._thread.join(timeout)

    def _serve(self) -> None:
        comm = None
        try:
            with self._cuda.Device(self._device):
                stream = self._cuda.Stream(non_blocking=True)
                while (message := self._waiting.get()) is not None:
                    data, ready = message
                    if comm is None:
                        comm = self._nccl.NcclCommunicator(2, self._key, 0)
                    stream.wait_event(ready)
                    kind = int(self._nccl.NCCL_UINT8)
                    comm.send(data.data.ptr, data.size, kind, 1, stream.ptr)
                    done = self._cuda.Event(disable_timing=True)
                    done.record(stream)
                    until(done, look=comm.check_async_error)
                    del message, data
        except RuntimeError as error:  # of NCCL, or of CUDA
            self._error = error
            with contextlib.suppress(RuntimeError):
                if comm is not None:
                    comm.abort()


_open: "weakref.WeakSet[Outgoing]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Have the last messages of a program arrive."""
    end = time.monotonic() + 5.0
    for channel in list(_open):
        channel.close(max(0.0, end - time.monotonic()))


class Incoming:
    """The messages of another rank to this one."""

    def __init__(
        self, xp: Any, device: int, source: int, timeout: float, look: Callable[[], None]
    ) -> None:
        self._xp = xp
        self._device = device
        self._source = source
        self._timeout = timeout
        self._look = look
        self._clique: Clique | None = None
        self._taken = 0
        self._aside: dict[int, Any] = {}

    def take(self, header: Any) -> Any:
        """The bytes of the message to which a header belongs."""
        numbers = header[_KEY:].view(np.int64)
        number = int(numbers[0])
        if not number:
            return self._xp.empty((0,), self._xp.uint8)
        if number > self._taken:
            lengths = numbers[1 : 1 + min(number, _KEPT)]
            first = number - len(lengths) + 1
            if self._taken + 1 < first:
                raise DistributedError(
                    f"fdbr.distributed.receive: rank {self._source} has sent "
                    f"{number - self._taken - 1} messages with other tags before this one, of "
                    f"which none has been received; at most {_KEPT - 1} can wait on a GPU"
                )
            for i in range(self._taken + 1, number + 1):
                self._aside[i] = self._next(int(lengths[i - first]), header)
        return self._aside.pop(number)

    def _next(self, length: int, header: Any) -> Any:
        if self._clique is None:
            self._clique = Clique(
                self._xp.cuda,
                self._device,
                2,
                1,
                header[:_KEY].tobytes(),
                self._timeout,
                self._look,
            )
        data = self._xp.empty((length,), self._xp.uint8)
        kind = int(self._xp.cuda.nccl.NCCL_UINT8)
        self._clique.run(
            "receive", lambda comm, stream: comm.recv(data.data.ptr, length, kind, 0, stream)
        )
        self._taken += 1
        return data
