"""Reductions by segment, and PyTorch's gather and scatter along an axis."""

import math
from typing import Any, Literal

import numpy as np

from fdbr.core.array_modules import array_module, copy_of, where_it_lies
from fdbr.core.tracer import is_differentiated
from fdbr.errors.checks import describe, integer
from fdbr.errors.public import public
from fdbr.ops.axes import normalize_axis
from fdbr.ops.declare import opaque
from fdbr.ops.declare.batches import spread
from fdbr.ops.devices import beside
from fdbr.ops.dtypes import astype, in_single
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.indexing.axis_index import iota_along
from fdbr.ops.indexing.keys import in_range
from fdbr.ops.indexing.positions import extremes_at, put_at
from fdbr.ops.indexing.reading import pick
from fdbr.ops.indexing.table_rows import add_rows
from fdbr.ops.indexing.writing import Place
from fdbr.ops.reductions.reduce import max as _max
from fdbr.ops.shape.creation import asarray, floating, holds_array, ones_like, zeros_like
from fdbr.ops.shape.manipulation import broadcast_to, reshape
from fdbr.pytrees.dtypes import dtype_kind
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["gather", "scatter", "segment_max", "segment_min", "segment_sum"]

Reduce = Literal["sum", "mean", "amax", "amin"]


@public("fdbr.ops")
@where_it_lies
def segment_sum(
    data: ArrayLike, segment_ids: ArrayLike, /, num_segments: int | None = None
) -> Array:
    """The sums of rows by segment: ``out[i]`` is the sum of all ``data[j]`` in segment ``i``.

    Parameters
    ----------
    data
        Shape ``(rows, ...)``.
    segment_ids
        The segment of each row: integers in shape ``(rows,)``, in any order.  Rows whose number is
        negative, or not below ``num_segments``, are left out.
    num_segments
        The number of segments; by default one more than the largest id.  Under `vmap` a default
        splits the batch into groups of examples with the same number.

    Returns
    -------
    array
        Shape ``(num_segments, ...)``.

    Raises
    ------
    TypeError
        If the ids are not integers, or ``num_segments`` is not an integer.
    ValueError
        If there is not one id for each row, or ``num_segments`` is negative.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.segment_sum(np.array([1.0, 2.0, 4.0]), np.array([0, 1, 0]), 3)
    array([5., 2., 0.])
    """
    data, ids, count = _by_segment("segment_sum", data, segment_ids, num_segments)
    return add_rows(data, ids, count=count + 1)[:-1]


@public("fdbr.ops")
@where_it_lies
def segment_max(
    data: ArrayLike, segment_ids: ArrayLike, /, num_segments: int | None = None
) -> Array:
    """The largest elements by segment: ``out[i]`` is the maximum of ``data[j]`` in segment ``i``.

    Equal maxima share the derivative equally.  A NaN makes the maximum of its segment NaN.

    Parameters
    ----------
    data, segment_ids, num_segments
        The parameters of `segment_sum`.

    Returns
    -------
    array
        Shape ``(num_segments, ...)``.  A segment without rows has ``-inf``, and the smallest number
        of the dtype if the dtype is not floating.

    Raises
    ------
    TypeError, ValueError
        In the same cases as `segment_sum`.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.segment_max(np.array([1.0, 2.0, 4.0]), np.array([0, 1, 0]), 3)
    array([  4.,   2., -inf])
    """
    return _segment_extreme("segment_max", data, segment_ids, num_segments, largest=True)


@public("fdbr.ops")
@where_it_lies
def segment_min(
    data: ArrayLike, segment_ids: ArrayLike, /, num_segments: int | None = None
) -> Array:
    """The smallest elements by segment: ``out[i]`` is the minimum of ``data[j]`` in segment ``i``.

    Equal minima share the derivative equally.  A NaN makes the minimum of its segment NaN.

    Parameters
    ----------
    data, segment_ids, num_segments
        The parameters of `segment_sum`.

    Returns
    -------
    array
        Shape ``(num_segments, ...)``.  A segment without rows has ``inf``, and the largest number
        of the dtype if the dtype is not floating.

    Raises
    ------
    TypeError, ValueError
        In the same cases as `segment_sum`.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.segment_min(np.array([1.0, 2.0, 4.0]), np.array([0, 1, 0]), 3)
    array([ 1.,  2., inf])
    """
    return _segment_extreme("segment_min", data, segment_ids, num_segments, largest=False)


def _segment_extreme(name: str, data: Any, ids: Any, count: Any, largest: bool) -> Any:
    data, ids, count = _by_segment(name, data, ids, count)
    if data.ndim > 1:  # the batching rule needs an index of as many dimensions
        ids = broadcast_to(reshape(ids, (-1,) + (1,) * (data.ndim - 1)), data.shape)
    worst = identity_of_extreme(data.dtype, array_module(data), largest)
    empty = array_module(data).full((count + 1, *data.shape[1:]), worst, dtype=data.dtype)
    return _scatter_extreme(empty, data, ids, axis=0, largest=largest, include_self=False)[:-1]


