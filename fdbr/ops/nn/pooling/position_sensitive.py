"""Position-sensitive pooling of regions: each window reads channels of its own.

Dai, Li, He, Sun, "R-FCN: object detection via region-based fully convolutional networks" (2016).
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from fdbr.core.array_modules import array_module, where_it_lies
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.ops.dtypes import astype
from fdbr.ops.nn.pooling.region_products import region_products
from fdbr.ops.nn.pooling.regions import (
    arguments,
    in_single_of_images,
    largest_samples,
    mean_weights,
    number,
    peak_values,
    ratios_of,
    samples_of,
    window_weights,
    windows_of,
)
from fdbr.ops.nn.windows import per_axis
from fdbr.ops.shape.creation import floating
from fdbr.ops.shape.manipulation import broadcast_to, expand_dims, permute_dims, reshape
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = [
    "ps_roi_average_align",
    "ps_roi_average_pool",
    "ps_roi_max_align",
    "ps_roi_max_pool",
]

_LEAST = 0.1
"""The shortest side of a region in ChainerCV's functions."""


@public("fdbr.ops")
@where_it_lies
@in_single_of_images
def ps_roi_average_align(
    x: ArrayLike,
    boxes: ArrayLike,
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int | Sequence[int | None] | None = -1,
    *,
    group_size: int | Sequence[int] | None = None,
    batch_index: ArrayLike | None = None,
    box_format: str = "xyxy",
    chainer: bool = False,
) -> Array:
    """The means of interpolated samples in windows that each read channels of their own.

    It is torchvision's ``ps_roi_align``, and ChainerCV's ``ps_roi_average_align_2d`` with
    ``chainer=True`` and ``box_format="yxyx"``.  It is differentiable in the images and, except
    where a sample is exactly at an element, in the corners.

    Parameters
    ----------
    x, boxes, output_size, spatial_scale, sampling_ratio, batch_index, box_format
        As for `roi_average_align`.
    group_size
        The number of groups of channels down and across: an integer, or two; by default
        ``output_size``.  Window ``(i, j)`` of output channel ``c`` reads channel ``(c * G + g) * H
        + h`` of G by H groups, where ``g`` and ``h`` are ``i`` and ``j`` scaled to the groups.
    chainer
        Whether coordinates are not shifted by half an element and sides below 0.1 count as 0.1, as
        in ChainerCV.

    Returns
    -------
    array
        Shape ``(K, C / (group height * group width), *output_size)``, the dtype of ``x``.

    Raises
    ------
    ValueError
        If shapes do not fit, the groups do not divide the channels, or an image index is out of
        range.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> x = np.arange(32.0).reshape(1, 2, 4, 4)
    >>> ops.ps_roi_average_align(x, np.array([[0.0, 0, 0, 4, 4]]), (2, 1), chainer=True)
    array([[[[ 5.875],
             [28.875]]]])
    """
    ratios = ratios_of("ps_roi_average_align", sampling_ratio)
    x = floating(x)

    def tables(low: Any, high: Any, scale: float, m: int, n: int, axis: int) -> Any:
        ratio = ratios[axis]
        return (mean_weights(low, high, scale, m, n, ratio, not chainer, x.dtype, least=_LEAST),)

    given = x, boxes, output_size, spatial_scale, batch_index, box_format
    return _pooled("ps_roi_average_align", given, group_size, tables, _products)


