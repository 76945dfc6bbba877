"""Sums whose terms are computed together.

A value that is used many times gets a cotangent from each use: a weight from every step of a
recurrent network, an array from each of its rows that is read in a loop.  To compute each as an
array of the value's size, and to add them up, takes longer than anything else in the loop.  So a
reverse rule may return a `Deferred` term; those of one kind are computed as one.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fdbr.pytrees.dtypes import is_short

__all__ = ["Deferred", "added", "settled"]


class Deferred:
    """A sum of terms that are still to be computed, and of one that is.

    It belongs to who adds it up, and addition changes it.  Numbers of 16 bits are added up in
    float32, and their sum is rounded once.

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

    __slots__ = ("_compute", "_dtype", "_limit", "_terms", "_total", "_weight")

    def __init__(
        self, compute: Callable[[Sequence[Any]], Any], term: Any, weight: float, limit: float
    ) -> None:
        self._compute = compute
        self._terms = [term]
        self._weight = weight
        self._limit = limit
        self._total: Any = None
        self._dtype: Any = None  # of the sum, where what is known of it is held in float32

    @classmethod
    def holding(cls, total: Any) -> "Deferred":
        """A sum of which nothing is still to be computed."""
        made = cls(_none, None, 0, 1)
        made._terms.clear()
        made._total = made._held(total)
        return made

    def __add__(self, other: Any) -> "Deferred":
        if type(other) is Deferred:
            if other._compute is self._compute and other._total is None:
                self._terms += other._terms
                self._weight += other._weight
                if self._weight >= self._limit:
                    self._total = self._held(self._sum())
                    self._terms, self._weight = [], 0
                return self
            other = other.value()
        if self._total is None:
            self._total = self._held(other)
        elif self._dtype is not None and type(self._total) is type(other):
            self._total += other
        else:
            self._total = self._total + other
        return self

    def _held(self, total: Any) -> Any:
        """A sum as it is held: in float32, and nobody else's, if it is of 16 bits."""
        if self._dtype is None and total.itemsize <= 2 and is_short(total.dtype):
            self._dtype = total.dtype
            total = total.astype(np.float32)
        return total

    def value(self) -> Any:
        """The sum."""
        total = self._sum()
        return total if self._dtype is None else total.astype(self._dtype)

    def _sum(self) -> Any:
        if not self._terms:
            return self._total
        made = self._compute(self._terms)
        if self._total is None:
            return made
        if type(self._total) is type(made) and self._total.dtype == made.dtype:
            made += self._total
            return made
        return self._total + made


def _none(terms: Sequence[Any]) -> Any:
    raise AssertionError("nothing is still to be computed")


def added(a: Any, b: Any) -> Any:
    """The sum of two cotangents of one value, to which more may be added."""
    if type(b) is Deferred:
        return b + a
    if type(a) is not Deferred and a.itemsize <= 2 and is_short(a.dtype):
        a = Deferred.holding(a)
    return a + b


def settled(value: Any) -> Any:
    """Compute a deferred result of a reverse rule."""
    return value.value() if type(value) is Deferred else value
