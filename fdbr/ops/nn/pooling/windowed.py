"""One number for each window of an array's spatial axes: the largest, or the mean.

The primitives take arrays ``(..., *spatial)``: whatever is before the spatial axes is a batch.
"""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fdbr.backends.cpu.library.pool import pooling
from fdbr.core.array_modules import array_module, where_it_lies
from fdbr.core.util.threads import divide, parts
from fdbr.errors.checks import describe
from fdbr.ops.declare import constant, linear, opaque
from fdbr.ops.declare.batches import spread
from fdbr.ops.declare.rules import Function
from fdbr.ops.dtypes import in_single
from fdbr.ops.elementwise.arithmetic import clip, power
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.indexing.reading import pick
from fdbr.ops.nn.pooling.pooled_windows import pooled_windows, starts_of
from fdbr.ops.nn.windows import Geometry, Sizes
from fdbr.ops.shape.creation import asarray, floating
from fdbr.pytrees.dtypes import dtype_kind
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["avg_pool", "lp_pool", "max_pool"]

_LARGE = 1 << 20  # bytes of an array from which on it is divided among threads
_PIECE = 1 << 20  # bytes of a piece, of which there are two at least


def _spatial(shape: Sizes, geometry: Geometry) -> Sizes:
    return tuple(shape[len(shape) - len(geometry.kernel) :])


def _lead(shape: Sizes, geometry: Geometry) -> Sizes:
    return tuple(shape[: len(shape) - len(geometry.kernel)])


def _apart(geometry: Geometry) -> bool:
    """Whether no element belongs to two windows: then there is nothing to add up."""
    return all(s >= e for s, e in zip(geometry.stride, geometry.extents(), strict=True))


def _padded(xp: Any, x: Any, geometry: Geometry, value: Any) -> Any:
    """An array in its padding; itself where there is none."""
    if not any(map(any, geometry.padding)):
        return x
    size = _spatial(x.shape, geometry)
    shape = (*_lead(x.shape, geometry), *geometry.padded(size))
    out = xp.full_like(x, value, shape=shape)  # the order of axes in memory stays
    out[(..., *geometry.interior(size))] = x
    return out


def _reduced(xp: Any, x: Any, geometry: Geometry, counts: Sizes, combine: Any) -> Any:
    """The elements of each window put together, one axis after the other, in new memory."""
    first = x.ndim - len(counts)
    for axis, count in enumerate(counts):
        step, apart = geometry.stride[axis], geometry.dilation[axis]
        before = (slice(None),) * (first + axis)
        starts = [i * apart for i in range(geometry.kernel[axis])]
        parts = [x[(*before, slice(i, i + step * (count - 1) + 1, step))] for i in starts]
        x = parts[0]
        for part in parts[1:]:
            x = combine(x, part)
    return x if math.prod(geometry.kernel) > 1 else xp.copy(x, order="K")


