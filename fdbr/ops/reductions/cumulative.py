"""Products, and cumulative sums and products along an axis.

Derivatives divide by elements only where that is exact enough; elsewhere, and at higher orders,
they consist of products alone, so that they hold at zeros.
"""

import math
from typing import Any

import numpy as np

from fdbr.core.primitive import host_types
from fdbr.errors.public import public
from fdbr.ops.axes import normalize_axes, normalize_axis
from fdbr.ops.declare import linear, opaque, shape_of, shifted
from fdbr.ops.declare.batches import spread
from fdbr.ops.dtypes import astype, in_single, is_traced, result_type
from fdbr.ops.reductions.reduce import Axis, _cast, _spread, _sum, kept_shape
from fdbr.ops.shape.creation import asarray, full_like, ones_like, zeros_like
from fdbr.ops.shape.manipulation import broadcast_to, concat, expand_dims, moveaxis, reshape
from fdbr.pytrees.typing import Array, ArrayLike, DTypeLike

__all__ = ["cumulative_prod", "cumulative_sum", "prod"]


def _slice_along(axis: int, *ends: int | None) -> Any:
    return (*(slice(None),) * axis, slice(*ends))


def _is_regular(x: Any, out: Any) -> bool:
    """Whether products can be divided by their factors: none is zero, subnormal or infinite."""
    if type(x) is not np.ndarray or type(out) not in host_types or not out.size:
        return False
    sizes = abs(out)
    return bool(sizes.min() >= np.finfo(out.dtype).tiny and sizes.max() < np.inf)


# --- products -----------------------------------------------------------------------


def _others(x: Any, axes: tuple[int, ...], ct: Any = None) -> Any:
    """Compute for each element the product of all others over axes, times the cotangent ``ct``."""
    if len(axes) == 1:
        return _others_along(x, axes[0], ct)
    count = math.prod(x.shape[axis] for axis in axes)
    front = moveaxis(x, axes, tuple(range(len(axes))))
    others = _others_along(reshape(front, (count, *front.shape[len(axes) :])), 0, ct)
    return moveaxis(reshape(others, front.shape), tuple(range(len(axes))), axes)


def _others_along(x: Any, axis: int, ct: Any = None) -> Any:
    """Compute the products of all others along one axis, in about ``log2(n)`` steps.

    Elements are multiplied in pairs up to the whole product.  On the path back, the products of
    others of a pair times one of its elements are those of the other element.
    """
    if type(x) is np.ndarray and not is_traced(ct):
        return _others_in_arrays(x, axis, ct)
    levels = []
    while (n := x.shape[axis]) > 1:
        levels.append(x)
        half = n // 2
        first, last = x[_slice_along(axis, half)], x[_slice_along(axis, n - half, None)]
        middle = [x[_slice_along(axis, half, n - half)]] if n % 2 else []
        x = concat([first * last, *middle], axis=axis)
    others = ones_like(x) if ct is None or not n else expand_dims(ct, axis)
    for x in reversed(levels):
        n = x.shape[axis]
        half = n // 2
        first, last = x[_slice_along(axis, half)], x[_slice_along(axis, n - half, None)]
        paired = others[_slice_along(axis, half)]
        middle = [others[_slice_along(axis, half, None)]] if n % 2 else []
        others = concat([paired * last, *middle, paired * first], axis=axis)
    return others


def _others_in_arrays(x: Any, axis: int, ct: Any) -> Any:
    """Compute `_others_along` of arrays, whose products are written into the result directly."""
    front = (slice(None),) * axis
    levels = []
    while (n := x.shape[axis]) > 1:
        levels.append(x)
        half, rest = n // 2, n - n // 2
        out = np.empty((*x.shape[:axis], rest, *x.shape[axis + 1 :]), x.dtype)
        head, tail = (*front, slice(half)), (*front, slice(rest, None))
        np.multiply(x[head], x[tail], out[head])
        if n % 2:
            out[*front, half] = x[*front, half]
        x = out
    others = np.ones_like(x) if ct is None or not n else np.expand_dims(ct, axis)
    for x in reversed(levels):
        n = x.shape[axis]
        half, rest = n // 2, n - n // 2
        out = np.empty((*others.shape[:axis], n, *others.shape[axis + 1 :]), others.dtype)
        head, tail = (*front, slice(half)), (*front, slice(rest, None))
        paired = others[head]
        np.multiply(paired, x[tail], out[head])
        if n % 2:
            out[*front, half] = others[*front, half]
        np.multiply(paired, x[head], out[tail])
        others = out
    return others


