"""Medians and quantiles, from the sorted elements."""

import math
from typing import Any, Literal

from fdbr.core.array_modules import where_it_lies
from fdbr.core.tracer import holds
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.ops.axes import normalize_axes
from fdbr.ops.dtypes import astype, float_dtype, is_number, is_short, is_traced, result_type
from fdbr.ops.elementwise.arithmetic import clip, floor, remainder
from fdbr.ops.elementwise.comparison import isnan, logical_or, where
from fdbr.ops.indexing.reading import take_along_axis
from fdbr.ops.indexing.sorting import argsort, ranked, sort
from fdbr.ops.reductions.cumulative import cumulative_sum
from fdbr.ops.reductions.reduce import Axis, kept_shape, sum
from fdbr.ops.shape.creation import arrays, asarray
from fdbr.ops.shape.manipulation import broadcast_to, expand_dims, moveaxis, reshape
from fdbr.pytrees.dtypes import dtype_kind
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["median", "quantile"]

Method = Literal[
    "linear",
    "lower",
    "higher",
    "nearest",
    "midpoint",
    "inverted_cdf",
    "averaged_inverted_cdf",
    "closest_observation",
    "interpolated_inverted_cdf",
    "hazen",
    "weibull",
    "median_unbiased",
    "normal_unbiased",
]
_METHODS: tuple[str, ...] = Method.__args__  # type: ignore[attr-defined]
_SELECTING = frozenset({"lower", "higher", "nearest", "inverted_cdf", "closest_observation"})
"""Methods that return elements, without interpolation: integers stay integers."""


