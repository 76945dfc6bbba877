"""A stand-in for ``cupy.cuda.nccl``, for ranks that are threads, and for streams and events.

It really moves the bytes, as late as NCCL may: a call only takes its place on a stream, and is done
when the other ranks have made theirs.  `NCCL.calls` records them.  As with NCCL, each rank has a
device of its own, a communicator comes about when all ranks have joined, what one stream has to do
is done in its order, and calls that do not fit together are an error (`NCCL.wrong`).
"""

import ctypes
import itertools
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from shadow import devices

_DTYPES = {
    "INT8": np.int8,
    "UINT8": np.uint8,
    "INT32": np.int32,
    "UINT32": np.uint32,
    "INT64": np.int64,
    "UINT64": np.uint64,
    "FLOAT16": np.float16,
    "FLOAT32": np.float32,
    "FLOAT64": np.float64,
    "BFLOAT16": ml_dtypes.bfloat16,
}
_NUMBERS = dict(enumerate(_DTYPES.values()))
_OPS: dict[int, Callable] = {0: np.add, 1: np.multiply, 2: np.fmax, 3: np.fmin}  # it loses NaN

_changed = threading.Condition()  # guards everything here
_streams: dict[tuple[int, int], "Stream"] = {}
_addresses = itertools.count(1)
_local = threading.local()


class Unit:
    """One call, or one group of calls, of one rank, in the order of its stream."""

    def __init__(self, parts: list["Part"]) -> None:
        self.parts = parts

    @property
    def done(self) -> bool:
        return all(part.done for part in self.parts)


class Part:
    """One call of a rank."""

    def __init__(self, comm: Any, name: str, said: tuple, send: int, receive: int) -> None:
        self.comm, self.name, self.said = comm, name, said
        self.send, self.receive = send, receive
        self.done = False


class Waiting:
    """A stream's wait for an event."""

    def __init__(self, event: "Event") -> None:
        self.event = event

    @property
    def done(self) -> bool:
        return self.event._done()


class Stream:
    """The order in which a device does things."""

    def __init__(self, null: bool = False, non_blocking: bool = False, **options: Any) -> None:
        self.device_id = devices.current()
        self.ptr = 0 if null else next(_addresses)
        self.units: deque[Any] = deque()
        with _changed:
            _streams[self.device_id, self.ptr] = self

    def synchronize(self) -> None:
        """Wait for what it has to do."""
        devices.wait()
        with _changed:
            _changed.wait_for(lambda: all(unit.done for unit in self.units))

    def wait_event(self, event: "Event") -> None:
        """Have what comes later wait for an event."""
        with _changed:
            self.units.append(Waiting(event))

    def head(self) -> Any:
        while self.units and self.units[0].done:
            self.units.popleft()
        return self.units[0] if self.units else None


class Event:
    """A place in the order of a stream."""

    def __init__(self, *, block: bool = False, disable_timing: bool = False) -> None:
        self._before: list[Any] = []

    def record(self, stream: Stream | None = None) -> None:
        """Have it come after what a stream has to do."""
        with _changed:
            self._before = list((stream or get_current_stream()).units)

    def _done(self) -> bool:
        return all(unit.done for unit in self._before)

    @property
    def done(self) -> bool:
        with _changed:
            return self._done()


def get_current_stream() -> Stream:
    """The stream of the current device; each thread has the same."""
    key = devices.current(), 0
    return _streams[key] if key in _streams else Stream(null=True)