def _prod_vjp(ct: Any, x: Any, out: Any, axes: tuple[int, ...]) -> Any:
    if not _is_regular(x, out):
        return _others(x, axes, ct)
    return _spread(ct, x.shape, axes) * (_spread(out, x.shape, axes) / x)


@opaque(
    x=(
        _prod_vjp,
        lambda t, x, axes: _sum(t * _others(x, axes), axes=axes, keepdims=False),
    ),
    batch=shifted("axes"),
)
def _prod(xp: Any, x: ArrayLike, *, axes: tuple[int, ...]) -> Array:
    return x.prod(axis=axes)


@public("fdbr.ops")
@in_single
def prod(
    x: ArrayLike, /, *, axis: Axis = None, dtype: DTypeLike | None = None, keepdims: bool = False
) -> Array:
    """The product over axes, or of all elements; its derivative holds at zeros too.

    >>> import fdbr, numpy as np
    >>> from fdbr import ops
    >>> fdbr.grad(ops.prod)(np.array([0.0, 2.0, 3.0]))
    array([6., 0., 0.])
    """
    x = _widened(x, dtype)
    axes = normalize_axes(axis, x.ndim, "prod")
    out = _cast(dtype, _prod(x, axes=axes))
    return reshape(out, kept_shape(x.shape, axes)) if keepdims else out


def _widened(x: Any, dtype: Any) -> Any:
    """Convert the factors of a product to arrays; small integers are widened, as in NumPy."""
    x = asarray(x) if dtype is None else astype(asarray(x), dtype)
    if is_traced(x) and dtype is None and x.dtype.kind in "iub":
        return astype(x, result_type(x.dtype, "u8" if x.dtype.kind == "u" else "i8"))
    return x


# --- cumulative sums and products -----------------------------------------------------


@linear(
    x=lambda ct, axis, reverse: _cumsum(ct, axis=axis, reverse=not reverse), batch=shifted("axis")
)
def _cumsum(xp: Any, x: ArrayLike, *, axis: int, reverse: bool) -> Array:
    if not reverse:
        return xp.cumsum(x, axis=axis)
    return xp.flip(xp.cumsum(xp.flip(x, axis), axis=axis), axis)


def _shifted(x: Any, axis: int, first: Any, reverse: bool = False) -> Any:
    """Shift along an axis by one, and fill the free end with ``first``, 0 or 1."""
    end = x[_slice_along(axis, 1)]
    filler = ones_like(end) if first else zeros_like(end)
    if reverse:
        return concat([x[_slice_along(axis, 1, None)], filler], axis=axis)
    return concat([filler, x[_slice_along(axis, -1)]], axis=axis)


def _recurrence_vjp(ct: Any, a: Any, axis: int, reverse: bool) -> Any:
    """Compute the cotangent of ``b``: the recurrence from the other end."""
    return _recurrence(ct, _shifted(a, axis, 0, not reverse), axis=axis, reverse=not reverse)


