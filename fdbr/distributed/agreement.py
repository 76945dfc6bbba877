"""Whether what the ranks called is one and the same collective, and what is said if it is not."""

import functools
import hashlib
from collections.abc import Mapping, Sequence

import attrs

from fdbr.distributed.calls import Record
from fdbr.distributed.errors import CollectiveTimeoutError, DistributedError, MismatchError
from fdbr.distributed.structures import shown_apart

__all__ = ["GivenUp", "blame", "by_rank", "difference", "digest", "named_ranks", "told"]


def difference(records: Sequence[Record]) -> str:
    """The difference between the calls of all ranks, by rank; empty if nothing is."""
    first = records[0]
    same = all(record.call == first.call for record in records)
    given = {record.arrays for record in records} - {None}
    if same and len(given) <= 1 and not _structures_differ(records):
        return ""
    what = "do not give trees of the same structure"
    if not same or len(given) > 1:
        what = "do not give arrays of the same kinds" if same else "called different collectives"
    return f"the ranks {what}:\n{by_rank(dict(enumerate(told(records))))}"


def told(records: Sequence[Record]) -> list[str]:
    """The words for each of some calls, with the structures of their trees where these differ."""
    if not _structures_differ(records):
        return list(map(str, records))
    shown = shown_apart([record.structure for record in records])
    return [record.told(text) for record, text in zip(records, shown, strict=True)]


def _structures_differ(records: Sequence[Record]) -> bool:
    return len({record.structure for record in records} - {""}) > 1


@functools.lru_cache(4096)
def digest(value: object) -> int:
    """A number below 2**62 which is the same in all processes, and another for another value."""
    text = hashlib.blake2b(repr(value).encode(), digest_size=8).digest()
    return int.from_bytes(text, "little") >> 2


@attrs.frozen
class GivenUp:
    """The word of a rank to the others of a communicator when it gives up waiting.

    Attributes
    ----------
    call
        What it waited in, and where.
    seconds
        How long it has waited.
    peers
        The ranks that it waited for; empty for all.
    reason
        Why, if that is not the time: the text of a `MismatchError`.
    """

    call: str
    seconds: float
    peers: tuple[int, ...] = ()
    reason: str = ""


def blame(said: Mapping[int, GivenUp], size: int, timeout: float) -> DistributedError:
    """The error for what ranks have said who gave up, by rank; the others are missing."""
    for given_up in said.values():
        if given_up.reason:
            return MismatchError(given_up.reason)
    awaited = set[int]()
    for given_up in said.values():
        awaited |= set(given_up.peers or range(size))
    missing = sorted(awaited - set(said))
    lines = {rank: f"waits in {one.call}, since {one.seconds:.3g} s" for rank, one in said.items()}
    if missing:
        what = f"waited {timeout:g} s for {named_ranks(missing)}, which did not come:\n"
        lines.update(dict.fromkeys(missing, "is missing"))
        return CollectiveTimeoutError(f"fdbr.distributed: {what}{by_rank(lines)}")
    if len({one.call.partition(" at ")[0] for one in said.values()}) > 1:
        what = "the ranks wait for one another in different calls:\n"
        return MismatchError(f"fdbr.distributed: {what}{by_rank(lines)}")
    what = f"waited {timeout:g} s, and some ranks came too late:\n"
    return CollectiveTimeoutError(f"fdbr.distributed: {what}{by_rank(lines)}")


def by_rank(texts: Mapping[int, str]) -> str:
    """Return one line for each text, with all ranks that have it."""
    groups: dict[str, list[int]] = {}
    for rank in sorted(texts):
        groups.setdefault(texts[rank], []).append(rank)
    return "\n".join(f"  {named_ranks(ranks)}: {text}" for text, ranks in groups.items())


def named_ranks(ranks: list[int]) -> str:
    """Return ``"rank 1"`` or ``"ranks 1, 2"``, with at most eight numbers."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    shown = ", ".join(map(str, ranks[:8]))
    return f"ranks {shown}{f' and {len(ranks) - 8} more' if len(ranks) > 8 else ''}"
