"""Ranks that are processes, over MPI through mpi4py.

Every call is nonblocking for MPI, and a loop asks for its end: so that each has a time-out, ranks
that share a core leave it to one another, and notices of others that have failed are heard.

Any MPI library serves for which there is an mpi4py: the extra ``mpi`` brings MPICH, and where a
cluster has its own, ``pip install fdbr mpi4py`` finds that.  Where a launcher must be that of the
library (Slurm's ``srun --mpi=pmix`` for Open MPI, ``srun --mpi=pmi2`` for MPICH), mpi4py's
documentation says how it chooses one: ``MPI4PY_MPIABI`` and ``MPI4PY_LIBMPI``.
"""

import json
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fdbr.core.array_modules import array_module
from fdbr.distributed.agreement import GivenUp, blame, difference, digest
from fdbr.distributed.calls import Call, Record
from fdbr.distributed.errors import (
    CollectiveTimeoutError,
    DistributedError,
    MismatchError,
    RankFailedError,
)
from fdbr.distributed.transports.notices import Notices
from fdbr.distributed.transports.patience import cores, wait
from fdbr.distributed.transports.serial import check_message
from fdbr.errors.lines import caller

__all__ = ["MPITransport", "meet"]

_INLINE = 1 << 14
"""Bytes that travel with the words that announce them."""

_RATE = 50e6
"""Bytes a second, below which data on their way count as stalled."""

_PATIENCE = ((5e-4, 0.002, 1e-3), (0.02, 0.05, 1e-4))
"""Seconds in which a rank that waits for others only asks, and in which it gives way before it
sleeps, and how long it then does at once; the same for data on their way, which move only while
both ends ask."""

_CROWDED = ((0.0, 2e-5, 1e-3), (0.0, 2e-5, 5e-5))
"""The same where ranks share cores: who does not sleep keeps others from what all wait for."""

_PROBES = 2
"""How often to look for notices that have long come: MPI finds them bit by bit."""

_GRACE = 1.0
"""Seconds in which ranks that give up wait to hear who else does."""

_HEAD = struct.Struct("<I?Q")
"""Of a message: how many bytes its record has, whether the data follow in it, and how many."""

_NONE = np.iinfo(np.int64).max