class NCCL:
    """The stand-in for the module; a new one has forgotten all communicators.

    Attributes
    ----------
    calls
        By clique and rank, the calls: name, count, dtype, and so on.
    wrong
        Calls that do not fit together.
    failing
        Names of methods that raise, with the rank on which they do.
    blocking
        The same of methods that do not return until the communicator is aborted.
    stalled
        Whether nothing is ever done.
    reports
        Whether a rank that ends a communicator is noticed by the others.
    closed
        Whether `close` has been called: whatever is called of it then is an error of NCCL's.
    """

    def __init__(self) -> None:
        self.available = True
        self.calls: dict[int, dict[int, list[tuple]]] = defaultdict(lambda: defaultdict(list))
        self.wrong: list[str] = []
        self.failing: set[tuple[str, int]] = set()
        self.blocking: set[tuple[str, int]] = set()
        self.stalled = False
        self.reports = False
        self.closed = False
        self.keys = itertools.count(1)
        self.cliques: dict[bytes, dict[int, Any]] = defaultdict(dict)
        for number, name in enumerate(_DTYPES):
            setattr(self, f"NCCL_{name}", number)
        for number, name in enumerate(("SUM", "PROD", "MAX", "MIN", "AVG")):
            setattr(self, f"NCCL_{name}", number)
        nccl = self

        class NcclCommunicator(Communicator):
            module = nccl

        self.NcclCommunicator = NcclCommunicator
        self.NcclError = NcclError

    def get_version(self) -> int:
        return 22803

    def get_unique_id(self) -> bytes:
        return next(self.keys).to_bytes(128, "little")

    def close(self) -> None:
        """End all communicators, and those that a thread is still about to make."""
        with _changed:
            self.closed = True
            comms = [comm for clique in self.cliques.values() for comm in clique.values()]
        for comm in comms:
            comm.abort()

    def groupStart(self) -> None:
        _local.depth = getattr(_local, "depth", 0) + 1
        if _local.depth == 1:
            _local.group = []

    def groupEnd(self) -> None:
        _local.depth -= 1
        if _local.depth == 0 and _local.group:
            parts, stream = [part for part, _ in _local.group], _local.group[0][1]
            assert all(other == stream for _, other in _local.group), "streams mixed in a group"
            _local.group = []
            parts[0].comm.enqueue(parts, stream)


class NcclError(RuntimeError):
    """NCCL's error."""

    def __init__(self, status: int) -> None:
        self.status = status
        names = {3: "INTERNAL_ERROR", 4: "INVALID_ARGUMENT", 5: "INVALID_USAGE", 6: "REMOTE_ERROR"}
        super().__init__(f"NCCL_ERROR_{names[status]}: made up")


class Communicator:
    """The stand-in for ``NcclCommunicator``; the class of a module has it as ``module``."""

    module: NCCL

    def __init__(self, ndev: int, commId: bytes, rank: int, config: Any = None) -> None:
        if not isinstance(commId, bytes) or len(commId) != 128:
            raise ValueError(f"commId length {len(commId)} != 128.")
        self.size, self.rank, self.key = ndev, rank, commId
        self.device = devices.current()
        self.aborted = False
        self.number = int.from_bytes(commId, "little")
        self.collectives: list[Part] = []
        self.messages: dict[tuple[str, int], deque[Part]] = defaultdict(deque)
        self._refuse("init")
        with _changed:
            self.others = self.module.cliques[commId]
            self.others[rank] = self
            _changed.notify_all()
            _changed.wait_for(
                lambda: len(self.others) == ndev or self.aborted or self.module.closed
            )
            if (
                self.aborted
                or self.module.closed
                or len({other.device for other in self.others.values()}) < ndev
            ):
                raise NcclError(5)

    def _refuse(self, name: str) -> None:
        if self.module.closed:
            raise NcclError(5)
        if (name, self.rank) in self.module.failing:
            raise NcclError(3)
        if (name, self.rank) in self.module.blocking:
            with _changed:
                _changed.wait_for(lambda: self.aborted)
            raise NcclError(3)

    def _call(self, name: str, said: tuple, stream: int, send: int = 0, receive: int = 0) -> None:
        aborted = self.aborted  # before it may be closed, which aborts it, too
        self._refuse(name)
        assert not aborted, "a call of a communicator that has been aborted"
        self.module.calls[self.number][self.rank].append((name, *said))
        part = Part(self, name, said, send, receive)
        if getattr(_local, "depth", 0):
            _local.group.append((part, stream))
        else:
            self.enqueue([part], stream)

    def enqueue(self, parts: list[Part], stream: int) -> None:
        with _changed:
            _streams[self.device, stream].units.append(Unit(parts))
            for part in parts:
                if part.name in ("send", "recv"):
                    self.messages[part.name, part.said[-1]].append(part)
                else:
                    self.collectives.append(part)
            _advance()

    def allReduce(self, sendbuf, recvbuf, count, datatype, op, stream) -> None:
        self._call("allReduce", (count, datatype, op), stream, sendbuf, recvbuf)

    def reduce(self, sendbuf, recvbuf, count, datatype, op, root, stream) -> None:
        self._call("reduce", (count, datatype, op, root), stream, sendbuf, recvbuf)

    def broadcast(self, sendbuff, recvbuff, count, datatype, root, stream) -> None:
        self._call("broadcast", (count, datatype, root), stream, sendbuff, recvbuff)

    def allGather(self, sendbuf, recvbuf, count, datatype, stream) -> None:
        self._call("allGather", (count, datatype), stream, sendbuf, recvbuf)

    def reduceScatter(self, sendbuf, recvbuf, recvcount, datatype, op, stream) -> None:
        self._call("reduceScatter", (recvcount, datatype, op), stream, sendbuf, recvbuf)

    def send(self, sendbuf, count, datatype, peer, stream) -> None:
        self._call("send", (count, datatype, peer), stream, sendbuf)

    def recv(self, recvbuf, count, datatype, peer, stream) -> None:
        self._call("recv", (count, datatype, peer), stream, receive=recvbuf)

    def check_async_error(self) -> None:
        self._refuse("async")
        if self.module.reports and any(other.aborted for other in self.others.values()):
            raise NcclError(6)

    def abort(self) -> None:
        with _changed:
            self.aborted = True
            for part in (*self.collectives, *itertools.chain(*self.messages.values())):
                part.done = True
            _advance()

    destroy = abort


