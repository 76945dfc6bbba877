"""Taking elements by their places."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fdbr.backends.cpu.library.copy import joined
from fdbr.core.array_modules import array_module
from fdbr.core.lazy_cotangents import Deferred
from fdbr.core.primitive import host_types
from fdbr.core.tracer import Tracer
from fdbr.errors.checks import describe
from fdbr.ops.axes import normalize_axis
from fdbr.ops.declare import indexed, linear
from fdbr.ops.dtypes import astype
from fdbr.ops.indexing.axis_index import read_along
from fdbr.ops.indexing.batches import batch_reading, batch_scatter
from fdbr.ops.indexing.flat_index import add_at, added_at, read_at
from fdbr.ops.indexing.keys import Key, in_range, join, split
from fdbr.ops.indexing.positions import sums_at
from fdbr.ops.reductions.row_iteration import where_they_lie
from fdbr.ops.shape.creation import asarray, holds_array
from fdbr.ops.shape.manipulation import reshape
from fdbr.pytrees.dtypes import is_short
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["along_axis", "getitem", "pick", "take", "take_along_axis"]

_MANY = 1 << 12  # elements from which on the cotangent of an array is put together from its parts
_SOME = 1 << 6  # places from which on it may pay to look how many elements they are


def getitem(x: ArrayLike, key: Any, /) -> Array:
    """The elements ``x[key]``: NumPy's basic and advanced indexing.

    Elements that the key names several times collect the cotangents of all of them.

    >>> import fdbr, numpy as np
    >>> from fdbr import ops
    >>> fdbr.grad(lambda x: ops.getitem(x, np.array([0, 0, 1])).sum())(np.zeros(3))
    array([2., 1., 0.])
    """
    kind = type(key)
    if kind is slice or kind is int:
        return _slice(x, key=key)
    plain = not isinstance(x, Tracer) and not _has_tracer(key)
    if plain and (type(x) in host_types or not _has_places(key)):
        return _read(x, key)
    key, indices, x = split(key, x)
    return _gather(x, *indices, key=key) if indices else _slice(x, key=key)


def _read(x: Any, key: Any) -> Any:
    """The elements of a plain array; many of them by a kernel."""
    if type(x) is np.ndarray:
        for part in key if type(key) is tuple else (key,):
            if type(part) is np.ndarray and part.size >= _SOME and part.dtype.kind in "iu":
                found = read_along(x, key)
                return x[key] if found is None else found
    return x[key]


def pick(x: Any, key: Key) -> Any:
    """`getitem` for a key that the library made: nobody asks whether its places are in range."""
    if not isinstance(x, Tracer) and not _has_tracer(key):
        return read_at(array_module(x), x, key)
    key, indices, x = split(key, x, made_here=True)
    return _gather(x, *indices, key=key)


def _has_places(key: Any) -> bool:
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


def _slice_pull(ct: Any, shape: tuple[int, ...], key: Any) -> Any:
    size = math.prod(shape)
    if size < _MANY or type(ct) not in host_types:
        return _unslice(ct, shape=shape, key=key)
    return Deferred(_sum_of_slices, (ct, shape, key), ct.size, size)


def _sum_of_slices(terms: Sequence[tuple[Any, tuple[int, ...], Any]]) -> Any:
    """The sum of arrays that are zero but for a slice of each."""
    (first, shape, key), *others = terms
    dtype, wide = _of_sum(terms)
    side_by_side = _side_by_side(terms) if others and wide is dtype else None
    if side_by_side is not None:
        return side_by_side
    out = np.zeros(shape, wide)
    out[key] = first
    with where_they_lie(shape[-1] if len(shape) > 1 else 0):
        for part, _, key in others:
            out[key] += part
    return out.astype(dtype, copy=False)


def _side_by_side(terms: Sequence[tuple[Any, tuple[int, ...], Any]]) -> Any:
    """The sum of slices of one axis that together are all of it, as `split` makes them."""
    shape = terms[0][1]
    axis, places = None, []
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
                places.append((begin, end, part))
    if axis is None or len(places) != len(terms):
        return None
    places.sort(key=lambda place: place[0])
    ends = [0, *(end for _, end, _ in places)]
    if ends[-1] != shape[axis] or any(
        begin != end for (begin, _, _), end in zip(places, ends, strict=False)
    ):
        return None
    return joined([part for _, _, part in places], axis)


@linear(x=_slice_pull, batch=_batch_slice, view="elements")
def _slice(xp: Any, x: ArrayLike, *, key: Any) -> Array:
    return x[key]


@linear(x=lambda ct, key: _slice(ct, key=key), batch=_batch_slice, fresh=True)
def _unslice(xp: Any, x: ArrayLike, *, shape: tuple[int, ...], key: Any) -> Array:
    out = xp.zeros(shape, dtype=x.dtype)
    out[key] = x
    return out


def _gather_pull(ct: Any, shape: tuple[int, ...], indices: Any, params: Any) -> Any:
    size = math.prod(shape)
    if size < _MANY or any(type(array) not in host_types for array in (ct, *indices)):
        return _scatter(ct, *indices, shape=shape, **params)
    key = join(params["key"], indices)
    return Deferred(_sum_of_places, (ct, shape, key), ct.size, size)


def _sum_of_places(terms: Sequence[tuple[Any, tuple[int, ...], Any]]) -> Any:
    """The sum of arrays that are zero but at some places, named by index arrays."""
    ((first, shape, key), *others) = terms
    dtype, wide = _of_sum(terms)
    out = added_at(shape, key, first.astype(wide, copy=False))
    for part, _, key in others:
        add_at(out, key, part)
    return out.astype(dtype, copy=False)


def _of_sum(terms: Sequence[tuple[Any, tuple[int, ...], Any]]) -> tuple[Any, Any]:
    """The dtype of a sum of arrays, and that in which it is made."""
    dtype = np.result_type(*(part for part, _, _ in terms))
    return dtype, np.dtype(np.float32) if is_short(dtype) else dtype


@indexed(_gather_pull, batch=batch_reading, fresh=True)
def _gather(xp: Any, x: ArrayLike, *indices: Any, key: Key) -> Array:
    return read_at(xp, x, join(key, indices))


@indexed(
    lambda ct, shape, indices, params: _gather(ct, *indices, key=params["key"]),
    batch=batch_scatter,
    fresh=True,
)
def _scatter(xp: Any, x: ArrayLike, *indices: Any, shape: tuple[int, ...], key: Key) -> Array:
    return sums_at(xp, shape, join(key, indices), x)


def take(x: ArrayLike, indices: ArrayLike, /, *, axis: int | None = None) -> Array:
    """The elements at some places along an axis; of the flattened array if it is `None`.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.take(np.array([10, 20, 30]), np.array([2, 0]))
    array([30, 10])
    """
    if axis is None:
        x, axis = reshape(x, -1), 0
    if not hasattr(indices, "dtype"):
        indices = asarray(indices) if holds_array(indices) else array_module(x).asarray(indices)
    if indices.dtype.kind == "b":  # these are places, 0 and 1, and no mask
        indices = astype(indices, int)
    return getitem(x, (slice(None),) * normalize_axis(axis, x.ndim, "take") + (indices,))


def take_along_axis(x: ArrayLike, indices: ArrayLike, /, *, axis: int = -1) -> Array:
    """The elements whose place along an axis ``indices`` gives, position by position.

    ``indices`` has the dimensions of ``x`` and broadcasts with it elsewhere than on the axis.

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
    """`take_along_axis` for indices that are in range."""
    xp = array_module(indices if isinstance(x, Tracer) else x)
    key: list[Any] = []
    for i, (mine, theirs) in enumerate(zip(x.shape, indices.shape, strict=True)):
        if i == axis:
            key.append(indices)
        elif mine == 1:
            key.append(xp.zeros((1,) * x.ndim, dtype=int))
        else:
            places = xp.arange(mine if theirs == 1 else theirs)
            key.append(places.reshape((1,) * i + (-1,) + (1,) * (x.ndim - i - 1)))
    return pick(x, tuple(key))
