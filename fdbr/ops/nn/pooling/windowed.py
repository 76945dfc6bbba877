"""Pooling over sliding windows: maximum, mean, and norm.

The primitives take arrays ``(..., *spatial)``: all axes before the spatial axes are batch axes.
"""

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fdbr.core.array_modules import array_module, where_it_lies
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.ops.declare import constant, linear, opaque
from fdbr.ops.declare.batches import spread
from fdbr.ops.dtypes import in_single
from fdbr.ops.elementwise.arithmetic import clip, power, root_or_zero
from fdbr.ops.indexing.reading import pick
from fdbr.ops.nn.pooling.pooled_windows import pooling_geometry, window_starts
from fdbr.ops.nn.windows import Geometry, Sizes
from fdbr.ops.shape.creation import asarray, floating
from fdbr.pytrees.dtypes import dtype_kind
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = [
    "avg_pool",
    "lp_pool",
    "max_pool",
]


def _spatial(shape: Sizes, geometry: Geometry) -> Sizes:
    return tuple(shape[len(shape) - len(geometry.kernel) :])


def _lead(shape: Sizes, geometry: Geometry) -> Sizes:
    return tuple(shape[: len(shape) - len(geometry.kernel)])


def _padded(xp: Any, x: Any, geometry: Geometry, value: Any) -> Any:
    """Pad an array with a value; return it unchanged without padding."""
    if not any(map(any, geometry.padding)):
        return x
    size = _spatial(x.shape, geometry)
    shape = (*_lead(x.shape, geometry), *geometry.padded(size))
    out = xp.full_like(x, value, shape=shape)  # keeps the memory order of axes
    out[(..., *geometry.interior(size))] = x
    return out


def _reduce_windows(xp: Any, x: Any, geometry: Geometry, counts: Sizes, combine: Any) -> Any:
    """Combine the elements of each window, one axis after the other, in new memory."""
    first = x.ndim - len(counts)
    for axis, count in enumerate(counts):
        step, gap = geometry.stride[axis], geometry.dilation[axis]
        before = (slice(None),) * (first + axis)
        starts = [i * gap for i in range(geometry.kernel[axis])]
        parts = [x[(*before, slice(i, i + step * (count - 1) + 1, step))] for i in starts]
        x = parts[0]
        for part in parts[1:]:
            x = combine(x, part)
    return x if math.prod(geometry.kernel) > 1 else xp.copy(x, order="K")


