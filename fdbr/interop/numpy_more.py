"""NumPy's functions that arrange, sort and search, on traced values.

Every entry takes NumPy's arguments; see `fdbr.interop.signatures`.
"""

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fdbr import ops
from fdbr.array import functions
from fdbr.backend import array_module
from fdbr.core import Tracer, own, whole
from fdbr.floats import dtype_kind
from fdbr.interop.numpy_basics import as_tuple, within
from fdbr.interop.signatures import implements
from fdbr.messages import describe
from fdbr.ops.axes import normalize_axes, normalize_axis
from fdbr.ops.creation import arrays
from fdbr.ops.shape import _embed_diagonal

_NOT_GIVEN = np._NoValue

# --- joining and dividing -----------------------------------------------------------


def _ending_in(x: Any, ndim: int) -> Any:
    """An array with new axes in front, up to a number of them."""
    x = ops.asarray(x)
    return ops.reshape(x, (*(1,) * (ndim - x.ndim), *x.shape))


def _three(x: Any) -> Any:
    x = ops.asarray(x)
    return x if x.ndim > 2 else ops.reshape(_ending_in(x, 2), (*_ending_in(x, 2).shape, 1))


@implements("atleast_3d")
def _atleast_3d(*arys: Any) -> Any:
    out = tuple(map(_three, arys))
    return out[0] if len(out) == 1 else out


implements("dstack")(lambda tup: ops.concat([_three(x) for x in tup], axis=2))


@implements("column_stack")
def _column_stack(tup: Any) -> Any:
    parts = arrays(*tup)
    return ops.concat([x if x.ndim > 1 else ops.reshape(x, (-1, 1)) for x in parts], axis=1)


@implements("block")
def _block(arrays: Any) -> Any:
    depth = _depth(arrays)
    ndim = max(depth, *map(_rank, _leaves(arrays)))

    def joined(nest: Any, level: int) -> Any:
        if not isinstance(nest, list):
            return own(_ending_in(nest, ndim))
        return ops.concat([joined(part, level + 1) for part in nest], axis=level - depth)

    return joined(arrays, 0)


def _depth(nest: Any) -> int:
    return 1 + max(map(_depth, nest)) if isinstance(nest, list) else 0


def _leaves(nest: Any) -> list[Any]:
    return [leaf for part in nest for leaf in _leaves(part)] if isinstance(nest, list) else [nest]


def _rank(x: Any) -> int:
    return getattr(x, "ndim", 0)


@implements("append")
def _append(arr: Any, values: Any, axis: int | None = None) -> Any:
    return ops.concat(arrays(arr, values), axis=axis)


def _splitting(axis: int, ndim: int) -> Callable[..., Any]:
    def split(ary: Any, indices_or_sections: Any) -> Any:
        if ary.ndim < ndim:
            raise ValueError(f"np.split: needs {ndim} dimensions, got shape {ary.shape}")
        place = 0 if ary.ndim == 1 else axis
        return functions[np.split](ary, indices_or_sections, place)

    return split


implements("vsplit")(_splitting(0, 2))
implements("hsplit")(_splitting(1, 1))
implements("dsplit")(_splitting(2, 3))


@implements("insert")
def _insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Any:
    arr, values = arrays(arr, values)
    obj = _decided(obj)
    arr, axis = _flat_or(arr, axis, "insert")
    values = _ending_in(ops.astype(values, arr.dtype), arr.ndim)
    if not isinstance(obj, list | tuple | slice) and _rank(obj) == 0:
        values = ops.moveaxis(values, 0, axis)
    n, count = arr.shape[axis], len(np.insert(np.arange(arr.shape[axis]), obj, -1))
    count = max(count - n, values.shape[axis])
    shape = tuple(count if i == axis else m for i, m in enumerate(arr.shape))
    order = np.insert(np.arange(n), obj, n + np.arange(count))
    both = ops.concat([arr, ops.broadcast_to(values, shape)], axis=axis)
    return ops.take(both, _beside(both, order), axis=axis)


@implements("delete")
def _delete(arr: Any, obj: Any, axis: int | None = None) -> Any:
    arr, axis = _flat_or(ops.asarray(arr), axis, "delete")
    kept = np.delete(np.arange(arr.shape[axis]), _decided(obj))
    return ops.take(arr, _beside(arr, kept), axis=axis)