def _by_segment(name: str, data: Any, segment_ids: Any, count: Any) -> tuple[Any, Any, int]:
    """Check the arguments; ids that are out of range become ``count``, for a last segment."""
    data, ids = asarray(data), asarray(segment_ids)
    if ids.dtype.kind not in "iu":
        raise TypeError(f"fdbr.ops.{name}: segment_ids must be integers, not {describe(ids)}")
    if not data.ndim or ids.shape != data.shape[:1]:
        raise ValueError(
            f"fdbr.ops.{name}: segment_ids {describe(ids)} must have one number for each row "
            f"of data {describe(data)}"
        )
    if count is None:
        count = int(_max(ids)) + 1 if ids.size else 0
    count = integer(f"fdbr.ops.{name}", "num_segments", count, least=0)
    ids = beside(ids, data)
    outside = (ids < 0) | (ids >= count)
    return data, where(outside, count, ids), count


# --- gather and scatter, as in PyTorch ------------------------------------------------


def element_key(index: Any, axis: int) -> tuple[Any, ...]:
    """Make the key that is ``index`` on the axis and an element's own position on the others."""
    if index.ndim == 1:
        return (index,)
    xp, ndim = array_module(index), index.ndim
    return tuple(
        [index if i == axis else iota_along(n, i, ndim, xp) for i, n in enumerate(index.shape)]
    )


def _checked(x: Any, dim: int, index: Any, name: str) -> tuple[Any, int, Any]:
    x, index = asarray(x), asarray(index)
    axis = normalize_axis(dim, x.ndim, name)
    if index.dtype.kind not in "iu":
        raise TypeError(f"fdbr.ops.{name}: index must be of integers, not {describe(index)}")
    fits = index.ndim == x.ndim and all(
        i == axis or n <= m for i, (n, m) in enumerate(zip(index.shape, x.shape, strict=True))
    )
    if not fits:
        raise ValueError(
            f"fdbr.ops.{name}: index {describe(index)} must have as many dimensions as x "
            f"{describe(x)} and be no longer, except along axis {axis}"
        )
    return x, axis, index


@public("fdbr.ops")
@where_it_lies
def gather(x: ArrayLike, dim: int, index: ArrayLike, /) -> Array:
    """The elements at ``index`` along an axis, as `torch.gather`.

    For example ``out[i, j, k] = x[i, index[i, j, k], k]`` along axis 1 of three.

    Parameters
    ----------
    x
        An array.
    dim
        The axis.
    index
        Integers, with as many dimensions as ``x`` and no longer than it, except along the axis.

    Returns
    -------
    array
        The shape of ``index``.

    Raises
    ------
    TypeError, ValueError
        If the index is not of integers (TypeError), or its shape does not fit (ValueError).
    IndexError
        If an index is out of bounds.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.gather(np.array([[1.0, 2.0], [3.0, 4.0]]), 1, np.array([[1], [0]]))
    array([[2.],
           [3.]])
    """
    x, axis, index = _checked(x, dim, index, "gather")
    return pick(x, element_key(in_range(index, x, axis), axis))


@public("fdbr.ops")
@where_it_lies
def scatter(
    x: Any,
    dim: int,
    index: Any,
    src: Any,
    /,
    *,
    reduce: Reduce | None = None,
    include_self: bool = True,
) -> Any:
    """A copy of ``x`` with elements of ``src`` written at ``index`` along an axis.

    It is PyTorch's ``scatter``, and with ``reduce`` its ``scatter_reduce``.  For example
    ``out[i, index[i, j, k], k]`` is ``src[i, j, k]`` along axis 1 of three.

    Parameters
    ----------
    x
        An array.
    dim
        The axis.
    index
        Integers, with as many dimensions as ``x`` and no longer than it, except along the axis.
    src
        An array with as many dimensions, nowhere shorter than ``index``; or a number.
    reduce
        How elements with the same index are combined.  By default the last one stays; others are
        ``"sum"``, ``"mean"``, ``"amax"``, ``"amin"``.  Equal extremes share the derivative
        equally.  Complex numbers are compared as in NumPy: by their real parts, and where these
        are equal, by the imaginary parts.
    include_self
        Whether the element of ``x`` is one of those that are combined.

    Raises
    ------
    TypeError, ValueError
        If the index is not of integers, shapes do not fit, ``reduce`` is none of these, ``src``
        is complex and ``x`` is not, or ``src`` is differentiated and ``x`` is of integers.
    IndexError
        If an index is out of bounds.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.scatter(np.zeros(3), 0, np.array([2, 0, 2]), np.array([1.0, 2.0, 3.0]))
    array([2., 0., 3.])
    >>> ops.scatter(np.zeros(3), 0, np.array([2, 0, 2]), np.array([1.0, 2.0, 3.0]), reduce="sum")
    array([2., 0., 4.])
    """
    x, axis, index = _checked(x, dim, index, "scatter")
    index = in_range(index, x, axis)
    src = _source(src, index, x)
    key = element_key(index, axis)
    if reduce is None:
        if type(x) is type(index) is type(src) is np.ndarray:
            out = copy_of(x)
            put_at.on(np)(np, out, key, astype(src, x.dtype, copy=False))
            return out
        return Place(x, key, is_trusted=True).set(src)
    if reduce not in ("sum", "mean", "amax", "amin"):
        raise ValueError(
            f"fdbr.ops.scatter: reduce is {reduce!r}; it is None, 'sum', 'mean', 'amax' or 'amin'"
        )
    if reduce in ("amax", "amin"):
        src = astype(src, x.dtype, copy=False)
        return _scatter_extreme(
            x, src, index, axis=axis, largest=reduce == "amax", include_self=include_self
        )
    return _scatter_sum(x, src, key, mean=reduce == "mean", include_self=include_self)


