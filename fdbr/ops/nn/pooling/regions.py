"""Pooling of regions of interest (ROI), for object detectors."""

import functools
import math
import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np

from fdbr.core.array_modules import array_module, where_it_lies
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.ops.declare import constant
from fdbr.ops.declare.batches import spread
from fdbr.ops.dtypes import as_weak, astype, in_single, is_short
from fdbr.ops.elementwise.arithmetic import abs as absolute
from fdbr.ops.elementwise.arithmetic import ceil, clip, floor, maximum, minimum
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.indexing.reading import along_axis, pick
from fdbr.ops.indexing.segments import segment_sum
from fdbr.ops.nn.pooling.region_products import linear_weights, region_peaks, region_products
from fdbr.ops.nn.windows import per_axis
from fdbr.ops.reductions.reduce import argmax, max
from fdbr.ops.shape.creation import asarray, floating
from fdbr.ops.shape.layout import concat
from fdbr.ops.shape.manipulation import expand_dims, permute_dims, reshape, stack
from fdbr.pytrees.dtypes import dtype_kind
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["roi_average_align", "roi_average_pool", "roi_max_align", "roi_max_pool"]

in_single_of_images = functools.partial(in_single, promotes=False)
"""Boxes of float32 are usual beside images of float16."""


@public("fdbr.ops")
@where_it_lies
def roi_max_pool(
    x: ArrayLike,
    boxes: ArrayLike,
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    *,
    batch_index: ArrayLike | None = None,
    box_format: str = "xyxy",
    inclusive: bool = True,
    empty: float = 0.0,
) -> Array:
    """The maxima of windows that divide each region, whose corners are rounded.

    Girshick, "Fast R-CNN" (2015).  It is torchvision's ``roi_pool`` and Chainer's
    ``roi_pooling_2d``; Chainer's ``roi_max_pooling_2d`` is this function with
    ``box_format="yxyx"``, ``inclusive=False`` and ``empty=-inf``.  It is differentiable in the
    images, not in the boxes.

    Parameters
    ----------
    x
        Images, shape ``(N, C, H, W)``.
    boxes
        The regions: shape ``(K, 5)``, the index of the image and then the corners; or ``(K, 4)``,
        the corners alone; or a list with an array of corners for each image.
    output_size
        The number of windows along each axis: an integer, or two.
    spatial_scale
        The factor from coordinates of the boxes to those of ``x``.
    batch_index
        The index of each region's image, shape ``(K,)``, if ``boxes`` has only corners; not needed
        for a single image.
    box_format
        The order of coordinates: ``"xyxy"``, or ``"yxyx"`` as in Chainer's functions of 2019.
    inclusive
        Whether the last corner belongs to the region.
    empty
        The value of windows outside the image.

    Returns
    -------
    array
        Shape ``(K, C, *output_size)``, the dtype of ``x``.

    Raises
    ------
    ValueError
        If shapes do not fit, a box is not finite, or an image index is out of range.
    TypeError
        If ``x`` is complex.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> x = np.arange(16.0).reshape(1, 1, 4, 4)
    >>> ops.roi_max_pool(x, np.array([[0, 0, 0, 2, 3]]), (2, 1))
    array([[[[ 6.],
             [14.]]]])
    """
    x, size, index, corners, scale = arguments(
        "roi_max_pool", x, boxes, output_size, spatial_scale, batch_index, box_format
    )
    row_windows, column_windows = (
        windows_of(low, high, scale, m, n, inclusive)
        for low, high, m, n in zip(*corners, size, x.shape[2:], strict=True)
    )
    return peak_values(
        x, row_windows, column_windows, index, number("roi_max_pool", "empty", empty)
    )


