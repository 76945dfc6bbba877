"""Unpooling: write elements at the indices of maxima, or to whole windows."""

import math
from collections.abc import Sequence
from typing import Any

from fdbr.core.array_modules import array_module, where_it_lies
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.ops.dtypes import in_single
from fdbr.ops.indexing.updates import at
from fdbr.ops.nn.pooling.windowed import spread_windows
from fdbr.ops.nn.windows import Geometry, Sizes, padding_pairs, per_axis
from fdbr.ops.shape.creation import asarray
from fdbr.ops.shape.manipulation import reshape
from fdbr.ops.shape.padding import pad
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["max_unpool", "unpooling"]


@public("fdbr.ops")
@where_it_lies
def max_unpool(
    x: ArrayLike,
    indices: ArrayLike,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: Any = 0,
    output_size: Sequence[int] | None = None,
    *,
    cover_all: bool = False,
    accumulate: bool = False,
) -> Array:
    """Write elements at the indices that `max_pool` returned, with zeros elsewhere.

    Parameters
    ----------
    x
        Shape ``(N, C, *spatial)``; with a tuple as kernel, any axes before the spatial ones.
    indices
        Integers of the same shape: indices into the flattened spatial axes of the result, as
        ``max_pool(..., return_indices=True)`` returns them.
    kernel_size, stride, padding
        As for `max_pool`; they determine the lengths of the result.
    output_size
        The lengths of the spatial axes of the result, or of all axes, where pooling rounded.
    cover_all
        Whether pooling had ``cover_all``, which changes the lengths of the result.
    accumulate
        Whether elements with the same index are added, as in Chainer's ``upsampling_2d``.
        Otherwise the last one is kept; overlapping windows with one maximum have equal elements.

    Returns
    -------
    array
        The dtype of ``x``, with ``(length - 1) * stride + kernel_size - padding`` elements along
        each spatial axis; ``stride - 1`` fewer with ``cover_all``.

    Raises
    ------
    ValueError
        If ``indices`` has another shape, or ``output_size`` does not fit the windows.
    IndexError
        If an index is out of bounds.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> y, at = ops.max_pool(np.array([[[1.0, 3.0, 2.0, 0.0]]]), 2, return_indices=True)
    >>> ops.max_unpool(y, at, 2)
    array([[[0., 3., 2., 0.]]])
    """
    x = asarray(x)
    indices = asarray(indices)
    if tuple(indices.shape) != tuple(x.shape) or indices.dtype.kind not in "iu":
        raise ValueError(
            f"fdbr.ops.max_unpool: indices {describe(indices)} must be integers in the shape of x "
            f"{describe(x)}"
        )
    geometry = _geometry("max_unpool", x, kernel_size, stride, padding)
    rank = len(geometry.kernel)
    sizes = _output_lengths("max_unpool", x, geometry, output_size, cover_all)
    lead, count = tuple(x.shape[: x.ndim - rank]), math.prod(x.shape[x.ndim - rank :])
    rows = math.prod(lead)
    values, columns = reshape(x, (rows, count)), reshape(indices, (rows, count))
    xp = array_module(x)
    zeros = xp.zeros((rows, math.prod(sizes)), dtype=values.dtype)
    row_numbers = xp.arange(rows).reshape((rows, 1))
    target = at(zeros)[row_numbers, columns]
    return reshape(target.add(values) if accumulate else target.set(values), (*lead, *sizes))


