"""Interpolate arrays at points of a grid: spatial transformers."""

import functools
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fdbr.core.array_modules import array_module, where_it_lies
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.ops.axes import normalize_axis
from fdbr.ops.dtypes import astype, in_single
from fdbr.ops.elementwise.arithmetic import abs as absolute
from fdbr.ops.elementwise.arithmetic import floor, round
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.indexing.table_rows import rows_at
from fdbr.ops.nn.windows import per_axis
from fdbr.ops.products import matmul
from fdbr.ops.shape.creation import floating
from fdbr.ops.shape.manipulation import moveaxis, reshape
from fdbr.ops.shape.padding import pad
from fdbr.pytrees.dtypes import dtype_kind
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["affine_grid", "grid_sample"]

# Indices along an axis, their weights, and whether they are inside the array.
Taps = list[tuple[Any, Any, Any]]


@public("fdbr.ops")
@where_it_lies
@in_single
def affine_grid(
    theta: ArrayLike, size: Sequence[int], align_corners: bool | None = None, *, axis: int = -1
) -> Array:
    """The points of a regular grid under affine maps, for `grid_sample`.

    Jaderberg et al., "Spatial transformer networks" (2015).  Chainer's
    ``spatial_transformer_grid`` is this function with ``align_corners=True, axis=1``.

    Parameters
    ----------
    theta
        The maps: shape ``(N, 2, 3)`` for images, ``(N, d, d + 1)`` in ``d`` dimensions.
    size
        The shape of the result of `grid_sample`, ``(N, C, *spatial)``, or its spatial axes alone.
    align_corners
        Whether -1 and 1 are the centres of the first and the last elements, rather than their
        outer edges.
    axis
        The axis of the coordinates, x first: the last one, or 1 as in Chainer.

    Returns
    -------
    array
        Shape ``(N, *spatial, d)``, or ``(N, d, *spatial)`` with ``axis=1``.

    Raises
    ------
    ValueError
        If shapes do not fit.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> identity = np.array([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
    >>> ops.affine_grid(identity, (1, 1, 2, 2), align_corners=True)[0, 0]
    array([[-1., -1.],
           [ 1., -1.]])
    """
    theta = floating(theta)
    rank = theta.shape[1] if theta.ndim == 3 else 0
    given = tuple(size) if isinstance(size, Sequence) else (size,)
    fits = rank > 0 and theta.shape[2] == rank + 1 and len(given) in (rank, rank + 2)
    if not fits or (len(given) == rank + 2 and given[0] != theta.shape[0]):
        raise ValueError(
            f"fdbr.ops.affine_grid: theta {describe(theta)} must have shape (N, d, d + 1), and "
            f"size must be (N, C, *spatial) with d spatial axes, or these alone; it is {size!r}"
        )
    sizes = per_axis("affine_grid", "size", given[-rank:], rank)
    lines = [_line(n, bool(align_corners)) for n in sizes]
    shape_of_grid = [*np.meshgrid(*lines, indexing="ij")][::-1]
    base = np.stack([*map(np.ravel, shape_of_grid), np.ones(math.prod(sizes))], axis=0)
    grid = matmul(theta, array_module(theta).asarray(base, dtype=theta.dtype))
    grid = reshape(grid, (theta.shape[0], rank, *sizes))
    return moveaxis(grid, 1, normalize_axis(axis, grid.ndim, "affine_grid"))


def _line(n: int, align_corners: bool) -> Any:
    """Return the coordinates along an axis; a single element is at the centre."""
    if n == 1:
        return np.zeros(1)
    line = np.linspace(-1.0, 1.0, n)
    return line if align_corners else line * (n - 1) / n


@public("fdbr.ops")
@where_it_lies
@in_single
def grid_sample(
    x: Any,
    grid: Any,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
    *,
    axis: int = -1,
) -> Any:
    """Interpolate an array at the points of a grid.

    The result is differentiable in the array and in the points.  Jaderberg et al., "Spatial
    transformer networks" (2015).  Chainer's ``spatial_transformer_sampler`` is this function with
    ``align_corners=True, axis=1``.

    Parameters
    ----------
    x
        Shape ``(N, C, *spatial)``, in any number ``d`` of dimensions.
    grid
        The points: shape ``(N, *points, d)``.  Coordinates go from -1 to 1 along each axis, and
        that of the last spatial axis (x) comes first.
    mode
        ``"bilinear"``, in any number of dimensions; ``"nearest"``; or ``"bicubic"``, with Keys's
        kernel with a = -0.75.
    padding_mode
        The values outside the array: ``"zeros"``, ``"border"`` (the nearest element at the border)
        or ``"reflection"``.
    align_corners
        Whether -1 and 1 are the centres of the first and the last elements, rather than their
        outer edges.
    axis
        The axis of ``grid`` with the coordinates of a point: the last one, or 1 as in Chainer.

    Returns
    -------
    array
        Shape ``(N, C, *points)``.

    Raises
    ------
    ValueError
        If shapes do not fit, ``x`` has an empty axis, or a mode does not exist.
    TypeError
        If ``grid`` is complex.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> x = np.array([[[0.0, 1.0, 4.0]]])
    >>> ops.grid_sample(x, np.array([[[-1.0], [0.5], [0.75]]]), align_corners=True)
    array([[[0.  , 2.5 , 3.25]]])
    """
    x, grid = floating(x), floating(grid)
    grid = moveaxis(grid, normalize_axis(axis, grid.ndim, "grid_sample"), -1)
    _check(x, grid, mode, padding_mode)
    count, channels, *size = x.shape
    shape_of_grid, rank = tuple(grid.shape[1:-1]), len(size)
    points = math.prod(shape_of_grid)
    corners = bool(align_corners)
    taps_of_axes = [
        _TAPS[mode](_position(grid[..., rank - 1 - i], n, corners), n, padding_mode, corners)
        for i, n in enumerate(size)
    ]
    xp = array_module(x)
    out: Any = None
    outside = count * math.prod(size)
    table = reshape(moveaxis(x, 1, -1), (outside, channels))
    # Points outside read a row of zeros: the product of 0 with NaN in another row would be NaN.
    table = pad(table, ((0, 1), (0, 0)))
    start = xp.arange(count).reshape((count, *(1,) * len(shape_of_grid)))
    for corner in itertools.product(*taps_of_axes):
        row: Any = start
        for (index, _, _), n in zip(corner, size, strict=True):
            row = row * n + index
        inside: Any = functools.reduce(operator.and_, [inside for _, _, inside in corner])
        row = where(inside, row, outside)
        product: Any = functools.reduce(operator.mul, [weight for _, weight, _ in corner])
        weight = reshape(product, (count * points, 1))
        part = rows_at(table, reshape(row, count * points)) * weight
        out = part if out is None else out + part
    return moveaxis(reshape(out, (count, *shape_of_grid, channels)), -1, 1)


