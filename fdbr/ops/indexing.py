"""Taking elements by their places, and putting others there.

A key is split into its structure, which is fixed, and its index arrays, which are operands:
``x[:, i, None]`` becomes the key ``(slice(None), Slot(), None)`` and the indices ``(i,)``.
Boolean masks become the index arrays of their true elements.
"""

import math
from collections.abc import Sequence
from types import EllipsisType
from typing import Any

import numpy as np

from fdbr.backend import array_module, copy_of, is_array, keep, on_device
from fdbr.core import Tracer, host_types, is_differentiated
from fdbr.deferred import Deferred
from fdbr.floats import dtype_kind, is_short
from fdbr.kernels.copying import joined
from fdbr.messages import describe
from fdbr.ops.along import read_along
from fdbr.ops.buffers import where_they_lie
from fdbr.ops.creation import asarray, holds_array
from fdbr.ops.devices import beside
from fdbr.ops.dtypes import astype
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.flat_places import add_at, added_at, read_at, region_shape
from fdbr.ops.kinds import constant, indexed, linear
from fdbr.ops.kinds.batches import align, spread
from fdbr.ops.places import last_named, put_at, sums_at, within
from fdbr.ops.shape import broadcast_to, moveaxis, normalize_axis, reshape

__all__ = ["at", "getitem", "take", "take_along_axis"]

Key = tuple[Any, ...]

_MANY = 1 << 12  # elements from which on the cotangent of an array is put together from its parts
_SOME = 1 << 6  # places from which on it may pay to look how many elements they are


class _Slot:
    """The place of an index array in a key."""

    def __repr__(self) -> str:
        return "Slot()"


_SLOT = _Slot()


class _SingleTruth(Exception):
    """A part of a key is one truth value, and no mask."""


def _split(key: Any, x: Any, made_here: bool = False) -> tuple[Key, tuple[Any, ...], Any]:
    """The structure of a key, its index arrays, and the array to which they belong."""
    given = [_part(part, x) for part in (key if type(key) is tuple else (key,))]
    try:
        return (*_arranged(given, x, made_here), x)
    except _SingleTruth:
        given, x = _truths_as_axes(given, x)
        return (*_arranged(given, x, made_here), x)


def _truths_as_axes(given: Sequence[Any], x: Any) -> tuple[list[Any], Any]:
    """A key with single truth values as index arrays, of axes that the array is given for them.

    On its axis ``x[flag]`` has all of ``x``, or nothing; which is a decision.
    """
    sizes = list(x.shape)
    parts: list[Any] = []
    axis = 0
    for number, part in enumerate(given):
        if part is Ellipsis:
            axis = len(sizes) - sum(map(_taken, given[number + 1 :]))
        elif hasattr(part, "dtype") and part.dtype.kind == "b" and part.ndim == 0:
            sizes.insert(axis, 1)
            part = array_module(x).zeros(int(bool(part)), dtype=int)
        axis += _taken(part)
        parts.append(part)
    return parts, reshape(x, tuple(sizes))


def _arranged(given: Sequence[Any], x: Any, made_here: bool) -> tuple[Key, tuple[Any, ...]]:
    parts: list[Any] = []
    indices: list[Any] = []
    axis = 0  # of x, to which the part belongs
    for number, part in enumerate(given):
        if part is Ellipsis:
            axis = x.ndim - sum(map(_taken, given[number + 1 :]))
        if not hasattr(part, "dtype"):
            arrays = None
        elif part.dtype.kind == "b":
            arrays = _true_elements(part, x, axis)
        else:
            arrays = (part if made_here else in_range(part, x, axis),)
        parts.extend([part] if arrays is None else [_SLOT] * len(arrays))
        indices.extend(arrays or ())
        axis += _taken(part)
    return tuple(parts), tuple(indices)