@public("fdbr.ops")
@in_single
def unpooling(
    x: ArrayLike,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: Any = 0,
    output_size: Sequence[int] | None = None,
    *,
    cover_all: bool = False,
) -> Array:
    """Copy each element to its whole window, and sum where windows overlap.

    It is the transpose of the sum over windows.  Chainer's ``unpooling_nd`` is this function with
    ``cover_all=True``, its default.

    Parameters
    ----------
    x
        Shape ``(N, C, *spatial)``; with a tuple as kernel, any axes before the spatial ones.
    kernel_size, stride, padding
        Those of the pooling, as for `max_pool`.
    output_size
        The lengths of the spatial axes of the result, or of all axes, where pooling rounded.
    cover_all
        Whether pooling had ``cover_all``, which changes the lengths of the result.

    Returns
    -------
    array
        The dtype of ``x``, with ``(length - 1) * stride + kernel_size - padding`` elements along
        each spatial axis; ``stride - 1`` fewer with ``cover_all``.

    Raises
    ------
    ValueError
        If ``output_size`` does not fit the windows, or an argument has the wrong length.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.unpooling(np.array([[[1.0, 3.0]]]), 2)
    array([[[1., 1., 3., 3.]]])
    """
    x = asarray(x)
    geometry = _geometry("unpooling", x, kernel_size, stride, padding)
    sizes = _output_lengths("unpooling", x, geometry, output_size, cover_all)
    rank = len(sizes)
    pairs, covered, trailing = [], [], []
    for count, (low, _), extent, step, n in zip(
        x.shape[x.ndim - rank :],
        geometry.padding,
        geometry.extents(),
        geometry.stride,
        sizes,
        strict=True,
    ):
        end = (count - 1) * step + extent - low  # the end of the last window
        pairs.append((low, max(end - n, 0)))
        covered.append(min(end, n))
        trailing.append((0, max(n - end, 0)))
    geometry = geometry._replace(padding=tuple(pairs))
    out = spread_windows(x, geometry=geometry, size=tuple(covered))
    if any(after for _, after in trailing):
        out = pad(out, ((0, 0),) * (x.ndim - rank) + tuple(trailing))
    return out


# --- arguments ----------------------------------------------------------------------


def _geometry(function: str, x: Any, kernel_size: Any, stride: Any, padding: Any) -> Geometry:
    rank = len(kernel_size) if isinstance(kernel_size, Sequence) else x.ndim - 2
    if not 0 < rank <= x.ndim or 0 in x.shape[x.ndim - rank :]:
        raise ValueError(
            f"fdbr.ops.{function}: x {describe(x)} needs a spatial axis, not empty, for each entry "
            f"of kernel_size {kernel_size!r}, or, where that is an integer, one at least after the "
            "first two axes"
        )
    lengths = per_axis(function, "kernel_size", kernel_size, rank)
    steps = lengths if stride is None else per_axis(function, "stride", stride, rank)
    return Geometry(lengths, steps, padding_pairs(function, padding, rank), (1,) * rank)


def _output_lengths(
    function: str, x: Any, geometry: Geometry, output_size: Any, cover_all: bool
) -> Sizes:
    """Return the lengths of the result's spatial axes."""
    rank = len(geometry.kernel)
    counts = tuple(x.shape[x.ndim - rank :])
    axes = list(
        zip(counts, geometry.kernel, geometry.stride, map(sum, geometry.padding), strict=True)
    )
    if output_size is None:
        sizes = tuple((m - 1) * s + k - p - (s - 1) * cover_all for m, k, s, p in axes)
        if min(sizes) < 1:
            raise ValueError(
                f"fdbr.ops.{function}: padding {geometry.padding} leaves nothing of the windows of "
                f"x {describe(x)}, whose spatial axes would be {sizes}"
            )
        return sizes
    given = tuple(output_size) if isinstance(output_size, Sequence) else (output_size,) * rank
    if len(given) == x.ndim:
        given = given[x.ndim - rank :]
    sizes = per_axis(function, "output_size", given, rank)
    for n, (m, k, s, p) in zip(sizes, axes, strict=True):
        if not (n + p - k) // s + 1 <= m <= -(-(n + p - k) // s) + 1:
            raise ValueError(
                f"fdbr.ops.{function}: output_size {sizes} does not fit x {describe(x)}: with "
                f"kernel_size {geometry.kernel} and stride {geometry.stride}, pooling of an axis "
                f"of {n} would not give {m} elements"
            )
    return sizes