def _advance() -> None:
    """Do all that can be done."""
    moved = True
    while moved:
        moved = False
        for stream in list(_streams.values()):
            head = stream.head()
            if isinstance(head, Unit):
                for part in head.parts:
                    moved = (not part.done and _try(part)) or moved
    _changed.notify_all()


def _is_due(part: Part) -> bool:
    """Whether a call is what its stream has to do next."""
    heads = (stream.head() for stream in list(_streams.values()))
    return any(isinstance(head, Unit) and part in head.parts for head in heads)


def _try(part: Part) -> bool:
    comm = part.comm
    if comm.module.stalled or comm.aborted:
        return False
    if part.name in ("send", "recv"):
        return _try_message(part)
    ranks = [comm.others[rank] for rank in range(comm.size)]
    number = sum(p.done for p in comm.collectives)
    if any(len(other.collectives) <= number for other in ranks):
        return False
    parts = [other.collectives[number] for other in ranks]
    if part is not parts[comm.rank] or not all(map(_is_due, parts)):
        return False
    if any((p.name, p.said) != (part.name, part.said) for p in parts):
        comm.module.wrong.append(f"{[(p.name, p.said) for p in parts]}")
    _collect(part.name, part.said, parts)
    for other in parts:
        other.done = True
    return True


def _try_message(part: Part) -> bool:
    comm = part.comm
    other = comm.others[part.said[-1]]
    name = "recv" if part.name == "send" else "send"
    mine, theirs = comm.messages[part.name, other.rank], other.messages[name, comm.rank]
    if not theirs or mine[0] is not part or not _is_due(theirs[0]):
        return False
    if theirs[0].said[:2] != part.said[:2]:
        comm.module.wrong.append(f"{part.name} {part.said} {name} {theirs[0].said}")
    sent, got = (part, theirs[0]) if part.name == "send" else (theirs[0], part)
    count, dtype = sent.said[:2]
    _memory(got.receive, count, dtype)[...] = _memory(sent.send, count, dtype)
    for queue in (mine, theirs):
        queue.popleft().done = True
    return True


def _collect(name: str, said: tuple, parts: list[Part]) -> None:
    count, dtype = said[:2]
    n = count * len(parts) if name == "reduceScatter" else count
    given = [_memory(part.send, n, dtype).copy() for part in parts]
    if name in ("allReduce", "reduce", "reduceScatter"):
        total = given[0]
        for value in given[1:]:
            total = _OPS[said[2]](total, value)
    for rank, part in enumerate(parts):
        if name == "allReduce" or (name == "reduce" and rank == said[3]):
            _memory(part.receive, count, dtype)[...] = total
        elif name == "reduceScatter":
            _memory(part.receive, count, dtype)[...] = total[rank * count : (rank + 1) * count]
        elif name == "broadcast":
            _memory(part.receive, count, dtype)[...] = given[said[2]]
        elif name == "allGather":
            _memory(part.receive, count * len(parts), dtype)[...] = np.concatenate(given)


def _memory(address: int, count: int, datatype: int) -> np.ndarray:
    """The elements that lie at an address."""
    dtype = np.dtype(_NUMBERS[datatype])
    data = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    return np.frombuffer(data, dtype)


def idle(seconds: float = 5.0) -> bool:
    """Whether all streams come to rest in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with _changed:
            if all(stream.head() is None for stream in _streams.values()):
                return True
        time.sleep(0.005)
    return False
