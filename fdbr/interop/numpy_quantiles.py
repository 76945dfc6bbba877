"""NumPy's quantiles on traced values, and those of the elements that are not NaN."""

import math
from typing import Any

from fdbr import ops
from fdbr.floats import dtype_kind
from fdbr.interop.signatures import implements
from fdbr.ops.axes import normalize_axes
from fdbr.ops.dtypes import as_weak
from fdbr.ops.statistics import parted


def _axes(axis: Any) -> Any:
    return tuple(axis) if isinstance(axis, list) else axis


def _is_empty(a: Any, axis: Any) -> bool:
    """Whether there is no element over some axes."""
    return 0 in [a.shape[i] for i in normalize_axes(_axes(axis), a.ndim, "median")]


def _of_nothing(a: Any, axis: Any, keepdims: bool) -> Any:
    """NaN, in the shape and dtype of NumPy's means of no elements."""
    a = a if dtype_kind(a.dtype) in "fc" else ops.astype(a, float)
    return ops.sum(a, axis=_axes(axis), keepdims=keepdims) * as_weak(math.nan, a)


def _quantiles(name: str, percent: bool, numbers_only: bool) -> None:
    @implements(name)
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
        if numbers_only and not a.size:
            return _of_nothing(a, axis, keepdims)  # whatever ``q`` is, as NumPy has it
        q = ops.asarray(q) if isinstance(q, list | tuple) else q  # whose dtype counts in NumPy
        return parted(
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
def _median(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    if _is_empty(a, axis):
        return _of_nothing(a, axis, keepdims)
    return ops.median(a, axis=_axes(axis), keepdims=keepdims)


@implements("nanmedian")
def _nanmedian(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    if _is_empty(a, axis):
        return _of_nothing(a, axis, keepdims)
    return parted("np.nanmedian", a, 0.5, axis=_axes(axis), keepdims=keepdims, numbers_only=True)
