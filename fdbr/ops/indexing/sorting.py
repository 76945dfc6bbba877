"""Sorting, and what is read off a sorted array.

The order of the elements is a constant wherever the result has a derivative; in that order the
elements are picked, and picking is linear.
"""

from typing import Any

import numpy as np

from fdbr.backends.cpu.kernels import LEAST
from fdbr.core.array_modules import array_module, where_it_lies
from fdbr.core.util.threads import divide, parts
from fdbr.errors.checks import describe, integer
from fdbr.ops.axes import normalize_axis
from fdbr.ops.declare import constant, indexed, shifted
from fdbr.ops.declare.batches import spread
from fdbr.ops.dtypes import is_traced
from fdbr.ops.indexing.argsort import ordered, ranked_places
from fdbr.ops.indexing.axis_index import numbers_of_axis
from fdbr.ops.indexing.flat_index import put_at
from fdbr.ops.shape.creation import asarray
from fdbr.ops.shape.manipulation import flip
from fdbr.pytrees.dtypes import dtype_kind
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["argsort", "sort", "top_k"]

_MANY = 4096  # elements from which it pays to look for another way to sort
_FEW = 16  # largest elements that are found one after the other


# --- picking along an axis ----------------------------------------------------------


def _batch_along(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    x, places = (spread(v, flag, size) for v, flag in zip(values, batched, strict=True))
    return apply(x, places, **{**params, "axis": params["axis"] + 1})


@indexed(
    lambda ct, shape, indices, params: _place(
        ct, *indices, length=shape[params["axis"]], axis=params["axis"]
    ),
    batch=_batch_along,
)
def _pick(xp: Any, x: ArrayLike, places: Any, *, axis: int) -> Array:
    """The elements at some places along an axis, of which none is named twice."""
    if x.ndim == 1:
        return x[places]
    if xp is np and places.size < _MANY:
        return x[_own_places(x, places, axis)]
    return xp.take_along_axis(x, places, axis)


@indexed(
    lambda ct, shape, indices, params: _pick(ct, *indices, axis=params["axis"]),
    batch=_batch_along,
)
def _place(xp: Any, x: ArrayLike, places: Any, *, length: int, axis: int) -> Array:
    """The elements put at some places along an axis of zeros."""
    out = xp.zeros((*x.shape[:axis], length, *x.shape[axis + 1 :]), dtype=x.dtype)
    if xp is not np:
        xp.put_along_axis(out, places, x, axis)
    elif places.size >= _MANY:
        put_at(out, _own_places(out, places, axis), x)
    else:
        out[_own_places(out, places, axis)] = x
    return out


def _own_places(x: Any, places: Any, axis: int) -> Any:
    """The key that names places along an axis, and on the others each its own."""
    return tuple(
        [places if i == axis else numbers_of_axis(n, i, x.ndim) for i, n in enumerate(x.shape)]
    )


@constant(batch=shifted("axis"))
def _argsort(xp: Any, x: ArrayLike, *, axis: int, stable: bool) -> Array:
    found = ordered(x, axis) if xp is np else None
    if found is not None:
        return found
    kind: Any = "stable" if stable else None
    if xp is not np or x.nbytes < LEAST or x.shape[axis] == x.size:
        return xp.argsort(x, axis=axis, kind=kind)
    rows = np.moveaxis(x, axis, -1)
    lines = rows.reshape(-1, rows.shape[-1])
    out = np.empty(lines.shape, np.intp)

    def work(piece: slice) -> None:
        out[piece] = np.argsort(lines[piece], axis=-1, kind=kind)

    divide(work, parts(len(lines), x.size >> 15))
    return np.moveaxis(out.reshape(rows.shape), -1, axis)


# --- sorting ------------------------------------------------------------------------


@where_it_lies
def sort(
    x: ArrayLike, /, *, axis: int = -1, descending: bool = False, stable: bool = True
) -> Array:
    """The elements in order along an axis; NaN counts as the largest.

    The derivative of each element of the result is that of the element which came to its place.

    Parameters
    ----------
    x
        An array of one dimension or more.
    axis
        Along which axis.
    descending
        Whether the largest comes first.
    stable
        Whether elements that compare as equal keep their order; without it sorting is faster.

    Raises
    ------
    ValueError
        If ``x`` has no such axis.

    >>> import fdbr, numpy as np
    >>> from fdbr import ops
    >>> ops.sort(np.array([3.0, 1.0, 2.0]), descending=True)
    array([3., 2., 1.])
    >>> fdbr.grad(lambda x: ops.sort(x)[0])(np.array([3.0, 1.0, 2.0]))
    array([0., 1., 0.])
    """
    x = asarray(x)
    axis = normalize_axis(axis, x.ndim, "sort")
    if is_traced(x):
        return _pick(x, argsort(x, axis=axis, descending=descending, stable=stable), axis=axis)
    if descending:
        return flip(sort(flip(x, axis=axis), axis=axis, stable=stable), axis=axis)
    return _sorted(array_module(x), x, axis, stable)


def _sorted(xp: Any, x: Any, axis: int, stable: bool) -> Any:
    """The elements in order.  NumPy's unstable sort is up to 16 times as fast as its stable one."""
    if stable and (xp is not np or x.size < _MANY or x.dtype.kind == "c"):
        return xp.sort(x, axis=axis, kind="stable")
    out = xp.sort(x, axis=axis)
    if stable and dtype_kind(x.dtype) == "f" and bool(((x == 0) & xp.signbit(x)).any()):
        # Equal numbers are the same but for the sign of zeros, which go back to their order.
        last = xp.moveaxis(out, axis, -1)
        last[last == 0] = xp.moveaxis(x, axis, -1)[xp.moveaxis(x == 0, axis, -1)]
    return out


@where_it_lies
def argsort(
    x: ArrayLike, /, *, axis: int = -1, descending: bool = False, stable: bool = True
) -> Array:
    """The places of the elements along an axis, in the order that `sort` gives them.

    Raises
    ------
    ValueError
        If ``x`` has no such axis.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.argsort(np.array([3.0, 1.0, 2.0]))
    array([1, 2, 0])
    """
    x = asarray(x)
    axis = normalize_axis(axis, x.ndim, "argsort")
    if not descending:
        return _argsort(x, axis=axis, stable=stable)
    # Turned round before and after, so that equal elements keep their order.
    ascending = _argsort(flip(x, axis=axis), axis=axis, stable=stable)
    return x.shape[axis] - 1 - flip(ascending, axis=axis)


@constant(batch=shifted("axis"))
def _ranked_places(xp: Any, x: ArrayLike, *, ranks: tuple[int, ...], axis: int) -> Array:
    """The places of the elements that would come to some places of the sorted axis."""
    places = ranked_places(x, ranks, axis) if xp is np else None
    if places is not None:
        return places
    if xp is not np or x.size < _MANY:
        order = xp.argsort(x, axis=axis, kind="stable")
        return xp.take(order, xp.asarray(ranks), axis=axis)
    x = np.moveaxis(x, axis, -1)
    found = np.partition(x, sorted(set(ranks)), axis=-1)
    each = [_place_of(x, found[..., rank, None], rank) for rank in ranks]
    return np.moveaxis(np.stack(each, axis=-1), -1, axis)


def _place_of(x: Any, value: Any, rank: int) -> Any:
    """The place on the last axis of the value that comes to a rank: equal ones in their order."""
    same = x == value
    if dtype_kind(x.dtype) == "f":
        same |= (value != value) & (x != x)
    if (np.count_nonzero(same, axis=-1) > 1).any():
        smaller = x < value
        if dtype_kind(x.dtype) == "f":
            smaller |= (value != value) & (x == x)
        later = np.count_nonzero(smaller, axis=-1, keepdims=True) + np.cumsum(same, axis=-1) > rank
        same &= later
    return same.argmax(axis=-1)


def ranked(x: Array, ranks: tuple[int, ...], axis: int) -> Any:
    """The elements at some places of the sorted axis, sooner than by sorting all.

    >>> import numpy as np
    >>> ranked(np.array([3.0, 1.0, 2.0]), (0, 2), 0)
    array([1., 3.])
    """
    return _pick(x, _ranked_places(x, ranks=ranks, axis=axis), axis=axis)


@where_it_lies
def top_k(x: ArrayLike, k: int, /, *, axis: int = -1) -> tuple[Any, Any]:
    """The ``k`` largest elements along an axis, the largest first, and their places.

    Of equal elements the one that comes first counts as larger; NaN counts as the largest.

    Parameters
    ----------
    x
        An array of one dimension or more.
    k
        How many, from 0 to the length of the axis.
    axis
        Along which axis.

    Returns
    -------
    values, places
        Arrays of the shape of ``x``, but ``k`` long on the axis; the places are integers.

    Raises
    ------
    ValueError
        If the axis has fewer than ``k`` elements.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.top_k(np.array([3.0, 1.0, 4.0, 1.0]), 2)
    (array([4., 3.]), array([2, 0]))
    """
    x = asarray(x)
    axis = normalize_axis(axis, x.ndim, "top_k")
    k = integer("fdbr.ops.top_k", "k", k)
    if not 0 <= k <= x.shape[axis]:
        raise ValueError(
            f"fdbr.ops.top_k: k is {k}, but axis {axis} of {describe(x)} has {x.shape[axis]} "
            "elements; give at most as many"
        )
    places = _top_places(x, k=k, axis=axis)
    return _pick(x, places, axis=axis), places


@constant(batch=shifted("axis"))
def _top_places(xp: Any, x: ArrayLike, *, k: int, axis: int) -> Array:
    last = axis == x.ndim - 1
    x = x if last else xp.moveaxis(x, axis, -1)
    places = _few_largest(x, k) if xp is np and 0 < k <= _FEW and x.size >= _MANY else None
    if places is not None:
        pass
    elif 0 < k < x.shape[-1] // 8 and x.dtype.kind != "c":
        # To part the elements first takes, of a million, a tenth of the time of sorting them.
        candidates = _largest(xp, x, k)
        order = _falling(xp, xp.take_along_axis(x, candidates, -1))
        places = xp.take_along_axis(candidates, order, -1)
    else:
        places = _falling(xp, x)[..., :k]
    return places if last else xp.moveaxis(places, -1, axis)


def _few_largest(x: Any, k: int) -> Any:
    """The places of the ``k`` largest elements along the last axis, by looking ``k`` times.

    What was found gives way to the least number there is; where that is found itself, it might
    be one that was found before, and there are no places.
    """
    if dtype_kind(x.dtype) not in "iuf" or k > x.shape[-1]:
        return None
    least = -np.inf if dtype_kind(x.dtype) == "f" else np.iinfo(x.dtype).min
    x = np.array(x, order="C")
    places = np.empty((*x.shape[:-1], k), np.intp)
    for i in range(k):
        place = x.argmax(axis=-1)[..., None]
        if i and (np.take_along_axis(x, place, -1) == least).any():
            return None
        np.put_along_axis(x, place, least, -1)
        places[..., i : i + 1] = place
    return places


def _falling(xp: Any, x: Any) -> Any:
    """The places of the elements along the last axis, the largest first and equal ones in order."""
    x = x[..., ::-1]
    stable = x.argsort(-1, "stable") if type(x) is np.ndarray else xp.argsort(x, kind="stable")
    return x.shape[-1] - 1 - stable[..., ::-1]


def _largest(xp: Any, x: Any, k: int) -> Any:
    """The places of the ``k`` largest elements along the last axis, in no order."""
    n = x.shape[-1]
    least = xp.partition(x, n - k, axis=-1)[..., n - k : n - k + 1]
    above, same = x > least, x == least
    if dtype_kind(x.dtype) == "f":  # NaN is the largest
        nan, all_nan = xp.isnan(x), xp.isnan(least)
        above, same = above | (nan & ~all_nan), same | (nan & all_nan)
    first = xp.cumsum(same, axis=-1) <= k - above.sum(axis=-1, keepdims=True)
    return (above | (same & first)).nonzero()[-1].reshape((*x.shape[:-1], k))
