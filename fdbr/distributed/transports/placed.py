"""A transport for arrays in host memory, and beside it a way for those on devices."""

from typing import Any, Protocol

from fdbr.core.array_modules import number_of
from fdbr.distributed.calls import Call, Record
from fdbr.distributed.transports.interface import Transport

__all__ = ["PlacedTransport", "Way"]


class Way(Protocol):
    """The part of a `Transport` that has to do with arrays on devices.

    Attributes
    ----------
    name
        That of the transport; empty for that of the one for host memory.
    device
        The number of the device where the arrays must lie; `None` for any.
    """

    @property
    def name(self) -> str: ...
    @property
    def device(self) -> int | None: ...
    def all_reduce(self, buffer: Any, op: str) -> None: ...
    def reduce(self, buffer: Any, op: str, root: int) -> None: ...
    def reduce_scatter(self, buffer: Any, out: Any, op: str) -> None: ...
    def broadcast(self, buffer: Any, root: int) -> None: ...
    def all_gather(self, buffer: Any, out: Any) -> None: ...
    def gather(self, buffer: Any, out: Any, root: int) -> None: ...
    def scatter(self, buffer: Any, out: Any, root: int) -> None: ...
    def all_to_all(self, buffer: Any, out: Any) -> None: ...
    def send(self, record: Record, buffers: list[Any], to: int, tag: int) -> None: ...
    def receive(self, record: Record, buffers: list[Any], source: int, tag: int) -> None: ...

    def beside(self, host: Transport, timeout: float | None = None) -> "Way":
        """The same for some of these ranks, perhaps with another time-out."""

    def failed(self, error: BaseException) -> None:
        """Have the others know that this rank takes part in nothing any more."""


class PlacedTransport:
    """One transport for both kinds of arrays: each call goes where its arrays lie.

    Who calls what is agreed over the one for host memory.
    """

    def __init__(self, host: Transport, way: Way) -> None:
        self.host = host
        self.way = way
        self.name = way.name or host.name
        self.piece = host.piece
        self.device = way.device
        self.rank, self.size = host.rank, host.size
        self.intra_rank, self.intra_size = host.intra_rank, host.intra_size
        self.node, self.nodes = host.node, host.nodes

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "host"), name)  # what only one kind has

    def agree(self, record: Record, root: int) -> Record:
        return self.host.agree(record, root)

    def reduces(self, dtype: Any, op: str) -> bool:
        return self.host.reduces(dtype, op)

    def all_reduce(self, buffer: Any, op: str) -> None:
        self._for(buffer).all_reduce(buffer, op)

    def reduce(self, buffer: Any, op: str, root: int) -> None:
        self._for(buffer).reduce(buffer, op, root)

    def reduce_scatter(self, buffer: Any, out: Any, op: str) -> None:
        self._for(buffer).reduce_scatter(buffer, out, op)

    def broadcast(self, buffer: Any, root: int) -> None:
        self._for(buffer).broadcast(buffer, root)

    def all_gather(self, buffer: Any, out: Any) -> None:
        self._for(buffer).all_gather(buffer, out)

    def gather(self, buffer: Any, out: Any, root: int) -> None:
        self._for(buffer).gather(buffer, out, root)

    def scatter(self, buffer: Any, out: Any, root: int) -> None:
        self._for(out).scatter(buffer, out, root)

    def all_to_all(self, buffer: Any, out: Any) -> None:
        self._for(buffer).all_to_all(buffer, out)

    def send(self, record: Record, buffers: list[Any], to: int, tag: int) -> None:
        self._for(*buffers).send(record, buffers, to, tag)

    def receive(self, record: Record, buffers: list[Any], source: int, tag: int) -> None:
        self._for(*buffers).receive(record, buffers, source, tag)

    def all_gather_bytes(self, data: bytes, call: Call | None = None) -> list[bytes]:
        return self.host.all_gather_bytes(data, call)

    def broadcast_bytes(self, data: bytes, root: int, call: Call | None = None) -> bytes:
        return self.host.broadcast_bytes(data, root, call)

    def send_bytes(self, data: bytes, to: int, tag: int) -> None:
        self.host.send_bytes(data, to, tag)

    def receive_bytes(self, source: int, tag: int) -> bytes:
        return self.host.receive_bytes(source, tag)

    def split(self, color: int | None, key: int) -> Transport | None:
        part = self.host.split(color, key)
        return None if part is None else PlacedTransport(part, self.way.beside(part))

    def duplicate(self, timeout: float | None = None) -> Transport:
        same = self.host.duplicate(timeout)
        return PlacedTransport(same, self.way.beside(same, timeout))

    def failed(self, error: BaseException) -> None:
        self.way.failed(error)
        self.host.failed(error)

    def _for(self, *buffers: Any) -> Any:
        """The transport for arrays, all of which lie in one kind of memory."""
        return self.way if buffers and number_of(buffers[0]) is not None else self.host
