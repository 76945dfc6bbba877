"""Products of elements, and what runs along an axis: sums and products of all up to each.

Derivatives divide only where nothing is lost by it; elsewhere, and at higher orders, they are made
of products alone, so zeros need no care.
"""

import math
from typing import Any

import numpy as np

from fdbr.backends.cpu import kernels
from fdbr.core.primitive import host_types
from fdbr.ops.axes import normalize_axes, normalize_axis
from fdbr.ops.declare import linear, opaque, shape_of, shifted
from fdbr.ops.declare.batches import spread
from fdbr.ops.dtypes import astype, in_single, is_traced, result_type
from fdbr.ops.reductions.reduce import Axis, _as, _spread, _sum, kept_shape
from fdbr.ops.reductions.scans import recurrence, running_product, running_sum
from fdbr.ops.shape.creation import asarray, full_like, ones_like, zeros_like
from fdbr.ops.shape.manipulation import broadcast_to, concat, expand_dims, moveaxis, reshape
from fdbr.pytrees.typing import Array, ArrayLike, DTypeLike

__all__ = ["cumulative_prod", "cumulative_sum", "prod"]

_MANY = 1 << 12  # elements from which on they are multiplied side by side
_LANES = 1023  # products side by side; odd, so that no lane has all large ones of a regular row


def _places(axis: int, *ends: int | None) -> Any:
    return (*(slice(None),) * axis, slice(*ends))


def _is_regular(x: Any, out: Any) -> bool:
    """Whether products can be divided by their factors: none is zero, tiny or infinite."""
    if type(x) is not np.ndarray or type(out) not in host_types or not out.size:
        return False
    sizes = abs(out)
    return bool(sizes.min() >= np.finfo(out.dtype).tiny and sizes.max() < np.inf)


# --- products -----------------------------------------------------------------------


def _others(x: Any, axes: tuple[int, ...], ct: Any = None) -> Any:
    """For each element the product of all others over axes, times a cotangent of their product."""
    if len(axes) == 1:
        return _others_along(x, axes[0], ct)
    count = math.prod(x.shape[axis] for axis in axes)
    front = moveaxis(x, axes, tuple(range(len(axes))))
    others = _others_along(reshape(front, (count, *front.shape[len(axes) :])), 0, ct)
    return moveaxis(reshape(others, front.shape), tuple(range(len(axes))), axes)


def _others_along(x: Any, axis: int, ct: Any = None) -> Any:
    """By halves: each element of one is multiplied with its fellow, and so with its others."""
    levels = []
    while (n := x.shape[axis]) > 1:
        levels.append(x)
        half = n // 2
        first, last = x[_places(axis, half)], x[_places(axis, n - half, None)]
        middle = [x[_places(axis, half, n - half)]] if n % 2 else []
        x = _joined([(first, last), *middle], axis)
    others = ones_like(x) if ct is None or not n else expand_dims(ct, axis)
    for x in reversed(levels):
        n = x.shape[axis]
        half = n // 2
        first, last = x[_places(axis, half)], x[_places(axis, n - half, None)]
        both = others[_places(axis, half)]
        middle = [others[_places(axis, half, None)]] if n % 2 else []
        others = _joined([(both, last), *middle, (both, first)], axis)
    return others


def _joined(parts: list[Any], axis: int) -> Any:
    """`concat` of arrays, and of products of pairs, which are computed where they belong."""
    x, y = parts[0]
    if type(x) is not np.ndarray or type(y) is not np.ndarray:
        return concat([p[0] * p[1] if type(p) is tuple else p for p in parts], axis=axis)
    lengths = [(p[0] if type(p) is tuple else p).shape[axis] for p in parts]
    out = np.empty((*x.shape[:axis], sum(lengths), *x.shape[axis + 1 :]), x.dtype)
    start = 0
    for part, length in zip(parts, lengths, strict=True):
        place = out[_places(axis, start, start := start + length)]
        if type(part) is tuple:
            np.multiply(part[0], part[1], out=place)
        else:
            place[...] = part
    return out


def _prod_pull(ct: Any, x: Any, out: Any, axes: tuple[int, ...]) -> Any:
    if not _is_regular(x, out):
        return _others(x, axes, ct)
    return _spread(ct, x.shape, axes) * (_spread(out, x.shape, axes) / x)


def _multiplied(x: Any) -> Any:
    return x.prod(axis=(1,), keepdims=True)


@opaque(
    x=(
        _prod_pull,
        lambda t, x, axes: _sum(t * _others(x, axes), axes=axes, keepdims=False),
    ),
    batch=shifted("axes"),
)
def _prod(xp: Any, x: ArrayLike, *, axes: tuple[int, ...]) -> Array:
    if type(x) is np.ndarray and x.size < _MANY:
        return np.multiply.reduce(x, axes)
    if xp is np and x.nbytes >= kernels.LEAST and x.dtype.char in "fd":
        found = kernels.reduced("prod", _multiplied, axes, (x,))
        if found is not None:
            return found.reshape([n for i, n in enumerate(x.shape) if i not in axes])[()]
    last = axes == tuple(range(x.ndim - len(axes), x.ndim))
    if xp is np and last and axes and x.size >= _MANY and x.dtype.char in "fdFD":
        x = _lanes(x.reshape((*x.shape[: axes[0]], -1)))
        return x.prod(axis=-1)
    return x.prod(axis=axes)


