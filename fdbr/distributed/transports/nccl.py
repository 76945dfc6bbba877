"""Arrays on NVIDIA GPUs between ranks that have one each, over NCCL through CuPy."""

from collections.abc import Callable
from typing import Any

from fdbr.core.array_modules import array_module
from fdbr.distributed.calls import Record
from fdbr.distributed.transports.channels import HEADER, Incoming, Outgoing, header_of
from fdbr.distributed.transports.cliques import Clique
from fdbr.distributed.transports.interface import Transport
from fdbr.distributed.transports.staged import Staged
from fdbr.pytrees.dtypes import dtype_kind

__all__ = ["NCCL"]


class NCCL:
    """NCCL's collectives on arrays that lie on one device of each rank.

    Elements travel as they are.  NCCL adds up what has 32 bits or more, in an order that depends
    on the machines alone; what it cannot combine as NumPy does (short integers, and extremes of
    floating numbers, in which it loses NaN) is combined by pieces: each rank one.

    Parameters
    ----------
    host
        The transport over which the ranks tell each other NCCL's unique ids.
    xp
        The array module: CuPy.
    device
        The number of this rank's device.
    timeout
        How many seconds to wait for others.
    """

    name = "nccl"

    def __init__(self, host: Transport, xp: Any, device: int, timeout: float) -> None:
        self.host = host
        self.device = device
        self._xp = xp
        self._nccl = xp.cuda.nccl
        self._timeout = timeout
        self._clique: Clique | None = None
        self._outgoing: dict[int, Outgoing] = {}
        self._incoming: dict[int, Incoming] = {}
        self._to_oneself = Staged(host)

    # --- collectives ----------------------------------------------------------------

    def all_reduce(self, buffer: Any, op: str) -> None:
        self._reduce_in_place("all_reduce", buffer, op, lambda comm: comm.allReduce)

    def reduce(self, buffer: Any, op: str, root: int) -> None:
        self._reduce_in_place("reduce", buffer, op, lambda comm: comm.reduce, root)

    def _reduce_in_place(self, name: str, buffer: Any, op: str, call: Any, *root: int) -> None:
        """Combine a buffer by a call of NCCL's, which ``call`` takes from its communicator."""
        if not buffer.size:
            return
        if not self._combines(buffer.dtype, op):
            self._combine_pieces(buffer, op)
            return
        kind, count = self._elements(buffer)
        here = buffer.data.ptr
        self._run(
            name,
            lambda comm, stream: call(comm)(here, here, count, kind, self._op(op), *root, stream),
        )

    def reduce_scatter(self, buffer: Any, out: Any, op: str) -> None:
        if not out.size:
            return
        if not self._combines(buffer.dtype, op):
            parts = self._xp.empty_like(buffer)
            self.all_to_all(buffer, parts)
            out[...] = self._combined(parts, op)
            return
        kind, count = self._elements(out)
        self._run(
            "reduce_scatter",
            lambda comm, stream: comm.reduceScatter(
                buffer.data.ptr, out.data.ptr, count, kind, self._op(op), stream
            ),
        )

    def broadcast(self, buffer: Any, root: int) -> None:
        if not buffer.size:
            return
        here, count = buffer.data.ptr, buffer.nbytes
        self._run(
            "broadcast",
            lambda comm, stream: comm.broadcast(here, here, count, self._bytes, root, stream),
        )

    def all_gather(self, buffer: Any, out: Any) -> None:
        if not buffer.size:
            return
        self._run(
            "all_gather",
            lambda comm, stream: comm.allGather(
                buffer.data.ptr, out.data.ptr, buffer.nbytes, self._bytes, stream
            ),
        )

    def gather(self, buffer: Any, out: Any, root: int) -> None:
        if not buffer.size:
            return
        if self.host.rank == root:
            out[root] = buffer
            moves = [("recv", out[rank], rank) for rank in self._others()]
        else:
            moves = [("send", buffer, root)]
        self._exchange("gather", moves)

    def scatter(self, buffer: Any, out: Any, root: int) -> None:
        if not out.size:
            return
        if self.host.rank == root:
            out[...] = buffer[root]
            moves = [("send", buffer[rank], rank) for rank in self._others()]
        else:
            moves = [("recv", out, root)]
        self._exchange("scatter", moves)

    def all_to_all(self, buffer: Any, out: Any) -> None:
        if not buffer.size:
            return
        out[self.host.rank] = buffer[self.host.rank]
        moves = []
        for rank in self._others():
            moves += [("send", buffer[rank], rank), ("recv", out[rank], rank)]
        self._exchange("all_to_all", moves)

    # --- messages -------------------------------------------------------------------

    def send(self, record: Record, buffers: list[Any], to: int, tag: int) -> None:
        if to == self.host.rank:
            self._to_oneself.send(record, buffers, to, tag)
            return
        if to not in self._outgoing:
            self._outgoing[to] = Outgoing(self._xp.cuda, self.device, f"rank {to}")
        channel = self._outgoing[to]
        header = channel.put(self._joined(buffers))
        self.host.send(record, [header], to, tag)

    def receive(self, record: Record, buffers: list[Any], source: int, tag: int) -> None:
        if source == self.host.rank:
            self._to_oneself.receive(record, buffers, source, tag)
            return
        header = header_of(HEADER)
        self.host.receive(record, [header], source, tag)
        if source not in self._incoming:
            look = getattr(self.host, "check", _all_well)
            self._incoming[source] = Incoming(self._xp, self.device, source, self._timeout, look)
        whole = self._incoming[source].take(header)
        start = 0
        for buffer in buffers:
            stop = start + buffer.nbytes
            _as_bytes(buffer)[...] = whole[start:stop]
            start = stop

    def _joined(self, buffers: list[Any]) -> Any:
        """The bytes of some buffers, in memory that nobody writes to any more."""
        parts = [_as_bytes(buffer) for buffer in buffers]
        return parts[0] if len(parts) == 1 else self._xp.concatenate(parts)

    # --- what NCCL is told ------------------------------------------------------------

    @property
    def _bytes(self) -> int:
        return int(self._nccl.NCCL_UINT8)

    def _op(self, op: str) -> int:
        return int(getattr(self._nccl, f"NCCL_{op.upper()}"))

    def _elements(self, buffer: Any) -> tuple[int, int]:
        """NCCL's number for a dtype, and how many elements of it there are: pairs if complex."""
        kind, bits = dtype_kind(buffer.dtype), 8 * buffer.dtype.itemsize
        if kind == "c":
            return int(getattr(self._nccl, f"NCCL_FLOAT{bits // 2}")), 2 * buffer.size
        name = {"f": "FLOAT", "i": "INT", "u": "UINT"}[kind]
        return int(getattr(self._nccl, f"NCCL_{name}{bits}")), buffer.size

    def _combines(self, dtype: Any, op: str) -> bool:
        """Whether NCCL combines such elements as NumPy does."""
        kind, bits = dtype_kind(dtype), 8 * dtype.itemsize
        if kind in "iu":
            return bits != 16
        return op == "sum" and ((kind == "f" and bits >= 32) or kind == "c")

    def _run(self, what: str, issue: Callable[[Any, int], None]) -> None:
        if self._clique is None:
            key = self._nccl.get_unique_id() if self.host.rank == 0 else b""
            self._clique = Clique(
                self._xp.cuda,
                self.device,
                self.host.size,
                self.host.rank,
                self.host.broadcast_bytes(key, 0),
                self._timeout,
                getattr(self.host, "check", _all_well),
            )
        self._clique.run(what, issue)

    def _exchange(self, what: str, moves: list[tuple[str, Any, int]]) -> None:
        """Messages that go at once: a group of NCCL's."""

        def issue(comm: Any, stream: int) -> None:
            self._nccl.groupStart()
            try:
                for name, array, rank in moves:
                    getattr(comm, name)(array.data.ptr, array.nbytes, self._bytes, rank, stream)
            finally:
                self._nccl.groupEnd()

        if moves:
            self._run(what, issue)

    def _others(self) -> list[int]:
        return [rank for rank in range(self.host.size) if rank != self.host.rank]

    # --- what it does not know --------------------------------------------------------

    def _combine_pieces(self, buffer: Any, op: str) -> None:
        """`all_reduce` of what NCCL does not combine: each rank combines a piece of it."""
        size, count = self.host.size, buffer.shape[0]
        each = -(-count // size)
        given = self._xp.zeros((size * each,), buffer.dtype)
        given[:count] = buffer
        parts = self._xp.empty((size, each), buffer.dtype)
        self.all_to_all(given.reshape(size, each), parts)
        whole = self._xp.empty((size, each), buffer.dtype)
        self.all_gather(self._combined(parts, op), whole)
        buffer[...] = whole.reshape(-1)[:count]

    def _combined(self, parts: Any, op: str) -> Any:
        """The rows, combined in the order of the ranks."""
        xp = self._xp
        combine = {"sum": xp.add, "max": xp.maximum, "min": xp.minimum}[op]
        total = parts[0].copy()
        for part in parts[1:]:
            combine(total, part, out=total)
        return total

    # --------------------------------------------------------------------------------

    def beside(self, host: Transport, timeout: float | None = None) -> "NCCL":
        return NCCL(host, self._xp, self.device, timeout or self._timeout)

    def failed(self, error: BaseException) -> None:
        if self._clique is not None:
            self._clique.abort(RuntimeError(f"fdbr.distributed: this rank failed: {error}"))


def _all_well() -> None:
    """For a transport that does not know of failures by itself."""


def _as_bytes(buffer: Any) -> Any:
    return buffer.reshape(-1).view(array_module(buffer).uint8)
