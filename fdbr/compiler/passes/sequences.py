"""Sequences of values that are rows of one array, equally far apart."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import numpy as np

__all__ = ["Run", "longest", "runs"]


@attrs.frozen(eq=False)
class Run:
    """Values of a sequence that are parts of one thing.

    Attributes
    ----------
    start, stop
        The first of them, and the one after the last.
    key, first, step
        Of what they are parts; where the first part is, and how far on the next one.
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
    """The runs in a sequence, where ``label`` tells of what a value is a part, and which.

    It gives `None` for what is no part, or a pair of a key and an array of places.
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
    """The longest run in a sequence."""
    return max(runs(label, values), key=lambda run: run.count, default=None)
