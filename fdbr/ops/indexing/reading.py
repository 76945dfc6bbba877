"""Operations that read elements by keys and index arrays."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fdbr.core.array_modules import array_module
from fdbr.core.lazy_cotangents import Deferred
from fdbr.core.primitive import host_types
from fdbr.core.routine import Routine
from fdbr.core.tracer import Tracer
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.ops.axes import normalize_axis
from fdbr.ops.declare import indexed, linear
from fdbr.ops.dtypes import astype
from fdbr.ops.indexing.batches import batch_reading, batch_scatter
from fdbr.ops.indexing.keys import in_range, join, split
from fdbr.ops.indexing.positions import add_at, read_at, sums_at
from fdbr.ops.shape.creation import asarray, holds_array
from fdbr.ops.shape.manipulation import concat, reshape
from fdbr.pytrees.dtypes import is_short
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["along_axis", "getitem", "pick", "take", "take_along_axis"]

_MANY = 1 << 12  # elements from which on cotangents of slices are summed in one array, lazily


@public("fdbr.ops")
def getitem(x: ArrayLike, key: Any, /) -> Array:
    """The elements ``x[key]``, by NumPy's basic and advanced indexing.

    The cotangents of an element that the key selects several times are summed.

    >>> import fdbr, numpy as np
    >>> from fdbr import ops
    >>> fdbr.grad(lambda x: ops.getitem(x, np.array([0, 0, 1])).sum())(np.zeros(3))
    array([2., 1., 0.])
    """
    kind = type(key)
    if kind is slice or kind is int:
        return _slice(x, key=key)
    plain = not isinstance(x, Tracer) and not _has_tracer(key)
    if plain and (type(x) in host_types or not _has_index_array(key)):
        return read.host(x, key) if type(x) is np.ndarray else x[key]
    key, indices, x = split(key, x)
    return _gather(x, *indices, key=key) if indices else _slice(x, key=key)


@Routine
def read(x: Any, key: Any) -> Any:
    """Read elements of a raw array."""
    return x[key]


def pick(x: Any, key: Any) -> Any:
    """Index by a key that the library made, without checking that its indices are in range."""
    if not isinstance(x, Tracer) and not _has_tracer(key):
        xp = array_module(x)
        return read_at.on(xp)(xp, x, key)
    key, indices, x = split(key, x, is_trusted=True)
    return _gather(x, *indices, key=key)


def _has_index_array(key: Any) -> bool:
    parts = key if type(key) is tuple else (key,)
    return any(hasattr(part, "dtype") or isinstance(part, list) for part in parts)


def _has_tracer(key: Any) -> bool:
    return isinstance(key, Tracer) or (type(key) is tuple and any(map(_has_tracer, key)))


def _batch_slice(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    key = params["key"]
    changed = {"key": (slice(None), *(key if type(key) is tuple else (key,)))}
    if "shape" in params:
        changed["shape"] = (size, *params["shape"])
    return apply(*values, **changed)


def _slice_vjp(ct: Any, shape: tuple[int, ...], key: Any) -> Any:
    size = math.prod(shape)
    if size < _MANY or type(ct) not in host_types:
        return _unslice(ct, shape=shape, key=key)
    return Deferred(_sum_of_slices, (ct, shape, key), ct.size, size)


def _sum_of_slices(terms: Sequence[tuple[Any, tuple[int, ...], Any]]) -> Any:
    """Sum arrays that are zero except in one slice each."""
    (first, shape, key), *others = terms
    dtype, wide = _dtypes_of_sum(terms)
    concatenated = _concatenated(terms) if others and wide is dtype else None
    if concatenated is not None:
        return concatenated
    out = np.zeros(shape, wide)
    out[key] = first
    add_slices(out, [(key, part) for part, _, key in others])
    return out.astype(dtype, copy=False)


@Routine
def add_slices(out: Any, terms: Sequence[tuple[Any, Any]]) -> None:
    """Add arrays to slices of one, in place."""
    for key, part in terms:
        out[key] += part


def _concatenated(terms: Sequence[tuple[Any, tuple[int, ...], Any]]) -> Any:
    """Concatenate slices that together cover one axis, as those of `split`; else return `None`."""
    shape = terms[0][1]
    axis, parts_of_axis = None, []
    for part, _, key in terms:
        parts = key if type(key) is tuple else (key,)
        for i, one in enumerate(parts):
            if type(one) is not slice or one.step not in (None, 1):
                return None
            begin, end, _ = one.indices(shape[i])
            if (begin, end) != (0, shape[i]):
                if axis not in (None, i):
                    return None
                axis = i
                parts_of_axis.append((begin, end, part))
    if axis is None or len(parts_of_axis) != len(terms):
        return None
    parts_of_axis.sort(key=lambda part: part[0])
    ends = [0, *(end for _, end, _ in parts_of_axis)]
    if ends[-1] != shape[axis] or any(
        begin != end for (begin, _, _), end in zip(parts_of_axis, ends, strict=False)
    ):
        return None
    return concat([part for _, _, part in parts_of_axis], axis=axis)


@linear(x=_slice_vjp, batch=_batch_slice, view="elements")
def _slice(xp: Any, x: ArrayLike, *, key: Any) -> Array:
    return x[key]


@linear(x=lambda ct, key: _slice(ct, key=key), batch=_batch_slice, fresh=True)
def _unslice(xp: Any, x: ArrayLike, *, shape: tuple[int, ...], key: Any) -> Array:
    out = xp.zeros(shape, dtype=x.dtype)
    out[key] = x
    return out


def _gather_vjp(ct: Any, shape: tuple[int, ...], indices: Any, params: Any) -> Any:
    size = math.prod(shape)
    if size < _MANY or any(type(array) not in host_types for array in (ct, *indices)):
        return _scatter(ct, *indices, shape=shape, **params)
    key = join(params["key"], indices)
    return Deferred(_sum_of_gathers, (ct, shape, key), ct.size, size)


def _sum_of_gathers(terms: Sequence[tuple[Any, tuple[int, ...], Any]]) -> Any:
    """Sum arrays that are zero except at the elements of an index array."""
    ((first, shape, key), *others) = terms
    dtype, wide = _dtypes_of_sum(terms)
    out = sums_at.on(np)(np, shape, key, first.astype(wide, copy=False))
    for part, _, key in others:
        add_at.on(np)(np, out, key, part)
    return out.astype(dtype, copy=False)


def _dtypes_of_sum(terms: Sequence[tuple[Any, tuple[int, ...], Any]]) -> tuple[Any, Any]:
    """Return the dtype of a sum of arrays, and the dtype in which it is accumulated."""
    dtype = np.result_type(*(part for part, _, _ in terms))
    return dtype, np.dtype(np.float32) if is_short(dtype) else dtype


@indexed(_gather_vjp, batch=batch_reading, fresh=True)
def _gather(xp: Any, x: ArrayLike, *indices: Any, key: Any) -> Array:
    return read_at.on(xp)(xp, x, join(key, indices))


@indexed(
    lambda ct, shape, indices, params: _gather(ct, *indices, key=params["key"]),
    batch=batch_scatter,
    fresh=True,
)
def _scatter(xp: Any, x: ArrayLike, *indices: Any, shape: tuple[int, ...], key: Any) -> Array:
    return sums_at.on(xp)(xp, shape, join(key, indices), x)


@public("fdbr.ops")
def take(x: ArrayLike, indices: ArrayLike, /, *, axis: int | None = None) -> Array:
    """The elements at indices along an axis; `None` flattens the array first.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.take(np.array([10, 20, 30]), np.array([2, 0]))
    array([30, 10])
    """
    if axis is None:
        x, axis = reshape(x, -1), 0
    if not hasattr(indices, "dtype"):
        indices = asarray(indices) if holds_array(indices) else np.asarray(indices)
    if indices.dtype.kind == "b":  # booleans are the indices 0 and 1 here, not a mask
        indices = astype(indices, int)
    return getitem(x, (slice(None),) * normalize_axis(axis, x.ndim, "take") + (indices,))


@public("fdbr.ops")
def take_along_axis(x: ArrayLike, indices: ArrayLike, /, *, axis: int = -1) -> Array:
    """The elements at ``indices`` along an axis, one index for each element of the result.

    ``indices`` has as many dimensions as ``x`` and broadcasts with it on the other axes.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.take_along_axis(np.array([[1, 2], [3, 4]]), np.array([[1], [0]]), axis=1)
    array([[2],
           [3]])
    """
    axis = normalize_axis(axis, x.ndim, "take_along_axis")
    if indices.ndim != x.ndim:
        raise ValueError(
            f"fdbr.ops.take_along_axis: indices {describe(indices)} and x {describe(x)} must have "
            "as many dimensions"
        )
    indices = in_range(indices, x, axis)
    return along_axis(x, indices, axis)


def along_axis(x: Any, indices: Any, axis: int) -> Any:
    """Compute `take_along_axis` for indices that are known to be in range."""
    xp = array_module(indices if isinstance(x, Tracer) else x)
    key: list[Any] = []
    for i, (own, theirs) in enumerate(zip(x.shape, indices.shape, strict=True)):
        if i == axis:
            key.append(indices)
        elif own == 1:
            key.append(xp.zeros((1,) * x.ndim, dtype=int))
        else:
            positions = xp.arange(own if theirs == 1 else theirs)
            key.append(positions.reshape((1,) * i + (-1,) + (1,) * (x.ndim - i - 1)))
    return pick(x, tuple(key))