def _by_planes(value: Function) -> Function:
    """The value of an operation on windows, of large arrays of NumPy's a few planes at a time.

    What lies before the spatial axes is divided among threads: such a value goes over its operands
    once for each position of a window.
    """

    @functools.wraps(value)
    def of_any(xp: Any, *operands: Any, geometry: Geometry, **params: Any) -> Any:
        x = operands[0]
        if type(x) is not np.ndarray or x.nbytes < _LARGE:
            return value(xp, *operands, geometry=geometry, **params)
        lead = _lead(x.shape, geometry)
        count = math.prod(lead)
        if count < 2 or not all(v.flags.c_contiguous for v in operands):
            return value(xp, *operands, geometry=geometry, **params)
        flat = [v.reshape(count, *_spatial(v.shape, geometry)) for v in operands]
        one = value(xp, *(v[:1] for v in flat), geometry=geometry, **params)
        out = np.empty((count, *one.shape[1:]), one.dtype)

        def work(piece: slice) -> None:
            out[piece] = value(xp, *(v[piece] for v in flat), geometry=geometry, **params)

        divide(work, parts(count, max(2, max(x.nbytes, out.nbytes) // _PIECE)))
        return out.reshape(*lead, *out.shape[1:])

    return of_any


def _compiled(kernel: Callable[..., Any]) -> Callable[[Function], Function]:
    """The value of an operation on windows, of large arrays by a kernel.

    It takes the operands and the settings, and gives `None` of what it cannot do.
    """

    def decorator(value: Function) -> Function:
        @functools.wraps(value)
        def of_any(xp: Any, *operands: Any, **settings: Any) -> Any:
            found = kernel(*operands, **settings) if xp is np else None
            return value(xp, *operands, **settings) if found is None else found

        return of_any

    return decorator


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
@_by_planes
def _sum_windows(xp: Any, x: ArrayLike, *, geometry: Geometry) -> Array:
    counts = geometry.counts(_spatial(x.shape, geometry))
    return _reduced(xp, _padded(xp, x, geometry, 0), geometry, counts, xp.add)


@linear(
    x=lambda ct, geometry: _sum_windows(ct, geometry=geometry), batch=_batch_leading, fresh=True
)
@_by_planes
def spread_windows(xp: Any, x: ArrayLike, *, geometry: Geometry, size: Sizes) -> Array:
    """Each element in its whole window, in an array with spatial axes of these lengths."""
    counts = _spatial(x.shape, geometry)
    shape = (*_lead(x.shape, geometry), *geometry.padded(size))
    out = xp.zeros_like(x, shape=shape)
    apart = _apart(geometry)
    for place in geometry.places(counts):
        if apart:
            out[(..., *place)] = x
        else:
            out[(..., *place)] += x
    return out[(..., *geometry.interior(size))]


# --- maxima -------------------------------------------------------------------------


def _lowest(xp: Any, x: Any) -> Any:
    return -math.inf if dtype_kind(x.dtype) == "f" else xp.iinfo(x.dtype).min


def _to_first(ct: Any, x: Any, out: Any, shape: Sizes, geometry: Geometry) -> Any:
    winners = _window_winners(x, out, geometry=geometry)
    return _to_winners(ct, winners, geometry=geometry, size=_spatial(shape, geometry))


def _of_first(t: Any, x: Any, out: Any, geometry: Geometry) -> Any:
    return _at_winners(t, _window_winners(x, out, geometry=geometry), geometry=geometry)


def _largest(x: Any, geometry: Geometry) -> Any:
    return pooling.largest(x, geometry.windows(), geometry.counts(_spatial(x.shape, geometry)))


@opaque(x=(_to_first, _of_first), batch=_batch_leading, fresh=True, total=True)
@_compiled(_largest)
@_by_planes
def max_windows(xp: Any, x: ArrayLike, *, geometry: Geometry) -> Array:
    """The largest element of each window."""
    counts = geometry.counts(_spatial(x.shape, geometry))
    return _reduced(xp, _padded(xp, x, geometry, _lowest(xp, x)), geometry, counts, xp.maximum)


def _winners(x: Any, out: Any, geometry: Geometry) -> Any:
    return pooling.winners(x, geometry.windows(), _spatial(out.shape, geometry))


@constant(batch=_batch_leading, fresh=True, total=True)
@_compiled(_winners)
@_by_planes
def _window_winners(xp: Any, x: ArrayLike, out: Any, *, geometry: Geometry) -> Array:
    """The number of the first position in each window that holds its maximum, or NaN."""
    counts = _spatial(out.shape, geometry)
    x = _padded(xp, x, geometry, _lowest(xp, x))
    last = math.prod(geometry.kernel) - 1
    winners = xp.zeros_like(out, dtype=xp.uint8 if last < 256 else xp.int64)
    lost = True  # by all positions so far: the winner's number is how often that is so
    unknown = dtype_kind(x.dtype) == "f" and (xp is not np or np.isnan(out).any())
    for place in geometry.places(counts)[:last]:
        part = x[(..., *place)]
        lost = (part != out) & lost
        if unknown:
            lost &= part == part
        winners += lost
    return winners


def _at(x: Any, winners: Any, geometry: Geometry) -> Any:
    return pooling.at_winners(x, winners, geometry.windows(), _spatial(x.shape, geometry))


def _to(x: Any, winners: Any, geometry: Geometry, size: Sizes) -> Any:
    return pooling.to_winners(x, winners, geometry.windows(), size, _apart(geometry))


@linear(
    x=lambda ct, winners, shape, geometry: _to_winners(
        ct, winners, geometry=geometry, size=_spatial(shape, geometry)
    ),
    batch=_batch_leading,
    fresh=True,
    total=True,
)
@_compiled(_at)
@_by_planes
def _at_winners(xp: Any, x: ArrayLike, winners: Any, *, geometry: Geometry) -> Array:
    """The element of each window at the position that ``winners`` gives."""
    counts = _spatial(winners.shape, geometry)
    x = _padded(xp, x, geometry, 0)
    out = xp.zeros_like(winners, dtype=x.dtype)
    for number, place in enumerate(geometry.places(counts)):
        xp.copyto(out, x[(..., *place)], where=winners == number)
    return out


@linear(
    x=lambda ct, winners, geometry: _at_winners(ct, winners, geometry=geometry),
    batch=_batch_leading,
    fresh=True,
    total=True,
)
@_compiled(_to)
@_by_planes
def _to_winners(xp: Any, x: ArrayLike, winners: Any, *, geometry: Geometry, size: Sizes) -> Array:
    """The transpose of `_at_winners`."""
    counts = _spatial(winners.shape, geometry)
    ordered = xp.empty_like(winners, dtype=x.dtype)
    ordered[...] = x  # in the order of axes in memory that the input of the pooling has
    shape = (*_lead(x.shape, geometry), *geometry.padded(size))
    apart, nothing = _apart(geometry), x.dtype.type(0)
    out = xp.zeros_like(ordered, shape=shape)
    for number, place in enumerate(geometry.places(counts)):
        part = out[(..., *place)]
        if apart:
            xp.copyto(part, ordered, where=winners == number)
        else:
            part += xp.where(winners == number, ordered, nothing)
    return out[(..., *geometry.interior(size))]


# --- for the user -------------------------------------------------------------------


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
    """The largest element of each window.

    Of equal elements the first in the window, in row-major order, has the derivative.

    Parameters
    ----------
    x
        Shape ``(N, C, *spatial)``; with a tuple as kernel any axes before the spatial ones.
    kernel_size
        The lengths of a window: one for each of the last axes, or an integer for all axes
        after the first two.
    stride
        How far windows are from each other; ``kernel_size`` by default, so that they do not
        overlap.
    padding
        How much is put around ``x``, which never is the largest: an integer, one for each
        spatial axis, or a pair ``(before, after)`` for each.
    dilation
        How far the elements of a window are from each other.
    ceil_mode
        Whether a window counts that begins within ``x`` and its padding before, and ends
        beyond the padding after.
    cover_all
        Whether, as in Chainer, a window counts that begins in the padding after, too.  One with
        no element of ``x`` is minus infinity.
    return_indices
        Whether to return the places of the largest as well, for `max_unpool`.

    Returns
    -------
    array
        With ``(length + padding - dilation * (kernel_size - 1) - 1) // stride + 1`` windows on
        each spatial axis; rounded up with ``ceil_mode`` or ``cover_all``.
    array
        With ``return_indices`` alone: for each window the place of its largest element in the
        flattened spatial axes, of int64, as PyTorch counts.  (Chainer counts within the window.)

    Raises
    ------
    ValueError
        If no window fits, a setting has another number of axes, or padding fills a window.
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
    geometry, _ = pooled_windows(
        *("max_pool", x, kernel_size, stride, padding, dilation),
        ceil_mode=ceil_mode,
        cover_all=cover_all,
    )
    out = max_windows(x, geometry=geometry)
    if not return_indices:
        return out
    winners = _window_winners(x, out, geometry=geometry)
    return out, _places_of(winners, geometry, _spatial(x.shape, geometry))


@where_it_lies
def _places_of(winners: Any, geometry: Geometry, size: Sizes) -> Any:
    """The places in the flattened spatial axes of the winners' numbers within their windows."""
    xp, strides = array_module(winners), [math.prod(size[i + 1 :]) for i in range(len(size))]
    starts = [
        np.array(starts_of(geometry, axis, n)) * stride
        for axis, (n, stride) in enumerate(zip(size, strides, strict=True))
    ]
    steps = [
        np.arange(k) * d * stride
        for k, d, stride in zip(geometry.kernel, geometry.dilation, strides, strict=True)
    ]
    base, further = (functools.reduce(np.add.outer, parts) for parts in (starts, steps))
    places = pick(xp.asarray(further.ravel()), (winners,)) + xp.asarray(base)
    # Only padding that is as large as the largest wins, and it lies outside.
    return clip(places, 0, math.prod(size) - 1) if any(map(any, geometry.padding)) else places


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
        How many zeros are put around ``x``, as for `max_pool`.
    count_include_pad
        Whether they count in the mean.  `False` is Chainer's ``pad_value=None``.
    divisor_override
        By what sums are divided in the place of the number of elements.

    Returns
    -------
    array
        With as many windows as in `max_pool`.

    Raises
    ------
    ValueError
        If no window fits, a setting has another number of axes, padding fills a window, or
        ``divisor_override`` is zero.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.avg_pool(np.array([[[1.0, 3.0, 2.0, 0.0]]]), 2)
    array([[[2., 1.]]])
    """
    x = floating(x)
    geometry, pads = pooled_windows(
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
        numbers = [
            min(start + geometry.kernel[axis], ends[1]) - max(start, ends[0])
            for start in starts_of(geometry, axis, n)
        ]
        after = (1,) * (len(size) - axis - 1)
        counted = array_module(x).asarray(numbers, dtype=total.dtype)
        total = total / counted.reshape((-1, *after))
    return total


@in_single
def lp_pool(
    x: ArrayLike,
    norm_type: float,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    ceil_mode: bool = False,
) -> tuple[Any, Any]:
    """The norm of each window: ``sum(x**p) ** (1 / p)``.

    Where all of a window is zero, so is the derivative.

    Parameters
    ----------
    x, kernel_size, stride
        As for `max_pool`.
    norm_type
        The exponent ``p``; infinity gives `max_pool`.  Negative elements keep their signs, as in
        PyTorch: with an exponent that is not even, give ``abs(x)``.
    ceil_mode
        As for `max_pool`.  As in PyTorch, a window that is not whole counts for a whole one, with
        the mean of its powers.

    Returns
    -------
    array
        With as many windows as in `max_pool`.

    Raises
    ------
    ValueError
        If no window fits, a setting has another number of axes, or ``norm_type`` is not positive.

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
    geometry, _ = pooled_windows("lp_pool", x, kernel_size, stride, 0)
    powers = avg_pool(power(x, norm_type), kernel_size, stride, ceil_mode=ceil_mode)
    zero = powers == 0
    total = where(zero, 1.0, powers) * math.prod(geometry.kernel)
    return where(zero, 0.0, power(total, 1 / norm_type))
