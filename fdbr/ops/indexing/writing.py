"""Functional updates: copies of arrays with some elements replaced or increased."""

from typing import Any

import numpy as np

from fdbr.core.array_modules import array_module, copy_of, keep
from fdbr.core.tracer import Tracer, is_differentiated
from fdbr.errors.checks import describe
from fdbr.errors.public import explaining
from fdbr.ops.declare import constant, indexed
from fdbr.ops.dtypes import astype
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.indexing.batches import batch_erase, batch_last_written, batch_reading, batch_replace
from fdbr.ops.indexing.keys import join, split
from fdbr.ops.indexing.positions import last_written, put_at, sums_at
from fdbr.ops.indexing.reading import _gather
from fdbr.ops.indexing.regions import region_shape
from fdbr.ops.shape.creation import asarray, holds_array
from fdbr.ops.shape.manipulation import broadcast_to, reshape
from fdbr.pytrees.dtypes import dtype_kind
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["Place"]


class Place:
    """The elements of an array at a key, to read or update: see `at`."""

    __slots__ = ("_indices", "_key", "_shape", "_x")

    def __init__(self, x: Any, key: Any, is_trusted: bool = False) -> None:
        x = asarray(x)
        self._shape = x.shape
        self._key, self._indices, self._x = split(key, x, is_trusted)

    @explaining("fdbr.ops.at")
    def get(self) -> Any:
        """Return the elements."""
        return _gather(self._x, *self._indices, key=self._key)

    @explaining("fdbr.ops.at")
    def set(self, values: ArrayLike, /) -> Any:
        """Return a copy of the array with the elements replaced by ``values``, broadcast.

        Where a key selects an element several times, the last value counts.
        """
        values = self._checked_values(values, "set")
        return self._in_shape(
            _replace(self._x, values, *self._owned_indices(values), key=self._key)
        )

    @explaining("fdbr.ops.at")
    def add(self, values: ArrayLike, /) -> Any:
        """Return a copy of the array with ``values``, broadcast, added to the elements.

        Where a key selects an element several times, each value is added.
        """
        values = self._checked_values(values, "add")
        return self._in_shape(
            _increase(self._x, values, *self._owned_indices(values), key=self._key)
        )

    def _in_shape(self, out: Any) -> Any:
        """Reshape a result to the shape of the array, as keys of boolean scalars add axes."""
        return out if out.shape == self._shape else reshape(out, self._shape)

    def _owned_indices(self, values: Any) -> tuple[Any, ...]:
        """Return the indices; copied or locked if the derivative in ``values`` will need them."""
        if not isinstance(values, Tracer) or isinstance(self._x, Tracer):
            return self._indices
        return tuple(i if isinstance(i, Tracer) else keep(i) for i in self._indices)

    def _checked_values(self, values: Any, verb: str) -> Any:
        if type(self._x) is np.ndarray and not self._indices:
            shape = self._x[self._key].shape
        elif {np.ndarray, *map(type, self._indices)} == {np.ndarray}:
            shape = region_shape(self._x.shape, join(self._key, self._indices))
        else:
            shape = _region(self._x, *self._indices, key=self._key).shape
        if type(values) is not np.ndarray:
            xp = array_module(self._x)
            values = asarray(values) if holds_array(values) else xp.asarray(values)
        if values.dtype.kind == "c" and self._x.dtype.kind != "c":
            raise TypeError(
                f"fdbr.ops.at: {verb} of complex values {describe(values)} in {describe(self._x)} "
                "would lose their imaginary part; make the array complex first"
            )
        if values.dtype is self._x.dtype and values.shape == shape:
            return values  # the usual case
        floating = dtype_kind(values.dtype) in "fc" and dtype_kind(self._x.dtype) not in "fc"
        if floating and is_differentiated(values):
            raise TypeError(
                f"fdbr.ops.at: {verb} of traced values {describe(values)} in {describe(self._x)} "
                "would cut them off from their derivative; make the array floating first"
            )
        values = astype(values, self._x.dtype, copy=False)
        while values.ndim > len(shape) and values.shape[0] == 1:
            values = values[0]
        try:
            return broadcast_to(values, shape)
        except ValueError as error:
            raise ValueError(
                f"fdbr.ops.at: {verb} of {describe(values)}, which does not broadcast to the "
                f"shape {shape} of the elements at the key"
            ) from error

    def __repr__(self) -> str:
        return f"at({describe(self._x)})[{self._key}]"


@constant(batch=batch_reading)
def _region(xp: Any, x: ArrayLike, *indices: Any, key: Any) -> Array:
    return xp.broadcast_to(xp.zeros((), dtype=bool), region_shape(x.shape, join(key, indices)))


@constant(batch=batch_last_written)
def _last_written(xp: Any, x: Array, *indices: Any, key: Any) -> Array:
    """Mark the selected elements that are written last, if a key selects some several times."""
    return last_written.on(xp)(xp, x.shape, join(key, indices))


def _written_cotangent(ct: Any, indices: Any, key: Any) -> Any:
    """Compute the cotangent of the values written; overwritten values get zero."""
    selected = _gather(ct, *indices, key=key)
    if not indices:
        return selected
    return where(_last_written(ct, *indices, key=key), selected, 0)


def _copy(xp: Any, x: Any) -> Any:
    """Copy an array or number to a new array."""
    return copy_of(xp.asarray(x))


@indexed(
    lambda ct, shape, indices, params: _erase(ct, *indices, **params),
    lambda ct, shape, indices, params: _written_cotangent(ct, indices, params["key"]),
    batch=batch_replace,
)
def _replace(xp: Any, x: ArrayLike, values: ArrayLike, *indices: Any, key: Any) -> Array:
    out = _copy(xp, x)
    put_at.on(xp)(xp, out, join(key, indices), values)
    return out


@indexed(lambda ct, shape, indices, params: _erase(ct, *indices, **params), batch=batch_erase)
def _erase(xp: Any, x: ArrayLike, *indices: Any, key: Any) -> Array:
    out = _copy(xp, x)
    put_at.on(xp)(xp, out, join(key, indices), 0)
    return out


@indexed(
    lambda ct, shape, indices, params: ct,
    lambda ct, shape, indices, params: _gather(ct, *indices, **params),
    batch=batch_replace,
    fresh=True,
)
def _increase(xp: Any, x: Any, values: Any, *indices: Any, key: Any) -> Any:
    return x + sums_at.on(xp)(xp, x.shape, join(key, indices), values)
