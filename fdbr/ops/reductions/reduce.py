"""Reductions of the elements along axes: sums, means, variances, extrema, counts."""

import math
from typing import Any

import numpy as np

from fdbr.core.routine import Routine
from fdbr.core.tracer import Tracer
from fdbr.errors.public import public
from fdbr.ops.axes import normalize_axes, normalize_axis
from fdbr.ops.declare import constant, linear, opaque, shape_of, shifted
from fdbr.ops.declare.unbroadcast import accumulate
from fdbr.ops.dtypes import (
    astype,
    float_dtype,
    in_single,
    is_complex,
    is_traced,
)
from fdbr.ops.elementwise.arithmetic import root_or_zero, sqrt
from fdbr.ops.reductions.squared_error import squares_about_mean
from fdbr.ops.shape.creation import asarray
from fdbr.ops.shape.manipulation import _broadcast_to, _reshape, reshape
from fdbr.pytrees.dtypes import dtype_kind
from fdbr.pytrees.typing import Array, ArrayLike, DTypeLike

__all__ = [
    "all",
    "any",
    "argmax",
    "argmin",
    "count_nonzero",
    "max",
    "mean",
    "min",
    "std",
    "sum",
    "var",
]

Axis = int | tuple[int, ...] | None


def kept_shape(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a reduction's result if the axes are kept with length 1."""
    return tuple(1 if i in axes else n for i, n in enumerate(shape))


def _rest(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple([n for i, n in enumerate(shape) if i not in axes])


def _spread(ct: Any, shape: tuple[int, ...], axes: tuple[int, ...]) -> Any:
    """Broadcast a reduction's cotangent, or value, along the axes that were reduced."""
    if len(axes) < len(shape):
        ct = _reshape(ct, to=kept_shape(shape, axes))
    return _broadcast_to(ct, to=shape)


@linear(
    x=lambda ct, shape, axes: _spread(ct, shape, axes),
    batch=shifted("axes"),
    fold="sum",
    fresh=True,
)
def _sum(xp: Any, x: ArrayLike, *, axes: tuple[int, ...], keepdims: bool) -> Array:
    return accumulate(x, axes, keepdims)


def _batch_sum_of_rows(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    return _sum(values[0], axes=(1,), keepdims=False)


@linear(x=lambda ct, shape: _spread(ct, shape, (0,)), batch=_batch_sum_of_rows, fresh=True)
def _sum_of_rows(xp: Any, x: ArrayLike) -> Array:
    """The sum along the first axis, which is the transpose of broadcasting a row."""
    return accumulate(x, 0)


@public("fdbr.ops")
def sum(
    x: ArrayLike, /, *, axis: Axis = None, dtype: DTypeLike | None = None, keepdims: bool = False
) -> Array:
    """The sum over axes, or over all elements.

    Integers and booleans are summed in the default integer dtype, as in NumPy; floating numbers
    in their own dtype; 16-bit floats in float32, and the sum is rounded once.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.sum(np.ones((2, 3)), axis=1)
    array([3., 3.])
    """
    if type(x) is not np.ndarray and (not isinstance(x, Tracer) or not shape_of(x)):
        x = asarray(x)
    if dtype is not None and not _are_integers(x, dtype):
        x = astype(x, dtype)
    return _cast(dtype, _sum(x, axes=normalize_axes(axis, x.ndim, "sum"), keepdims=keepdims))


def _are_integers(x: Any, dtype: Any) -> bool:
    """Return whether a sum is one of integers, which needs no copy in another dtype.

    Sums of integers have 64 bits, and wrap around as the sum in the other dtype does.
    """
    return dtype_kind(x.dtype) in "biu" and np.dtype(dtype).kind in "iu"


def _cast(dtype: Any, out: Any) -> Any:
    """Cast a result to the requested dtype, as NumPy widens the sum of small integers."""
    return out if dtype is None or out.dtype == dtype else astype(out, dtype)


@linear(
    x=lambda ct, shape, axes: _spread(ct / _count(shape, axes), shape, axes),
    batch=shifted("axes"),
    fold="mean",
    fresh=True,
)
def _mean(xp: Any, x: ArrayLike, *, axes: tuple[int, ...], keepdims: bool) -> Array:
    return accumulate(x, axes, keepdims) / _count(x.shape, axes)


@public("fdbr.ops")
@in_single
def mean(x: ArrayLike, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """The arithmetic mean over axes, or over all elements.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.mean(np.array([1.0, 2.0, 6.0]))
    np.float64(3.0)
    """
    x = asarray(x)
    axes = normalize_axes(axis, x.ndim, "mean")
    x = x if dtype_kind(x.dtype) in "fc" else astype(x, float_dtype(x))
    return _mean(x, axes=axes, keepdims=keepdims)


def _count(shape: tuple[int, ...], axes: tuple[int, ...]) -> int:
    return math.prod([shape[i] for i in axes])


@public("fdbr.ops")
@in_single
def var(x: Any, /, *, axis: Axis = None, correction: float = 0, keepdims: bool = False) -> Any:
    """The variance over axes: the mean squared distance from the mean.

    The sum of squares is divided by ``n - correction``; where that is not positive, the result is
    NaN or infinite, as in NumPy.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.var(np.array([1.0, 3.0]))
    np.float64(1.0)
    """
    x = asarray(x)
    axes = normalize_axes(axis, x.ndim, "var")
    x = x if dtype_kind(x.dtype) in "fc" else astype(x, float_dtype(x))
    count = _count(x.shape, axes)
    divisor = count - correction
    divisor = divisor if divisor > 0 else 0
    if type(x) is np.ndarray:
        found = variance.host(x, axes, divisor, keepdims)
        if found is not None:
            return found
    if is_complex(x):
        deviation = x - _mean(x, axes=axes, keepdims=True)
        return _sum((deviation * deviation.conj()).real, axes=axes, keepdims=keepdims) / divisor
    squares = squares_about_mean(x, axes)
    return (squares if keepdims else _reshape(squares, to=_rest(x.shape, axes))) / divisor


@Routine
def variance(x: Any, axes: tuple[int, ...], divisor: float, keepdims: bool) -> Any:
    """Return the variance of an array; `None` where the composition of operations is as good."""
    return None


@public("fdbr.ops")
@in_single
def std(
    x: ArrayLike, /, *, axis: Axis = None, correction: float = 0, keepdims: bool = False
) -> Array:
    """The standard deviation over axes: the square root of the variance.

    Where all elements are equal, its first derivative is taken as 0, as that of a norm at 0.
    Second derivatives are NaN there: use `var` instead of the squared standard deviation.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.std(np.array([1.0, 3.0]))
    np.float64(1.0)
    """
    return root_of_variance(var(x, axis=axis, correction=correction, keepdims=keepdims))


def root_of_variance(variance: Any) -> Any:
    """The square root, whose derivative at 0 is taken as 0."""
    return root_or_zero(variance, exponent=0.5) if is_traced(variance) else sqrt(variance)


@in_single
def _extreme_vjp(ct: Any, x: Any, out: Any, axes: tuple[int, ...]) -> Any:
    """Divide the cotangent equally among the elements that equal the extreme."""
    hit = astype(x == _spread(out, x.shape, axes), ct.dtype)
    return hit * _spread(ct / _sum(hit, axes=axes, keepdims=False), x.shape, axes)


@in_single
def _extreme_jvp(t: Any, x: Any, out: Any, axes: tuple[int, ...]) -> Any:
    """Average the tangents of the elements that equal the extreme."""
    hit = astype(x == _spread(out, x.shape, axes), t.dtype)
    return _sum(hit * t, axes=axes, keepdims=False) / _sum(hit, axes=axes, keepdims=False)


@opaque(x=(_extreme_vjp, _extreme_jvp), batch=shifted("axes"), fold="max", fresh=True)
def _max(xp: Any, x: ArrayLike, *, axes: tuple[int, ...]) -> Array:
    return x.max(axis=axes)


@opaque(x=(_extreme_vjp, _extreme_jvp), batch=shifted("axes"), fold="min", fresh=True)
def _min(xp: Any, x: ArrayLike, *, axes: tuple[int, ...]) -> Array:
    return x.min(axis=axes)


@public("fdbr.ops")
def max(x: ArrayLike, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """The largest element over axes; equal largest elements share the derivative equally.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.max(np.array([1.0, 3.0, 2.0]))
    np.float64(3.0)
    """
    return _extreme(_max, x, axis, keepdims, "max")


@public("fdbr.ops")
def min(x: ArrayLike, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """The smallest element over axes; equal smallest elements share the derivative equally.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.min(np.array([1.0, 3.0, 2.0]))
    np.float64(1.0)
    """
    return _extreme(_min, x, axis, keepdims, "min")


def _extreme(reduce: Any, x: Any, axis: Axis, keepdims: bool, name: str) -> Any:
    x = x if type(x) is np.ndarray else asarray(x)
    axes = normalize_axes(axis, x.ndim, name)
    out = reduce(x, axes=axes)
    return reshape(out, kept_shape(x.shape, axes)) if keepdims else out


def _batch_arg(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    (x,), axis = values, params["axis"]
    if axis is not None:
        return apply(x, axis=axis + 1, keepdims=params["keepdims"])
    out = apply(reshape(x, (size, math.prod(x.shape[1:]))), axis=1, keepdims=False)
    return reshape(out, (size, *(1,) * (x.ndim - 1))) if params["keepdims"] else out


@constant(batch=_batch_arg, fresh=True, total=True)
def _argmax(xp: Any, x: ArrayLike, *, axis: Any, keepdims: bool) -> Array:
    return xp.argmax(x, axis=axis, keepdims=keepdims)


@constant(batch=_batch_arg, fresh=True, total=True)
def _argmin(xp: Any, x: ArrayLike, *, axis: Any, keepdims: bool) -> Array:
    return xp.argmin(x, axis=axis, keepdims=keepdims)


@public("fdbr.ops")
def argmax(x: ArrayLike, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
    """The index of the first largest element along an axis, or of the flattened array.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> int(ops.argmax(np.array([1.0, 3.0, 2.0])))
    1
    """
    x = asarray(x)
    axis = None if axis is None else normalize_axis(axis, x.ndim, "argmax")
    return _argmax(x, axis=axis, keepdims=keepdims)


@public("fdbr.ops")
def argmin(x: ArrayLike, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
    """The index of the first smallest element along an axis, or of the flattened array.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> int(ops.argmin(np.array([1.0, 3.0, 2.0])))
    0
    """
    x = asarray(x)
    axis = None if axis is None else normalize_axis(axis, x.ndim, "argmin")
    return _argmin(x, axis=axis, keepdims=keepdims)


@constant(batch=shifted("axes"), total=True)
def _all(xp: Any, x: ArrayLike, *, axes: tuple[int, ...], keepdims: bool) -> Array:
    return xp.all(x, axis=axes, keepdims=keepdims)


@constant(batch=shifted("axes"), total=True)
def _any(xp: Any, x: ArrayLike, *, axes: tuple[int, ...], keepdims: bool) -> Array:
    return xp.any(x, axis=axes, keepdims=keepdims)


@constant(batch=shifted("axes"), total=True)
def _count_nonzero(xp: Any, x: ArrayLike, *, axes: tuple[int, ...], keepdims: bool) -> Any:
    return (x != 0).sum(axis=axes, keepdims=keepdims)


@public("fdbr.ops")
def all(x: ArrayLike, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """Whether every element along axes is true.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> bool(ops.all(np.array([True, False])))
    False
    """
    x = asarray(x)
    return _all(x, axes=normalize_axes(axis, x.ndim, "all"), keepdims=keepdims)


@public("fdbr.ops")
def any(x: ArrayLike, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """Whether any element along axes is true.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> bool(ops.any(np.array([True, False])))
    True
    """
    x = asarray(x)
    return _any(x, axes=normalize_axes(axis, x.ndim, "any"), keepdims=keepdims)


@public("fdbr.ops")
def count_nonzero(x: ArrayLike, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """The number of elements along axes that are not zero.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> int(ops.count_nonzero(np.array([1.0, 0.0])))
    1
    """
    x = asarray(x)
    return _count_nonzero(x, axes=normalize_axes(axis, x.ndim, "count_nonzero"), keepdims=keepdims)
