"""NumPy's functions that arrange, sort and search, on traced values.

Every entry takes NumPy's arguments; see `fdbr.interop.signatures`.
"""

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fdbr import ops
from fdbr.core.array_modules import array_module
from fdbr.core.tracer import Tracer, own, whole
from fdbr.core.tracer_methods import functions
from fdbr.errors.checks import describe
from fdbr.interop.numpy_basics import as_tuple, within
from fdbr.interop.signatures import implements
from fdbr.ops.axes import normalize_axes, normalize_axis
from fdbr.ops.declare import constant, shifted
from fdbr.ops.shape.creation import arrays
from fdbr.ops.shape.manipulation import _embed_diagonal
from fdbr.pytrees.dtypes import dtype_kind

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
    _check_depths(arrays, depth)
    ndim = max(depth, *map(_rank, _leaves(arrays)))

    def joined(nest: Any, level: int) -> Any:
        if not isinstance(nest, list):
            return own(_ending_in(nest, ndim))
        return ops.concat([joined(part, level + 1) for part in nest], axis=level - depth)

    return joined(arrays, 0)


def _depth(nest: Any) -> int:
    return 1 + max(map(_depth, nest)) if isinstance(nest, list) else 0


def _check_depths(nest: Any, depth: int) -> None:
    if not isinstance(nest, list) if depth else isinstance(nest, list):
        raise ValueError("np.block: all lists must be nested equally deep")
    for part in nest if depth else ():
        _check_depths(part, depth - 1)


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


def _rows(m: Any) -> Any:
    """A matrix; of a row NumPy makes one whose rows are all that."""
    m = ops.asarray(m)
    return ops.broadcast_to(m, (m.shape[0], m.shape[0])) if m.ndim == 1 else m


implements("tril")(lambda m, k=0: ops.tril(_rows(m), k=k))
implements("triu")(lambda m, k=0: ops.triu(_rows(m), k=k))


def _of_shape(name: str) -> None:
    """Enter a function that looks at nothing but the shape: NumPy's own, on an empty view."""
    theirs = getattr(np, name)
    implements(name)(
        lambda arr, **k: _all_beside(arr, theirs(np.broadcast_to(np.empty(()), arr.shape), **k))
    )


for _name in ("tril_indices_from", "triu_indices_from", "diag_indices_from"):
    _of_shape(_name)


@implements("repeat")
def _repeat(a: Any, repeats: Any, axis: Any = None) -> Any:
    return own(ops.repeat(ops.asarray(a), repeats, axis=axis))