@public("fdbr.ops")
@where_it_lies
@in_single_of_images
def roi_average_pool(
    x: ArrayLike,
    boxes: ArrayLike,
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    *,
    batch_index: ArrayLike | None = None,
    box_format: str = "xyxy",
    inclusive: bool = False,
) -> Array:
    """The means of windows that divide each region, whose corners are rounded.

    It is Chainer's ``roi_average_pooling_2d`` with ``box_format="yxyx"``.  It is differentiable in
    the images, not in the boxes.  Windows outside the image are 0.

    Parameters
    ----------
    x, boxes, output_size, spatial_scale, batch_index, box_format, inclusive
        As for `roi_max_pool`, except that the last corner does not belong to the region by default.

    Returns
    -------
    array
        Shape ``(K, C, *output_size)``, the dtype of ``x``.

    Raises
    ------
    ValueError
        If shapes do not fit, a box is not finite, or an image index is out of range.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> x = np.arange(16.0).reshape(1, 1, 4, 4)
    >>> ops.roi_average_pool(x, np.array([[0, 0, 0, 2, 4]]), (2, 1))
    array([[[[ 2.5],
             [10.5]]]])
    """
    x, size, index, corners, scale = arguments(
        "roi_average_pool", x, boxes, output_size, spatial_scale, batch_index, box_format
    )
    x = floating(x)
    rows, columns = (
        window_weights(windows_of(low, high, scale, m, n, inclusive), n, x.dtype)
        for low, high, m, n in zip(*corners, size, x.shape[2:], strict=True)
    )
    return region_products(x, rows, columns, index)


@public("fdbr.ops")
@where_it_lies
@in_single_of_images
def roi_average_align(
    x: ArrayLike,
    boxes: ArrayLike,
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int | Sequence[int | None] | None = -1,
    aligned: bool = False,
    *,
    batch_index: ArrayLike | None = None,
    box_format: str = "xyxy",
) -> Array:
    """The means of linearly interpolated samples in windows that divide each region.

    He, Gkioxari, Dollár, Girshick, "Mask R-CNN" (2017).  It is torchvision's ``roi_align``, and
    Chainer's ``roi_average_align_2d`` with ``box_format="yxyx"``.  It is differentiable in the
    images and, except where a sample is exactly at an element, in the corners.

    Parameters
    ----------
    x, boxes, output_size, spatial_scale, batch_index, box_format
        As for `roi_max_pool`.
    sampling_ratio
        The number of samples along each axis of a window: an integer, or two.  By default, or if
        `None` or not positive, the number of elements in the window, rounded up.
    aligned
        Whether coordinates are shifted by half an element, as elements are centres of squares, and
        regions may be smaller than an element.

    Returns
    -------
    array
        Shape ``(K, C, *output_size)``, the dtype of ``x``.

    Raises
    ------
    ValueError
        If shapes do not fit, a box is not finite, or an image index is out of range.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> x = np.arange(16.0).reshape(1, 1, 4, 4)
    >>> ops.roi_average_align(x, np.array([[0.0, 0, 0, 2, 3]]), (2, 1))
    array([[[[ 4.],
             [10.]]]])
    """
    x, size, index, corners, scale = arguments(
        "roi_average_align", x, boxes, output_size, spatial_scale, batch_index, box_format
    )
    x = floating(x)
    ratios = ratios_of("roi_average_align", sampling_ratio)
    rows, columns = (
        mean_weights(low, high, scale, m, n, ratio, aligned, x.dtype)
        for low, high, m, n, ratio in zip(*corners, size, x.shape[2:], ratios, strict=True)
    )
    return region_products(x, rows, columns, index)


