"""Cotangents whose sum is computed at once, instead of term by term.

A value that is used many times gets a cotangent from each use: a weight from every step of a
recurrent network, an array from each of its rows that a loop reads.  To compute each cotangent as
an array of the value's size, and to add them, would take longer than the rest of the loop.  So a
vjp rule may return a `Deferred` term, and terms of one kind are computed together.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fdbr.pytrees.dtypes import is_short

__all__ = ["Deferred", "added", "settled"]


class Deferred:
    """A sum of an array and of terms that are not computed yet.

    Only the code that accumulates it may refer to it, because addition changes it in place.  Sums
    of 16-bit numbers are accumulated in float32 and rounded once.

    Parameters
    ----------
    compute
        ``compute(terms)`` returns the sum of terms of this kind, as a new array.
    term
        What ``compute`` needs for one term.
    weight
        How much memory a term keeps alive, in the unit of ``limit``.
    limit
        The total weight at which the terms are computed: more terms would save no time.
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
        self._dtype: Any = None  # the sum's own dtype, if it is accumulated in float32

    @classmethod
    def holding(cls, total: Any) -> "Deferred":
        """Return a sum whose terms have all been computed."""
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
        """Return the accumulator of a sum: a float32 copy if its dtype has 16 bits."""
        if self._dtype is None and total.itemsize <= 2 and is_short(total.dtype):
            self._dtype = total.dtype
            total = total.astype(np.float32)
        return total

    def value(self) -> Any:
        """Compute the sum."""
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
    raise AssertionError("all terms have been computed")


def added(a: Any, b: Any) -> Any:
    """Add two cotangents of one value; the result may be added to again."""
    if type(b) is Deferred:
        return b + a
    if type(a) is not Deferred and a.itemsize <= 2 and is_short(a.dtype):
        a = Deferred.holding(a)
    return a + b


def settled(value: Any) -> Any:
    """Compute a deferred result of a vjp rule."""
    return value.value() if type(value) is Deferred else value