def _check(x: Any, grid: Any, mode: str, padding_mode: str) -> None:
    if mode not in _TAPS:
        raise ValueError(f"fdbr.ops.grid_sample: mode must be one of {[*_TAPS]}, not {mode!r}")
    if padding_mode not in _PADDINGS:
        raise ValueError(
            f"fdbr.ops.grid_sample: padding_mode must be one of {_PADDINGS}, not {padding_mode!r}"
        )
    if dtype_kind(grid.dtype) == "c":
        raise TypeError(f"fdbr.ops.grid_sample: grid must be real numbers, not {describe(grid)}")
    if x.ndim < 3 or grid.ndim < 2 or grid.shape[-1] != x.ndim - 2 or grid.shape[0] != x.shape[0]:
        raise ValueError(
            f"fdbr.ops.grid_sample: x {describe(x)} must have shape (N, C, *spatial), and grid "
            f"{describe(grid)} as many examples, and a coordinate for each spatial axis"
        )
    if 0 in x.shape[2:]:
        raise ValueError(f"fdbr.ops.grid_sample: x {describe(x)} has an empty spatial axis")


# --- coordinates ----------------------------------------------------------------------

_PADDINGS = ("zeros", "border", "reflection")


def _position(u: Any, n: int, align_corners: bool) -> Any:
    """Convert a coordinate to a position from 0 to ``n - 1``."""
    return (u + 1) * ((n - 1) / 2) if align_corners else ((u + 1) * n - 1) / 2


def _continue(u: Any, n: int, padding_mode: str, align_corners: bool) -> Any:
    """Map a position outside the array to the one inside that continues it."""
    if padding_mode == "zeros":
        return u
    if padding_mode == "reflection":
        u = _reflect(u, n, align_corners)
    return where(u <= 0, 0.0, where(u >= n - 1, n - 1.0, u))  # derivative 0 beyond the border


def _reflect(u: Any, n: int, align_corners: bool) -> Any:
    low, span = (0.0, n - 1) if align_corners else (-0.5, n)
    if span == 0:
        return u * 0
    distance = absolute(u - low)
    flips = floor(distance / span)
    rest = distance - flips * span
    return where(flips % 2 == 0, rest, span - rest) + low


def _masked_tap(index: Any, weight: Any, n: int) -> tuple[Any, Any, Any]:
    """Convert integral positions to indices, with weight 0 outside the array."""
    inside = (index >= 0) & (index <= n - 1)
    xp = array_module(index)
    return astype(where(inside, index, 0.0), xp.int64), where(inside, weight, 0.0), inside


# --- weights ------------------------------------------------------------------------


def _nearest(u: Any, n: int, padding_mode: str, align_corners: bool) -> Taps:
    u = round(_continue(u, n, padding_mode, align_corners))
    return [_masked_tap(u, u * 0 + 1, n)]


def _linear(u: Any, n: int, padding_mode: str, align_corners: bool) -> Taps:
    u = _continue(u, n, padding_mode, align_corners)
    low = floor(u)
    weight = u - low
    return [_masked_tap(low, 1 - weight, n), _masked_tap(low + 1, weight, n)]


def _cubic(u: Any, n: int, padding_mode: str, align_corners: bool) -> Taps:
    a = -0.75
    low = floor(u)
    taps_of_axes = []
    for step in (-1, 0, 1, 2):
        d = u - low - step if step < 1 else low + step - u
        if step in (0, 1):
            weight = ((a + 2) * d - (a + 3)) * d * d + 1
        else:
            weight = ((d - 5) * d + 8) * d * a - 4 * a
        taps_of_axes.append(
            _masked_tap(_continue(low + step, n, padding_mode, align_corners), weight, n)
        )
    return taps_of_axes


_TAPS: dict[str, Callable[..., Taps]] = {
    "bilinear": _linear,
    "nearest": _nearest,
    "bicubic": _cubic,
}