def _batch_leading(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    return apply(*map(spread, values, batched, itertools.repeat(size)), **params)


# --- sums ---------------------------------------------------------------------------


@linear(
    x=lambda ct, shape, geometry: spread_windows(
        ct, geometry=geometry, size=_spatial(shape, geometry)
    ),
    batch=_batch_leading,
    fresh=True,
)
def _sum_windows(xp: Any, x: ArrayLike, *, geometry: Geometry) -> Array:
    counts = geometry.counts(_spatial(x.shape, geometry))
    return _reduce_windows(xp, _padded(xp, x, geometry, 0), geometry, counts, xp.add)


@linear(
    x=lambda ct, geometry: _sum_windows(ct, geometry=geometry), batch=_batch_leading, fresh=True
)
def spread_windows(xp: Any, x: ArrayLike, *, geometry: Geometry, size: Sizes) -> Array:
    """Copy each element to its whole window, in an array with spatial axes of these lengths."""
    counts = _spatial(x.shape, geometry)
    shape = (*_lead(x.shape, geometry), *geometry.padded(size))
    out = xp.zeros_like(x, shape=shape)
    is_disjoint = geometry.is_disjoint
    for slices in geometry.kernel_slices(counts):
        if is_disjoint:
            out[(..., *slices)] = x
        else:
            out[(..., *slices)] += x
    return out[(..., *geometry.interior(size))]


# --- maxima -------------------------------------------------------------------------


def _lowest(xp: Any, x: Any) -> Any:
    return -math.inf if dtype_kind(x.dtype) == "f" else xp.iinfo(x.dtype).min


def _max_vjp(ct: Any, x: Any, out: Any, shape: Sizes, geometry: Geometry) -> Any:
    winners = _window_winners(x, out, geometry=geometry)
    return _to_winners(ct, winners, geometry=geometry, size=_spatial(shape, geometry))


def _max_jvp(t: Any, x: Any, out: Any, geometry: Geometry) -> Any:
    return _at_winners(t, _window_winners(x, out, geometry=geometry), geometry=geometry)


@opaque(x=(_max_vjp, _max_jvp), batch=_batch_leading, fresh=True, total=True)
def max_windows(xp: Any, x: ArrayLike, *, geometry: Geometry) -> Array:
    """The maximum of each window."""
    counts = geometry.counts(_spatial(x.shape, geometry))
    return _reduce_windows(
        xp, _padded(xp, x, geometry, _lowest(xp, x)), geometry, counts, xp.maximum
    )


@constant(batch=_batch_leading, fresh=True, total=True)
def _window_winners(xp: Any, x: Any, out: Any, *, geometry: Geometry) -> Any:
    """Find the number of the first position in each window with its maximum, or with NaN."""
    return winners_among(xp, x, out, geometry, dtype_kind(x.dtype) == "f")


def winners_among(xp: Any, x: Any, out: Any, geometry: Geometry, may_have_nan: bool) -> Any:
    """Find the winners of windows, knowing whether some may be NaN."""
    counts = _spatial(out.shape, geometry)
    x = _padded(xp, x, geometry, _lowest(xp, x))
    last = math.prod(geometry.kernel) - 1
    winners = xp.zeros_like(out, dtype=xp.uint8 if last < 256 else xp.int64)
    is_behind = True  # no position so far has the maximum; the count of that is the winner's number
    for slices in geometry.kernel_slices(counts)[:last]:
        part = x[(..., *slices)]
        is_behind = (part != out) & is_behind
        if may_have_nan:
            is_behind &= part == part
        winners += is_behind
    return winners


@linear(
    x=lambda ct, winners, shape, geometry: _to_winners(
        ct, winners, geometry=geometry, size=_spatial(shape, geometry)
    ),
    batch=_batch_leading,
    fresh=True,
    total=True,
)
def _at_winners(xp: Any, x: Any, winners: Any, *, geometry: Geometry) -> Any:
    """Read the element of each window at the position given by ``winners``."""
    counts = _spatial(winners.shape, geometry)
    x = _padded(xp, x, geometry, 0)
    out = xp.zeros_like(winners, dtype=x.dtype)
    for number, slices in enumerate(geometry.kernel_slices(counts)):
        xp.copyto(out, x[(..., *slices)], where=winners == number)
    return out


@linear(
    x=lambda ct, winners, geometry: _at_winners(ct, winners, geometry=geometry),
    batch=_batch_leading,
    fresh=True,
    total=True,
)
def _to_winners(xp: Any, x: ArrayLike, winners: Any, *, geometry: Geometry, size: Sizes) -> Array:
    """The transpose of `_at_winners`."""
    counts = _spatial(winners.shape, geometry)
    ordered = xp.empty_like(winners, dtype=x.dtype)
    ordered[...] = x  # in the memory order of the pooling's input
    shape = (*_lead(x.shape, geometry), *geometry.padded(size))
    is_disjoint, zero = geometry.is_disjoint, x.dtype.type(0)
    out = xp.zeros_like(ordered, shape=shape)
    for number, slices in enumerate(geometry.kernel_slices(counts)):
        part = out[(..., *slices)]
        if is_disjoint:
            xp.copyto(part, ordered, where=winners == number)
        else:
            part += xp.where(winners == number, ordered, zero)
    return out[(..., *geometry.interior(size))]


# --- public functions -----------------------------------------------------------------


@public("fdbr.ops")
def max_pool(
    x: ArrayLike,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: Any = 0,
    dilation: int | Sequence[int] = 1,
    *,
    ceil_mode: bool = False,
    cover_all: bool = False,
    return_indices: bool = False,
) -> tuple[Any, Any]:
    """The maximum of each window.

    Among equal elements, the first in the window in row-major order gets the derivative.

    Parameters
    ----------
    x
        Shape ``(N, C, *spatial)``; with a tuple as kernel, any axes before the spatial ones.
    kernel_size
        The lengths of a window: one for each of the last axes, or an integer for all axes
        after the first two.
    stride
        The distance between windows; ``kernel_size`` by default, so that they do not overlap.
    padding
        The number of elements around ``x``, which are never the maximum: an integer, one for each
        spatial axis, or a pair ``(before, after)`` for each.
    dilation
        The distance between elements of a window.
    ceil_mode
        Whether to include a window that begins within ``x`` or the padding before it, and ends
        beyond the padding after it.
    cover_all
        Whether, as in Chainer, to also include a window that begins in the padding after ``x``.
        A window without an element of ``x`` gives minus infinity.
    return_indices
        Whether to return the indices of the maxima as well, for `max_unpool`.

    Returns
    -------
    array
        With ``(length + padding - dilation * (kernel_size - 1) - 1) // stride + 1`` windows on
        each spatial axis; rounded up with ``ceil_mode`` or ``cover_all``.
    array
        Only with ``return_indices``: for each window the index of its maximum in the flattened
        spatial axes, int64, as in PyTorch.  (Chainer's indices are within the window.)

    Raises
    ------
    ValueError
        If no window fits, an argument has the wrong length, or padding fills a window.
    TypeError
        If ``x`` is complex.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.max_pool(np.array([[[1.0, 3.0, 2.0, 0.0]]]), 2)
    array([[[3., 2.]]])
    """
    x = asarray(x)
    if dtype_kind(x.dtype) not in "fiu":
        raise TypeError(f"fdbr.ops.max_pool: x must be real numbers, not {describe(x)}")
    geometry, _ = pooling_geometry(
        *("max_pool", x, kernel_size, stride, padding, dilation),
        ceil_mode=ceil_mode,
        cover_all=cover_all,
    )
    out: Any = max_windows(x, geometry=geometry)
    if not return_indices:
        return out
    winners = _window_winners(x, out, geometry=geometry)
    return out, _indices_of_winners(winners, geometry, _spatial(x.shape, geometry))


@where_it_lies
def _indices_of_winners(winners: Any, geometry: Geometry, size: Sizes) -> Any:
    """Convert positions within windows to indices into the flattened spatial axes."""
    xp, strides = array_module(winners), [math.prod(size[i + 1 :]) for i in range(len(size))]
    starts = [
        np.array(window_starts(geometry, axis, n)) * stride
        for axis, (n, stride) in enumerate(zip(size, strides, strict=True))
    ]
    steps = [
        np.arange(k) * d * stride
        for k, d, stride in zip(geometry.kernel, geometry.dilation, strides, strict=True)
    ]
    base, offsets = (functools.reduce(np.add.outer, parts) for parts in (starts, steps))
    indices = pick(xp.asarray(offsets.ravel()), (winners,)) + xp.asarray(base)
    # Padding wins where all elements are -inf; its index is clipped to the array.
    return clip(indices, 0, math.prod(size) - 1) if any(map(any, geometry.padding)) else indices


@public("fdbr.ops")
@in_single
def avg_pool(
    x: ArrayLike,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: Any = 0,
    *,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: float | None = None,
) -> Array:
    """The mean of each window.

    The mean over whole spatial axes is ``ops.mean(x, axis=...)``.

    Parameters
    ----------
    x, kernel_size, stride, ceil_mode
        As for `max_pool`.
    padding
        The number of zeros around ``x``, as for `max_pool`.
    count_include_pad
        Whether padding counts in the mean.  `False` is Chainer's ``pad_value=None``.
    divisor_override
        The divisor of sums, instead of the number of elements.

    Returns
    -------
    array
        As many windows as in `max_pool`.

    Raises
    ------
    ValueError
        If no window fits, an argument has the wrong length, padding fills a window, or
        ``divisor_override`` is zero.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.avg_pool(np.array([[[1.0, 3.0, 2.0, 0.0]]]), 2)
    array([[[2., 1.]]])
    """
    x = floating(x)
    geometry, pads = pooling_geometry(
        "avg_pool", x, kernel_size, stride, padding, ceil_mode=ceil_mode
    )
    if divisor_override == 0:
        raise ValueError("fdbr.ops.avg_pool: divisor_override must not be 0")
    total = _sum_windows(x, geometry=geometry)
    if divisor_override is not None:
        return total / divisor_override
    if pads == geometry.padding and (count_include_pad or not any(map(any, pads))):
        return total / math.prod(geometry.kernel)
    size = _spatial(x.shape, geometry)
    for axis, n in enumerate(size):
        low, high = pads[axis] if count_include_pad else (0, 0)
        ends = -low, n + high
        lengths = [
            min(start + geometry.kernel[axis], ends[1]) - max(start, ends[0])
            for start in window_starts(geometry, axis, n)
        ]
        after = (1,) * (len(size) - axis - 1)
        counts = array_module(x).asarray(lengths, dtype=total.dtype)
        total = total / counts.reshape((-1, *after))
    return total


@public("fdbr.ops")
@in_single
def lp_pool(
    x: Any,
    norm_type: float,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    ceil_mode: bool = False,
) -> Any:
    """The norm of each window: ``sum(x**p) ** (1 / p)``.

    Where all elements of a window are 0, the first derivative is taken as 0, and second derivatives
    are NaN.

    Parameters
    ----------
    x, kernel_size, stride
        As for `max_pool`.
    norm_type
        The exponent ``p``; infinity gives `max_pool`.  Negative elements keep their signs, as in
        PyTorch: for an exponent that is not even, pass ``abs(x)``.
    ceil_mode
        As for `max_pool`.  As in PyTorch, the sum of a partial window is scaled up to that of a
        whole window.

    Returns
    -------
    array
        As many windows as in `max_pool`.

    Raises
    ------
    ValueError
        If no window fits, an argument has the wrong length, or ``norm_type`` is not positive.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.lp_pool(np.array([[[3.0, 4.0, 0.0, 2.0]]]), 2, 2)
    array([[[5., 2.]]])
    """
    if not norm_type > 0:
        raise ValueError(f"fdbr.ops.lp_pool: norm_type must be positive, got {norm_type}")
    if norm_type == math.inf:
        return max_pool(x, kernel_size, stride, ceil_mode=ceil_mode)
    x = floating(x)
    geometry, _ = pooling_geometry("lp_pool", x, kernel_size, stride, 0)
    powers = avg_pool(power(x, norm_type), kernel_size, stride, ceil_mode=ceil_mode)
    return root_or_zero(powers * math.prod(geometry.kernel), exponent=1 / norm_type)