@public("fdbr.ops")
@where_it_lies
@in_single_of_images
def roi_max_align(
    x: ArrayLike,
    boxes: ArrayLike,
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int | Sequence[int | None] | None = -1,
    aligned: bool = False,
    *,
    batch_index: ArrayLike | None = None,
    box_format: str = "xyxy",
    empty: float = -math.inf,
) -> Array:
    """The maxima of linearly interpolated samples in windows that divide each region.

    It is Chainer's ``roi_max_align_2d`` with ``box_format="yxyx"``.  It is differentiable in the
    images and, except where a sample is exactly at an element, in the corners.

    Parameters
    ----------
    x, boxes, output_size, spatial_scale, batch_index, box_format
        As for `roi_max_pool`.
    sampling_ratio, aligned
        As for `roi_average_align`.
    empty
        The value of windows whose samples are all outside the image.

    Returns
    -------
    array
        Shape ``(K, C, *output_size)``, the dtype of ``x``.

    Raises
    ------
    ValueError
        If shapes do not fit, a box is not finite, or an image index is out of range.
    TypeError
        If ``x`` is complex.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> x = np.arange(16.0).reshape(1, 1, 4, 4)
    >>> ops.roi_max_align(x, np.array([[0.0, 0, 0, 2, 3]]), (2, 1), sampling_ratio=1)
    array([[[[ 4.],
             [10.]]]])
    """
    x, size, index, corners, scale = arguments(
        "roi_max_align", x, boxes, output_size, spatial_scale, batch_index, box_format
    )
    x = floating(x)
    ratios = ratios_of("roi_max_align", sampling_ratio)
    samples = [
        samples_of(low, high, scale, m, n, ratio, aligned)
        for low, high, m, n, ratio in zip(*corners, size, x.shape[2:], ratios, strict=True)
    ]
    return largest_samples(x, samples, index, number("roi_max_align", "empty", empty))


# --- arguments ----------------------------------------------------------------------


def arguments(
    function: str,
    x: Any,
    boxes: Any,
    output_size: Any,
    spatial_scale: Any,
    batch_index: Any,
    box_format: str,
) -> tuple[Any, ...]:
    """Check arguments; return images, window counts, image indices, corners, and scale."""
    x = _image(function, x)
    size = per_axis(function, "output_size", output_size, 2)
    index, corners = _regions(function, x, boxes, batch_index, box_format)
    return x, size, index, corners, number(function, "spatial_scale", spatial_scale, positive=True)


def _image(function: str, x: Any) -> Any:
    x = asarray(x)
    if x.ndim != 4 or dtype_kind(x.dtype) not in "fiu":
        kind = TypeError if dtype_kind(x.dtype) not in "fiu" else ValueError
        raise kind(
            f"fdbr.ops.{function}: x must be real images of shape (N, C, H, W), not {describe(x)}"
        )
    return x


def _regions(
    function: str, x: Any, boxes: Any, batch_index: Any, box_format: str
) -> tuple[Any, tuple[list[Any], list[Any]]]:
    """Return the regions' image indices, and their first and last corners by row and column."""
    if box_format not in ("xyxy", "yxyx"):
        raise ValueError(
            f"fdbr.ops.{function}: box_format must be 'xyxy' or 'yxyx', not {box_format!r}"
        )
    xp = array_module(x)
    if isinstance(boxes, list | tuple):
        parts = [reshape(floating(part), (-1, 4)) for part in boxes]
        if batch_index is not None or len(parts) != x.shape[0]:
            raise ValueError(
                f"fdbr.ops.{function}: boxes as a list must have an array for each image of x "
                f"{describe(x)}, and no batch_index; it has {len(parts)}"
            )
        images = [xp.full((part.shape[0],), i, dtype=xp.int64) for i, part in enumerate(parts)]
        boxes, batch_index = concat(parts, axis=0), concat(images, axis=0)
    boxes = floating(boxes)
    boxes = astype(boxes, np.float32) if is_short(boxes) else boxes
    width = boxes.shape[1] if boxes.ndim == 2 else 0
    if width == 5 and batch_index is None:
        batch_index, boxes = boxes[:, 0], boxes[:, 1:]
    elif width == 4 and batch_index is None and x.shape[0] == 1:
        batch_index = xp.zeros((boxes.shape[0],), dtype=xp.int64)
    index = None if batch_index is None else asarray(batch_index)
    if width not in (4, 5) or index is None or tuple(index.shape) != (boxes.shape[0],):
        raise ValueError(
            f"fdbr.ops.{function}: boxes {describe(boxes)} must have shape (K, 5), the index of "
            "the image and the corners, or (K, 4), with batch_index of shape (K,) if there are "
            f"several images; x is {describe(x)}"
        )
    index = _images_of_regions(index, boxes, function=function)
    x0, x1, x2, x3 = (boxes[:, i] for i in range(4))
    across_first = box_format == "xyxy"
    low, high = ([x1, x0], [x3, x2]) if across_first else ([x0, x1], [x2, x3])
    return index, (low, high)


