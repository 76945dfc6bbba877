"""Sums whose terms are computed together.

A value that is used many times gets a cotangent from each use: a weight from every step of a
recurrent network, an array from each of its rows that is read in a loop.  To compute each as an
array of the value's size, and to add them up, takes longer than anything else in the loop.  So a
reverse rule may return a `Deferred` term; those of one kind are computed as one.
"""

from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["Deferred", "settled"]


class Deferred:
    """A sum of terms that are still to be computed, and of one that is.

    It belongs to who adds it up, and addition changes it.

    Parameters
    ----------
    compute
        ``compute(terms)`` is the sum of terms of this kind, as an array that is nobody else's.
    term
        What it needs for one.
    weight
        How much memory a term keeps, in any unit.
    limit
        The weight from which on the terms are computed, because more would save nothing.
    """

    __slots__ = ("_compute", "_limit", "_terms", "_total", "_weight")

    def __init__(
        self, compute: Callable[[Sequence[Any]], Any], term: Any, weight: float, limit: float
    ) -> None:
        self._compute = compute
        self._terms = [term]
        self._weight = weight
        self._limit = limit
        self._total: Any = None

    def __add__(self, other: Any) -> "Deferred":
        if type(other) is Deferred:
            if other._compute is self._compute and other._total is None:
                self._terms += other._terms
                self._weight += other._weight
                if self._weight >= self._limit:
                    self._total = self.value()
                    self._terms, self._weight = [], 0
                return self
            other = other.value()
        self._total = other if self._total is None else self._total + other
        return self

    def value(self) -> Any:
        """The sum."""
        if not self._terms:
            return self._total
        made = self._compute(self._terms)
        if self._total is None:
            return made
        if type(self._total) is type(made) and self._total.dtype == made.dtype:
            made += self._total
            return made
        return self._total + made


def settled(value: Any) -> Any:
    """What a reverse rule returned, computed."""
    return value.value() if type(value) is Deferred else value