def _batch_recurrence(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    values = [spread(value, flag, size) for value, flag in zip(values, batched, strict=True)]
    return apply(*values, axis=params["axis"] + 1, reverse=params["reverse"])


@opaque(
    b=(_recurrence_vjp, lambda t, a, axis, reverse: _recurrence(t, a, axis=axis, reverse=reverse)),
    a=(
        lambda ct, a, out, axis, reverse: (
            _recurrence_vjp(ct, a, axis, reverse) * _shifted(out, axis, 0, reverse)
        ),
        lambda t, a, out, axis, reverse: _recurrence(
            t * _shifted(out, axis, 0, reverse), a, axis=axis, reverse=reverse
        ),
    ),
    batch=_batch_recurrence,
)
def _recurrence(xp: Any, b: ArrayLike, a: ArrayLike, *, axis: int, reverse: bool) -> Array:
    """Compute ``s[i] = a[i] * s[i - 1] + b[i]`` along an axis.

    With ``reverse`` it starts at the end: ``s[i] = a[i] * s[i + 1] + b[i]``.  The first ``s`` is
    ``b``, and the first ``a`` is not used.
    """
    if reverse:
        a, b = xp.flip(a, axis), xp.flip(b, axis)
    out = _hillis_steele(xp, a, b, axis)
    return xp.flip(out, axis) if reverse else out


def _hillis_steele(xp: Any, a: Any, b: Any, axis: int) -> Any:
    """Compute the recurrence by Hillis and Steele's scan, in ``log2(n)`` steps for a GPU."""
    front = (slice(None),) * axis
    shift = 1
    while shift < b.shape[axis]:
        later, earlier = (*front, slice(shift, None)), (*front, slice(None, -shift))
        products = a[later]
        b = xp.concatenate([b[(*front, slice(shift))], b[later] + products * b[earlier]], axis=axis)
        a = xp.concatenate([a[(*front, slice(shift))], products * a[earlier]], axis=axis)
        shift *= 2
    return b


def _cumprod_vjp(ct: Any, x: Any, out: Any, axis: int) -> Any:
    if _is_regular(x, out):
        return _cumsum(ct * out, axis=axis, reverse=True) / x
    return _recurrence_vjp(ct, x, axis, False) * _shifted(out, axis, 1)


def _cumprod_jvp(t: Any, x: Any, out: Any, axis: int) -> Any:
    return _recurrence(t * _shifted(out, axis, 1), x, axis=axis, reverse=False)


@opaque(x=(_cumprod_vjp, _cumprod_jvp), batch=shifted("axis"))
def _cumprod(xp: Any, x: ArrayLike, *, axis: int) -> Array:
    return xp.cumprod(x, axis=axis)


@public("fdbr.ops")
@in_single
def cumulative_sum(
    x: ArrayLike,
    /,
    *,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    include_initial: bool = False,
) -> Array:
    """The cumulative sum along an axis, which need not be given for a one-dimensional array.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.cumulative_sum(np.array([1.0, 2.0, 3.0]), include_initial=True)
    array([0., 1., 3., 6.])
    """
    x = asarray(x) if dtype is None else astype(asarray(x), dtype)
    axis = _running_axis(x, axis, "cumulative_sum")
    out = _cumsum(x, axis=axis, reverse=False)
    return _cast(dtype, _with_initial(out, axis, 0) if include_initial else out)


@public("fdbr.ops")
@in_single
def cumulative_prod(
    x: ArrayLike,
    /,
    *,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    include_initial: bool = False,
) -> Array:
    """The cumulative product along an axis; its derivative holds at zeros too.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.cumulative_prod(np.array([1.0, 2.0, 3.0]))
    array([1., 2., 6.])
    """
    x = _widened(x, dtype)
    axis = _running_axis(x, axis, "cumulative_prod")
    out = _cumprod(x, axis=axis)
    return _cast(dtype, _with_initial(out, axis, 1) if include_initial else out)


def _running_axis(x: Any, axis: int | None, name: str) -> int:
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"fdbr.ops.{name}: axis must be given for shape {shape_of(x)}")
        return 0
    return normalize_axis(axis, x.ndim, name)


def _with_initial(out: Any, axis: int, value: int) -> Any:
    first = (slice(None),) * axis + (slice(None, 1),)
    shape = tuple(1 if i == axis else n for i, n in enumerate(out.shape))
    initial = broadcast_to(full_like(out[first].sum(), value), shape)
    return concat([initial, out], axis=axis)
