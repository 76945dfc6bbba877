"""Adaptive pooling: a given number of windows that divide an axis evenly, whatever its length."""

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fdbr.core.array_modules import array_module, where_it_lies
from fdbr.errors.checks import describe, integer
from fdbr.errors.public import public
from fdbr.ops.dtypes import astype, is_short
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.indexing import reading
from fdbr.ops.indexing.reading import pick
from fdbr.ops.nn.pooling.windowed import max_pool
from fdbr.ops.nn.window_products import Block, along_axis
from fdbr.ops.reductions.reduce import argmax, mean
from fdbr.ops.shape.creation import asarray, floating
from fdbr.ops.shape.layout import concat
from fdbr.ops.shape.manipulation import reshape
from fdbr.pytrees.dtypes import dtype_kind
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["adaptive_avg_pool", "adaptive_max_pool", "spatial_pyramid_pooling"]

_FEW = 32  # elements of a window up to which `max_pool` is faster than gathering windows


@public("fdbr.ops")
def adaptive_avg_pool(x: Any, output_size: int | Sequence[int | None]) -> Any:
    """The means of a given number of windows, which divide each axis as evenly as possible.

    Window ``i`` of ``m`` on an axis of length ``n`` goes from ``i * n // m`` up to
    ``ceil((i + 1) * n / m)``.  With an ``output_size`` of 1 it is global pooling.

    Parameters
    ----------
    x
        Shape ``(N, C, *spatial)``; with a tuple as size, any axes before the spatial ones.
    output_size
        The number of windows: one for each of the last axes (`None` leaves an axis unchanged), or
        an integer for all axes after the first two.

    Raises
    ------
    ValueError
        If a size is not positive, or ``x`` has fewer axes, or an empty axis.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.adaptive_avg_pool(np.array([[[1.0, 3.0, 2.0]]]), 2)
    array([[[2. , 2.5]]])
    """
    x = floating(x)
    sizes = _sizes("adaptive_avg_pool", x, output_size)
    first = x.ndim - len(sizes)
    if set(sizes) == {1}:  # all in one pass
        return mean(x, axis=tuple(range(first, x.ndim)), keepdims=True)
    for axis, m in enumerate(sizes, first):
        x = x if m == x.shape[axis] else _mean_bins(x, axis, m)
    return x