class MPITransport:
    """One rank of an MPI communicator.

    Parameters
    ----------
    comm
        A communicator of mpi4py's that nobody else uses.
    timeout
        Seconds.
    notices
        The post between all processes.
    channel
        A name for the communicator, which is the same on all of its ranks.
    """

    name = "mpi"
    piece = 1 << 20

    def __init__(self, comm: Any, timeout: float, notices: Notices, channel: str) -> None:
        mpi = notices.mpi
        self._mpi = mpi
        self._ops = {"sum": mpi.SUM, "max": mpi.MAX, "min": mpi.MIN}
        self._comm = comm
        self._timeout = timeout
        self._notices = notices
        self._channel = channel
        self._made = 0
        self._splits: dict[Any, MPITransport | None] = {}
        self._on_their_way: list[tuple[Any, Any]] = []
        self._broken: DistributedError | None = None
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        with_all = mpi.COMM_WORLD.Get_group()
        group = comm.Get_group()
        self._members: list[int] = group.Translate_ranks(list(range(self.size)), with_all)
        here = comm.Split_type(mpi.COMM_TYPE_SHARED)
        self.intra_rank, self.intra_size = here.Get_rank(), here.Get_size()
        first = here.bcast(self.rank)
        firsts = sorted(set(comm.allgather(first)))
        self.node, self.nodes = firsts.index(first), len(firsts)
        here.Free()
        self._patience = _CROWDED if self.intra_size > cores() else _PATIENCE
        self._given_up: dict[int, GivenUp] = {}
        notices.listen(channel, self._note)
        self._said = np.zeros(8, np.int64)
        self._least = np.zeros(8, np.int64)
        self._ask = self._asking()
        self._current: Any = ""

    def _asking(self) -> Callable[[], Any]:
        """A function that begins the comparison of what the ranks have said; its request."""
        said, least = [self._said, self._mpi.INT64_T], [self._least, self._mpi.INT64_T]
        try:  # a request that is made once; MPI 4 has it
            request = self._comm.Allreduce_init(said, least, self._mpi.MIN)
        except (NotImplementedError, self._mpi.Exception):
            return lambda: self._comm.Iallreduce(said, least, self._mpi.MIN)

        def start() -> Any:
            request.Start()
            return request

        return start

    # --- waiting ------------------------------------------------------------------------

    def _wait(
        self,
        ready: Callable[[], bool],
        what: str | Record,
        *,
        size: int = 0,
        moving: bool = False,
        peer: int | None = None,
    ) -> None:
        """Wait for what comes of others, or raise the error that is the same on all ranks."""
        began = time.monotonic()
        peers = () if peer is None else (peer,)

        def look() -> None:
            self._look(what, time.monotonic() - began, peers)

        seconds = self._timeout + size / _RATE
        if not wait(ready, look, seconds, *self._patience[moving]):
            self._give_up(str(what), time.monotonic() - began, peers)

    def _look(self, what: str | Record, waited: float, peers: tuple[int, ...]) -> None:
        """Hear what others say, and raise the error if that is the end."""
        self._notices.read()
        if self._broken is not None:
            raise self._again()
        if self._given_up:
            self._give_up(str(what), waited, peers)
        ended = self._notices.ended
        if ended:
            for rank in peers or range(self.size):
                text = ended.get(self._members[rank])
                if text is not None and (not peers or waited > 0.2):
                    raise RankFailedError(
                        f"fdbr.distributed: rank {rank} {text}, so nothing comes of {what} here"
                    )

    def _enter(self, what: str | Record, peers: tuple[int, ...] = ()) -> None:
        """Begin a call, unless the communicator is broken."""
        if self._broken is not None:
            raise self._again()
        if self._given_up:
            self._look(what, 0.0, peers)
        if self._on_their_way:
            self._on_their_way = [item for item in self._on_their_way if not item[0].Test()]

    def _again(self) -> DistributedError:
        assert self._broken is not None
        text = str(self._broken).removeprefix("fdbr.distributed: ")
        return type(self._broken)(f"fdbr.distributed: this communicator is broken: {text}")

    def _give_up(self, call: str, waited: float, peers: tuple[int, ...], reason: str = "") -> None:
        """Say so to the others, hear who else does, and raise the error."""
        mine = GivenUp(call[:2000], waited, peers, reason)
        if self.rank not in self._given_up:
            self._given_up[self.rank] = mine
            content = [self.rank, mine.call, mine.seconds, mine.peers, mine.reason]
            self._notices.post(self._channel, content, self._members)

        def all_have() -> bool:
            self._notices.read()
            return len(self._given_up) == self.size

        if not any(one.reason for one in self._given_up.values()):
            wait(all_have, self._notices.read, min(_GRACE, max(0.1, 0.2 * self._timeout)))
        self._broken = blame(self._given_up, self.size, self._timeout)
        raise self._broken

    def _note(self, process: int, content: Any) -> None:
        rank, call, seconds, peers, reason = content
        self._given_up[rank] = GivenUp(call, seconds, tuple(peers), reason)

    def _finish(self, request: Any, size: int = 0) -> None:
        """Wait for the end of a collective that all ranks have agreed upon."""
        self._wait(request.Test, self._current, size=size, moving=True)

    # --- agreement ----------------------------------------------------------------------

    def agree(self, record: Record, root: int) -> Record:
        if self.size == 1:
            return record
        self._enter(record)
        self._current = record
        arrays = record.arrays
        given = (_NONE, _NONE) if arrays is None else _both(arrays)
        form = _both(record.structure) if record.structure else (_NONE, _NONE)
        self._said[:] = *_both((record.call, root)), *given, *form, arrays is not None, _NONE
        if self.rank == root:
            encoded = record.encoded()
            self._said[7] = len(encoded)
        self._wait(self._ask().Test, record)
        for _ in range(_PROBES):  # others may have given up before this rank came
            self._look(record, 0.0, ())
        *pairs, all_give, length = self._least.tolist()
        if any(pairs[i] not in (_NONE, -pairs[i + 1]) for i in (0, 2, 4)):
            self._disagree(record)
        if all_give or pairs[2] == _NONE:
            return record
        data = np.frombuffer(encoded, np.uint8) if self.rank == root else np.empty(length, np.uint8)
        self._finish(self._comm.Ibcast(data, root))
        return Record.decoded(data.tobytes())

    def _disagree(self, record: Record) -> None:
        """Raise the error that says what each rank called."""
        records = [Record.decoded(text) for text in self._gathered(record.encoded())]
        self._broken = MismatchError(f"fdbr.distributed: {difference(records)}")
        raise self._broken

    # --- reductions ---------------------------------------------------------------------

    def reduces(self, dtype: Any, op: str) -> bool:
        return np.dtype(dtype).char in ("bBhHiIlLqQfdFD" if op == "sum" else "bBhHiIlLqQfd")

    def all_reduce(self, buffer: Any, op: str) -> None:
        here, how = self._mpi.IN_PLACE, self._ops[op]
        for piece in _pieces(buffer.reshape(-1), self.piece):
            self._finish(self._comm.Iallreduce(here, piece, how))

    def reduce(self, buffer: Any, op: str, root: int) -> None:
        here, how = self._mpi.IN_PLACE, self._ops[op]
        for piece in _pieces(buffer.reshape(-1), self.piece):
            if self.rank == root:
                request = self._comm.Ireduce(here, piece, how, root)
            else:
                request = self._comm.Ireduce(piece, None, how, root)
            self._finish(request)

    def reduce_scatter(self, buffer: Any, out: Any, op: str) -> None:
        rows, got = buffer.reshape(self.size, -1), out.reshape(-1)
        columns = max(1, self.piece // (self.size * rows.itemsize))
        for start in range(0, got.size, columns):
            piece = got[start : start + columns]
            given = rows[:, start : start + columns]
            given = array_module(rows).ascontiguousarray(given)
            self._finish(self._comm.Ireduce_scatter_block(given, piece, self._ops[op]))

    # --- what only moves ----------------------------------------------------------------

    def broadcast(self, buffer: Any, root: int) -> None:
        for piece in _pieces(_raw(buffer), self.piece):
            self._finish(self._comm.Ibcast(piece, root))

    def all_gather(self, buffer: Any, out: Any) -> None:
        given, rows = _raw(buffer), _raw(out).reshape(self.size, -1)
        columns = max(1, self.piece // self.size)
        if rows.shape[1] <= columns:
            self._finish(self._comm.Iallgather(given, rows))
            return
        room = array_module(out).empty(self.size * columns, np.uint8)
        for start in range(0, given.size, columns):
            piece = given[start : start + columns]
            there = room[: self.size * piece.size].reshape(self.size, -1)
            self._finish(self._comm.Iallgather(piece, there))
            rows[:, start : start + columns] = there

    def gather(self, buffer: Any, out: Any, root: int) -> None:
        given = _raw(buffer)
        request = self._comm.Igather(given, None if out is None else _raw(out), root)
        self._finish(request, given.size * self.size)

    def scatter(self, buffer: Any, out: Any, root: int) -> None:
        given = None if buffer is None else _raw(buffer)
        self._finish(self._comm.Iscatter(given, _raw(out), root), out.nbytes * self.size)

    def all_to_all(self, buffer: Any, out: Any) -> None:
        given = _raw(buffer)
        self._finish(self._comm.Ialltoall(given, _raw(out)), given.size)

    # --- messages -----------------------------------------------------------------------

    def send(self, record: Record, buffers: list[Any], to: int, tag: int) -> None:
        self._put(record, [_raw(buffer) for buffer in buffers], to, tag)

    def receive(self, record: Record, buffers: list[Any], source: int, tag: int) -> None:
        self._take(record, source, tag, lambda theirs: [_raw(buffer) for buffer in buffers])

    def _put(self, record: Record, parts: Sequence[Any], to: int, tag: int) -> None:
        """Send a record, and bytes with it or behind it."""
        self._enter(record, (to,))
        head = record.encoded()
        size = sum(part.size for part in parts)
        inline = size <= _INLINE
        words = [_HEAD.pack(len(head), inline, size), head]
        first = b"".join([*words, *(part.tobytes() for part in parts if inline)])
        for data in [np.frombuffer(first, np.uint8), *([] if inline else parts)]:
            for piece in _pieces(data, 1 << 30):
                self._on_their_way.append((self._comm.Isend(piece, to, tag), piece))

    def _take(
        self, record: Record, source: int, tag: int, room: Callable[[Record], Sequence[Any]]
    ) -> Sequence[Any]:
        """Receive what `_put` sends, in the room that there is for it."""
        self._enter(record, (source,))
        status = self._mpi.Status()
        self._wait(lambda: self._comm.Iprobe(source, tag, status), record, peer=source)
        first = np.empty(status.Get_count(self._mpi.BYTE), np.uint8)
        self._receive_into(first, source, tag, record)
        length, inline, size = _HEAD.unpack(first[: _HEAD.size].tobytes())
        stop = _HEAD.size + length
        theirs = Record.decoded(first[_HEAD.size : stop].tobytes())
        parts = room(theirs)
        self._check_message(theirs, record, size, sum(part.size for part in parts))
        for part in parts:
            if inline:
                part[:] = first[stop : stop + part.size]
                stop += part.size
            else:
                for piece in _pieces(part, 1 << 30):
                    self._receive_into(piece, source, tag, record)
        return parts

    def _check_message(self, theirs: Record, record: Record, size: int, wanted: int) -> None:
        """Raise the error, here and where it was sent, for a message that does not fit."""
        try:
            if theirs.call.startswith("send_object") != record.call.startswith("receive_object"):
                raise MismatchError(
                    "fdbr.distributed.receive: an object was sent where arrays are waited for, or "
                    f"the other way round:\n  sent: {theirs}\n  waited for: {record}"
                )
            if record.arrays is not None:
                check_message(theirs, record)
            if size != wanted:
                raise MismatchError(
                    "fdbr.distributed.receive: the arrays were sent with another wire=:\n"
                    f"  sent: {theirs}\n  waited for: {record}"
                )
        except MismatchError as error:
            self._give_up(str(record), 0.0, (), str(error))

    def _receive_into(self, data: Any, source: int, tag: int, record: Record) -> None:
        test = self._comm.Irecv(data, source, tag).Test
        self._wait(test, record, size=data.size, moving=True, peer=source)

    # --- bytes --------------------------------------------------------------------------

    def all_gather_bytes(self, data: bytes, call: Call | None = None) -> list[bytes]:
        call = call or Call("all_gather_object", where=caller())
        self.agree(Record.of(call, None), 0)
        return self._gathered(data)

    def _gathered(self, data: bytes) -> list[bytes]:
        lengths = np.empty(self.size, np.int64)
        self._finish(self._comm.Iallgather(np.array([len(data)], np.int64), lengths))
        whole = np.empty(int(lengths.sum()), np.uint8)
        counts = lengths.tolist()
        starts = (np.cumsum(lengths) - lengths).tolist()
        there = [whole, (counts, starts), self._mpi.BYTE]
        request = self._comm.Iallgatherv(np.frombuffer(data, np.uint8), there)
        self._finish(request, whole.size)
        return [whole[i : i + n].tobytes() for i, n in zip(starts, counts, strict=True)]

    def broadcast_bytes(self, data: bytes, root: int, call: Call | None = None) -> bytes:
        call = call or Call("broadcast_object", root=root, where=caller())
        self.agree(Record.of(call, None), root)
        length = np.array([len(data)], np.int64)
        self._finish(self._comm.Ibcast(length, root))
        whole = np.empty(int(length[0]), np.uint8)
        if self.rank == root:
            whole[:] = np.frombuffer(data, np.uint8)
        self.broadcast(whole, root)
        return whole.tobytes()

    def send_bytes(self, data: bytes, to: int, tag: int) -> None:
        self._put(
            Record(f"send_object(to={to}, tag={tag})", (("bytes", (len(data),)),), caller()),
            [np.frombuffer(data, np.uint8)],
            to,
            tag,
        )

    def receive_bytes(self, source: int, tag: int) -> bytes:
        record = Record(f"receive_object(source={source}, tag={tag})", None, caller())

        def room(theirs: Record) -> list[Any]:
            kinds = theirs.arrays or ()
            return [np.empty(shape, np.uint8) for name, shape in kinds if name == "bytes"]

        return self._take(record, source, tag, room)[0].tobytes()

    # --- other communicators ------------------------------------------------------------

    def split(self, color: int | None, key: int) -> "MPITransport | None":
        record = Record.of(Call("split", where=caller()), None)
        self.agree(record, 0)
        said = self._gathered(json.dumps([color, key]).encode())
        known = tuple(said)  # the same split again is the same communicator: MPI has not many
        if known not in self._splits:
            self._made += 1
            part = self._comm.Split(self._mpi.UNDEFINED if color is None else color, key)
            name = f"{self._channel}/{self._made}.{color}"
            self._splits[known] = (
                None if color is None else MPITransport(part, self._timeout, self._notices, name)
            )
        return self._splits[known]

    def duplicate(self, timeout: float | None = None) -> "MPITransport":
        self.agree(Record.of(Call("duplicate", where=caller()), None), 0)
        self._made += 1
        comm, request = self._comm.Idup()
        self._finish(request)
        name = f"{self._channel}/{self._made}"
        return MPITransport(comm, timeout or self._timeout, self._notices, name)

    # --- the end ------------------------------------------------------------------------

    def failed(self, error: BaseException) -> None:
        text = f"has failed: {type(error).__name__}: {error}"
        self._notices.post("ended", text, range(self._notices.size))

    def flush(self, seconds: float) -> None:
        """Wait until what was sent has arrived, unless it is sent to ranks that have ended."""
        if self._broken is None:
            deadline = time.monotonic() + seconds
            while self._on_their_way and time.monotonic() < deadline:
                self._on_their_way = [one for one in self._on_their_way if not one[0].Test()]
                self._notices.read()


def meet(mpi: Any, timeout: float) -> tuple[Notices, MPITransport]:
    """The post between all processes of this program, and their transport."""
    made = []
    for _ in range(2):
        comm, request = mpi.COMM_WORLD.Idup()
        if not wait(request.Test, lambda: None, timeout):
            raise CollectiveTimeoutError(
                f"fdbr.distributed.world: waited {timeout:g} s for other processes, some of which "
                "have not called it; every process calls it"
            )
        made.append(comm)
    notices = Notices(mpi, made[0])
    return notices, MPITransport(made[1], timeout, notices, "world")


def _both(value: Any) -> tuple[int, int]:
    """A number for a value, and its negative: their least show whether all ranks say the same."""
    number = digest(value)
    return number, -number


def _raw(array: Any) -> Any:
    """An array as bytes, for what only moves them."""
    return array.reshape(-1).view(np.uint8)


def _pieces(flat: Any, size: int) -> list[Any]:
    """A flat array in pieces of so many bytes."""
    count = max(1, size // flat.itemsize)
    return [flat[i : i + count] for i in range(0, flat.size, count)]