def _decided(places: Any) -> Any:
    """Places as plain integers: each that is traced is a decision."""
    if not isinstance(places, Tracer):
        return places
    if ops.asarray(places).dtype.kind == "b":
        (places,) = ops.nonzero(places)
    return np.array([int(place) for place in places], int) if places.ndim else int(places)


def _beside(x: Any, places: Any) -> Any:
    """Places that were found on the host, as an array of the module of ``x``."""
    return array_module(x).asarray(places)


def _all_beside(x: Any, places: Any) -> tuple[Any, ...]:
    return tuple(_beside(x, part) for part in places)


def _flat_or(x: Any, axis: int | None, name: str) -> tuple[Any, int]:
    """The array and an axis of it; flattened if there is none."""
    if axis is None:
        return ops.reshape(x, -1), 0
    return x, normalize_axis(axis, x.ndim, name)


# --- other arrangements -------------------------------------------------------------

implements("tril")(lambda m, k=0: ops.tril(m, k=k))
implements("triu")(lambda m, k=0: ops.triu(m, k=k))
implements("tril_indices_from")(
    lambda arr, k=0: _all_beside(arr, np.tril_indices(arr.shape[0], k, arr.shape[1]))
)
implements("triu_indices_from")(
    lambda arr, k=0: _all_beside(arr, np.triu_indices(arr.shape[0], k, arr.shape[1]))
)
implements("diag_indices_from")(
    lambda arr: _all_beside(arr, np.diag_indices(arr.shape[0], arr.ndim))
)
implements("repeat")(lambda a, repeats, axis=None: own(ops.repeat(a, repeats, axis=axis)))
implements("meshgrid")(
    lambda *xi, copy=True, sparse=False, indexing="xy": tuple(
        own(part) if copy else part for part in _meshgrid(xi, sparse, indexing)
    )
)
_OF_MODES = {
    "constant": "constant_values",
    "linear_ramp": "end_values",
    **dict.fromkeys(("maximum", "mean", "median", "minimum"), "stat_length"),
    **dict.fromkeys(("reflect", "symmetric"), "reflect_type"),
}
"""The keyword that a mode of ``pad`` takes, if it takes one."""


@implements("pad")
def _pad(array: Any, pad_width: Any, mode: Any = "constant", **named: Any) -> Any:
    wrong = [f"{name}=" for name in named if name != _OF_MODES.get(mode)]
    if wrong:
        raise ValueError(f"np.pad: mode {mode!r} takes no {', '.join(wrong)}")
    return ops.pad(array, pad_width, mode, **named)


def _meshgrid(xi: Any, sparse: bool, indexing: Any) -> list[Any]:
    rows = [ops.reshape(x, -1) for x in arrays(*xi)]
    if not sparse:
        return ops.meshgrid(*rows, indexing=indexing)
    if indexing not in ("xy", "ij"):
        raise ValueError(f"np.meshgrid: indexing is {indexing!r}, not 'xy' or 'ij'")
    order = list(range(len(rows)))
    if indexing == "xy":
        order[:2] = order[:2][::-1]
    return [
        ops.reshape(x, tuple([x.shape[0] if i == axis else 1 for i in range(len(rows))]))
        for x, axis in zip(rows, order, strict=True)
    ]


@implements("diag")
def _diag(v: Any, k: int = 0) -> Any:
    if v.ndim > 1:
        return ops.diagonal(v, offset=k)
    n = v.shape[0] + abs(k)
    return _embed_diagonal(v, shape=(n, n), offset=k)


implements("diagflat")(lambda v, k=0: _diag(ops.reshape(ops.asarray(v), -1), k))


@implements("rot90")
def _rot90(m: Any, k: int = 1, axes: Sequence[int] = (0, 1)) -> Any:
    first, second = normalize_axes(tuple(axes), m.ndim, "rot90")
    k = operator.index(k)
    turned = ops.swapaxes(m, first, second) if k % 2 else m
    flipped = {0: (), 1: (first,), 2: (first, second), 3: (second,)}[k % 4]
    return ops.flip(turned, axis=flipped) if flipped else turned


@implements("rollaxis")
def _rollaxis(a: Any, axis: int, start: int = 0) -> Any:
    start = operator.index(start)
    axis, start = normalize_axis(axis, a.ndim, "rollaxis"), start + a.ndim * (start < 0)
    return ops.moveaxis(a, axis, start - (axis < start))