@public("fdbr.ops")
@where_it_lies
@in_single_of_images
def ps_roi_max_align(
    x: ArrayLike,
    boxes: ArrayLike,
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int | Sequence[int | None] | None = -1,
    *,
    group_size: int | Sequence[int] | None = None,
    batch_index: ArrayLike | None = None,
    box_format: str = "xyxy",
    chainer: bool = False,
    empty: float = -math.inf,
) -> Array:
    """The maxima of interpolated samples in windows that each read channels of their own.

    It is ChainerCV's ``ps_roi_max_align_2d`` with ``chainer=True`` and ``box_format="yxyx"``.
    It is differentiable as `ps_roi_average_align`.

    Parameters
    ----------
    x, boxes, output_size, spatial_scale, sampling_ratio, group_size, batch_index, box_format
        As for `ps_roi_average_align`.
    chainer
        As for `ps_roi_average_align`.
    empty
        The value of windows whose samples are all outside the image.

    Returns
    -------
    array
        As from `ps_roi_average_align`.

    Raises
    ------
    ValueError
        As for `ps_roi_average_align`.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> x = np.arange(32.0).reshape(1, 2, 4, 4)
    >>> ops.ps_roi_max_align(x, np.array([[0.0, 0, 0, 4, 4]]), (2, 1), 1.0, 1, chainer=True)
    array([[[[ 6.],
             [30.]]]])
    """
    ratios = ratios_of("ps_roi_max_align", sampling_ratio)
    fill = number("ps_roi_max_align", "empty", empty)

    def tables(low: Any, high: Any, scale: float, m: int, n: int, axis: int) -> Any:
        return samples_of(low, high, scale, m, n, ratios[axis], not chainer, _LEAST)

    given = x, boxes, output_size, spatial_scale, batch_index, box_format
    return _pooled(
        "ps_roi_max_align",
        given,
        group_size,
        tables,
        lambda x, rows, columns, index: largest_samples(x, (rows, columns), index, fill),
    )


@public("fdbr.ops")
@where_it_lies
@in_single_of_images
def ps_roi_average_pool(
    x: ArrayLike,
    boxes: ArrayLike,
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    *,
    group_size: int | Sequence[int] | None = None,
    batch_index: ArrayLike | None = None,
    box_format: str = "xyxy",
    chainer: bool = False,
) -> Array:
    """The means of windows that each read channels of their own.

    It is torchvision's ``ps_roi_pool``, and ChainerCV's ``ps_roi_average_pooling_2d`` with
    ``chainer=True`` and ``box_format="yxyx"``.  It is differentiable in the images, not in the
    boxes.  Windows outside the image are 0.  The last row and the last column of an
    image are never read, as in torchvision; in ChainerCV they are.

    Parameters
    ----------
    x, boxes, output_size, spatial_scale, group_size, batch_index, box_format
        As for `ps_roi_average_align`.
    chainer
        Whether corners are not rounded, sides below 0.1 count as 0.1, and the last row and column
        are read, as in ChainerCV.

    Returns
    -------
    array
        As from `ps_roi_average_align`.

    Raises
    ------
    ValueError
        As for `ps_roi_average_align`.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> x = np.arange(32.0).reshape(1, 2, 4, 4)
    >>> ops.ps_roi_average_pool(x, np.array([[0.0, 0, 0, 4, 4]]), (2, 1))
    array([[[[ 3.],
             [25.]]]])
    """

    def tables(low: Any, high: Any, scale: float, m: int, n: int, axis: int) -> Any:
        return (
            window_weights(
                windows_of(
                    low, high, scale, m, n - (not chainer), False, _LEAST if chainer else None
                ),
                n,
                "float64",
            ),
        )

    given = x, boxes, output_size, spatial_scale, batch_index, box_format
    return _pooled("ps_roi_average_pool", given, group_size, tables, _products)


