"""Ranks that are threads of one process."""

import time
from collections import defaultdict, deque
from collections.abc import Callable
from functools import partial
from threading import Condition
from typing import Any

from fdbr.core.array_modules import array_module, module_of, number_of
from fdbr.distributed.agreement import difference
from fdbr.distributed.calls import Call, Record
from fdbr.distributed.errors import CollectiveTimeoutError, MismatchError, RankFailedError
from fdbr.distributed.transports.serial import check_message
from fdbr.distributed.transports.staged import settle
from fdbr.errors.lines import caller

__all__ = ["Collective", "ThreadTransport"]


class Collective:
    """The place where the threads of one communicator meet.

    Attributes
    ----------
    error
        That of the rank that failed first, and its number.
    returned
        The ranks that make no further call.
    """

    def __init__(self, size: int, timeout: float) -> None:
        self.size = size
        self.timeout = timeout
        self.changed = Condition()
        self.error: tuple[int, BaseException] | None = None
        self.broken = ""
        self.returned: set[int] = set()
        self._rounds: dict[int, dict[int, Any]] = defaultdict(dict)
        self._left: dict[int, int] = defaultdict(int)
        self._sent: dict[Any, deque[Any]] = defaultdict(deque)
        self.parts: list[Collective] = []

    def swap(self, number: int, rank: int, value: Any, what: str) -> list[Any]:
        """The values that all ranks bring to their call of this number."""
        with self.changed:
            there = self._rounds[number]
            there[rank] = value
            self.changed.notify_all()
            self._wait(lambda: len(there) == self.size, what, there)
            self._left[number] += 1
            if self._left[number] == self.size:
                del self._rounds[number], self._left[number]
            return [there[i] for i in range(self.size)]

    def put(self, key: Any, value: Any) -> None:
        """Leave a message."""
        with self.changed:
            self.check()
            self._sent[key].append(value)
            self.changed.notify_all()

    def take(self, key: Any, what: str) -> Any:
        """The next message left there."""
        with self.changed:
            queue = self._sent[key]
            others = set(range(self.size)) - {key[1]}
            self._wait(lambda: bool(queue), what, others, [key[0]], "sending")
            return queue.popleft()

    def fail(self, rank: int, error: BaseException) -> None:
        """Have nobody wait for a rank any more."""
        with self.changed:
            self.error = self.error or (rank, error)
            self.changed.notify_all()
            parts = list(self.parts)
        for part in parts:
            part.fail(rank, error)

    def leave(self, rank: int) -> None:
        """Have an error, and not the timeout, end the waiting for a rank that has returned."""
        with self.changed:
            self.returned.add(rank)
            self.changed.notify_all()

    def _check_returned(self, what: str, there: Any, waiting: Any, act: str) -> None:
        gone = sorted(self.returned - set(there))
        if gone:
            raise RankFailedError(
                f"fdbr.distributed: {what}: {_ranks(gone)} returned from the function without "
                f"{act} it, and {_ranks(sorted(waiting))} waited in it; all ranks must make the "
                "same calls"
            )

    def check(self) -> None:
        """Raise the error of a rank that has failed, if one has."""
        if self.broken:
            raise CollectiveTimeoutError(self.broken)
        if self.error is not None:
            rank, error = self.error
            raise RankFailedError(
                f"fdbr.distributed: rank {rank} failed: {type(error).__name__}: {error}"
            )

    def _wait(
        self,
        ready: Callable[[], bool],
        what: str,
        there: Any,
        waiting: Any = None,
        act: str = "calling",
    ) -> None:
        deadline = time.monotonic() + self.timeout
        while not ready():
            self.check()
            self._check_returned(what, there, there if waiting is None else waiting, act)
            if not self.changed.wait(max(0.0, deadline - time.monotonic())) and not ready():
                self.check()
                missing = sorted(set(range(self.size)) - set(there))
                self.broken = (
                    f"fdbr.distributed: {what}: waited {self.timeout:g} s for "
                    f"{_ranks(missing)}, which did not call it"
                )
                self.changed.notify_all()


def _ranks(numbers: list[int]) -> str:
    return f"rank{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"


