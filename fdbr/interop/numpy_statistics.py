"""NumPy's statistics on traced values: averages, how variables vary together, and histograms.

Every entry takes NumPy's arguments; see `fdbr.interop.signatures`.
"""

import math
import operator
from typing import Any

import numpy as np

from fdbr import ops
from fdbr.core.tracer_methods import functions
from fdbr.errors.checks import describe
from fdbr.interop.numpy_basics import in_numpys
from fdbr.interop.signatures import implements
from fdbr.ops.axes import normalize_axes
from fdbr.ops.dtypes import in_single
from fdbr.ops.shape.creation import arrays
from fdbr.pytrees.dtypes import dtype_kind, is_added

# --- averages -----------------------------------------------------------------------


@implements("average")
def _average(
    a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: bool = False
) -> Any:
    a = ops.asarray(a)
    axes = normalize_axes(axis, a.ndim, "average")
    if weights is None:
        out = ops.mean(a, axis=axes, keepdims=keepdims)
        number = math.prod([a.shape[i] for i in axes])
        if 0 in out.shape:
            raise ZeroDivisionError(f"np.average: {describe(a)} has no element")
        total: Any = ops.full_like(out, number)[()]
        return (out, total) if returned else out
    a, weights = arrays(a, weights)
    if weights.shape != a.shape:
        if axis is None:
            raise TypeError(f"np.average: weights {weights.shape} for a {a.shape}; give an axis")
        if weights.shape != tuple(a.shape[i] for i in axes):
            raise ValueError(f"np.average: weights {weights.shape} do not fit axes {axes}")
        weights = ops.reshape(
            ops.permute_dims(weights, sorted(range(len(axes)), key=axes.__getitem__)),
            [n if i in axes else 1 for i, n in enumerate(a.shape)],
        )
    weights = ops.broadcast_to(weights, a.shape)
    exact = (np.float64,) if a.dtype.kind in "iub" else ()
    weights = ops.astype(weights, np.result_type(a.dtype, weights.dtype, *exact))
    out, total = _weighed(a, weights, axes, keepdims)
    return (out, total) if returned else out


@in_single
def _weighed(a: Any, weights: Any, axes: Any, keepdims: bool) -> tuple[Any, Any]:
    """The weighted mean, and the sum of the weights."""
    total = ops.sum(weights, axis=axes, keepdims=keepdims)
    if bool(ops.any(total == 0)):
        raise ZeroDivisionError("np.average: weights sum to zero")
    return ops.sum(a * weights, axis=axes, keepdims=keepdims) / total, total


# --- how variables vary together ----------------------------------------------------


@implements("cov")
def _cov(
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: Any = None,
    aweights: Any = None,
    *,
    dtype: Any = None,
) -> Any:
    x = _all_variables(m, y, rowvar, dtype)
    if not x.shape[0]:
        return ops.zeros((0, 0))
    ddof = (0 if bias else 1) if ddof is None else ddof
    if ddof != int(ddof):
        raise ValueError(f"np.cov: ddof is {ddof}, no integer")
    given = [w for w in (fweights, aweights) if w is not None]
    return _covariances(*arrays(x, *given), ddof=ddof, aweights=aweights)


@in_single
def _covariances(x: Any, *each: Any, ddof: int, aweights: Any) -> Any:
    if not each:
        away = x - ops.mean(x, axis=1, keepdims=True)
        return _square(away @ ops.conj(away).T / max(x.shape[1] - ddof, 0))
    w = math.prod(each[1:], start=each[0])
    total = ops.sum(w)
    away = x - (x @ ops.astype(w, x.dtype) / total)[:, None]
    loss = ops.sum(w * aweights) / total if aweights is not None else 1.0
    freedom = total - ddof * loss
    freedom = ops.where(freedom > 0, freedom, ops.zeros_like(freedom))
    return _square((away * w) @ ops.conj(away).T / freedom)


def _all_variables(x: Any, y: Any, rowvar: bool, dtype: Any) -> Any:
    """Those of one or two arrays together."""
    if dtype is None:  # NumPy computes in double precision
        given = [v.dtype for v in arrays(x, *([] if y is None else [y]))]
        dtype = np.result_type(*map(_numpys, given), float)
    x = _variables(x, rowvar)
    if y is not None and x.shape[0]:  # else NumPy does not look at the others
        x = ops.concat([x, _variables(y, rowvar)])
    return ops.astype(x, dtype)


def _numpys(dtype: Any) -> Any:
    return np.float64 if is_added(dtype) else dtype


def _variables(m: Any, rowvar: bool) -> Any:
    """One variable a row."""
    m = ops.asarray(m)
    if m.ndim > 2:
        raise ValueError(f"np.cov: variables {describe(m)} must have 1 or 2 dimensions")
    m = ops.reshape(m, (1, -1)) if m.ndim < 2 else m
    return m if rowvar or m.shape[0] == 1 else m.T


def _square(c: Any) -> Any:
    return ops.reshape(c, ()) if c.shape == (1, 1) else c  # an array, as what is squeezed


@implements("corrcoef")
def _corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: Any = None) -> Any:
    return _correlations(_all_variables(x, y, rowvar, dtype))


@in_single
def _correlations(x: Any) -> Any:
    c = _cov(x, dtype=x.dtype)
    if not c.ndim:
        return c / c
    widths = ops.sqrt(ops.real(ops.diagonal(c)))
    c = c / widths[:, None] / widths[None, :]
    return c if c.dtype.kind == "c" else ops.clip(c, -1, 1)


# --- counts -------------------------------------------------------------------------