@in_single
def _scatter_sum(x: Any, src: Any, key: Any, mean: bool, include_self: bool) -> Any:
    """Compute the sums, or means, of elements with the same index."""
    if mean:
        x = floating(x)
    own = x if include_self else Place(x, key, is_trusted=True).set(0)
    total = Place(own, key, is_trusted=True).add(src)
    if not mean:
        return total
    first = zeros_like(x, dtype=int) + 1
    counts = Place(
        first if include_self else Place(first, key, is_trusted=True).set(0),
        key,
        is_trusted=True,
    ).add(1)
    return total / astype(counts, x.dtype)


def _source(src: Any, index: Any, x: Any) -> Any:
    if type(src) is np.ndarray and src.shape == index.shape and src.dtype == x.dtype:
        return src  # the usual case
    src = asarray(src) if holds_array(src) else array_module(x).asarray(src)
    if src.dtype.kind == "c" and x.dtype.kind != "c":
        raise TypeError(
            f"fdbr.ops.scatter: src is {describe(src)}, which would lose its imaginary part in x "
            f"{describe(x)}; make x complex first, or give ops.real(src)"
        )
    if is_differentiated(src) and dtype_kind(src.dtype) == "f" and dtype_kind(x.dtype) not in "fc":
        raise TypeError(
            f"fdbr.ops.scatter: src is {describe(src)}, which would be cut off from its derivative "
            f"in x {describe(x)}; make x floating first"
        )
    if not src.ndim:
        return broadcast_to(src, index.shape)
    if src.ndim != index.ndim or any(n < m for n, m in zip(src.shape, index.shape, strict=True)):
        raise ValueError(
            f"fdbr.ops.scatter: src {describe(src)} must have as many dimensions as index "
            f"{describe(index)} and be nowhere shorter"
        )
    if src.shape == index.shape:
        return src
    return src[tuple(slice(n) for n in index.shape)]


def _hits(x: Any, src: Any, index: Any, out: Any, axis: int, include_self: bool) -> Any:
    """Mark the elements that equal the extreme of their index, and count them."""
    key = element_key(index, axis)
    own = astype(x == out, out.dtype)
    if not include_self:
        own = Place(own, key, is_trusted=True).set(0)
    given = astype(src == pick(out, key), out.dtype)
    counts = Place(own, key, is_trusted=True).add(given)
    return key, own, given, where(counts == 0, ones_like(counts), counts)


@in_single
def _extreme_rule_of_x(
    ct: Any, x: Any, src: Any, index: Any, out: Any, axis: int, include_self: bool
) -> Any:
    _, own, _, counts = _hits(x, src, index, out, axis, include_self)
    return ct * own / counts


@in_single
def _extreme_vjp(
    ct: Any, x: Any, src: Any, index: Any, out: Any, axis: int, include_self: bool
) -> Any:
    key, _, given, counts = _hits(x, src, index, out, axis, include_self)
    return pick(ct / counts, key) * given


@in_single
def _extreme_jvp(
    t: Any, x: Any, src: Any, index: Any, out: Any, axis: int, include_self: bool
) -> Any:
    key, _, given, counts = _hits(x, src, index, out, axis, include_self)
    return Place(zeros_like(out), key, is_trusted=True).add(t * given) / counts


def identity_of_extreme(dtype: Any, xp: Any, largest: bool) -> Any:
    """Return the smallest number of a dtype, the identity of max, or the largest, that of min."""
    worst = -math.inf if largest else math.inf
    if dtype_kind(dtype) in "fc":
        return worst if dtype_kind(dtype) == "f" else complex(worst, worst)
    if dtype.kind == "b":
        return not largest
    return xp.iinfo(dtype).min if largest else xp.iinfo(dtype).max


def _batch_extreme(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    operands = [spread(value, flag, size) for value, flag in zip(values, batched, strict=True)]
    return apply(*operands, **{**params, "axis": params["axis"] + 1})


@opaque(
    x=(_extreme_rule_of_x, _extreme_rule_of_x),
    src=(_extreme_vjp, _extreme_jvp),
    batch=_batch_extreme,
)
def _scatter_extreme(
    xp: Any, x: ArrayLike, src: Any, index: Any, *, axis: int, largest: bool, include_self: bool
) -> Array:
    key = element_key(index, axis)
    if not include_self:
        x = xp.array(x)
        x[key] = identity_of_extreme(x.dtype, xp, largest)
    return extremes_at(xp, x, key, src, largest)
