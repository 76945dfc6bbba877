"""Runs of values that are equally spaced rows of one array."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import numpy as np

__all__ = ["Run", "longest", "runs"]


@attrs.frozen(eq=False)
class Run:
    """Consecutive values of a sequence that are rows of one array.

    Attributes
    ----------
    start, stop
        The index of the first of them, and the one after the last.
    key, first, step
        The array, the index of the first row, and the step to the next one.
    """

    start: int
    stop: int
    key: Any
    first: Any
    step: Any

    @property
    def count(self) -> int:
        """The number of its values."""
        return self.stop - self.start


def runs(label: Callable[[Any], Any], values: Sequence[Any]) -> Iterator[Run]:
    """Yield the runs in a sequence, where ``label`` says which array and row a value is.

    The label is `None` for a value that is no row, or a pair of a key and an index array.
    """
    labels = list(map(label, values))
    place = 0
    while place < len(values) - 1:
        here, following = labels[place], labels[place + 1]
        if here is None or following is None or here[0] != following[0]:
            place += 1
            continue
        step = following[1] - here[1]
        stop = place + 2
        while (
            stop < len(values)
            and labels[stop] is not None
            and labels[stop][0] == here[0]
            and np.array_equal(labels[stop][1] - labels[stop - 1][1], step)
        ):
            stop += 1
        if not step.any():
            place = stop - 1
            continue
        yield Run(place, stop, here[0], here[1], step)
        place = stop


def longest(label: Callable[[Any], Any], values: Sequence[Any]) -> Run | None:
    """Return the longest run in a sequence."""
    return max(runs(label, values), key=lambda run: run.count, default=None)