@implements("bincount")
def _bincount(x: Any, /, weights: Any = None, minlength: int = 0) -> Any:
    if weights is not None and not np.ndim(weights):
        raise ValueError("np.bincount: weights must have one dimension, and be no number")
    x, weights = arrays(x, 1 if weights is None else weights)
    x = ops.astype(x, np.intp) if x.dtype.kind == "b" else x
    weighed = weights.ndim and x.size  # of nothing NumPy has counts, whatever the weights
    weights = ops.astype(weights, float) if weighed else ops.ones_like(x, dtype=int)
    count = int(ops.max(x)) + 1 if x.size else 0
    return ops.segment_sum(weights, x, max(count, minlength))


@implements("histogram_bin_edges")
def _bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Any:
    edges = _edges(a, bins, range)
    if _several_bins(bins):
        return edges
    dtype = ops.result_type(a, *([] if range is None else range))
    return ops.astype(edges, dtype, copy=False) if dtype_kind(dtype) == "f" else edges


def _edges(a: Any, bins: Any, range: Any, name: str = "np.histogram") -> Any:
    if isinstance(bins, str):
        raise TypeError(f"np.histogram: bins={bins!r} of traced values; give their number or edges")
    if _several_bins(bins):
        edges = arrays(a, bins)[1]
        if edges.ndim != 1:
            raise ValueError(f"{name}: edges {describe(edges)} must have one dimension")
        if bool(ops.any(edges[:-1] > edges[1:])):
            raise ValueError(f"{name}: edges must not decrease")
        return edges
    try:
        bins = operator.index(bins)
    except TypeError:
        raise TypeError(f"{name}: bins is {bins!r}, neither an integer nor edges") from None
    if bins < 1:
        raise ValueError(f"{name}: bins is {bins}; it must be positive")
    if range is not None and range[0] > range[1]:
        raise ValueError(f"{name}: range is {range}; its end must not lie before its start")
    if range is None:
        range = (ops.min(a), ops.max(a)) if a.size else (0, 1)
    low, high = range[0] * 1.0, range[1] * 1.0  # of integers and truth values, too
    finite = ops.logical_and(ops.isfinite(low), ops.isfinite(high))
    if bool(ops.logical_not(finite)):  # which no example of an empty batch is
        raise ValueError(f"{name}: the range from {low} to {high} is not finite; give a range")
    if bool(low == high):
        low, high = low - 0.5, high + 0.5
    return ops.linspace(low, high, int(bins) + 1)


@implements("histogram")
def _histogram(
    a: Any, bins: Any = 10, range: Any = None, density: bool | None = None, weights: Any = None
) -> Any:
    a, weights = arrays(a, 1 if weights is None else weights)
    a = ops.reshape(a, -1)
    edges = _bin_edges(a, bins, range)
    weights = weights if weights.ndim else ops.ones_like(a, dtype=int)
    counts = ops.segment_sum(ops.reshape(weights, -1), _bins(a, edges), edges.shape[0] - 1)
    return (counts / ops.diff(edges) / ops.sum(counts) if density else counts), edges


def _bins(a: Any, edges: Any) -> Any:
    """In which bin each element is; the last one is closed."""
    places = ops.searchsorted(edges, a, side="right") - 1
    return ops.where(a == edges[-1], edges.shape[0] - 2, places)


def _several_bins(bins: Any) -> bool:
    return isinstance(bins, list | tuple) or getattr(bins, "ndim", 0) > 0


@implements("histogramdd")
def _histogramdd(
    sample: Any,
    bins: Any = 10,
    range: Any = None,
    density: bool | None = None,
    weights: Any = None,
) -> Any:
    if hasattr(sample, "ndim"):
        columns = [sample] if sample.ndim == 1 else list(sample.T)
    else:
        columns = [ops.reshape(x, -1) for x in arrays(*sample)]
    each = list(bins) if _several_bins(bins) else [bins] * len(columns)
    ranges = [None] * len(columns) if range is None else list(range)
    if not len(each) == len(ranges) == len(columns):
        raise ValueError(
            f"np.histogramdd: {len(each)} bins and {len(ranges)} ranges for a sample of "
            f"{len(columns)} dimensions; give one of each for each"
        )
    columns = [in_numpys(x) for x in columns]
    edges = [_edges(*of) for of in zip(columns, each, ranges, strict=True)]
    shape = tuple(edge.shape[0] - 1 for edge in edges)
    outside, place = False, 0
    for x, edge, n in zip(columns, edges, shape, strict=True):
        own = _bins(x, edge)
        outside, place = outside | (own < 0) | (own >= n), place * n + own
    weights = ops.ones_like(columns[0]) if weights is None else ops.asarray(weights)
    weights = ops.astype(weights, float)
    counts = ops.segment_sum(weights, ops.where(outside, -1, place), math.prod(shape))
    counts = ops.reshape(counts, shape)
    if density:
        widths = functions[np.ix_](*map(ops.diff, edges))
        counts = counts / math.prod(widths[1:], start=widths[0]) / ops.sum(counts)
    return counts, edges


@implements("histogram2d")
def _histogram2d(
    x: Any,
    y: Any,
    bins: Any = 10,
    range: Any = None,
    density: bool | None = None,
    weights: Any = None,
) -> Any:
    if np.ndim(x) > 1 or np.ndim(y) > 1:
        raise ValueError(f"np.histogram2d: x {describe(x)} and y {describe(y)} must be rows")
    if len(x) != len(y):
        raise ValueError(f"np.histogram2d: {len(x)} x and {len(y)} y; give as many of both")
    if _several_bins(bins) and len(bins) > 2:
        bins = [bins, bins]  # edges of both
    counts, (of_x, of_y) = _histogramdd([x, y], bins, range, density, weights)
    return counts, of_x, of_y
