"""States that ranks have written in parts, for another number of ranks."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fdbr.errors.checks import differences
from fdbr.train.snapshots.leaves import Leaf
from fdbr.train.snapshots.reading import Expected, read_leaves
from fdbr.train.snapshots.reports import kept_in

__all__ = ["divided", "shapes_of"]

_NAME = "fdbr.distributed.resume"

Shapes = Mapping[str, tuple[int, ...]]


def shapes_of(like: Any) -> Shapes:
    """The shapes of the arrays of a state, by their paths."""
    expected = Expected.like("resume", {"state": like})
    return {leaf.path: leaf.shape for leaf, _ in expected.leaves if leaf.is_tensor}


def divided(
    paths: Sequence[Path], like: Any, shapes: Sequence[Shapes], rank: int
) -> tuple[list[Any], Sequence[Mapping[str, Any]]]:
    """The leaves of the state of a rank, in host memory, and what stages have kept on all.

    Parameters
    ----------
    paths
        The parts of all ranks that have written them.
    like
        The state that this rank expects.
    shapes
        Of each rank that is to have a part now, the shapes that it expects.
    rank
        This rank.
    """
    read = [read_leaves("resume", path) for path in paths]
    pairs = zip(paths, read, strict=True)
    kept = [kept_in("resume", path, values) for path, (_, values) in pairs]
    expected = Expected.like("resume", {"state": like})
    wanted = {leaf.path: leaf for leaf, _ in expected.leaves}
    found = [
        {leaf.path: leaf for leaf in header.leaves if leaf.path.startswith("['state']")}
        for header, _ in read
    ]
    _compare(paths, wanted, found)
    values = []
    for path, leaf in wanted.items():
        parts = [values[path] for _, values in read]
        kinds = [one[path] for one in found]
        if leaf.is_tensor and kinds[0].is_tensor:
            values.append(_part(path, leaf, parts, [one.get(path, ()) for one in shapes], rank))
        else:
            values.append(_same(path, leaf, kinds, parts))
    return values, kept


def _compare(
    paths: Sequence[Path], wanted: Mapping[str, Leaf], found: Sequence[Mapping[str, Leaf]]
) -> None:
    for path, leaves in zip(paths, found, strict=True):
        lists = {
            "missing": [name for name in wanted if name not in leaves],
            "unexpected": [name for name in leaves if name not in wanted],
        }
        if any(lists.values()):
            raise ValueError(
                f"{_NAME}: {path} holds another tree than like: {differences(lists)}; ranks whose "
                f"parts of a model are different ones resume on {len(paths)} ranks, as many as "
                "have written them"
            )


def _same(path: str, leaf: Leaf, kinds: Sequence[Leaf], parts: Sequence[Any]) -> Any:
    if not all(leaf.fits(kind) for kind in kinds):
        raise ValueError(f"{_NAME}: {path} is {kinds[0]} in the snapshot, and {leaf} in like")
    texts = {(kind.kind, kind.value, repr(part)) for kind, part in zip(kinds, parts, strict=True)}
    if len(texts) > 1:
        raise _apart(path, len(parts))
    return parts[0]


def _part(
    path: str,
    leaf: Leaf,
    parts: Sequence[Any],
    shapes: Sequence[tuple[int, ...]],
    rank: int,
) -> Any:
    """The part of a rank of an array, of which others had parts, or which all had alike."""
    dtype = np.dtype(parts[0].dtype).name
    if leaf.dtype not in (None, dtype) or any(part.dtype.name != dtype for part in parts):
        raise ValueError(f"{_NAME}: {path} is {dtype} in the snapshot, and {leaf} in like")
    if all(_bits(part) == _bits(parts[0]) for part in parts) and leaf.shape == parts[0].shape:
        return parts[0]
    rows = {np.shape(part)[1:] for part in parts} | {shape[1:] for shape in shapes}
    if len(rows) > 1 or not all(map(np.ndim, parts)) or not all(map(len, shapes)):
        if {np.shape(part) for part in parts} == {leaf.shape}:
            raise _apart(path, len(parts))
        there = ", ".join(str(np.shape(part)) for part in parts[:4])
        raise ValueError(
            f"{_NAME}: {path} has the shapes {there} on {len(parts)} ranks of the snapshot, and "
            f"{leaf.shape} in like; only first axes are divided anew"
        )
    whole = np.concatenate(parts)
    lengths = [shape[0] for shape in shapes]
    surplus = len(whole) - sum(lengths)
    if surplus and not _is_filling(whole, surplus, len(parts), len(shapes)):
        if {np.shape(part) for part in parts} == {leaf.shape}:
            raise _apart(path, len(parts))
        raise ValueError(
            f"{_NAME}: {path} has {len(whole)} rows on {len(parts)} ranks of the snapshot, and "
            f"{sum(lengths)} in like of all {len(shapes)} ranks"
        )
    if surplus < 0:
        filling = np.zeros((-surplus, *whole.shape[1:]), whole.dtype)
        whole = np.concatenate([whole, filling])
    begin = sum(lengths[:rank])
    return np.ascontiguousarray(whole[begin : begin + lengths[rank]])


def _is_filling(whole: Any, surplus: int, before: int, now: int) -> bool:
    """Whether rows too many, or too few, are zeros that fill up equal parts."""
    if surplus < 0:
        return -surplus < now
    return surplus < before and not np.any(whole[len(whole) - surplus :])


def _bits(array: Any) -> tuple[Any, ...]:
    return np.shape(array), np.asarray(array).tobytes()


def _apart(path: str, count: int) -> ValueError:
    return ValueError(
        f"{_NAME}: {path} was different on the {count} ranks that have written the snapshot, and "
        f"no part of something greater; resume on {count} ranks, or keep there what is the same on "
        "all: fdbr.distributed.fold_in_rank makes keys of ranks where they are used"
    )
