"""Functional updates by products, extremes and functions, with duplicates as in JAX."""

import operator
from collections.abc import Callable
from typing import Any

from fdbr.core.array_modules import array_module
from fdbr.errors.checks import describe
from fdbr.errors.public import explaining, public
from fdbr.ops.elementwise.arithmetic import divide as _divide
from fdbr.ops.elementwise.arithmetic import power as _power
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.indexing.reading import _gather, pick
from fdbr.ops.indexing.segments import scatter
from fdbr.ops.indexing.sorting import argsort
from fdbr.ops.indexing.writing import Place, _increase
from fdbr.ops.reductions.reduce import max as _max
from fdbr.ops.shape.creation import asarray, ones_like, zeros_like
from fdbr.ops.shape.manipulation import concat, reshape
from fdbr.pytrees.dtypes import dtype_kind
from fdbr.pytrees.typing import ArrayLike

__all__ = ["Updates", "at"]


@public("fdbr.ops")
class at:
    """Update an array functionally: ``at(x)[key].set(y)`` is a copy of ``x`` with ``y`` at the key.

    Other updates are ``add``, ``multiply``, ``divide``, ``power``, ``max``, ``min`` and ``apply``.
    ``get`` reads.  On traced values ``x.at[key].set(y)`` is the same.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.at(np.zeros(3))[1:].set(5.0)
    array([0., 5., 5.])
    >>> ops.at(np.zeros(3))[np.array([0, 0, 2])].add(1.0)
    array([2., 0., 1.])
    >>> ops.at(np.ones(3))[np.array([0, 0, 2])].multiply(3.0)
    array([9., 1., 3.])
    >>> ops.at(np.ones(3))[1:].apply(np.exp).round(3)
    array([1.   , 2.718, 2.718])
    """

    __slots__ = ("_x",)

    def __init__(self, x: Any, /) -> None:
        self._x = x

    @explaining("fdbr.ops.at")
    def __getitem__(self, key: Any) -> "Updates":
        return Updates(self._x, key)

    def __repr__(self) -> str:
        return f"at({describe(self._x)})"


class Updates(Place):
    """The elements of an array at a key, to read or update: see `at`."""

    __slots__ = ()

    @explaining("fdbr.ops.at")
    def multiply(self, values: ArrayLike, /) -> Any:
        """Return a copy of the array with the elements multiplied by ``values``, broadcast.

        Where a key selects an element several times, it is multiplied by each value.
        """
        return self._combined(operator.mul, values, "multiply")

    @explaining("fdbr.ops.at")
    def divide(self, values: ArrayLike, /) -> Any:
        """Return a copy of the array with the elements divided by ``values``, broadcast.

        Where a key selects an element several times, it is divided by the product of the values.

        Raises
        ------
        TypeError
            If the array has integers.
        """
        if dtype_kind(self._x.dtype) not in "fc":
            raise TypeError(
                f"fdbr.ops.at: divide of {describe(self._x)} would round; make the array floating "
                "first"
            )
        return self._combined(_divide, values, "divide")

    @explaining("fdbr.ops.at")
    def power(self, values: ArrayLike, /) -> Any:
        """Return a copy of the array with the elements raised to the powers ``values``, broadcast.

        Where a key selects an element several times, its power is the product of the values.
        """
        return self._combined(_power, values, "power")

    @explaining("fdbr.ops.at")
    def max(self, values: ArrayLike, /) -> Any:
        """Return a copy of the array with the maxima of the elements and ``values``, broadcast.

        Equal extremes share the derivative equally, as in `scatter`.
        """
        return self._extreme(self._checked_values(values, "max"), "amax")

    @explaining("fdbr.ops.at")
    def min(self, values: ArrayLike, /) -> Any:
        """Return a copy of the array with the minima of the elements and ``values``, broadcast.

        Equal extremes share the derivative equally, as in `scatter`.
        """
        return self._extreme(self._checked_values(values, "min"), "amin")

    @explaining("fdbr.ops.at")
    def apply(self, function: Callable[[Any], Any], /) -> Any:
        """Return a copy of the array with ``function``, which is elementwise, of the elements.

        Where a key selects an element several times, the function is applied as often.
        """
        elements = self.get()
        out = self._same_shape(function(elements), elements)
        if not self._indices:
            return self.set(out)
        ones = ones_like(elements, dtype=int)
        counts = _increase(zeros_like(self._x, dtype=int), ones, *self._indices, key=self._key)
        counts = _gather(counts, *self._indices, key=self._key)
        for done in range(1, int(_max(counts)) if counts.size else 0):
            again = counts > done
            # Elements that are finished are replaced by some that the function accepts.
            new = function(where(again, out, elements))
            out = where(again, self._same_shape(new, elements), out)
        return self.set(out)

    def _same_shape(self, out: Any, elements: Any) -> Any:
        out = asarray(out)
        if out.shape != elements.shape:
            raise ValueError(
                f"fdbr.ops.at: apply needs an elementwise function; it returned {describe(out)} "
                f"for {describe(elements)}"
            )
        return out

    def _combined(self, operation: Callable[[Any, Any], Any], values: Any, name: str) -> Any:
        values = self._checked_values(values, name)
        if not self._indices:
            return self.set(operation(self.get(), values))
        return self._in_shape(operation(self._x, self._products(values)))

    def _extreme(self, values: Any, kind: Any) -> Any:
        size = self._x.size
        flat, index = reshape(self._x, (size,)), reshape(self._flat_index(), (-1,))
        out = scatter(flat, 0, index, reshape(values, (-1,)), reduce=kind)
        return self._in_shape(reshape(out, self._x.shape))

    def _products(self, values: Any) -> Any:
        """Return the product of all values at each element, 1 where there is none."""
        index, values = reshape(self._flat_index(), (-1,)), reshape(values, (-1,))
        order = argsort(index, stable=True)
        index, values = pick(index, order), pick(values, order)
        count, step = index.size, 1
        while step < count:  # a scan of products within runs of equal indices
            equal = index[step:] == index[:-step]
            products = where(equal, values[step:] * values[:-step], values[step:])
            values = concat([values[:step], products])
            step *= 2
        ones = ones_like(reshape(self._x, (self._x.size,)))
        return reshape(Place(ones, index).set(values), self._x.shape)

    def _flat_index(self) -> Any:
        xp = array_module(self._x)
        positions = xp.arange(self._x.size).reshape(self._x.shape)
        return _gather(positions, *self._indices, key=self._key)