@public("fdbr.ops")
@where_it_lies
def median(x: ArrayLike, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """The median over axes: the middle one of the sorted elements, or the mean of the middle two.

    Its derivative is 1 in the middle element, or 1/2 in each of the two; among equal elements,
    the first counts as the smallest.  If an element is NaN, the median is NaN.

    Raises
    ------
    ValueError
        If there is no element, or the axis does not exist.
    TypeError
        If ``x`` is complex.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.median(np.array([3.0, 1.0, 2.0, 10.0]))
    np.float64(2.5)
    """
    flat, axes, shape = _axes_first(x, axis, "fdbr.ops.median")
    n = flat.shape[0]
    ranks = ((n - 1) // 2, n // 2, n - 1)
    if is_traced(flat):
        distinct = tuple(sorted(set(ranks)))
        found = ranked(flat, distinct, axis=0)
        low, high, last = (found[distinct.index(rank)] for rank in ranks)
    else:
        ordered = sort(flat, axis=0, stable=False)
        low, high, last = (ordered[rank] for rank in ranks)
    out = low if n % 2 else (low + high) / 2
    out = plain(where(isnan(last), last, out))
    return reshape(out, kept_shape(shape, axes)) if keepdims else out


@public("fdbr.ops")
@where_it_lies
def quantile(
    x: ArrayLike,
    q: ArrayLike,
    /,
    *,
    axis: Axis = None,
    method: Method = "linear",
    keepdims: bool = False,
) -> Array:
    """The quantiles of the elements over axes: the values below which fractions ``q`` of them lie.

    The sorted elements are at the positions ``0, 1/(n-1), …, 1``.  The derivative in ``x`` is that
    of the interpolation between the elements next to ``q``; that in ``q``, with method
    ``"linear"``, is the slope of the line between them.

    Parameters
    ----------
    x
        A real array.
    q
        Numbers from 0 to 1, of any shape.
    axis
        The axes to reduce; all by default.
    method
        The value between two elements: ``"linear"``, on the straight line; ``"lower"`` or
        ``"higher"``, one of them; ``"nearest"``; ``"midpoint"``, their mean; or another of the
        nine definitions of Hyndman and Fan ("Sample quantiles in statistical packages", 1996)
        under NumPy's names, some of which put the elements at other positions.
    keepdims
        Whether the axes are kept with length 1.

    Returns
    -------
    array
        The axes of ``q``, then those of ``x`` that remain.

    Raises
    ------
    ValueError
        If there is no element, the axis or method does not exist, or ``q`` is not in [0, 1].
    TypeError
        If ``x`` is complex.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.quantile(np.array([0.0, 1.0, 4.0]), np.array([0.25, 1.0]))
    array([0.5, 4. ])
    """
    return quantile_of("fdbr.ops.quantile", x, q, axis=axis, method=method, keepdims=keepdims)


def quantile_of(
    name: str,
    x: Any,
    q: Any,
    *,
    axis: Axis = None,
    method: str = "linear",
    keepdims: bool = False,
    weights: Any = None,
    numbers_only: bool = False,
) -> Any:
    """Compute `quantile`, with weights, or without NaN; ``name`` is the function in messages."""
    if method not in _METHODS:
        raise ValueError(f"{name}: method is {method!r}, not one of {_METHODS}")
    x = asarray(x)
    if is_short(x) and weights is None:  # 16 bits are too few for positions and fractions
        options: dict[str, Any] = {"axis": axis, "method": method, "keepdims": keepdims}
        beside = [] if method in _SELECTING else [q if hasattr(q, "dtype") else 0.5]
        dtype = result_type(x, *beside)
        x, q = astype(x, "float32"), astype(q, "float32") if is_short(q) else q
        return astype(quantile_of(name, x, q, **options, numbers_only=numbers_only), dtype)
    if (
        weights is None
        and method not in _SELECTING
        and dtype_kind(x.dtype) in "iu"
        and not is_number(q)
        and dtype_kind(getattr(q, "dtype", None)) == "f"
    ):
        dtype = result_type(x, q)
        if dtype != float_dtype(
            x
        ):  # compute in float64, and round the result to the dtype of ``q`` once
            options = {"axis": axis, "method": method, "keepdims": keepdims}
            return astype(quantile_of(name, astype(x, float_dtype(x)), q, **options), dtype)
    if weights is None:
        ordered, axes, shape = _ordered(x, axis, name, method in _SELECTING)
    else:
        ordered, weights, axes, shape = _sorted_with_weights(name, x, weights, axis, method)
    q = _probabilities(name, q, ordered)
    spread = reshape(q, (*q.shape, *(1,) * (ordered.ndim - 1)))
    nan_mask = isnan(ordered)
    if weights is not None:
        weights = where(nan_mask, 0, weights) if numbers_only else weights
        out = _weighted_quantile(ordered, weights, spread)
    else:
        n = sum(astype(~nan_mask, q.dtype), axis=0) if numbers_only else ordered.shape[0]
        out = _between(ordered, n, spread, method)
    is_nan = nan_mask.all(axis=0) if numbers_only else nan_mask[-1]
    out = plain(where(is_nan, math.nan, out) if dtype_kind(out.dtype) == "f" else out)
    return reshape(out, (*q.shape, *kept_shape(shape, axes))) if keepdims else out


_POSITIONS = {  # interpolating methods: the offsets of the first and the last element's position
    "interpolated_inverted_cdf": (0, 1),
    "hazen": (1 / 2, 1 / 2),
    "weibull": (0, 0),
    "linear": (1, 1),
    "median_unbiased": (1 / 3, 1 / 3),
    "normal_unbiased": (3 / 8, 3 / 8),
}


def _between(ordered: Any, n: Any, q: Any, method: str) -> Any:
    """Compute the quantiles ``q`` of the first ``n`` sorted elements along the first axis."""
    if method in ("inverted_cdf", "averaged_inverted_cdf"):
        position = n * q - 1
    elif method == "closest_observation":
        position = n * q - 1.5
    else:
        first, last = _POSITIONS.get(method, (1, 1))
        position = (
            (n - 1) * q if first == last == 1 else n * q + (first + q * (1 - first - last)) - 1
        )
    low = floor(position)
    share = position - low
    if method == "lower":
        share = 0 * share
    elif method in ("higher", "inverted_cdf"):
        share = where(share > 0, 1.0, 0 * share)
    elif method == "midpoint":
        share = where(share > 0, 0.5, 0 * share)
    elif method == "averaged_inverted_cdf":
        share = where(share > 0, 1.0, 0.5 + 0 * share)
    elif method == "nearest":
        share = where(logical_or(share > 0.5, (share == 0.5) & _is_odd(low)), 1.0, 0 * share)
    elif method == "closest_observation":
        share = where((share == 0) & _is_odd(low), 0.0, 1.0 + 0 * share)
    below, above = (_take(ordered, clip(k, 0, n - 1)) for k in (low, low + 1))
    if method in _SELECTING:
        return where(share == 0, below, above)
    # NumPy interpolates from the nearer element, which makes a difference beside infinities.
    width = above - below
    line = where(share < 0.5, below + width * share, above - width * (1 - share))
    return (
        line if method in _POSITIONS else where(share == 0, below, where(share == 1, above, line))
    )


def _is_odd(x: Any) -> Any:
    return remainder(x, 2) == 1


def _take(ordered: Any, places: Any) -> Any:
    """Take elements at positions along the first axis; positions may have further leading axes."""
    places = astype(places, int)
    rest = tuple(ordered.shape[1:])
    front = tuple(places.shape[: places.ndim - len(rest)])
    rows = reshape(broadcast_to(places, (*front, *rest)), (math.prod(front), *rest))
    return reshape(take_along_axis(ordered, rows, axis=0), (*front, *rest))


def _sorted_with_weights(
    name: str, x: Any, weights: Any, axis: Axis, method: str
) -> tuple[Any, Any, tuple[int, ...], tuple[int, ...]]:
    """Return the elements sorted along a first axis, their weights, the axes, and the shape."""
    if method != "inverted_cdf":
        raise ValueError(f"{name}: weights are for method='inverted_cdf' alone, not {method!r}")
    x, weights = arrays(x, weights)
    axes = normalize_axes(axis, x.ndim, name)
    if weights.shape != x.shape:
        if weights.shape != tuple(x.shape[i] for i in axes):
            raise ValueError(f"{name}: weights {weights.shape} do not fit axes {axes} of {x.shape}")
        weights = moveaxis(
            reshape(weights, (*(1,) * (x.ndim - len(axes)), *weights.shape)),
            tuple(range(x.ndim - len(axes), x.ndim)),
            axes,
        )
        weights = broadcast_to(weights, x.shape)
    if not holds(~(weights < 0)):
        raise ValueError(f"{name}: weights must not be negative")
    flat, axes, shape = _axes_first(x, axis, name, True)
    order = argsort(flat, axis=0)
    weights = take_along_axis(_axes_first(weights, axis, name, True)[0], order, axis=0)
    return take_along_axis(flat, order, axis=0), weights, axes, shape


def _weighted_quantile(ordered: Any, weights: Any, q: Any) -> Any:
    """Find the first elements up to which a fraction ``q`` of the weight lies.

    Elements before the first positive weight are never chosen.
    """
    cumulative = cumulative_sum(astype(weights, float), axis=0)
    total = cumulative[-1]
    # NumPy rounds to the dtype of ``q`` too, or 0.3 in float32 would be above 0.3.
    cumulative = astype(cumulative / where(total == 0, 1, total), q.dtype)
    cumulative = where(cumulative == 0, -1.0, cumulative)
    position = q.ndim - ordered.ndim + 1
    before = sum(astype(cumulative < expand_dims(q, axis=position), int), axis=position)
    return _take(ordered, clip(before, 0, ordered.shape[0] - 1))


def plain(out: Any) -> Any:
    """Convert a zero-dimensional result to a scalar, if its array module has scalars."""
    return out if out.ndim else out[()]


def _probabilities(name: str, q: Any, ordered: Any) -> Any:
    """Convert ``q`` to an array and check it; Python numbers are weakly typed."""
    weak = is_number(q) or not hasattr(q, "dtype")
    q = arrays(ordered, q)[1]
    if weak or dtype_kind(q.dtype) != "f":
        q = astype(q, float_dtype(ordered))
    if not holds((q >= 0) & (q <= 1)):
        raise ValueError(f"{name}: q must lie between 0 and 1; it is {q!r}")
    return q


def _axes_first(
    x: Any, axis: Axis, name: str, keep_dtype: bool = False
) -> tuple[Any, tuple[int, ...], tuple[int, ...]]:
    """Return the elements with ``axis`` merged into a first axis, the axes, and the shape."""
    x = asarray(x)
    if x.dtype.kind == "c":
        raise TypeError(f"{name}: complex numbers have no order, but x is {describe(x)}")
    x = x if keep_dtype or dtype_kind(x.dtype) == "f" else astype(x, float_dtype(x))
    axes = normalize_axes(axis, x.ndim, name.rpartition(".")[2])
    count = math.prod([x.shape[i] for i in axes])
    if not count:
        raise ValueError(f"{name}: x {describe(x)} has no element over axis {axis}")
    if len(axes) == 1:
        return moveaxis(x, axes[0], 0) if axes[0] else x, axes, tuple(x.shape)
    first = moveaxis(x, axes, tuple(range(len(axes)))) if axes else x
    return reshape(first, (count, *first.shape[len(axes) :])), axes, tuple(x.shape)


def _ordered(
    x: Any, axis: Axis, name: str, keep_dtype: bool
) -> tuple[Any, tuple[int, ...], tuple[int, ...]]:
    """Return the elements sorted along a first axis, the axes, and the shape."""
    flat, axes, shape = _axes_first(x, axis, name, keep_dtype)
    # With derivatives the order of equal elements matters: the first counts as smaller.
    return sort(flat, axis=0, stable=is_traced(flat)), axes, shape
