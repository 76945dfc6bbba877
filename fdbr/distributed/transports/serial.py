"""One rank alone."""

from collections import defaultdict, deque
from typing import Any

from fdbr.distributed.agreement import told
from fdbr.distributed.calls import Call, Record
from fdbr.distributed.errors import CollectiveTimeoutError, MismatchError

__all__ = ["SerialTransport"]


class SerialTransport:
    """Nothing to move, but messages to oneself."""

    name = "serial"
    piece = 0
    rank = intra_rank = node = 0
    size = intra_size = nodes = 1

    def __init__(self) -> None:
        self._sent: dict[int, deque[Any]] = defaultdict(deque)

    def agree(self, record: Record, root: int) -> Record:
        return record

    def reduces(self, dtype: Any, op: str) -> bool:
        return True

    def all_reduce(self, buffer: Any, op: str) -> None:
        pass

    def reduce(self, buffer: Any, op: str, root: int) -> None:
        pass

    def reduce_scatter(self, buffer: Any, out: Any, op: str) -> None:
        out[...] = buffer[0]

    def broadcast(self, buffer: Any, root: int) -> None:
        pass

    def all_gather(self, buffer: Any, out: Any) -> None:
        out[0] = buffer

    def gather(self, buffer: Any, out: Any, root: int) -> None:
        out[0] = buffer

    def scatter(self, buffer: Any, out: Any, root: int) -> None:
        out[...] = buffer[0]

    def all_to_all(self, buffer: Any, out: Any) -> None:
        out[...] = buffer

    def send(self, record: Record, buffers: list[Any], to: int, tag: int) -> None:
        self._sent[tag].append((record, buffers))

    def receive(self, record: Record, buffers: list[Any], source: int, tag: int) -> None:
        theirs, sent = self._next(tag, str(record))
        check_message(theirs, record)
        for buffer, value in zip(buffers, sent, strict=True):
            buffer[...] = value

    def all_gather_bytes(self, data: bytes, call: Call | None = None) -> list[bytes]:
        return [data]

    def broadcast_bytes(self, data: bytes, root: int, call: Call | None = None) -> bytes:
        return data

    def send_bytes(self, data: bytes, to: int, tag: int) -> None:
        self._sent[tag].append(data)

    def receive_bytes(self, source: int, tag: int) -> bytes:
        return self._next(tag, "receive_object")

    def split(self, color: int | None, key: int) -> "SerialTransport | None":
        return None if color is None else SerialTransport()

    def duplicate(self, timeout: float | None = None) -> "SerialTransport":
        return SerialTransport()

    def failed(self, error: BaseException) -> None:
        pass

    def _next(self, tag: int, what: str) -> Any:
        if not self._sent[tag]:
            raise CollectiveTimeoutError(
                f"fdbr.distributed: {what}: the only rank has sent nothing to itself with tag {tag}"
            )
        return self._sent[tag].popleft()


def check_message(sent: Record, wanted: Record) -> None:
    """Raise `MismatchError` if arrays of other kinds were sent than are waited for."""
    apart = sent.structure != wanted.structure and sent.structure and wanted.structure
    if sent.arrays != wanted.arrays or apart:
        theirs, mine = told([sent, wanted])
        raise MismatchError(
            "fdbr.distributed.receive: what was sent is not like what is waited for:\n"
            f"  sent: {theirs}\n  waited for: {mine}"
        )