def _lanes(x: Any) -> Any:
    """Fewer factors of the same product along the last axis: every so many multiplied."""
    n = x.shape[-1]
    count = min(_LANES, n // 8 | 1)
    whole = n - n % count
    lanes = x[..., :whole].reshape((*x.shape[:-1], whole // count, count)).prod(axis=-2)
    lanes[..., : n - whole] *= x[..., whole:]
    return lanes


@in_single
def prod(
    x: ArrayLike, /, *, axis: Axis = None, dtype: DTypeLike | None = None, keepdims: bool = False
) -> Array:
    """The product over axes, or of all elements; its derivative is right at zeros too.

    >>> import fdbr, numpy as np
    >>> from fdbr import ops
    >>> fdbr.grad(ops.prod)(np.array([0.0, 2.0, 3.0]))
    array([6., 0., 0.])
    """
    x = _factors(x, dtype)
    axes = normalize_axes(axis, x.ndim, "prod")
    out = _as(dtype, _prod(x, axes=axes))
    return reshape(out, kept_shape(x.shape, axes)) if keepdims else out


def _factors(x: Any, dtype: Any) -> Any:
    """The factors of a product; small integers are widened, as NumPy does."""
    x = asarray(x) if dtype is None else astype(asarray(x), dtype)
    if is_traced(x) and dtype is None and x.dtype.kind in "iub":
        return astype(x, result_type(x.dtype, "u8" if x.dtype.kind == "u" else "i8"))
    return x


# --- running ones -------------------------------------------------------------------


@linear(
    x=lambda ct, axis, reverse: _cumsum(ct, axis=axis, reverse=not reverse), batch=shifted("axis")
)
def _cumsum(xp: Any, x: ArrayLike, *, axis: int, reverse: bool) -> Array:
    return running_sum(xp, x, axis, reverse)


def _earlier(x: Any, axis: int, first: Any, reverse: bool = False) -> Any:
    """Shift along an axis by one, with a number in the place of the element that is missing."""
    end = x[_places(axis, 1)]
    filler = ones_like(end) if first else zeros_like(end)
    if reverse:
        return concat([x[_places(axis, 1, None)], filler], axis=axis)
    return concat([filler, x[_places(axis, -1)]], axis=axis)


def _recurrence_back(ct: Any, a: Any, axis: int, reverse: bool) -> Any:
    """The cotangent of ``b``: the recurrence from the other end."""
    return _recurrence(ct, _earlier(a, axis, 0, not reverse), axis=axis, reverse=not reverse)


def _batch_recurrence(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    values = [spread(value, flag, size) for value, flag in zip(values, batched, strict=True)]
    return apply(*values, axis=params["axis"] + 1, reverse=params["reverse"])


@opaque(
    b=(_recurrence_back, lambda t, a, axis, reverse: _recurrence(t, a, axis=axis, reverse=reverse)),
    a=(
        lambda ct, a, out, axis, reverse: (
            _recurrence_back(ct, a, axis, reverse) * _earlier(out, axis, 0, reverse)
        ),
        lambda t, a, out, axis, reverse: _recurrence(
            t * _earlier(out, axis, 0, reverse), a, axis=axis, reverse=reverse
        ),
    ),
    batch=_batch_recurrence,
)
def _recurrence(xp: Any, b: ArrayLike, a: ArrayLike, *, axis: int, reverse: bool) -> Array:
    return recurrence(xp, a, b, axis, reverse)


def _cumprod_pull(ct: Any, x: Any, out: Any, axis: int) -> Any:
    if _is_regular(x, out):
        return _cumsum(ct * out, axis=axis, reverse=True) / x
    return _recurrence_back(ct, x, axis, False) * _earlier(out, axis, 1)


def _cumprod_push(t: Any, x: Any, out: Any, axis: int) -> Any:
    return _recurrence(t * _earlier(out, axis, 1), x, axis=axis, reverse=False)


@opaque(x=(_cumprod_pull, _cumprod_push), batch=shifted("axis"))
def _cumprod(xp: Any, x: ArrayLike, *, axis: int) -> Array:
    return running_product(xp, x, axis)


@in_single
def cumulative_sum(
    x: ArrayLike,
    /,
    *,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    include_initial: bool = False,
) -> Array:
    """The running sum along an axis, which may be left out of a one-dimensional array.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.cumulative_sum(np.array([1.0, 2.0, 3.0]), include_initial=True)
    array([0., 1., 3., 6.])
    """
    x = asarray(x) if dtype is None else astype(asarray(x), dtype)
    axis = _running_axis(x, axis, "cumulative_sum")
    out = _cumsum(x, axis=axis, reverse=False)
    return _as(dtype, _with_initial(out, axis, 0) if include_initial else out)


@in_single
def cumulative_prod(
    x: ArrayLike,
    /,
    *,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    include_initial: bool = False,
) -> Array:
    """The running product along an axis; its derivative is right at zeros too.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.cumulative_prod(np.array([1.0, 2.0, 3.0]))
    array([1., 2., 6.])
    """
    x = _factors(x, dtype)
    axis = _running_axis(x, axis, "cumulative_prod")
    out = _cumprod(x, axis=axis)
    return _as(dtype, _with_initial(out, axis, 1) if include_initial else out)


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
