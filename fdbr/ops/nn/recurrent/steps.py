"""The steps of recurrent networks over packed sequences: which rows are one step, in which order.

Packed arrays have the elements of all sequences along their last axis but one, one time after the
other, at each time those of the longest sequences first.  So the sequences that go on are always
the first rows of a state, and no step has rows to be thrown away.
"""

import functools
from collections.abc import Iterator
from typing import Any

import attrs
import numpy as np

from fdbr.ops.devices import beside
from fdbr.ops.indexing.table_rows import rows_at
from fdbr.ops.shape.manipulation import concat, moveaxis

__all__ = ["Steps", "previous"]


@attrs.frozen
class Steps:
    """The steps over packed sequences.

    Attributes
    ----------
    sizes
        How many sequences there are at each time, never more than at the time before.
    reverse
        Whether the last time comes first.
    """

    sizes: tuple[int, ...]
    reverse: bool = False

    def __iter__(self) -> Iterator[tuple[slice, int]]:
        """For each step its rows of packed arrays, and how many rows of a state they are."""
        if self.reverse:
            end = sum(self.sizes)
            for size in reversed(self.sizes):
                yield slice(end - size, end), size
                end -= size
        else:
            start = 0
            for size in self.sizes:
                yield slice(start, start + size), size
                start += size

    @property
    def turned(self) -> "Steps":
        """The same steps in the opposite order."""
        return attrs.evolve(self, reverse=not self.reverse)

    def times(self, count: int) -> "Steps":
        """The steps where each sequence stands for several."""
        return attrs.evolve(self, sizes=tuple([size * count for size in self.sizes]))

    @property
    def even(self) -> bool:
        """Whether all sequences are equally long."""
        return self.sizes[0] == self.sizes[-1]


def previous(x: Any, first: Any, steps: Steps) -> Any:
    """The rows at the step before, in each packed sequence; ``first`` at its first step."""
    size = steps.sizes[0]
    if steps.even:
        pair = [x[..., size:, :], first] if steps.reverse else [first, x[..., : -size or 0, :]]
        return concat(pair, axis=x.ndim - 2)
    rows = moveaxis(concat([x, first], axis=x.ndim - 2), -2, 0)
    return moveaxis(rows_at(rows, beside(_places(steps), x)), 0, -2)


@functools.lru_cache(maxsize=256)
def _places(steps: Steps) -> Any:
    """The places of the step before, in an array with the rows of first states behind its own."""
    total = sum(steps.sizes)
    latest = np.arange(total, total + steps.sizes[0])
    places = np.empty(total, int)
    for rows, size in steps:
        places[rows] = latest[:size]
        latest[:size] = np.arange(rows.start, rows.stop)
    places.flags.writeable = False
    return places
