"""NumPy's functions of sets on traced values: what is unique, and what two arrays share.

Every entry takes NumPy's arguments; see `fdbr.interop.signatures`.
"""

import math
from typing import Any

import numpy as np

from fdbr import ops
from fdbr.core.array_modules import array_module
from fdbr.core.tracer_methods import functions
from fdbr.interop.numpy_basics import array_of
from fdbr.interop.signatures import implements
from fdbr.ops.axes import normalize_axis
from fdbr.ops.dtypes import is_number
from fdbr.ops.shape.creation import arrays
from fdbr.pytrees.dtypes import dtype_kind

implements("unique_values")(ops.unique_values)


def _named(name: str) -> None:
    """Enter a function whose results NumPy has in a named tuple of its own."""
    op, kind = getattr(ops, name), type(getattr(np, name)(np.zeros(1)))
    implements(name)(lambda x: kind(*op(x)))


for _name in ("unique_all", "unique_counts", "unique_inverse"):
    _named(_name)


@implements("unique")
def _unique(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: Any = None,
    *,
    equal_nan: bool = True,
    sorted: bool = True,
) -> Any:
    found = ops.unique_all(ar) if axis is None else _unique_along(ar, axis)
    if equal_nan and axis is None and dtype_kind(ar.dtype) in "fc":
        found = _one_nan(*found)
    asked = (return_index, return_inverse, return_counts)
    out = [found[0], *(part for part, wanted in zip(found[1:], asked, strict=True) if wanted)]
    return tuple(out) if len(out) > 1 else out[0]


def _one_nan(values: Any, indices: Any, inverse: Any, counts: Any) -> tuple[Any, ...]:
    """Mark unique elements where all NaN, which come last, count as one."""
    none = int(ops.count_nonzero(ops.isnan(values)))
    if none < 2:
        return values, indices, inverse, counts
    n = values.shape[0] - none + 1
    ends = ops.concat([counts[: n - 1], ops.sum(counts[n - 1 :], keepdims=True)])
    return values[:n], indices[:n], ops.minimum(inverse, n - 1), ends


def _unique_along(x: Any, axis: int) -> tuple[Any, ...]:
    """The unique parts along an axis, in the order of their elements."""
    axis = normalize_axis(axis, x.ndim, "unique")
    parts = ops.moveaxis(x, axis, 0)
    n = parts.shape[0]
    rows = ops.reshape(parts, (n, math.prod(parts.shape[1:])))
    order = (
        functions[np.lexsort](tuple(rows.T)[::-1]) if rows.shape[1] else array_module(x).arange(n)
    )
    ordered = ops.take(rows, order, axis=0)
    new = ops.any(ordered[1:] != ordered[:-1], axis=1)
    new = ops.pad(new, (1, 0), "constant", constant_values=True)[:n]
    (first,) = ops.nonzero(new)
    inverse = ops.take(ops.cumulative_sum(ops.astype(new, int)) - 1, ops.argsort(order))
    counts = ops.diff(first, append=ops.asarray([n]))
    values = ops.moveaxis(ops.take(parts, ops.take(order, first), axis=0), 0, axis)
    return values, ops.take(order, first), inverse, counts


@implements("isin")
def _isin(
    element: Any,
    test_elements: Any,
    assume_unique: bool = False,
    invert: bool = False,
    *,
    kind: Any = None,
) -> Any:
    if kind not in (None, "sort", "table"):
        raise ValueError(f"np.isin: kind is {kind!r}, not None, 'sort' or 'table'")
    if kind == "table" and not all(x.dtype.kind in "biu" for x in arrays(element, test_elements)):
        raise ValueError("np.isin: kind='table' is for integers; leave it out")
    return array_of(ops.isin(element, test_elements, invert=invert))


# Two sets together are one array, in which NaN count as one within each, and as two in both.


def _together(ar1: Any, ar2: Any) -> tuple[Any, Any]:
    """Two arrays flat and in one dtype, in which a number of Python's is weak."""
    parts = [x if is_number(x) else ops.asarray(x) for x in (ar1, ar2)]
    dtype = ops.result_type(*parts)
    first, second = (ops.reshape(ops.astype(x, dtype, copy=False), -1) for x in parts)
    return first, second


@implements("union1d")
def _union1d(ar1: Any, ar2: Any) -> Any:
    return _unique(ops.concat(_together(ar1, ar2)))


@implements("intersect1d")
def _intersect1d(
    ar1: Any, ar2: Any, assume_unique: bool = False, return_indices: bool = False
) -> Any:
    parts = arrays(ar1, ar2)
    dtype = ops.result_type(*parts)
    x, y = (_unique(part, return_index=True) for part in parts)
    (common,) = ops.nonzero(ops.isin(x[0], y[0]))
    out = ops.astype(ops.take(x[0], common), dtype, copy=False)
    if not return_indices:
        return out
    (others,) = ops.nonzero(ops.isin(y[0], x[0]))
    return out, ops.take(x[1], common), ops.take(y[1], others)


@implements("setdiff1d")
def _setdiff1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> Any:
    ar1, ar2 = arrays(ar1, ar2)
    x = ops.reshape(ar1, -1) if assume_unique else _unique(ar1)
    return ops.take(x, ops.nonzero(ops.isin(x, ar2, invert=True))[0])


@implements("setxor1d")
def _setxor1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> Any:
    parts = arrays(ar1, ar2)
    if not assume_unique:
        parts = [_unique(part) for part in parts]
    both = ops.sort(ops.concat([ops.reshape(part, -1) for part in parts]))
    new = ops.pad(both[1:] != both[:-1], 1, "constant", constant_values=True)
    return ops.take(both, ops.nonzero(new[1:] & new[:-1])[0]) if both.size else both
