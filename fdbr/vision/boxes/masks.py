"""Masks of objects: overlaps, boxes, and masks within boxes."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from fdbr import ops
from fdbr.core.array_modules import array_module, where_it_lies
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.ops.nn.pooling.region_products import linear_weights, region_products, region_sums
from fdbr.ops.nn.pooling.regions import mean_weights
from fdbr.ops.shape.creation import floating
from fdbr.vision.boxes.arguments import checked_boxes, checked_format, checked_size, is_pair

__all__ = ["crop_masks", "mask_iou", "masks_to_boxes", "paste_masks", "resize_masks"]

_EXACT = 2**24
"""The numbers up to which float32 counts."""


def _checked_masks(function: str, name: str, masks: Any) -> Any:
    masks = ops.asarray(masks)
    if masks.ndim < 3:
        raise ValueError(
            f"fdbr.vision.{function}: {name} must have the shape (…, R, H, W), got "
            f"{describe(masks)}"
        )
    return masks


@public("fdbr.vision")
@where_it_lies
def mask_iou(a: Any, b: Any) -> Any:
    """Return the intersection over union of all pairs of masks.

    Parameters
    ----------
    a, b
        Shapes ``(…, R, H, W)`` and ``(…, S, H, W)``, bool; other numbers count as their truth.

    Returns
    -------
    array
        Shape ``(…, R, S)``, float32; 0 if both masks are empty.

    Raises
    ------
    ValueError
        If the masks differ in size or have less than three axes.

    >>> import numpy as np
    >>> from fdbr import vision
    >>> vision.mask_iou(np.array([[[True, True]]]), np.array([[[True, False]], [[False, False]]]))
    array([[0.5, 0. ]], dtype=float32)
    """
    a, b = _checked_masks("mask_iou", "a", a), _checked_masks("mask_iou", "b", b)
    if a.shape[-2:] != b.shape[-2:]:
        raise ValueError(
            f"fdbr.vision.mask_iou: the masks a {describe(a)} and b {describe(b)} differ in size"
        )
    pixels = a.shape[-2] * a.shape[-1]
    dtype = "float32" if pixels < _EXACT else "float64"
    a, b = (ops.reshape(ops.astype(m != 0, dtype), (*m.shape[:-2], pixels)) for m in (a, b))
    common = ops.matmul(a, ops.matrix_transpose(b))
    union = ops.sum(a, axis=-1)[..., :, None] + ops.sum(b, axis=-1)[..., None, :] - common
    return ops.astype(common / ops.maximum(union, 1), "float32", copy=False)


@public("fdbr.vision")
@where_it_lies
def masks_to_boxes(masks: Any, *, box_format: str = "yxyx") -> Any:
    """Return the smallest boxes around masks.

    It is ChainerCV's ``mask_to_bbox``: the last corner is the end of the last pixel, one more than
    that of torchvision's ``masks_to_boxes``.

    Parameters
    ----------
    masks
        Shape ``(…, R, H, W)``, bool; other numbers count as their truth.
    box_format
        ``"yxyx"`` or ``"xyxy"``.

    Returns
    -------
    array
        Shape ``(…, R, 4)``, float32; 0 for an empty mask.

    Raises
    ------
    ValueError
        If the masks have less than three axes.

    >>> import numpy as np
    >>> from fdbr import vision
    >>> vision.masks_to_boxes(np.array([[[False, False, False], [False, True, True]]]))
    array([[1., 1., 2., 3.]], dtype=float32)
    """
    across_first = checked_format("masks_to_boxes", box_format)
    masks = _checked_masks("masks_to_boxes", "masks", masks) != 0
    if 0 in masks.shape:
        return array_module(masks).zeros((*masks.shape[:-2], 4), dtype="float32")
    ends = []
    for axis in (-1, -2):
        used = ops.any(masks, axis=axis)
        found = ops.any(used, axis=-1)
        last = used.shape[-1] - ops.argmax(ops.flip(used, axis=-1), axis=-1)
        ends.append((ops.argmax(used, axis=-1), ops.where(found, last, 0)))
    rows, columns = ends
    first, second = (columns, rows) if across_first else (rows, columns)
    corners = [first[0], second[0], first[1], second[1]]
    return ops.astype(ops.stack(corners, axis=-1), "float32")


@public("fdbr.vision")
@where_it_lies
def resize_masks(masks: Any, size: int | Sequence[int]) -> Any:
    """Resize masks by linear interpolation.

    It has the role of ChainerCV's ``scale_mask``, which takes the nearest elements.

    Parameters
    ----------
    masks
        Shape ``(…, R, H, W)``, bool.
    size
        The new height and width; or an integer, the length of the shorter side.

    Returns
    -------
    array
        Shape ``(…, R, *size)``, bool: where the interpolated values exceed a half.

    Raises
    ------
    ValueError
        If the masks have less than three axes.

    >>> import numpy as np
    >>> from fdbr import vision
    >>> vision.resize_masks(np.array([[[True, False]]]), (1, 4))
    array([[[ True,  True, False, False]]])
    """
    masks = _checked_masks("resize_masks", "masks", masks)
    height, width = masks.shape[-2:]
    if is_pair(size):
        new = checked_size("resize_masks", "size", size)
    else:
        short = min(height, width)
        new = (int(size * height / short), int(size * width / short)) if short else (0, 0)
    if 0 in masks.shape or 0 in new:
        return array_module(masks).zeros((*masks.shape[:-2], *new), dtype=bool)
    flat = ops.reshape(ops.astype(masks != 0, "float32"), (1, -1, height, width))
    resized = ops.interpolate(flat, size=tuple(new), mode="bilinear") > 0.5
    return ops.reshape(resized, (*masks.shape[:-2], *new))


@public("fdbr.vision")
@where_it_lies
def crop_masks(
    masks: Any,
    boxes: Any,
    size: int | Sequence[int],
    *,
    indices: Any = None,
    chainer: bool = False,
    box_format: str = "yxyx",
) -> Any:
    """Return the parts of masks in boxes, resized: the targets of a branch for masks.

    It is torchvision's ``project_masks_on_boxes``, by `fdbr.ops.roi_average_align`, with no more
    samples than a box of the size of the masks has.  So `fdbr.jit` has one trace for all boxes.

    Parameters
    ----------
    masks
        Shape ``(N, H, W)``, bool or floating.
    boxes
        Shape ``(R, 4)``.
    size
        The height and width of the result; an integer if these are equal.
    indices
        The mask of each box, integers of shape ``(R,)``; by default, each box has its own.
    chainer
        Whether boxes are extended and rounded, and an element is 1 only if all pixels that it is
        interpolated from are, as in ChainerCV's ``mask_to_segm``.
    box_format
        ``"yxyx"`` or ``"xyxy"``.

    Returns
    -------
    array
        Shape ``(R, *size)``, float32, from 0 to 1.

    Raises
    ------
    ValueError, TypeError
        If shapes do not fit, boxes are not of real numbers, or an index is out of range.

    >>> import numpy as np
    >>> from fdbr import vision
    >>> mask = np.zeros((1, 4, 4), bool)
    >>> mask[:, :, :2] = True
    >>> vision.crop_masks(mask, np.array([[0.0, 0, 4, 4]]), (1, 2))
    array([[[0.75, 0.  ]]], dtype=float32)
    """
    checked_format("crop_masks", box_format)
    masks = _checked_masks("crop_masks", "masks", masks)
    boxes = checked_boxes("crop_masks", "boxes", boxes)
    if indices is None:
        if masks.shape[0] != boxes.shape[0]:
            raise ValueError(
                f"fdbr.vision.crop_masks: masks {describe(masks)} and boxes {describe(boxes)} "
                "must be equally many, or indices be given"
            )
        indices = array_module(boxes).arange(boxes.shape[0])
    shape, extents = checked_size("crop_masks", "size", size), masks.shape[-2:]
    if 0 in (*shape, *extents):
        return array_module(masks).zeros((boxes.shape[0], *shape), dtype="float32")
    masks, boxes = ops.astype(masks, "float32"), ops.astype(boxes, "float32")
    first = (1, 0) if box_format == "xyxy" else (0, 1)
    rows, columns = (
        _extended_weights(boxes[:, i], boxes[:, i + 2], m, n)
        if chainer
        else mean_weights(
            boxes[:, i], boxes[:, i + 2], 1.0, m, n, 0, False, "float32", most=-(-n // m)
        )
        for i, m, n in zip(first, shape, extents, strict=True)
    )
    found = region_products(masks[:, None], rows, columns, ops.astype(indices, "int64"))[:, 0]
    return ops.astype(found > 1 - 1e-5, "float32") if chainer else found


def _extended_weights(low: Any, high: Any, count: int, extent: int) -> Any:
    """Return the weight of each pixel in ``count`` elements of a rounded box and its border."""
    xp = array_module(low)
    start, end = (part[:, None] for part in _rounded_ends(low, high, count, ops.round))
    elements = xp.arange(count, dtype="float32")
    position = (elements + 1.5) * ((end - start) / (count + 2)) - 0.5
    position = start + ops.clip(position, 0, ops.maximum(end - start - 1, 0))
    weights = linear_weights(position[:, :, None] - xp.arange(extent, dtype="float32"))
    return ops.where((end > start)[..., None], weights, 0)


def _rounded_ends(low: Any, high: Any, count: int, rounded: Callable[[Any], Any]) -> Any:
    """Return the rounded ends of a box of ``count`` elements with one more on each side."""
    half, centre = (high - low) * 0.5 * ((count + 2) / count), (high + low) * 0.5
    return rounded(centre - half), rounded(centre + half)


@public("fdbr.vision")
@where_it_lies
def paste_masks(
    masks: Any,
    boxes: Any,
    size: Sequence[int],
    threshold: float | None = 0.5,
    *,
    chainer: bool = False,
    box_format: str = "yxyx",
) -> Any:
    """Return masks of an image from masks in boxes.

    It is torchvision's ``paste_masks_in_image``: each mask is padded by one element, resized
    linearly to its box with integer corners, and 0 outside.

    Parameters
    ----------
    masks
        Shape ``(…, R, S, T)``: the probabilities within each box.
    boxes
        Shape ``(…, R, 4)``.
    size
        The height and width of the image.
    threshold
        What the probability of a mask's pixels exceeds; `None` to return probabilities.
    chainer
        Whether corners are rounded, and the last one does not belong to the box, as in ChainerCV's
        ``segm_to_mask``; torchvision rounds them to zero, and includes the last.
    box_format
        ``"yxyx"`` or ``"xyxy"``.

    Returns
    -------
    array
        Shape ``(…, R, *size)``, bool, or floating without a threshold.

    Raises
    ------
    ValueError, TypeError
        If shapes do not fit or boxes are not of real numbers.

    >>> import numpy as np
    >>> from fdbr import vision
    >>> pasted = vision.paste_masks(np.ones((1, 28, 28)), np.array([[2.0, 1, 8, 5]]), (10, 10))
    >>> vision.masks_to_boxes(pasted)
    array([[1., 0., 9., 6.]], dtype=float32)
    """
    across_first = checked_format("paste_masks", box_format)
    masks = floating(_checked_masks("paste_masks", "masks", masks))
    boxes = checked_boxes("paste_masks", "boxes", boxes)
    extents = checked_size("paste_masks", "size", size)
    if tuple(masks.shape[:-2]) != tuple(boxes.shape[:-1]):
        raise ValueError(
            f"fdbr.vision.paste_masks: masks {describe(masks)} of shape (…, R, S, T) need boxes "
            f"of shape (…, R, 4), got {describe(boxes)}"
        )
    if 0 in masks.shape:
        dtype = masks.dtype if threshold is None else bool
        return array_module(masks).zeros((*masks.shape[:-2], *extents), dtype=dtype)
    boxes = ops.astype(boxes, "float32" if masks.dtype.itemsize < 8 else masks.dtype)
    if across_first:
        boxes = ops.stack([boxes[..., i] for i in (1, 0, 3, 2)], axis=-1)
    rows, columns = (
        ops.astype(
            _interpolation(boxes[..., i], boxes[..., i + 2], masks.shape[i - 2], n, chainer),
            masks.dtype,
            copy=False,
        )
        for i, n in enumerate(extents)
    )
    # Only pixels in boxes are computed: 100 small boxes on 800x1200 take half of the time of matrix
    # products of whole images.
    flat, rows, columns = (
        ops.reshape(part, (math.prod(part.shape[:-2]), *part.shape[-2:]))
        for part in (masks, ops.matrix_transpose(rows), ops.matrix_transpose(columns))
    )
    index = array_module(masks).arange(flat.shape[0])
    pasted = region_sums(flat[:, None], rows, columns, index, count=flat.shape[0])
    pasted = ops.reshape(pasted, (*masks.shape[:-2], *extents))
    return pasted if threshold is None else pasted > threshold


def _interpolation(low: Any, high: Any, count: int, extent: int, chainer: bool) -> Any:
    """Return the weight of each of ``count`` elements at each pixel, ``(…, extent, count)``."""
    start, end = _rounded_ends(low, high, count, ops.round if chainer else ops.trunc)
    least = 0 if chainer else 1
    length = ops.maximum(end - start + least, least)[..., None]
    xp, dtype = array_module(low), start.dtype
    offset = xp.arange(extent, dtype=dtype) - start[..., None]
    inside = (offset >= 0) & (offset < length)
    position = ops.clip((offset + 0.5) * ((count + 2) / ops.maximum(length, 1)) - 0.5, 0, count + 1)
    elements = xp.arange(1, count + 1, dtype=dtype)
    weights = linear_weights(position[..., None] - elements)
    return ops.where(inside[..., None], weights, 0)
