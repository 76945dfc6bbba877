"""All-reduce message by message: what closed forms leave out.

Each rank goes through rounds, in each of which it may send and may wait for a message; messages
queue for the port that they leave by.  Ranks may begin at different times, so that one sees how a
straggler's delay spreads.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

from benchmarks.scaling.links import Cluster

__all__ = ["SCHEDULES", "Round", "finish_times"]


@attrs.frozen
class Round:
    """A rank's part in a round: what it sends, and what it waits for.

    Attributes
    ----------
    to, source
        The other ranks; ``None`` where there is nothing to send, or to wait for.
    sent
        How many bytes it sends.
    reduced
        How many of the bytes that it gets it has to add to its own.
    """

    to: int | None = None
    source: int | None = None
    sent: float = 0.0
    reduced: float = 0.0


def finish_times(
    algorithm: str, cluster: Cluster, size: float, begin: Sequence[float] | None = None
) -> list[float]:
    """When each rank has the result, if it comes to the all-reduce at its time of ``begin``."""
    ranks = range(cluster.size)
    events: list[tuple[float, int, str, Any]] = []
    counter = itertools.count()

    def at(time: float, kind: str, what: Any) -> None:
        heapq.heappush(events, (time, next(counter), kind, what))

    rounds = [iter(SCHEDULES[algorithm](cluster, rank, size)) for rank in ranks]
    current: list[Round | None] = [None] * cluster.size
    sent_at = [0.0] * cluster.size  # when what the rank sends in this round has left
    arrived: dict[tuple[int, int], deque[float]] = {}
    free: dict[tuple[str, int], float] = {}  # from when on a port is free
    finished = [0.0] * cluster.size

    def start(rank: int, time: float) -> None:
        now = current[rank] = next(rounds[rank], None)
        sent_at[rank] = time
        if now is None:
            finished[rank] = time
            return
        if now.to is not None:
            port, link = cluster.port(rank, now.to), cluster.link(rank, now.to)
            left = max(time, free.get(port, 0.0)) + now.sent * link.per_byte
            sent_at[rank] = free[port] = left
            at(left + link.latency, "arrive", (rank, now.to))
        go_on(rank, time)

    def go_on(rank: int, time: float) -> None:
        """End the round if its message is there."""
        now = current[rank]
        if now is None:
            return
        time = max(time, sent_at[rank])
        if now.source is not None:
            waiting = arrived.get((now.source, rank))
            if not waiting:
                return
            received = waiting.popleft()
            added = now.reduced * cluster.link(now.source, rank).reduction
            time = max(time, received + added)
        current[rank] = None
        at(time, "start", rank)

    for rank in ranks:
        at(0.0 if begin is None else begin[rank], "start", rank)
    while events:
        time, _, kind, what = heapq.heappop(events)
        if kind == "start":
            start(what, time)
        else:
            arrived.setdefault(what, deque()).append(time)
            go_on(what[1], time)
    return finished


def _ring(cluster: Cluster, rank: int, size: float) -> Iterator[Round]:
    return _ring_of(range(cluster.size), rank, size)


def _ring_of(members: Sequence[int], rank: int, size: float) -> Iterator[Round]:
    yield from _around(members, rank, size, reduced=True)
    yield from _around(members, rank, size, reduced=False)


def _around(members: Sequence[int], rank: int, size: float, *, reduced: bool) -> Iterator[Round]:
    """A reduce-scatter (``reduced``) or all-gather: once around, each time with a part."""
    place, part = members.index(rank), size / len(members)
    one = Round(
        members[(place + 1) % len(members)], members[place - 1], part, part if reduced else 0.0
    )
    return itertools.repeat(one, len(members) - 1)


def _with_powers(
    inner: Callable[[int, int, float], Iterator[Round]], cluster: Cluster, rank: int, size: float
) -> Iterator[Round]:
    """Rounds among a power of two of ranks, to which those left over lend their bytes.

    Of the first ranks, twice as many as are left over, the odd ones go in for their neighbours.
    """
    power = 1 << (cluster.size.bit_length() - 1)
    over = cluster.size - power

    def rank_of(place: int) -> int:
        return 2 * place + 1 if place < over else place + over

    if rank < 2 * over and rank % 2 == 0:
        yield Round(to=rank + 1, sent=size)
        yield Round(source=rank + 1)
        return
    if rank < 2 * over:
        yield Round(source=rank - 1, reduced=size)
    place = rank // 2 if rank < 2 * over else rank - over
    for one in inner(place, power, size):
        assert one.to is not None
        assert one.source is not None
        yield attrs.evolve(one, to=rank_of(one.to), source=rank_of(one.source))
    if rank < 2 * over:
        yield Round(to=rank - 1, sent=size)


def _doubling(cluster: Cluster, rank: int, size: float) -> Iterator[Round]:
    def inner(place: int, power: int, size: float) -> Iterator[Round]:
        for i in range(power.bit_length() - 1):
            other = place ^ (1 << i)
            yield Round(other, other, size, size)

    return _with_powers(inner, cluster, rank, size)


def _halving(cluster: Cluster, rank: int, size: float) -> Iterator[Round]:
    def inner(place: int, power: int, size: float) -> Iterator[Round]:
        steps = range(power.bit_length() - 1)
        for i in steps:
            part = size / 2 ** (i + 1)
            yield Round(place ^ (1 << i), place ^ (1 << i), part, part)
        for i in reversed(steps):
            yield Round(place ^ (1 << i), place ^ (1 << i), size / 2 ** (i + 1))

    return _with_powers(inner, cluster, rank, size)


def _tree(cluster: Cluster, rank: int, size: float) -> Iterator[Round]:
    yield from _up(range(cluster.size), rank, size)
    yield from _down(range(cluster.size), rank, size)


def _up(members: Sequence[int], rank: int, size: float) -> Iterator[Round]:
    place = members.index(rank)
    for i in range((len(members) - 1).bit_length()):
        if place & (1 << i):
            yield Round(to=members[place - (1 << i)], sent=size)
            return
        if place + (1 << i) < len(members):
            yield Round(source=members[place + (1 << i)], reduced=size)


def _down(members: Sequence[int], rank: int, size: float) -> Iterator[Round]:
    place = members.index(rank)
    for i in reversed(range((len(members) - 1).bit_length())):
        if place & ((1 << i) - 1):
            continue  # its turn comes later
        if place & (1 << i):
            yield Round(source=members[place - (1 << i)])
        elif place + (1 << i) < len(members):
            yield Round(to=members[place + (1 << i)], sent=size)


def _node(cluster: Cluster, rank: int) -> range:
    first = rank - rank % cluster.per_node
    return range(first, first + cluster.per_node)


def _hierarchical(cluster: Cluster, rank: int, size: float) -> Iterator[Round]:
    node = _node(cluster, rank)
    yield from _up(node, rank, size)
    if rank == node[0]:
        yield from _ring_of(range(0, cluster.size, cluster.per_node), rank, size)
    yield from _down(node, rank, size)


def _two_dimensional(cluster: Cluster, rank: int, size: float) -> Iterator[Round]:
    node = _node(cluster, rank)
    yield from _around(node, rank, size, reduced=True)
    others = range(rank % cluster.per_node, cluster.size, cluster.per_node)
    yield from _ring_of(others, rank, size / cluster.per_node)
    yield from _around(node, rank, size, reduced=False)


SCHEDULES: dict[str, Callable[[Cluster, int, float], Iterator[Round]]] = {
    "ring": _ring,
    "doubling": _doubling,
    "halving": _halving,
    "tree": _tree,
    "hierarchical": _hierarchical,
    "two-dimensional": _two_dimensional,
}
