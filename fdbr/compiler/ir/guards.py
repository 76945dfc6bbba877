"""The conversions by which Python control flow reads values, and equality of their outcomes."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr.transforms.vmap_divergence import distinct_integers, summarize_truths

__all__ = ["EACH", "EXACT", "GuardFailure", "same", "to_list"]


class GuardFailure(Exception):
    """A guard got another outcome than when the program was captured.

    Attributes
    ----------
    index
        The guard's number in the run.
    answer
        The new outcome.
    """

    def __init__(self, index: int, answer: Any) -> None:
        super().__init__(index, answer)
        self.index = index
        self.answer = answer


def to_list(value: Any) -> Any:
    """Return the elements as nested lists of Python numbers."""
    return np.asarray(value).tolist()


def bools(value: Any) -> list[bool]:
    """Return the truth of each element."""
    elements = np.ravel(value)
    return (elements if elements.dtype == bool else elements.astype(bool)).tolist()


def ints(value: Any) -> list[int]:
    """Return each element as an integer."""
    return [int(element) for element in np.ravel(value).tolist()]


def floats(value: Any) -> list[float]:
    """Return each element as a float."""
    return [float(element) for element in np.ravel(value).tolist()]


def complexes(value: Any) -> list[complex]:
    """Return each element as a complex number."""
    return [complex(element) for element in np.ravel(value).tolist()]


EACH: dict[Any, Callable[[Any], list[Any]]] = {
    bool: bools,
    int: ints,
    float: floats,
    complex: complexes,
}
"""From the conversion of one value to that of all values in a batch."""

EXACT: frozenset[Any] = frozenset({bool, int, bools, ints, distinct_integers, summarize_truths})
"""The conversions whose outcomes are the same whenever they are equal."""


def same(a: Any, b: Any) -> bool:
    """Return whether two outcomes are the same: NaN equals NaN, and -0.0 differs from 0.0."""
    return a == b if type(a) in (bool, int) else repr(a) == repr(b)
