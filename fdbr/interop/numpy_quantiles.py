"""NumPy's quantiles on traced values, and those of the elements that are not NaN."""

import functools
import math
from typing import Any

from fdbr import ops
from fdbr.core.tracer import holds
from fdbr.interop.numpy_basics import array_of
from fdbr.interop.signatures import as_scalar, implements
from fdbr.ops.axes import normalize_axes
from fdbr.ops.dtypes import as_weak
from fdbr.ops.reductions.reduce import kept_shape
from fdbr.ops.reductions.statistics import quantile_of
from fdbr.pytrees.dtypes import dtype_kind


def _axes(axis: Any) -> Any:
    return tuple(axis) if isinstance(axis, list) else axis


def _is_empty(a: Any, axis: Any) -> bool:
    """Whether there is no element over some axes."""
    return 0 in [a.shape[i] for i in normalize_axes(_axes(axis), a.ndim, "median")]


def _of_nothing(a: Any, axis: Any, keepdims: bool) -> Any:
    """NaN, in the shape and dtype of NumPy's means of no elements."""
    a = a if dtype_kind(a.dtype) in "fc" else ops.astype(a, float)
    return ops.sum(a, axis=_axes(axis), keepdims=keepdims) * as_weak(math.nan, a)


def _kept_arrays(function: Any) -> Any:
    """With ``keepdims`` results are arrays, and without dimensions scalars, as NumPy's are."""

    @functools.wraps(function)
    def called(a: Any, *args: Any, keepdims: bool = False, **how: Any) -> Any:
        out = function(a, *args, keepdims=keepdims, **how)
        return array_of(out) if keepdims or how.get("weights") is not None else as_scalar(out)

    return called


def _quantiles(name: str, percent: bool, numbers_only: bool) -> None:
    @implements(name)
    @_kept_arrays
    def quantile(
        a: Any,
        q: Any,
        axis: Any = None,
        *,
        method: str = "linear",
        keepdims: bool = False,
        weights: Any = None,
        interpolation: Any = None,
    ) -> Any:
        q = ops.asarray(q) if isinstance(q, list | tuple) else q  # whose dtype counts in NumPy
        if numbers_only and not a.size:
            most = 100 if percent else 1
            if a.dtype.kind == "c" or not holds((q >= 0) & (q <= most)):
                raise (TypeError if a.dtype.kind == "c" else ValueError)(
                    f"np.{name}: a must be real, and q lie between 0 and {most}, not {q!r}"
                )
            return _of_nothing(a, axis, keepdims)  # whatever the shape of ``q`` is
        if not percent and method == "linear" and dtype_kind(ops.result_type(q)) in "biu":
            method = "lower"  # the first or the last element, and nothing between
        return quantile_of(
            f"np.{name}",
            a,
            q / 100 if percent else q,
            axis=_axes(axis),
            method=method if interpolation is None else interpolation,
            keepdims=keepdims,
            weights=weights,
            numbers_only=numbers_only,
        )


_quantiles("quantile", percent=False, numbers_only=False)
_quantiles("percentile", percent=True, numbers_only=False)
_quantiles("nanquantile", percent=False, numbers_only=True)
_quantiles("nanpercentile", percent=True, numbers_only=True)


@implements("median")
@_kept_arrays
def _median(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    if _is_empty(a, axis):
        return _of_nothing(a, axis, keepdims)
    if dtype_kind(a.dtype) == "c":
        return _middle(a, _axes(axis), keepdims, numbers_only=False)
    return ops.median(a, axis=_axes(axis), keepdims=keepdims)


@implements("nanmedian")
@_kept_arrays
def _nanmedian(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    if _is_empty(a, axis):
        return _of_nothing(a, axis, keepdims)
    return _middle(a, _axes(axis), keepdims, numbers_only=True)


def _middle(a: Any, axis: Any, keepdims: bool, numbers_only: bool) -> Any:
    """The mean of the middle two of the sorted elements, or numbers, over some axes."""
    a = ops.asarray(a)
    axes = normalize_axes(axis, a.ndim, "median")
    rest = [n for i, n in enumerate(a.shape) if i not in axes]
    first = ops.moveaxis(a, axes, tuple(range(len(axes))))
    count = math.prod([a.shape[i] for i in axes])
    ordered = ops.sort(ops.reshape(first, (count, *rest)), axis=0)
    none = ops.isnan(ordered)
    n = ops.sum(~none, axis=0, keepdims=True) if numbers_only else ordered.shape[0]
    low, high = (n - 1) // 2, n // 2
    if numbers_only:
        places = ops.concat([ops.maximum(low, 0), high])
        out = ops.mean(ops.take_along_axis(ordered, places, axis=0), axis=0)
    else:
        out = ops.where(none[-1], ordered[-1], ops.mean(ordered[low : high + 1], axis=0))
    return ops.reshape(out, kept_shape(a.shape, axes)) if keepdims else out
