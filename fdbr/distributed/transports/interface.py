"""Transports move flat, contiguous buffers between the ranks of one communicator."""

from typing import Any, Protocol

from fdbr.distributed.calls import Call, Record

__all__ = ["Transport"]


class Transport(Protocol):
    """The ranks of one communicator, and how bytes go between them.

    Buffers are one- or two-dimensional contiguous arrays of one array module; those of two
    dimensions have a row for each rank.  Every rank makes the same calls in the same order; which
    ones, `agree` has seen to.  Reductions add in an order that is the same in each run.

    Attributes
    ----------
    name
        ``"serial"``, ``"threads"``, ``"mpi"`` or ``"nccl"``.
    piece
        How many bytes are best reduced at once, so that they stay in the caches while a buffer is
        filled, reduced and scaled; 0 for all.
    rank, size
        This rank, and how many there are.
    intra_rank, intra_size
        The same among the ranks of this machine.
    node, nodes
        The number of this machine, and how many there are.
    """

    name: str
    piece: int
    rank: int
    size: int
    intra_rank: int
    intra_size: int
    node: int
    nodes: int

    def agree(self, record: Record, root: int) -> Record:
        """Tell the others what this rank calls; the record of ``root``.

        Raises `MismatchError` on every rank where they differ, and `CollectiveTimeoutError`, which
        names who is missing.
        """

    def reduces(self, dtype: Any, op: str) -> bool:
        """Whether `all_reduce` and its kin know how to combine such elements."""

    def all_reduce(self, buffer: Any, op: str) -> None:
        """Combine the buffers of all ranks in place; ``op`` is ``"sum"``, ``"max"``, ``"min"``."""

    def reduce(self, buffer: Any, op: str, root: int) -> None:
        """`all_reduce` for the root alone; what others have in their buffers then is nothing."""

    def reduce_scatter(self, buffer: Any, out: Any, op: str) -> None:
        """Combine the rows of all ranks: each gets its own."""

    def broadcast(self, buffer: Any, root: int) -> None:
        """Write what the root has over the buffers of all."""

    def all_gather(self, buffer: Any, out: Any) -> None:
        """Write the buffers of all ranks to the rows of ``out``."""

    def gather(self, buffer: Any, out: Any, root: int) -> None:
        """`all_gather` for the root alone; ``out`` is `None` elsewhere."""

    def scatter(self, buffer: Any, out: Any, root: int) -> None:
        """Write the rows of the root's ``buffer``, `None` elsewhere, to ``out`` of each rank."""

    def all_to_all(self, buffer: Any, out: Any) -> None:
        """Write row ``i`` of rank ``j`` to row ``j`` of rank ``i``."""

    def send(self, record: Record, buffers: list[Any], to: int, tag: int) -> None:
        """Send arrays, which nobody writes to any more; they may still be on their way."""

    def receive(self, record: Record, buffers: list[Any], source: int, tag: int) -> None:
        """Write what was sent into buffers; `MismatchError` if it does not fit ``record``."""

    def all_gather_bytes(self, data: bytes, call: Call | None = None) -> list[bytes]:
        """The data of all ranks, of any lengths; ``call`` is what all ranks must have called."""

    def broadcast_bytes(self, data: bytes, root: int, call: Call | None = None) -> bytes:
        """The root's data; ``call`` as above."""

    def send_bytes(self, data: bytes, to: int, tag: int) -> None:
        """Send data of any length."""

    def receive_bytes(self, source: int, tag: int) -> bytes:
        """Data that `send_bytes` sends."""

    def split(self, color: int | None, key: int) -> "Transport | None":
        """The ranks of one color, in the order of ``(key, rank)``."""

    def duplicate(self, timeout: float | None = None) -> "Transport":
        """The same ranks, whose calls do not meet those of this: for another thread."""

    def failed(self, error: BaseException) -> None:
        """Have the others know that this rank takes part in nothing any more."""
