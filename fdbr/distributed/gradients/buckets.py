"""Which gradients travel together."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fdbr.errors.checks import describe

__all__ = ["BUCKET_BYTES", "EARLY_BYTES", "bucket_bytes_of", "buckets", "buckets_of"]

BUCKET_BYTES = 1 << 24
"""So many that what ranks agree about before each bucket costs little beside it."""

EARLY_BYTES = 1 << 22
"""The same while backward still runs: of those buckets the last one has to be waited for."""


def buckets(leaves: Sequence[Any], limit: int) -> list[list[int]]:
    """The positions of the leaves of each bucket.

    The last leaves come first, because backward finishes them first: those of the layers that are
    called last.  It depends on the shapes and dtypes alone, so it is the same on all ranks.

    Parameters
    ----------
    leaves
        Arrays, numbers or traced values.
    limit
        How many bytes a bucket has at most, unless one leaf alone has more.
    """
    return buckets_of([bytes_of(leaf) for leaf in leaves], limit)


def buckets_of(sizes: Sequence[int], limit: int) -> list[list[int]]:
    """The same, for leaves of so many bytes."""
    found: list[list[int]] = []
    room = 0
    for position in reversed(range(len(sizes))):
        size = sizes[position]
        if not found or size > room:
            found.append([])
            room = max(limit, size)
        found[-1].append(position)
        room -= size
    return found


def bytes_of(leaf: Any) -> int:
    """The bytes of a leaf's elements."""
    count = math.prod(getattr(leaf, "shape", ()))
    return count * getattr(getattr(leaf, "dtype", None), "itemsize", 8)


def bucket_bytes_of(name: str, value: Any) -> int:
    """The size of buckets, if it is one."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(
            f"fdbr.distributed.{name}: bucket_bytes must be a positive integer, got "
            f"{describe(value)}"
        )
    return int(value)
