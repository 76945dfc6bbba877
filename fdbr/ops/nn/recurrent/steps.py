"""The steps over packed sequences: which rows belong to each step, and in which order.

Packed arrays have the elements of all sequences along the second-to-last axis, ordered by time
step, and at each step the longest sequences first.  The sequences that continue are therefore
always the first rows of a state, and no row is computed for a sequence that has ended.
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
        The number of sequences at each time step, which does not increase.
    reverse
        Whether steps run from the last to the first.
    """

    sizes: tuple[int, ...]
    reverse: bool = False

    def __iter__(self) -> Iterator[tuple[slice, int]]:
        """Iterate over steps: the rows of packed arrays, and their number."""
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
    def reverse_order(self) -> "Steps":
        """Return the same steps in the opposite order."""
        return attrs.evolve(self, reverse=not self.reverse)

    def times(self, count: int) -> "Steps":
        """Return the steps with each sequence repeated ``count`` times."""
        return attrs.evolve(self, sizes=tuple([size * count for size in self.sizes]))

    @property
    def even(self) -> bool:
        """Whether all sequences have the same length."""
        return self.sizes[0] == self.sizes[-1]


def previous(x: Any, first: Any, steps: Steps) -> Any:
    """Return the rows of the previous step of each sequence; those of ``first`` at its start."""
    size = steps.sizes[0]
    if steps.even:
        pair = [x[..., size:, :], first] if steps.reverse else [first, x[..., : -size or 0, :]]
        return concat(pair, axis=x.ndim - 2)
    rows = moveaxis(concat([x, first], axis=x.ndim - 2), -2, 0)
    return moveaxis(rows_at(rows, beside(_previous_indices(steps), x)), 0, -2)


@functools.lru_cache(maxsize=256)
def _previous_indices(steps: Steps) -> Any:
    """Return the indices of previous rows, in an array with the first states appended."""
    total = sum(steps.sizes)
    last_index = np.arange(total, total + steps.sizes[0])
    indices = np.empty(total, int)
    for rows, size in steps:
        indices[rows] = last_index[:size]
        last_index[:size] = np.arange(rows.start, rows.stop)
    indices.flags.writeable = False
    return indices
