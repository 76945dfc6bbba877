"""The questions of Python control flow to values, and equality of their answers."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr.transforms.vmap_divergence import distinct_integers, summarize_truths

__all__ = ["EACH", "EXACT", "GuardFailure", "same", "to_list"]


class GuardFailure(Exception):
    """A guard got another answer than when the program was captured.

    Attributes
    ----------
    index
        The guard's number in the run.
    answer
        The answer that it got now.
    """

    def __init__(self, index: int, answer: Any) -> None:
        super().__init__(index, answer)
        self.index = index
        self.answer = answer


def to_list(value: Any) -> Any:
    """The elements as a nest of lists of Python's numbers."""
    return np.asarray(value).tolist()


def bools(value: Any) -> list[bool]:
    """The truth of each element."""
    elements = np.ravel(value)
    return (elements if elements.dtype == bool else elements.astype(bool)).tolist()


def ints(value: Any) -> list[int]:
    """Each element as an integer."""
    return [int(element) for element in np.ravel(value).tolist()]


def floats(value: Any) -> list[float]:
    """Each element as a floating number."""
    return [float(element) for element in np.ravel(value).tolist()]


def complexes(value: Any) -> list[complex]:
    """Each element as a complex number."""
    return [complex(element) for element in np.ravel(value).tolist()]


EACH: dict[Any, Callable[[Any], list[Any]]] = {
    bool: bools,
    int: ints,
    float: floats,
    complex: complexes,
}
"""For a question of one value, that of a batch of them."""

EXACT: frozenset[Any] = frozenset({bool, int, bools, ints, distinct_integers, summarize_truths})
"""The questions of whose answers all that are equal are the same."""


def same(a: Any, b: Any) -> bool:
    """Whether two answers are one: NaN is NaN here, and -0.0 is not 0.0."""
    return a == b if type(a) in (bool, int) else repr(a) == repr(b)
