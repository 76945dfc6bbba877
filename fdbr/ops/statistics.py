"""Medians and quantiles: what stands at some place of the sorted elements, or between two."""

import math
from typing import Any, Literal

from fdbr.core import describe
from fdbr.ops.arithmetic import floor
from fdbr.ops.arithmetic import round as _round
from fdbr.ops.comparison import isnan, where
from fdbr.ops.creation import arrays, asarray
from fdbr.ops.dtypes import astype, float_dtype, is_number, is_traced
from fdbr.ops.indexing import pick
from fdbr.ops.reductions import Axis, kept_shape
from fdbr.ops.shape import moveaxis, normalize_axes, reshape
from fdbr.ops.sorting import sort

__all__ = ["median", "quantile"]

Method = Literal["linear", "lower", "higher", "nearest", "midpoint"]


def median(x: Any, /, *, axis: Axis = None, keepdims: bool = False) -> Any:
    """The middle one of the sorted elements over axes, or the mean of the middle two.

    Its derivative is that of the element, or half that of each of the two; of equal elements
    those that come first count as smaller.  The median of elements with NaN among them is NaN.

    Raises
    ------
    ValueError
        If there is no element, or no such axis.
    TypeError
        If ``x`` is complex.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.median(np.array([3.0, 1.0, 2.0, 10.0]))
    np.float64(2.5)
    """
    ordered, axes, shape = _ordered(x, axis, "median")
    n = ordered.shape[0]
    low, high = ordered[(n - 1) // 2], ordered[n // 2]
    out = low if n % 2 else (low + high) / 2
    out = plain(where(isnan(ordered[-1]), ordered[-1], out))
    return reshape(out, kept_shape(shape, axes)) if keepdims else out


def quantile(
    x: Any, q: Any, /, *, axis: Axis = None, method: Method = "linear", keepdims: bool = False
) -> Any:
    """The values below which parts ``q`` of the elements over axes lie.

    The sorted elements stand at the places ``0, 1/(n-1), …, 1``.  The derivative in ``x`` is that
    of the elements next to ``q``; that in ``q``, with method ``"linear"``, is the slope between
    them.

    Parameters
    ----------
    x
        A real array.
    q
        Numbers from 0 to 1, of any shape.
    axis
        Over which axes; by default over all.
    method
        What stands between two elements: ``"linear"``, the straight line; ``"lower"`` or
        ``"higher"``, one of them; ``"nearest"``; ``"midpoint"``, their mean.
    keepdims
        Whether the axes are kept with length 1.

    Returns
    -------
    array
        The axes of ``q``, then those of ``x`` that remain.

    Raises
    ------
    ValueError
        If there is no element or axis, ``q`` is not within 0 and 1, or the method is none.
    TypeError
        If ``x`` is complex.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.quantile(np.array([0.0, 1.0, 4.0]), np.array([0.25, 1.0]))
    array([0.5, 4. ])
    """
    ordered, axes, shape = _ordered(x, axis, "quantile")
    if method not in Method.__args__:  # type: ignore[attr-defined]
        raise ValueError(f"fdbr.ops.quantile: method is {method!r}, not one of {Method.__args__}")  # type: ignore[attr-defined]
    q = _parts(q, ordered)
    place = q * (ordered.shape[0] - 1)
    low = floor(place)
    share = reshape(place - low, (*q.shape, *(1,) * (ordered.ndim - 1)))
    below = pick(ordered, astype(low, int))
    above = pick(ordered, astype(low + (place > low), int))
    if method == "linear":
        out = below + (above - below) * share
    elif method == "midpoint":
        out = where(share > 0, (below + above) / 2, below)
    elif method == "nearest":
        out = pick(ordered, astype(_round(place), int))
    else:
        out = below if method == "lower" else above
    out = plain(where(isnan(ordered[-1]), ordered[-1], out))
    return reshape(out, (*q.shape, *kept_shape(shape, axes))) if keepdims else out


def plain(out: Any) -> Any:
    """A result without dimensions as a scalar, where its array module has any."""
    return out if out.ndim else out[()]


def _parts(q: Any, ordered: Any) -> Any:
    """The parts as an array; Python numbers among them are weak, as everywhere."""
    weak = is_number(q) or not hasattr(q, "dtype")
    q = arrays(ordered, q)[1]
    q = astype(q, ordered.dtype) if weak or q.dtype.kind != "f" else q
    if not bool(((q >= 0) & (q <= 1)).all()):
        raise ValueError(f"fdbr.ops.quantile: q must lie between 0 and 1; it is {q!r}")
    return q


def _ordered(x: Any, axis: Axis, name: str) -> tuple[Any, tuple[int, ...], tuple[int, ...]]:
    """The elements over some axes, sorted along a first axis; the axes, and the whole shape."""
    x = asarray(x)
    if x.dtype.kind == "c":
        raise TypeError(f"fdbr.ops.{name}: complex numbers have no order, but x is {describe(x)}")
    x = x if x.dtype.kind == "f" else astype(x, float_dtype(x))
    axes = normalize_axes(axis, x.ndim, name)
    count = math.prod([x.shape[i] for i in axes])
    if not count:
        raise ValueError(f"fdbr.ops.{name}: x {describe(x)} has no element over axis {axis}")
    first = moveaxis(x, axes, tuple(range(len(axes)))) if axes else x
    flat = reshape(first, (count, *first.shape[len(axes) :]))
    # Of equal elements the first counts as smaller where that tells in a derivative.
    return sort(flat, axis=0, stable=is_traced(x)), axes, tuple(x.shape)