@public("fdbr.ops")
@where_it_lies
def ps_roi_max_pool(
    x: ArrayLike,
    boxes: ArrayLike,
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    *,
    group_size: int | Sequence[int] | None = None,
    batch_index: ArrayLike | None = None,
    box_format: str = "xyxy",
    chainer: bool = False,
    empty: float = 0.0,
) -> Array:
    """The maxima of windows that each read channels of their own.

    It is ChainerCV's ``ps_roi_max_pooling_2d`` with ``chainer=True``, ``box_format="yxyx"`` and
    ``empty=-inf``.  It is differentiable in the images, not in the boxes.

    Parameters
    ----------
    x, boxes, output_size, spatial_scale, group_size, batch_index, box_format
        As for `ps_roi_average_align`.
    chainer
        Whether corners are not rounded and sides below 0.1 count as 0.1, as in ChainerCV.
    empty
        The value of windows outside the image.

    Returns
    -------
    array
        As from `ps_roi_average_align`.

    Raises
    ------
    ValueError
        As for `ps_roi_average_align`.
    TypeError
        If ``x`` is complex.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> x = np.arange(32.0).reshape(1, 2, 4, 4)
    >>> ops.ps_roi_max_pool(x, np.array([[0.0, 0, 0, 4, 4]]), (2, 1))
    array([[[[ 7.],
             [31.]]]])
    """
    fill = number("ps_roi_max_pool", "empty", empty)

    def tables(low: Any, high: Any, scale: float, m: int, n: int, axis: int) -> Any:
        return (windows_of(low, high, scale, m, n, False, _LEAST if chainer else None),)

    given = x, boxes, output_size, spatial_scale, batch_index, box_format
    return _pooled(
        "ps_roi_max_pool",
        given,
        group_size,
        tables,
        lambda x, rows, columns, index: peak_values(x, rows[0], columns[0], index, fill),
    )


def _products(x: Any, rows: Any, columns: Any, index: Any) -> Any:
    """Return the sums of elements with the weights of rows and columns."""
    return region_products(x, rows[0], columns[0], index)


def _pooled(
    function: str,
    given: tuple[Any, ...],
    group_size: Any,
    tables: Callable[..., tuple[Any, ...]],
    pool: Callable[..., Any],
) -> Any:
    """Pool the windows of each group as a region of its own, whose image is the group's channels.

    Where the groups do not divide the windows, each window is such a region.  ``given`` is what
    `arguments` checks.  ``tables`` returns arrays that describe the windows of one axis, of shape
    ``(K, m, …)``, and ``pool`` takes the images, those arrays of rows and of columns, and the
    indices of images.
    """
    x, size, index, corners, scale = arguments(function, *given)
    x = floating(x)
    groups = size if group_size is None else per_axis(function, "group_size", group_size, 2)
    images, channels, *extents = x.shape
    group_count = math.prod(groups)
    if channels % group_count:
        raise ValueError(
            f"fdbr.ops.{function}: group_size {groups} must divide the channels of x {describe(x)}"
        )
    by_group = reshape(x, (images, channels // group_count, group_count, *extents))
    by_group = permute_dims(by_group, (0, 2, 1, 3, 4))
    by_group = reshape(by_group, (images * group_count, channels // group_count, *extents))
    xp, regions = array_module(x), index.shape[0]
    rows, columns = (
        tables(low, high, scale, m, n, axis)
        for axis, (low, high, m, n) in enumerate(zip(*corners, size, extents, strict=True))
    )
    each = [1 if m % g else m // g for m, g in zip(size, groups, strict=True)]
    blocks = [m // k for m, k in zip(size, each, strict=True)]
    down, across = (xp.arange(b) * g // b for b, g in zip(blocks, groups, strict=True))
    group = (down[:, None] * groups[1] + across).reshape((1, *blocks))
    bins = regions * math.prod(blocks)

    def for_bins(table: Any, axis: int) -> Any:
        """Return the table of a region's windows on one axis for all of its groups."""
        rest = (each[axis], *table.shape[2:])
        whole = expand_dims(reshape(table, (regions, blocks[axis], *rest)), axis=2 - axis)
        whole = reshape(broadcast_to(whole, (regions, *blocks, *rest)), (bins, *rest))
        return astype(whole, x.dtype, copy=False) if table.dtype.kind == "f" else whole

    index = reshape(expand_dims(index * group_count, axis=(1, 2)) + group, (bins,))
    described = [[for_bins(t, axis) for t in found] for axis, found in enumerate((rows, columns))]
    out = pool(by_group, *described, index)
    out = reshape(out, (regions, *blocks, out.shape[1], *each))
    return reshape(permute_dims(out, (0, 3, 1, 4, 2, 5)), (regions, out.shape[3], *size))
