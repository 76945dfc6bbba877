"""The things that stages keep on several ranks: in one file, and for another number of ranks."""

from collections.abc import Mapping, Sequence
from typing import Any

from fdbr.distributed.loop.means import together
from fdbr.distributed.loop.reports import SUMMED
from fdbr.train.snapshots.plain import packed

__all__ = ["differing", "kept_by_rank", "kept_for"]

Kept = Mapping[str, Any]


def differing(kept: Sequence[Kept]) -> dict[str, list[Any]]:
    """All that some ranks keep otherwise than rank 0: lists by rank of whether it is there, and it.

    What rank 0 keeps alone, of stages that others do not have, is not among it.
    """
    found = {}
    for name in dict.fromkeys(name for one in kept[1:] for name in one):
        there = [(name in one, one.get(name)) for one in kept]
        if any(_bits(pair) != _bits(there[0]) for pair in there[1:]):
            found[name] = [list(pair) for pair in there]
    return found


def _bits(value: Any) -> tuple[str, list[bytes]]:
    arrays: list[Any] = []
    text = packed("snapshot", value, arrays)
    return text, [f"{array.dtype}{array.shape}".encode() + array.tobytes() for array in arrays]


def kept_by_rank(first: Kept, others: Mapping[str, Sequence[Any]], size: int) -> list[Kept]:
    """The things that each rank has kept, of what rank 0 has and what is `differing`."""
    found: list[Kept] = []
    for rank in range(size):
        own = {name: value for name, value in first.items() if name not in others}
        own |= {name: there[rank][1] for name, there in others.items() if there[rank][0]}
        found.append(own)
    return found


def kept_for(rank: int, size: int, kept: Sequence[Kept]) -> Kept:
    """The things that a rank has kept, of what was kept on maybe another number of ranks.

    Sums over ranks are added up and given to rank 0; of everything else, all have what rank 0 had.
    """
    if len(kept) == size:
        return kept[rank]
    found = dict(kept[0])
    for name in dict.fromkeys(name for one in kept for name in one):
        sums = [one[name][SUMMED] for one in kept if _is_summed(one.get(name))]
        if sums:
            found[name] = {SUMMED: together([_pairs(one) for one in sums])} if not rank else {}
    return found


def _is_summed(value: Any) -> bool:
    return isinstance(value, Mapping) and set(value) == {SUMMED}


def _pairs(sums: Mapping[str, Sequence[float]]) -> dict[str, tuple[float, float]]:
    return {name: (total, weight) for name, (total, weight) in sums.items()}