implements("meshgrid")(
    lambda *xi, copy=True, sparse=False, indexing="xy": (list if sparse and not copy else tuple)(
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
    if v.ndim == 2:
        return ops.diagonal(v, offset=k)
    if v.ndim != 1:
        raise ValueError(f"np.diag: v must have 1 or 2 dimensions, but is {describe(v)}")
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
    if any(n < 0 for n in shape):
        raise ValueError(f"np.resize: new_shape is {new_shape}; no length may be negative")
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
    if x.ndim != 1:
        raise ValueError(f"np.vander: x must have one dimension, but is {describe(x)}")
    powers = np.arange(len(np.empty(len(x) if N is None else N)))  # which must not be negative
    powers = _beside(x, powers if increasing else powers[::-1].copy())
    return ops.power(ops.reshape(x, (-1, 1)), powers)


@implements("ediff1d")
def _ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    ary = ops.asarray(ary)
    given = [to_begin, ops.diff(ops.reshape(ary, -1)), to_end]
    parts = arrays(*(x for x in given if x is not None))
    for part in parts:
        if not np.can_cast(part.dtype, ary.dtype, "same_kind"):
            raise TypeError(f"np.ediff1d: {describe(part)} cannot become {ary.dtype}")
    parts = [ops.astype(x, ary.dtype, copy=False) for x in parts]
    return ops.concat([ops.reshape(x, -1) for x in parts])


@implements("ix_")
def _ix(*args: Any) -> Any:
    out = []
    for i, x in enumerate(arrays(*args)):
        if x.ndim != 1:
            raise ValueError(f"np.ix_: arrays must have one dimension; one is {describe(x)}")
        x = ops.nonzero(x)[0] if x.dtype.kind == "b" else x
        out.append(ops.reshape(x, (*(1,) * i, -1, *(1,) * (len(args) - i - 1))))
    return tuple(out)


# --- sorting and searching ----------------------------------------------------------


_FIELDS = {"order": "it names the fields of records, and traced values have none. Leave it out"}


def _checked(**how: Any) -> dict[str, Any]:
    """Return how to sort, without what is left open; NumPy says what can be asked for."""
    how = {name: value for name, value in how.items() if value is not None}
    np.sort(np.empty(0), **how)
    return how


@constant(batch=shifted("axis"))
def _numpys_order(
    xp: Any, x: Any, *, axis: int, kind: Any = None, stable: Any = None, descending: Any = None
) -> Any:
    """Return NumPy's own order, where that of `ops.argsort` may be another one.

    An order that is not stable leaves ties as NumPy's algorithm does, and a descending one has
    NaN last.
    """
    more = {} if descending is None else {"stable": stable, "descending": descending}
    return xp.argsort(x, axis=axis, kind=kind, **more)


@constant(batch=shifted("axis"))
def _numpys_parts(xp: Any, x: Any, *, kth: tuple[int, ...], axis: int) -> Any:
    """The order that ``argpartition`` gives."""
    return xp.argpartition(x, kth, axis=axis)


@constant(batch=shifted("axis"))
def _partition(xp: Any, x: Any, *, kth: tuple[int, ...], axis: int) -> Any:
    """The order of ``partition``, which differs from that of ``argpartition``.

    The elements of each order, sorted, are the same: so each element of the result is known.
    """
    ranks = xp.argsort(xp.partition(x, kth, axis=axis), axis=axis, kind="stable")
    order = xp.empty_like(ranks)
    xp.put_along_axis(order, ranks, xp.argsort(x, axis=axis, kind="stable"), axis)
    return order


@implements("sort", refuses=_FIELDS)
def _sort(
    a: Any, axis: Any = -1, kind: Any = None, *, stable: Any = None, descending: Any = None
) -> Any:
    """Sort; stably, unless it is descending, which NumPy does from 2.5 on."""
    how = _checked(kind=kind, stable=stable, descending=descending)
    a, axis = _flat_or(ops.asarray(a), axis, "sort")
    if descending:
        return ops.take_along_axis(a, _numpys_order(a, axis=axis, **how), axis=axis)
    return ops.sort(a, axis=axis)


@implements("argsort", refuses=_FIELDS)
def _argsort(
    a: Any, axis: Any = -1, kind: Any = None, *, stable: Any = None, descending: Any = None
) -> Any:
    how = _checked(kind=kind, stable=stable, descending=descending)
    a, axis = _flat_or(ops.asarray(a), axis, "argsort")
    if not descending and (stable or str(kind)[:1].lower() in "ms"):
        return ops.argsort(a, axis=axis)
    return _numpys_order(a, axis=axis, **how)


@implements("sort_complex")
def _sort_complex(a: Any) -> Any:
    kind, size = a.dtype.kind, a.dtype.itemsize
    small = kind in "iu" and size < 4
    return ops.astype(ops.sort(a), a.dtype if kind == "c" else "complex64" if small else complex)


def _parting(name: str, part: Callable[..., Any]) -> None:
    """Check the positions as NumPy does, and count them from the front."""

    @implements(name, refuses=_FIELDS)
    def parted(a: Any, kth: Any, axis: Any = -1, kind: Any = "introselect") -> Any:
        a, axis = _flat_or(ops.asarray(a), axis, name)
        n, kth = a.shape[axis], _decided(kth)
        np.partition(np.empty(n), kth, kind=kind)
        places = np.atleast_1d(kth).ravel().tolist()
        return part(a, kth=tuple([k + n if k < 0 else k for k in places]), axis=axis)


_parting(
    "partition",
    lambda a, kth, axis: ops.take_along_axis(a, _partition(a, kth=kth, axis=axis), axis=axis),
)
_parting("argpartition", _numpys_parts)


@implements("lexsort")
def _lexsort(keys: Any, axis: int = -1) -> Any:
    order = None
    keys = list(keys)
    if keys and not np.ndim(keys[0]):
        return np.intp(0)  # of single numbers
    if not keys:
        raise TypeError("np.lexsort: there must be a key at least")
    if any(np.shape(key) != np.shape(keys[0]) for key in keys):
        raise ValueError(f"np.lexsort: the keys' shapes are {[np.shape(k) for k in keys]}; they "
                         "must be equal")  # fmt: skip
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
    if "c" in (x.dtype.kind, bins.dtype.kind):
        raise TypeError(
            f"np.digitize: x and bins must be real, not {describe(x)} and {describe(bins)}"
        )
    steps = bins[1:], bins[:-1]
    if not bool(ops.any(steps[0] < steps[1])):  # which NaN does not tell
        return ops.searchsorted(bins, x, side=side)
    if bool(ops.any(steps[0] > steps[1])):
        raise ValueError("np.digitize: bins must increase or decrease")
    if bins.size:
        return bins.size - ops.searchsorted(ops.flip(bins), x, side=side)
    return ops.searchsorted(bins, x, side=side)


implements("nonzero")(ops.nonzero)
implements("flatnonzero")(lambda a: ops.nonzero(ops.reshape(a, -1))[0])


@implements("argwhere")
def _argwhere(a: Any) -> Any:
    if not a.ndim:  # one row without columns if it is true
        return ops.stack(ops.nonzero(ops.reshape(a, 1)), axis=-1)[:, :0]
    return ops.stack(ops.nonzero(a), axis=-1)


@implements("where")
def _where(condition: Any, x: Any = _NOT_GIVEN, y: Any = _NOT_GIVEN, /) -> Any:
    if (x is _NOT_GIVEN) is not (y is _NOT_GIVEN):
        raise ValueError("np.where: give both x and y, or neither")
    return ops.nonzero(condition) if x is _NOT_GIVEN else ops.where(condition, x, y)


@implements("compress")
def _compress(condition: Any, a: Any, axis: int | None = None) -> Any:
    a, condition = arrays(a, condition)
    if condition.ndim != 1:
        raise ValueError(f"np.compress: condition must be a row, but is {describe(condition)}")
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
    if not shape and np.ndim(indices):
        raise ValueError("np.unravel_index: an array without dimensions has one index, ()")
    indices = _places(indices, math.prod(shape), "raise", "np.unravel_index")
    out = []
    for n in reversed(shape if order == "C" else shape[::-1]):
        out.append(indices % n)
        indices = indices // n
    return tuple(out if order == "F" else reversed(out))


@implements("ravel_multi_index")
def _ravel_multi_index(multi_index: Any, dims: Any, mode: str = "raise", order: str = "C") -> Any:
    dims = as_tuple(dims)
    if len(multi_index) != len(dims):
        raise ValueError(
            f"np.ravel_multi_index: {len(multi_index)} arrays of indices for {len(dims)} lengths"
        )
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
    if trim.lower() not in ("fb", "bf", "f", "b"):
        raise ValueError(f"np.trim_zeros: trim is {trim!r}, not 'fb', 'f' or 'b'")
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