def _mean_bins(x: Any, axis: int, m: int) -> Any:
    n = x.shape[axis]
    if n % m == 0:
        parts = reshape(x, (*x.shape[:axis], m, n // m, *x.shape[axis + 1 :]))
        return mean(parts, axis=axis + 1)
    if is_short(x):  # NumPy has no products of bfloat16, and float32 has more digits
        return astype(along_axis(astype(x, np.float32), axis, _Bins(n, m)), x.dtype)
    return along_axis(x, axis, _Bins(n, m))


class _Bins(NamedTuple):
    """The windows of an axis of ``n`` elements whose means are ``m`` elements."""

    n: int
    m: int

    def blocks(self, dtype: str) -> list[Block]:
        """Return the weights of windows; see `Windows`."""
        return _mean_weights(self.n, self.m, dtype)


@functools.lru_cache(1 << 7)
def _mean_weights(n: int, m: int, dtype: str) -> list[Block]:
    weights = np.zeros((m, n), dtype)
    for row, (start, stop) in zip(weights, _bins(n, m), strict=True):
        row[start:stop] = 1 / (stop - start)
    weights.flags.writeable = False
    return [Block(0, m, 0, n, weights)]


@public("fdbr.ops")
@where_it_lies
def adaptive_max_pool(
    x: ArrayLike, output_size: int | Sequence[int | None], *, return_indices: bool = False
) -> Any:
    """The maxima of a given number of windows, which divide each axis as evenly as possible.

    The windows are those of `adaptive_avg_pool`.  Among equal elements, the first in the window
    gets the derivative.

    Parameters
    ----------
    x, output_size
        As for `adaptive_avg_pool`.
    return_indices
        Whether to return the indices of the maxima as well: int64, in the flattened spatial axes,
        as in `max_pool`.

    Raises
    ------
    ValueError
        If a size is not positive, or ``x`` has fewer axes, or an empty axis.
    TypeError
        If ``x`` is complex.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.adaptive_max_pool(np.array([[[1.0, 3.0, 2.0]]]), 2)
    array([[[3., 3.]]])
    """
    x = asarray(x)
    if dtype_kind(x.dtype) not in "fiu":
        raise TypeError(f"fdbr.ops.adaptive_max_pool: x must be real numbers, not {describe(x)}")
    sizes = _sizes("adaptive_max_pool", x, output_size)
    lead, size = tuple(x.shape[: x.ndim - len(sizes)]), tuple(x.shape[x.ndim - len(sizes) :])
    lengths = tuple(n // m for n, m in zip(size, sizes, strict=True))
    is_valid = all(n % m == 0 for n, m in zip(size, sizes, strict=True))
    if is_valid and math.prod(lengths) <= _FEW:
        return max_pool(x, lengths, return_indices=return_indices)
    shape = (*lead, *sizes)
    if set(sizes) == {1} and not return_indices:  # one window, whose elements need no gathering
        flat = reshape(x, (*lead, math.prod(size)))
        largest = argmax(flat, axis=-1, keepdims=True)
        return reshape(reading.along_axis(flat, largest, len(lead)), shape)
    indices_of_windows = [_window_indices(_bins(n, m)) for n, m in zip(size, sizes, strict=True)]
    out, argmax_index = _max_of_windows(
        reshape(x, (*lead, math.prod(size))), _flat_indices(indices_of_windows, size)
    )
    return (
        (reshape(out, shape), reshape(argmax_index, shape))
        if return_indices
        else reshape(out, shape)
    )


def _max_of_windows(x: Any, indices_of_windows: Any) -> tuple[Any, Any]:
    """Return the maximum of each window of the last axis, and its index on that axis."""
    indices_of_windows = array_module(x).asarray(indices_of_windows)
    largest = argmax(pick(x, (*(slice(None),) * (x.ndim - 1), indices_of_windows)), axis=-1)
    argmax_index = pick(
        indices_of_windows, (array_module(x).arange(len(indices_of_windows)), largest)
    )
    return reading.along_axis(x, argmax_index, x.ndim - 1), argmax_index


@public("fdbr.ops")
@where_it_lies
def spatial_pyramid_pooling(x: ArrayLike, pyramid_height: int) -> Array:
    """The maxima of 1, 2, 4, 8 ... windows along each spatial axis, concatenated.

    The size of the result does not depend on that of ``x``.  He, Zhang, Ren, Sun, "Spatial pyramid
    pooling in deep convolutional networks for visual recognition" (2014), with Chainer's windows.

    Parameters
    ----------
    x
        Shape ``(N, C, *spatial)``.
    pyramid_height
        The number of levels: at level ``i`` there are ``2**i`` windows of ``ceil(n / 2**i)``
        elements along an axis of length ``n``, which exceed it equally at both ends.  A window
        outside the axis gives minus infinity.

    Returns
    -------
    array
        Shape ``(N, C * windows, 1, ...)``, ordered by level, then by channel.

    Raises
    ------
    ValueError
        If an axis is shorter than the number of its windows, or there is no spatial axis.
    TypeError
        If ``x`` is complex.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.spatial_pyramid_pooling(np.array([[[1.0, 3.0, 2.0, 0.0]]]), 2)[0, :, 0]
    array([3., 3., 2.])
    """
    x = asarray(x)
    if dtype_kind(x.dtype) not in "fiu":
        raise TypeError(
            f"fdbr.ops.spatial_pyramid_pooling: x must be real numbers, not {describe(x)}"
        )
    levels = integer("fdbr.ops.spatial_pyramid_pooling", "pyramid_height", pyramid_height, least=1)
    rank, size = x.ndim - 2, tuple(x.shape[2:])
    if rank < 1 or min(size) < 2 ** min(levels - 1, 64):
        raise ValueError(
            f"fdbr.ops.spatial_pyramid_pooling: x {describe(x)} must have spatial axes after the "
            f"first two, at least {2 ** min(levels - 1, 64)} long for {levels} levels"
        )
    flat, found = reshape(x, (*x.shape[:2], math.prod(size))), []
    for level in range(levels):
        bins = [_covering_bins(n, 2**level) for n in size]
        out, _ = _max_of_windows(
            flat, _flat_indices([_window_indices(windows) for windows in bins], size)
        )
        empty = functools.reduce(np.logical_or.outer, [_empty(windows) for windows in bins])
        if empty.any():
            out = where(array_module(x).asarray(empty.ravel()), _lowest(x), out)
        found.append(reshape(out, (x.shape[0], math.prod(out.shape[1:]), *(1,) * rank)))
    return concat(found, axis=1)


# --- windows ------------------------------------------------------------------------


def _bins(n: int, m: int) -> list[tuple[int, int]]:
    return [(i * n // m, -(-(i + 1) * n // m)) for i in range(m)]


def _covering_bins(n: int, m: int) -> list[tuple[int, int]]:
    """Return windows of equal length that cover the axis and exceed it equally at both ends."""
    length = -(-n // m)
    starts = [i * length - (m * length - n) // 2 for i in range(m)]
    return [(max(start, 0), min(start + length, n)) for start in starts]


def _empty(bins: list[tuple[int, int]]) -> Any:
    return np.array([end <= start for start, end in bins])


def _window_indices(bins: list[tuple[int, int]]) -> Any:
    """Return the indices of each window's elements, in a row for each window.

    Shorter windows repeat their last element; empty windows have arbitrary elements.
    """
    ends = np.array(bins, dtype=np.int64)
    longest = max(1, int(np.max(ends[:, 1] - ends[:, 0])))
    last = np.maximum(ends[:, 1:] - 1, 0)
    return np.minimum(ends[:, :1] + np.arange(longest), last)


def _flat_indices(indices_of_windows: list[Any], size: Sequence[int]) -> Any:
    """Combine window indices of several axes to indices in the flattened axes."""
    found = np.zeros((1, 1), dtype=np.int64)
    for n, along_axis_indices in zip(size, indices_of_windows, strict=True):
        joined = found[:, None, :, None] * n + along_axis_indices[None, :, None, :]
        found = joined.reshape(len(found) * len(along_axis_indices), -1)
    return found


def _lowest(x: Any) -> Any:
    return -math.inf if dtype_kind(x.dtype) == "f" else np.iinfo(x.dtype).min


def _sizes(function: str, x: Any, output_size: Any) -> tuple[int, ...]:
    """Check ``output_size`` and return the number of windows for each of the last axes."""
    is_integer = not isinstance(output_size, Sequence)
    given = (output_size,) * (x.ndim - 2) if is_integer else tuple(output_size)
    rank = len(given)
    is_valid = all(m is None or (hasattr(m, "__index__") and 0 < m < 1 << 31) for m in given)
    if not 0 < rank <= x.ndim or not is_valid:
        raise ValueError(
            f"fdbr.ops.{function}: output_size must be a positive integer, or one (or None) for "
            f"each spatial axis of x {describe(x)}; it is {output_size!r}"
        )
    lengths = x.shape[x.ndim - rank :]
    for axis, n in enumerate(lengths, x.ndim - rank):
        if n == 0:
            raise ValueError(f"fdbr.ops.{function}: axis {axis} of x {describe(x)} is empty")
    return tuple(n if m is None else int(m) for n, m in zip(lengths, given, strict=True))