def _part(part: Any, x: Any) -> Any:
    """A part of a key as a slice, an ellipsis, `None`, an int, or an array."""
    if isinstance(part, slice | EllipsisType | None) or type(part) is int:
        return part
    if not isinstance(part, Tracer) and not is_array(part):
        if not isinstance(part, Sequence) and not hasattr(part, "__index__"):
            raise IndexError(
                f"fdbr.ops.getitem: an index must be integer or boolean, not {describe(part)}"
            )
        part = array_module(x).asarray(part)
        if part.size == 0:
            part = part.astype(int)
    if part.dtype.kind not in "iub":
        raise IndexError(
            f"fdbr.ops.getitem: an index must be integer or boolean, not {describe(part)}"
        )
    return part


def in_range(part: Any, x: Any, axis: int) -> Any:
    """An index array that lies where ``x`` lies, is in range, and stays so if ``x`` is traced.

    NumPy looks for itself; an axis that there is not is left to the array module.
    """
    if axis < x.ndim and array_module(x) is not np:
        part = within(part, least=-x.shape[axis], count=x.shape[axis], name="getitem")
        part = beside(part, x)
    return keep(part) if isinstance(x, Tracer) and not isinstance(part, Tracer) else part


def _taken(part: Any) -> int:
    """How many axes of the array a part of a key is for."""
    if part is None or part is Ellipsis:
        return 0
    return part.ndim if hasattr(part, "dtype") and part.dtype.kind == "b" else 1


def _true_elements(mask: Any, x: Any, axis: int) -> Sequence[Any]:
    """A mask as index arrays, one for each of its dimensions."""
    if mask.ndim == 0:
        raise _SingleTruth
    if mask.shape != x.shape[axis : axis + mask.ndim]:  # the indices might fit by chance
        raise IndexError(
            f"fdbr.ops.getitem: the mask {describe(mask)} does not have the shape of the axes of "
            f"{describe(x)} from axis {axis} on"
        )
    flags: Any = mask
    with on_device(flags):
        found = flags.nonzero()
    return [beside(places, x) for places in found]


def _join(key: Key, indices: Sequence[Any]) -> Key:
    """The key that NumPy understands."""
    following = iter(indices)
    return tuple(next(following) if part is _SLOT else part for part in key)


# --- batches of them ----------------------------------------------------------------


class _Layout:
    """Where NumPy puts the axes of index arrays: see its manual on advanced indexing.

    The elements of a batch are named by one more index array, the example's number, before all
    others.  With it the axes of the index arrays come first in what is read; without it they
    may stand among the others, after ``before`` of them.
    """

    def __init__(self, key: Key, indices: Sequence[Any], flags: Sequence[bool], ndim: int) -> None:
        self.key = key
        places = [i for i, part in enumerate(key) if part is _SLOT or type(part) is int]
        self.together = places == list(range(places[0], places[0] + len(places)))
        used = sum(part is not None and part is not Ellipsis for part in key)
        before = key[: places[0]]
        self.before = sum(ndim - used if part is Ellipsis else 1 for part in before)
        own = [i.ndim - flag for i, flag in zip(indices, flags, strict=True)]
        self.rank = max(own)
        self.indices = align(indices, flags, self.rank)

    def numbered(self, size: int) -> tuple[Key, list[Any]]:
        """The key and the indices for arrays whose first axis is the batch."""
        xp = array_module(*self.indices)
        numbers = xp.arange(size).reshape((size, *(1,) * self.rank))
        return (_SLOT, *self.key), [numbers, *self.indices]

    def settle(self, out: Any) -> Any:
        """What was read with `numbered` indices, with its axes as NumPy would have them."""
        if not self.together or not self.before:
            return out
        here = range(1, 1 + self.rank)
        return moveaxis(out, tuple(here), tuple(i + self.before for i in here))

    def unsettle(self, values: Any) -> Any:
        """The inverse of `settle`, for what is to be written."""
        if not self.together or not self.before:
            return values
        here = range(1, 1 + self.rank)
        return moveaxis(values, tuple(i + self.before for i in here), tuple(here))