@implements("resize")
def _resize(a: Any, new_shape: Any) -> Any:
    shape = new_shape if isinstance(new_shape, tuple | list) else (new_shape,)
    a = ops.reshape(a, -1)
    if not a.size:
        return ops.zeros(shape, dtype=a.dtype)
    places = array_module(a).arange(math.prod(shape)) % a.size
    return ops.reshape(ops.take(a, places), tuple(shape))


@implements("kron")
def _kron(a: Any, b: Any) -> Any:
    a, b = arrays(a, b)
    ndim = max(a.ndim, b.ndim)
    a, b = _ending_in(a, ndim), _ending_in(b, ndim)
    shape = tuple(m * n for m, n in zip(a.shape, b.shape, strict=True))
    a = ops.reshape(a, tuple(n for m in a.shape for n in (m, 1)))
    b = ops.reshape(b, tuple(n for m in b.shape for n in (1, m)))
    return ops.reshape(a * b, shape)


@implements("vander")
def _vander(x: Any, N: int | None = None, increasing: bool = False) -> Any:
    powers = np.arange(len(x) if N is None else N)
    powers = _beside(x, powers if increasing else powers[::-1].copy())
    return ops.power(ops.reshape(x, (-1, 1)), powers)


@implements("ediff1d")
def _ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    ary = ops.asarray(ary)
    given = [to_begin, ops.diff(ops.reshape(ary, -1)), to_end]
    parts = [ops.astype(x, ary.dtype) for x in arrays(*(x for x in given if x is not None))]
    return ops.concat([ops.reshape(x, -1) for x in parts])


@implements("ix_")
def _ix(*args: Any) -> Any:
    out = []
    for i, x in enumerate(arrays(*args)):
        x = ops.nonzero(x)[0] if x.dtype.kind == "b" else x
        out.append(ops.reshape(x, (*(1,) * i, -1, *(1,) * (len(args) - i - 1))))
    return tuple(out)


# --- sorting and searching ----------------------------------------------------------


_FIELDS = {"order": "it names the fields of records, and traced values have none. Leave it out"}


def _check_kind(kind: Any, stable: Any) -> None:
    """Sorting is stable here, which is right for every kind; NumPy says which there are."""
    np.sort(np.empty(0), kind=kind, stable=stable)


@implements("sort", refuses=_FIELDS)
def _sort(a: Any, axis: Any = -1, kind: Any = None, *, stable: Any = None) -> Any:
    _check_kind(kind, stable)
    a, axis = _flat_or(ops.asarray(a), axis, "sort")
    return ops.sort(a, axis=axis)


@implements("argsort", refuses=_FIELDS)
def _argsort(a: Any, axis: Any = -1, kind: Any = None, *, stable: Any = None) -> Any:
    _check_kind(kind, stable)
    a, axis = _flat_or(ops.asarray(a), axis, "argsort")
    return ops.argsort(a, axis=axis)


@implements("sort_complex")
def _sort_complex(a: Any) -> Any:
    kind, size = a.dtype.kind, a.dtype.itemsize
    small = kind in "iu" and size < 4
    return ops.astype(ops.sort(a), a.dtype if kind == "c" else "complex64" if small else complex)


def _parting(name: str, sort: Callable[..., Any]) -> None:
    """Check the places as NumPy does; a sorted array is partitioned at all of them."""

    @implements(name, refuses=_FIELDS)
    def part(a: Any, kth: Any, axis: Any = -1, kind: Any = "introselect") -> Any:
        a, axis = _flat_or(ops.asarray(a), axis, name)
        np.partition(np.empty(a.shape[axis]), _decided(kth), kind=kind)
        return sort(a, axis=axis)


_parting("partition", ops.sort)
_parting("argpartition", ops.argsort)


@implements("lexsort")
def _lexsort(keys: Any, axis: int = -1) -> Any:
    order = None
    for key in keys:
        key = ops.asarray(key)
        if order is None:
            order = ops.argsort(key, axis=axis)
        else:
            by_key = ops.argsort(ops.take_along_axis(key, order, axis=axis), axis=axis)
            order = ops.take_along_axis(order, by_key, axis=axis)
    return order


@implements("searchsorted")
def _searchsorted(a: Any, v: Any, side: Any = "left", sorter: Any = None) -> Any:
    return ops.searchsorted(a, v, side=side, sorter=sorter)


