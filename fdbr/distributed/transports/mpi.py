"""Ranks that are processes, over MPI through mpi4py."""

from typing import Any

import numpy as np

from fdbr.distributed.agreement import difference
from fdbr.distributed.calls import Record
from fdbr.distributed.errors import MismatchError
from fdbr.distributed.transports.serial import check_message

__all__ = ["MPITransport"]


class MPITransport:
    """One rank of an MPI communicator."""

    name = "mpi"

    def __init__(self, comm: Any, timeout: float) -> None:
        from mpi4py import MPI

        self._mpi = MPI
        self._ops = {"sum": MPI.SUM, "max": MPI.MAX, "min": MPI.MIN}
        self._comm = comm
        self._timeout = timeout
        self.rank = comm.Get_rank()
        self.size = comm.Get_size()
        here = comm.Split_type(MPI.COMM_TYPE_SHARED)
        self.intra_rank, self.intra_size = here.Get_rank(), here.Get_size()
        first = here.bcast(self.rank)
        firsts = sorted(set(comm.allgather(first)))
        self.node, self.nodes = firsts.index(first), len(firsts)
        here.Free()

    def agree(self, record: Record, root: int) -> Record:
        records = self._comm.allgather(record.encoded())
        decoded = [Record.decoded(text) for text in records]
        if wrong := difference(decoded):
            raise MismatchError(f"fdbr.distributed: {wrong}")
        return decoded[root]

    def reduces(self, dtype: Any, op: str) -> bool:
        return np.dtype(dtype).char in ("bBhHiIlLqQfdFD" if op == "sum" else "bBhHiIlLqQfd")

    def all_reduce(self, buffer: Any, op: str) -> None:
        self._comm.Allreduce(self._mpi.IN_PLACE, buffer, self._ops[op])

    def reduce(self, buffer: Any, op: str, root: int) -> None:
        if self.rank == root:
            self._comm.Reduce(self._mpi.IN_PLACE, buffer, self._ops[op], root)
        else:
            self._comm.Reduce(buffer, None, self._ops[op], root)

    def reduce_scatter(self, buffer: Any, out: Any, op: str) -> None:
        self._comm.Reduce_scatter_block(buffer, out, self._ops[op])

    def broadcast(self, buffer: Any, root: int) -> None:
        self._comm.Bcast(_raw(buffer), root)

    def all_gather(self, buffer: Any, out: Any) -> None:
        self._comm.Allgather(_raw(buffer), _raw(out))

    def gather(self, buffer: Any, out: Any, root: int) -> None:
        self._comm.Gather(_raw(buffer), None if out is None else _raw(out), root)

    def scatter(self, buffer: Any, out: Any, root: int) -> None:
        self._comm.Scatter(None if buffer is None else _raw(buffer), _raw(out), root)

    def all_to_all(self, buffer: Any, out: Any) -> None:
        self._comm.Alltoall(_raw(buffer), _raw(out))

    def send(self, record: Record, buffers: list[Any], to: int, tag: int) -> None:
        self._comm.send((record.encoded(), [np.asarray(b) for b in buffers]), to, tag)

    def receive(self, record: Record, buffers: list[Any], source: int, tag: int) -> None:
        theirs, sent = self._comm.recv(source=source, tag=tag)
        check_message(Record.decoded(theirs), record)
        for buffer, value in zip(buffers, sent, strict=True):
            buffer[...] = value

    def all_gather_bytes(self, data: bytes) -> list[bytes]:
        return self._comm.allgather(data)

    def broadcast_bytes(self, data: bytes, root: int) -> bytes:
        return self._comm.bcast(data, root)

    def send_bytes(self, data: bytes, to: int, tag: int) -> None:
        self._comm.send(data, to, tag)

    def receive_bytes(self, source: int, tag: int) -> bytes:
        return self._comm.recv(source=source, tag=tag)

    def split(self, color: int | None, key: int) -> "MPITransport | None":
        part = self._comm.Split(self._mpi.UNDEFINED if color is None else color, key)
        return None if color is None else MPITransport(part, self._timeout)

    def duplicate(self) -> "MPITransport":
        return MPITransport(self._comm.Dup(), self._timeout)

    def failed(self, error: BaseException) -> None:
        self._comm.Abort(1)


def _raw(buffer: Any) -> Any:
    """A buffer as bytes, for what only moves them."""
    return buffer.reshape(-1).view(np.uint8)