def _batch_reading(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    x, *indices = values
    key = params["key"]
    if not indices:
        return apply(x, key=(slice(None), *key))
    layout = _Layout(key, indices, batched[1:], x.ndim - batched[0])
    if batched[0]:
        key, indices = layout.numbered(size)
        return layout.settle(apply(x, *indices, key=key))
    out = apply(x, *layout.indices, key=key)
    return moveaxis(out, layout.before, 0) if layout.together and layout.before else out


def _batch_scatter(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    x, *indices = values
    key, shape = params["key"], params["shape"]
    if not indices:
        return apply(x, shape=(size, *shape), key=(slice(None), *key))
    layout = _Layout(key, indices, batched[1:], len(shape))
    key, indices = layout.numbered(size)
    x = layout.unsettle(spread(x, batched[0], size))
    return apply(x, *indices, shape=(size, *shape), key=key)


def _batch_replace(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    x, new, *indices = values
    x, new = spread(x, batched[0], size), spread(new, batched[1], size)
    if not indices:
        return apply(x, new, key=(slice(None), *params["key"]))
    layout = _Layout(params["key"], indices, batched[2:], x.ndim - 1)
    key, indices = layout.numbered(size)
    return apply(x, layout.unsettle(new), *indices, key=key)


def _batch_erase(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    x, *indices = values
    x = spread(x, batched[0], size)
    if not indices:
        return apply(x, key=(slice(None), *params["key"]))
    layout = _Layout(params["key"], indices, batched[1:], x.ndim - 1)
    key, indices = layout.numbered(size)
    return apply(x, *indices, key=key)


def _batch_last_named(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    x, *indices = values
    layout = _Layout(params["key"], indices, batched[1:], x.ndim - batched[0])
    key, indices = layout.numbered(size)
    return layout.settle(apply(spread(x, batched[0], size), *indices, key=key))


# --- reading ------------------------------------------------------------------------


def getitem(x: Any, key: Any, /) -> Any:
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
    key, indices, x = _split(key, x)
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
    key, indices, x = _split(key, x, made_here=True)
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


@linear(x=_slice_pull, batch=_batch_slice)
def _slice(xp: Any, x: Any, *, key: Any) -> Any:
    return x[key]


@linear(x=lambda ct, key: _slice(ct, key=key), batch=_batch_slice)
def _unslice(xp: Any, x: Any, *, shape: tuple[int, ...], key: Any) -> Any:
    out = xp.zeros(shape, dtype=x.dtype)
    out[key] = x
    return out


def _gather_pull(ct: Any, shape: tuple[int, ...], indices: Any, params: Any) -> Any:
    size = math.prod(shape)
    if size < _MANY or any(type(array) not in host_types for array in (ct, *indices)):
        return _scatter(ct, *indices, shape=shape, **params)
    key = _join(params["key"], indices)
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


@indexed(_gather_pull, batch=_batch_reading)
def _gather(xp: Any, x: Any, *indices: Any, key: Key) -> Any:
    return read_at(xp, x, _join(key, indices))


@indexed(
    lambda ct, shape, indices, params: _gather(ct, *indices, key=params["key"]),
    batch=_batch_scatter,
)
def _scatter(xp: Any, x: Any, *indices: Any, shape: tuple[int, ...], key: Key) -> Any:
    return sums_at(xp, shape, _join(key, indices), x)


def take(x: Any, indices: Any, /, *, axis: int | None = None) -> Any:
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


def take_along_axis(x: Any, indices: Any, /, *, axis: int = -1) -> Any:
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


# --- writing ------------------------------------------------------------------------


class at:
    """Functional updates: ``at(x)[key].set(y)`` is a copy of ``x`` with ``y`` at the key.

    On traced values ``x.at[key].set(y)`` is the same.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.at(np.zeros(3))[1:].set(5.0)
    array([0., 5., 5.])
    >>> ops.at(np.zeros(3))[np.array([0, 0, 2])].add(1.0)
    array([2., 0., 1.])
    """

    __slots__ = ("_x",)

    def __init__(self, x: Any, /) -> None:
        self._x = x

    def __getitem__(self, key: Any) -> "Place":
        return Place(self._x, key)

    def __repr__(self) -> str:
        return f"at({describe(self._x)})"


class Place:
    """Some elements of an array, by a key: see `at`."""

    __slots__ = ("_indices", "_key", "_shape", "_x")

    def __init__(self, x: Any, key: Any, made_here: bool = False) -> None:
        x = asarray(x)
        self._shape = x.shape
        self._key, self._indices, self._x = _split(key, x, made_here)

    def get(self) -> Any:
        """The elements."""
        return _gather(self._x, *self._indices, key=self._key)

    def set(self, values: Any, /) -> Any:
        """A copy of the array with ``values``, broadcast, in the elements' place.

        Where a key names an element several times, the last value counts.
        """
        values = self._values(values, "set")
        return self._whole(_replace(self._x, values, *self._kept(values), key=self._key))

    def add(self, values: Any, /) -> Any:
        """A copy of the array with ``values``, broadcast, added to the elements.

        Where a key names an element several times, each value is added.
        """
        values = self._values(values, "add")
        return self._whole(_increase(self._x, values, *self._kept(values), key=self._key))

    def _whole(self, out: Any) -> Any:
        """A changed array in the shape of the given one."""
        return out if out.shape == self._shape else reshape(out, self._shape)

    def _kept(self, values: Any) -> tuple[Any, ...]:
        """The indices, as the derivative in ``values`` needs them: nobody else's."""
        if not isinstance(values, Tracer) or isinstance(self._x, Tracer):
            return self._indices
        return tuple(i if isinstance(i, Tracer) else keep(i) for i in self._indices)

    def _values(self, values: Any, verb: str) -> Any:
        if {type(self._x), *map(type, self._indices)} == {np.ndarray}:
            shape = region_shape(self._x.shape, _join(self._key, self._indices))
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


@constant(batch=_batch_reading)
def _region(xp: Any, x: Any, *indices: Any, key: Key) -> Any:
    return xp.broadcast_to(xp.zeros((), dtype=bool), region_shape(x.shape, _join(key, indices)))


@constant(batch=_batch_last_named)
def _last_named(xp: Any, x: Any, *indices: Any, key: Key) -> Any:
    """Which of the named elements were the last to be written, if a key names some again."""
    return last_named(xp, x.shape, _join(key, indices))


def _replaced(ct: Any, indices: Any, key: Key) -> Any:
    """What of an update's cotangent belongs to the values that were written."""
    taken = _gather(ct, *indices, key=key)
    if not indices:
        return taken
    return where(_last_named(ct, *indices, key=key), taken, 0)


def _copied(xp: Any, x: Any) -> Any:
    """A copy, of numbers too."""
    return copy_of(x) if type(x) is np.ndarray else xp.array(x)


@indexed(
    lambda ct, shape, indices, params: _erase(ct, *indices, **params),
    lambda ct, shape, indices, params: _replaced(ct, indices, params["key"]),
    batch=_batch_replace,
)
def _replace(xp: Any, x: Any, values: Any, *indices: Any, key: Key) -> Any:
    out = _copied(xp, x)
    put_at(xp, out, _join(key, indices), values)
    return out


@indexed(lambda ct, shape, indices, params: _erase(ct, *indices, **params), batch=_batch_erase)
def _erase(xp: Any, x: Any, *indices: Any, key: Key) -> Any:
    out = _copied(xp, x)
    if xp is np:
        put_at(np, out, _join(key, indices), 0)
    else:
        out[_join(key, indices)] = 0
    return out


@indexed(
    lambda ct, shape, indices, params: ct,
    lambda ct, shape, indices, params: _gather(ct, *indices, **params),
    batch=_batch_replace,
)
def _increase(xp: Any, x: Any, values: Any, *indices: Any, key: Key) -> Any:
    if xp is not np or is_short(x.dtype):
        return x + sums_at(xp, x.shape, _join(key, indices), values)
    out = copy_of(x) if type(x) is np.ndarray and x.flags.c_contiguous else np.array(x, order="C")
    if indices:
        add_at(out, _join(key, indices), values)
    else:
        out[key] += values
    return out