@implements("digitize")
def _digitize(x: Any, bins: Any, right: bool = False) -> Any:
    side: Any = "left" if right else "right"
    x, bins = arrays(x, bins)
    if bins.size and bool(bins[0] > bins[-1]):  # they decrease
        return bins.size - ops.searchsorted(ops.flip(bins), x, side=side)
    return ops.searchsorted(bins, x, side=side)


implements("nonzero")(ops.nonzero)
implements("flatnonzero")(lambda a: ops.nonzero(ops.reshape(a, -1))[0])
implements("argwhere")(lambda a: ops.stack(ops.nonzero(a), axis=-1))


@implements("where")
def _where(condition: Any, x: Any = _NOT_GIVEN, y: Any = _NOT_GIVEN, /) -> Any:
    if (x is _NOT_GIVEN) is not (y is _NOT_GIVEN):
        raise ValueError("np.where: give both x and y, or neither")
    return ops.nonzero(condition) if x is _NOT_GIVEN else ops.where(condition, x, y)


@implements("compress")
def _compress(condition: Any, a: Any, axis: int | None = None) -> Any:
    a, condition = arrays(a, condition)
    a, axis = _flat_or(a, axis, "compress")
    return ops.take(a, ops.nonzero(condition)[0], axis=axis)


@implements("extract")
def _extract(condition: Any, arr: Any) -> Any:
    condition, arr = arrays(condition, arr)
    return _compress(ops.reshape(condition, -1), arr)


@implements("choose")
def _choose(a: Any, choices: Any, mode: str = "raise") -> Any:
    dtype = ops.result_type(*choices)
    choices = (ops.astype(choice, dtype, copy=False) for choice in choices)
    a, *parts = ops.broadcast_arrays(*arrays(a, *choices))
    a = _places(ops.astype(a, np.intp), len(parts), mode, "np.choose")
    return ops.take_along_axis(ops.stack(parts), ops.reshape(a, (1, *a.shape)), axis=0)[0]


@implements("unravel_index")
def _unravel_index(indices: Any, shape: Any, order: str = "C") -> Any:
    shape = as_tuple(shape)
    indices = _places(indices, math.prod(shape), "raise", "np.unravel_index")
    out = []
    for n in reversed(shape if order == "C" else shape[::-1]):
        out.append(indices % n)
        indices = indices // n
    return tuple(out if order == "F" else reversed(out))


@implements("ravel_multi_index")
def _ravel_multi_index(multi_index: Any, dims: Any, mode: str = "raise", order: str = "C") -> Any:
    dims = as_tuple(dims)
    modes = as_tuple(mode) if isinstance(mode, tuple) else (mode,) * len(dims)
    axes = range(len(dims)) if order == "C" else reversed(range(len(dims)))
    out: Any = 0
    for i in axes:
        out = out * dims[i] + _places(multi_index[i], dims[i], modes[i], "np.ravel_multi_index")
    return out


def _places(indices: Any, n: int, mode: str, name: str) -> Any:
    """Places among ``n``, in a dtype in which what is made of them does not wrap."""
    indices = ops.asarray(indices)
    if dtype_kind(indices.dtype) not in "biu":
        raise TypeError(f"{name}: indices must be integers, not {describe(indices)}")
    indices = within(ops.astype(indices, np.intp, copy=False), n, mode, name)
    every = whole(indices)
    if mode == "raise" and not bool(((every >= 0) & (every < n)).all()):
        raise ValueError(f"{name}: indices lie outside of 0 to {n - 1}: {describe(indices)}")
    return indices


@implements("trim_zeros")
def _trim_zeros(filt: Any, trim: str = "fb", axis: Any = None) -> Any:
    axes = normalize_axes(tuple(axis) if isinstance(axis, list) else axis, filt.ndim, "trim_zeros")
    whole = filt != 0
    for i in axes:
        there = ops.any(whole, axis=tuple(j for j in range(filt.ndim) if j != i))
        start, stop = 0, filt.shape[i]
        while "f" in trim.lower() and start < stop and not there[start]:
            start += 1
        while "b" in trim.lower() and stop > start and not there[stop - 1]:
            stop -= 1
        filt = filt[(*(slice(None),) * i, slice(start, stop))]
    return filt
