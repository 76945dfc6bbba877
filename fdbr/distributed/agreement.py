"""Whether what the ranks called is one and the same collective."""

from collections.abc import Sequence

from fdbr.distributed.calls import Record

__all__ = ["difference"]


def difference(records: Sequence[Record]) -> str:
    """The difference between the calls of all ranks, by rank; empty if nothing is."""
    first = records[0]
    same = all(record.call == first.call for record in records)
    given = {record.arrays for record in records} - {None}
    if same and len(given) <= 1:
        return ""
    groups: dict[str, list[int]] = {}
    for rank, record in enumerate(records):
        groups.setdefault(str(record), []).append(rank)
    lines = [f"  {_ranks(ranks)}: {text}" for text, ranks in groups.items()]
    what = "do not give arrays of the same kinds" if same else "called different collectives"
    return f"the ranks {what}:\n" + "\n".join(lines)


def _ranks(ranks: list[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    shown = ", ".join(map(str, ranks[:8]))
    return f"ranks {shown}{f' and {len(ranks) - 8} more' if len(ranks) > 8 else ''}"