class ThreadTransport:
    """One rank among the threads of a process."""

    name = "threads"
    piece = 0
    node = 0
    nodes = 1

    def __init__(self, collective: Collective, rank: int) -> None:
        self._collective = collective
        self._round = 0
        self._parts: list[ThreadTransport] = []
        self.at_return: Callable[[Callable[[], None]], None] | None = None
        self.rank = self.intra_rank = rank
        self.size = self.intra_size = collective.size

    def _swap(self, value: Any, what: str) -> list[Any]:
        self._round += 1
        return self._collective.swap(self._round, self.rank, value, what)

    def _swap_arrays(self, array: Any, what: str) -> list[Any]:
        """The arrays of all ranks, or `None` of a rank that gives none, on this rank's device."""
        parts = self._swap(None if array is None else _given(array), what)
        return [part if part is None else _here(part) for part in parts]

    def agree(self, record: Record, root: int) -> Record:
        records = self._swap(record, str(record))
        if wrong := difference(records):
            raise MismatchError(f"fdbr.distributed: {wrong}")
        return records[root]

    def reduces(self, dtype: Any, op: str) -> bool:
        return True

    def all_reduce(self, buffer: Any, op: str) -> None:
        buffer[...] = _combined(self._swap_arrays(buffer, "all_reduce"), op)

    def reduce(self, buffer: Any, op: str, root: int) -> None:
        parts = self._swap_arrays(buffer, "reduce")
        if self.rank == root:
            buffer[...] = _combined(parts, op)

    def reduce_scatter(self, buffer: Any, out: Any, op: str) -> None:
        parts = self._swap_arrays(buffer, "reduce_scatter")
        out[...] = _combined([part[self.rank] for part in parts], op)

    def broadcast(self, buffer: Any, root: int) -> None:
        sent = self._swap_arrays(buffer if self.rank == root else None, "broadcast")[root]
        if self.rank != root:
            buffer[...] = sent

    def all_gather(self, buffer: Any, out: Any) -> None:
        for row, part in zip(out, self._swap_arrays(buffer, "all_gather"), strict=True):
            row[...] = part

    def gather(self, buffer: Any, out: Any, root: int) -> None:
        parts = self._swap_arrays(buffer, "gather")
        if self.rank == root:
            for row, part in zip(out, parts, strict=True):
                row[...] = part

    def scatter(self, buffer: Any, out: Any, root: int) -> None:
        parts = self._swap_arrays(buffer if self.rank == root else None, "scatter")
        out[...] = parts[root][self.rank]

    def all_to_all(self, buffer: Any, out: Any) -> None:
        for row, part in zip(out, self._swap_arrays(buffer, "all_to_all"), strict=True):
            row[...] = part[self.rank]

    def send(self, record: Record, buffers: list[Any], to: int, tag: int) -> None:
        message = record, list(map(_given, buffers))
        self._collective.put((to, self.rank, tag), message)

    def receive(self, record: Record, buffers: list[Any], source: int, tag: int) -> None:
        theirs, sent = self._collective.take((self.rank, source, tag), str(record))
        check_message(theirs, record)
        for buffer, value in zip(buffers, sent, strict=True):
            buffer[...] = _here(value)

    def all_gather_bytes(self, data: bytes, call: Call | None = None) -> list[bytes]:
        call = call or Call("all_gather_object", where=caller())
        self.agree(Record.of(call, None), 0)
        return self._swap(data, "all_gather_object")

    def broadcast_bytes(self, data: bytes, root: int, call: Call | None = None) -> bytes:
        call = call or Call("broadcast_object", root=root, where=caller())
        self.agree(Record.of(call, None), root)
        return self._swap(data if self.rank == root else b"", "broadcast_object")[root]

    def send_bytes(self, data: bytes, to: int, tag: int) -> None:
        self._collective.put((to, self.rank, "bytes", tag), data)

    def receive_bytes(self, source: int, tag: int) -> bytes:
        return self._collective.take((self.rank, source, "bytes", tag), "receive_object")

    def split(self, color: int | None, key: int) -> "ThreadTransport | None":
        self.agree(Record.of(Call("split", where=caller()), None), 0)
        said = self._swap((color, key), "split")
        members = sorted((k, rank) for rank, (c, k) in enumerate(said) if c == color)
        ranks = [rank for _, rank in members]
        if color is None:
            self._swap(None, "split")
            return None
        collective = (
            Collective(len(ranks), self._collective.timeout) if ranks[0] == self.rank else None
        )
        made = self._swap(collective, "split")[ranks[0]]
        with self._collective.changed:
            if made not in self._collective.parts:
                self._collective.parts.append(made)
            failure = self._collective.error
        if failure is not None:  # it came while this rank made the part
            made.fail(*failure)
        part = ThreadTransport(made, ranks.index(self.rank))
        self._parts.append(part)
        return part

    def duplicate(self, timeout: float | None = None) -> "ThreadTransport":
        same = self.split(0, self.rank)
        assert same is not None
        same.at_return = _ignore
        return same

    def check(self) -> None:
        """Raise the error of a rank that has failed, if one has."""
        self._collective.check()

    def failed(self, error: BaseException) -> None:
        self._collective.fail(self.rank, error)

    def returned(self) -> None:
        """Have the others know that the function of this rank has returned.

        A duplicate is for another thread, which may still call collectives: ``at_return`` is called
        with a function that says when it does not.
        """
        for part in self._parts:
            part.returned()
        leave = partial(self._collective.leave, self.rank)
        if self.at_return is None:
            leave()
        else:
            self.at_return(leave)


def _ignore(leave: Callable[[], None]) -> None:
    """Leave the end of a thread of the program to the timeout."""


def _given(array: Any) -> Any:
    """A copy that another thread may read."""
    copy = array.copy()
    settle(copy)
    return copy


def _here(array: Any) -> Any:
    """An array of another thread on the device that is this one's current."""
    if number_of(array) is None:
        return array
    return module_of(type(array), array).asarray(array)


def _combined(parts: list[Any], op: str) -> Any:
    """The parts, combined in the order of the ranks."""
    xp = array_module(*parts)
    combine = {"sum": xp.add, "max": xp.maximum, "min": xp.minimum}[op]
    total = parts[0].copy()
    for part in parts[1:]:
        total = combine(total, part)
    return total