def _batch(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    return apply(*(spread(v, b, size) for v, b in zip(values, batched, strict=True)), **params)


@constant(batch=_batch)
def _images_of_regions(xp: Any, index: Any, boxes: Any, *, function: str) -> Any:
    """Return indices as int64; raise an error if a box is not finite, but do not wait for a GPU."""
    if xp is np and not (finite := np.isfinite(boxes).all(axis=-1)).all():
        first = tuple(np.argwhere(~finite)[0].tolist())
        raise ValueError(
            f"fdbr.ops.{function}: box {', '.join(map(str, first))} of boxes is not finite: "
            f"{boxes[first]}"
        )
    return xp.asarray(index).astype(xp.int64)


def number(function: str, name: str, value: Any, positive: bool = False) -> float:
    if not isinstance(value, numbers.Real) or (positive and not float(value) > 0):
        kind = "a positive number" if positive else "a number"
        raise ValueError(
            f"fdbr.ops.{function}: {name} must be {kind}, not "
            f"{value if isinstance(value, numbers.Real) else describe(value)}"
        )
    return float(value)


def ratios_of(function: str, sampling_ratio: Any) -> tuple[int, int]:
    given = tuple(sampling_ratio) if np.ndim(sampling_ratio) else (sampling_ratio,) * 2
    if len(given) != 2 or not all(g is None or hasattr(g, "__index__") for g in given):
        raise ValueError(
            f"fdbr.ops.{function}: sampling_ratio must be an integer or None, or two of them, not "
            f"{sampling_ratio!r}"
        )
    row_windows, column_windows = (0 if g is None or g < 1 else int(g) for g in given)
    return row_windows, column_windows


# --- windows ------------------------------------------------------------------------


def windows_of(
    low: Any, high: Any, scale: float, m: int, n: int, inclusive: bool, least: float | None = None
) -> Any:
    """Return the first and last elements of ``m`` windows on an axis of length ``n``.

    Corners are rounded, unless there is a ``least`` length of regions.
    """
    xp = array_module(low)
    start, end = low[:, None] * scale, high[:, None] * scale
    if least is None:
        start, end = _round_half_away(start), _round_half_away(end)
    step = maximum(end - start + inclusive, 1 if least is None else least) / m
    image = xp.arange(m, dtype=step.dtype)
    within, after = (0.0, start) if least is None else (start, 0.0)
    ends = (floor(image * step + within) + after, ceil((image + 1) * step + within) + after)
    return astype(clip(stack(ends, axis=-1), 0, n), xp.int64)


def window_weights(windows: Any, n: int, dtype: Any) -> Any:
    """Return the weights of elements in the mean of each window."""
    start, end = windows[..., :1], windows[..., 1:]
    positions = array_module(windows).arange(n)
    inside = astype((positions >= start) & (positions < end), dtype)
    return inside / astype(maximum(end - start, 1), dtype)


def peak_values(x: Any, row_windows: Any, column_windows: Any, index: Any, empty: float) -> Any:
    """Return the maximum of each window; ``empty`` where it has no elements."""
    peaks = region_peaks(x, row_windows, column_windows, index)
    xp, channels = array_module(x), x.shape[1]
    flat = reshape(x, (x.shape[0], channels, math.prod(x.shape[2:])))
    if not flat.shape[2]:
        return xp.full(peaks.shape, empty, dtype=x.dtype)
    outside = peaks < 0
    image = reshape(index, (-1, 1, 1, 1))
    channel = xp.arange(channels).reshape((1, channels, 1, 1))
    return where(outside, as_weak(empty, x), pick(flat, (image, channel, where(outside, 0, peaks))))


def _round_half_away(x: Any) -> Any:
    """Round to the nearest integer, and halves away from zero."""
    return where(x < 0, -1.0, 1.0) * floor(absolute(x) + 0.5)


def samples_of(*arguments: Any, **parameters: Any) -> tuple[Any, Any]:
    """Return the weights of elements in each sample, and which samples are valid.

    The arguments are those of `_positions`.
    """
    positions, valid, _ = _positions(*arguments, **parameters)
    elements = array_module(positions).arange(arguments[4], dtype=positions.dtype)
    weights = linear_weights(expand_dims(positions, axis=-1) - elements)
    return where(expand_dims(valid, axis=-1), weights, 0.0), valid


def mean_weights(
    low: Any,
    high: Any,
    scale: float,
    m: int,
    n: int,
    ratio: int,
    aligned: bool,
    dtype: Any,
    **parameters: Any,
) -> Any:
    """Return the weights of elements in the mean of each window's samples, ``(K, m, n)``.

    Each sample adds to the weights of its two neighbours.
    """
    positions, valid, counts = _positions(low, high, scale, m, n, ratio, aligned, **parameters)
    xp, (regions, _, samples) = array_module(positions), positions.shape
    before = floor(positions)
    share = positions - before
    first = astype(before, xp.int64) + (xp.arange(regions * m) * n).reshape((regions, m, 1))
    last = xp.arange(1, regions * m + 1).reshape((regions, m, 1)) * n - 1
    values = stack([where(valid, 1 - share, 0.0) / counts, where(valid, share, 0.0) / counts])
    ids = stack([first, minimum(first + 1, last)])
    total = 2 * regions * m * samples
    added = segment_sum(reshape(values, (total,)), reshape(ids, (total,)), regions * m * n)
    return astype(reshape(added, (regions, m, n)), dtype, copy=False)


def _positions(
    low: Any,
    high: Any,
    scale: float,
    m: int,
    n: int,
    ratio: int,
    aligned: bool,
    least: float = 1.0,
    most: int | None = None,
) -> tuple[Any, Any, Any]:
    """Return samples' positions on an axis of length ``n``, which are valid, and their number.

    The positions have the shape ``(K, m, samples)``.  A window has at most ``most`` samples, so
    that their shape does not depend on the regions.
    """
    xp, dtype = array_module(low), low.dtype
    offset = 0.5 if aligned else 0.0
    start, end = low * scale - offset, high * scale - offset
    length = end - start if aligned else maximum(end - start, least)
    step = reshape(length / m, (-1, 1, 1))
    counts = ceil(step) if ratio == 0 else step * 0 + ratio
    if most is not None:
        counts = minimum(counts, most)
    count_of_samples = ratio or most or (int(max(counts)) if counts.shape[0] else 1)
    image = xp.arange(count_of_samples if count_of_samples > 1 else 1, dtype=dtype)
    windows = xp.arange(m, dtype=dtype).reshape((m, 1))
    at_least_one = maximum(counts, 1.0)
    # The order of operations is torchvision's, whose samples at the edge are valid with these bits.
    first = reshape(start, (-1, 1, 1)) + windows * step
    positions = first + (image + 0.5) * step / at_least_one
    valid = (image < counts) & (positions >= -1) & (positions <= (n or -2))  # none without elements
    return where(valid, clip(positions, 0, n - 1), 0.0), valid, at_least_one


def largest_samples(x: Any, samples: Any, index: Any, empty: float) -> Any:
    """Return the largest valid sample of each window, from `samples_of` for rows and columns."""
    size = [valid.shape[1] for _, valid in samples]
    rows, columns = (
        astype(reshape(weights, (k, m * n, extent)), x.dtype)
        for weights, _ in samples
        for k, m, n, extent in [weights.shape]
    )
    values = region_products(x, rows, columns, index)
    count, channels = values.shape[:2]
    inside = [valid for _, valid in samples]
    row_windows, column_windows = (valid.shape[2] for valid in inside)
    values = reshape(values, (count, channels, size[0], row_windows, size[1], column_windows))
    is_valid = inside[0][:, None, :, :, None, None] & inside[1][:, None, None, None, :, :]
    values = where(is_valid, values, -math.inf)
    values = reshape(
        permute_dims(values, (0, 1, 2, 4, 3, 5)),
        (count, channels, *size, row_windows * column_windows),
    )
    best = expand_dims(argmax(values, axis=-1), axis=-1)
    largest = along_axis(values, best, 4)[..., 0]
    return largest if empty == -math.inf else where(largest == -math.inf, empty, largest)
