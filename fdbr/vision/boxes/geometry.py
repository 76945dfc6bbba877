"""Areas, overlaps and formats of boxes."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fdbr import ops
from fdbr.core.array_modules import where_it_lies
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.ops.devices import beside
from fdbr.ops.dtypes import in_single
from fdbr.ops.shape.creation import floating
from fdbr.pytrees.dtypes import dtype_kind
from fdbr.vision.boxes.arguments import (
    at_least_0,
    checked_boxes,
    checked_format,
    corners,
    from_corners,
    without_wrapping,
)

__all__ = [
    "box_area",
    "box_iou",
    "clip_boxes",
    "convert_boxes",
    "generalized_box_iou",
    "giou_loss",
]

_FORMATS = ("yxyx", "xyxy", "yxhw", "xywh", "cycxhw", "cxcywh")


@public("fdbr.vision")
@where_it_lies
def box_area(boxes: Any) -> Any:
    """Return the areas of boxes.

    Parameters
    ----------
    boxes
        Shape ``(…, 4)``: two corners, ``yxyx`` or ``xyxy``.

    Returns
    -------
    array
        Shape ``(…)``; 0 for a box whose minimum exceeds its maximum.  The dtype is that of boxes,
        or int64 if they are unsigned or shorter integers than int32.

    Raises
    ------
    ValueError, TypeError
        If ``boxes`` has another shape or is not of real numbers.

    >>> import numpy as np
    >>> from fdbr import vision
    >>> vision.box_area(np.array([[0.0, 0, 2, 3]]))
    array([6.])
    """
    return _area(*corners(without_wrapping(checked_boxes("box_area", "boxes", boxes))))


def _area(low: Any, high: Any, limited: Callable[[Any], Any] = at_least_0) -> Any:
    sides = limited(high - low)
    return sides[..., 0] * sides[..., 1]


@public("fdbr.vision")
@where_it_lies
def clip_boxes(boxes: Any, size: Sequence[int] | Any, *, box_format: str = "yxyx") -> Any:
    """Move the corners of boxes that are outside an image to its border.

    Parameters
    ----------
    boxes
        Shape ``(…, 4)``.
    size
        The height and width of the image; or of several, an array of shape ``(…, 2)`` for boxes
        of shape ``(…, R, 4)``.
    box_format
        ``"yxyx"`` or ``"xyxy"``.

    Returns
    -------
    array
        The shape and dtype of ``boxes``.

    Raises
    ------
    ValueError, TypeError
        If ``boxes`` has another shape or is not of real numbers, or ``size`` has not two numbers.

    >>> import numpy as np
    >>> from fdbr import vision
    >>> vision.clip_boxes(np.array([[-1.0, 2, 9, 5]]), (8, 4))
    array([[0., 2., 8., 4.]])
    """
    boxes = checked_boxes("clip_boxes", "boxes", boxes)
    across_first = checked_format("clip_boxes", box_format)
    size = beside(ops.asarray(size), boxes)
    if dtype_kind(boxes.dtype) in "iu":
        size = ops.minimum(size, np.iinfo(boxes.dtype).max)
    size = ops.astype(size, boxes.dtype, copy=False)
    if not size.ndim or size.shape[-1] != 2:
        raise ValueError(
            f"fdbr.vision.clip_boxes: size must have two numbers, got {describe(size)}"
        )
    ends = ops.concat([size[..., ::-1] if across_first else size] * 2, axis=-1)
    ends = ends if size.ndim == 1 else ends[..., None, :]
    boxes = at_least_0(boxes)
    # At the border the derivative is that by the box, as of torch's clamp, which minimum divides.
    return ops.where(boxes > ends, ends, boxes)


@public("fdbr.vision")
@where_it_lies
@in_single
def box_iou(a: Any, b: Any, *, box_format: str = "yxyx") -> Any:
    """Return the intersection over union of all pairs of boxes.

    It is ChainerCV's ``bbox_iou`` and torchvision's ``box_iou``.  It is differentiable.

    Parameters
    ----------
    a, b
        Shapes ``(…, R, 4)`` and ``(…, S, 4)``, whose leading axes broadcast.
    box_format
        ``"yxyx"`` or ``"xyxy"``, which have the same result.

    Returns
    -------
    array
        Shape ``(…, R, S)``, from 0 to 1.  It is 0 if both boxes have no area, or if one's minimum
        exceeds its maximum.

    Raises
    ------
    ValueError, TypeError
        If boxes have another shape or are not of real numbers.

    >>> import numpy as np
    >>> from fdbr import vision
    >>> vision.box_iou(np.array([[0.0, 0, 2, 2]]), np.array([[0.0, 0, 2, 4], [2, 2, 3, 3]]))
    array([[0.5, 0. ]])
    """
    checked_format("box_iou", box_format)
    a, b = _pairs("box_iou", a, b)
    return _ratio(*_overlap(a, b))


def _pairs(function: str, a: Any, b: Any) -> tuple[Any, Any]:
    """Return two sets of boxes with the axes of all pairs."""
    found = []
    for name, boxes in (("a", a), ("b", b)):
        boxes = floating(checked_boxes(function, name, boxes))
        if boxes.ndim < 2:
            raise ValueError(
                f"fdbr.vision.{function}: {name} must have the shape (…, R, 4), got {boxes.shape}"
            )
        found.append(boxes)
    return found[0][..., :, None, :], found[1][..., None, :, :]


def _overlap(a: Any, b: Any, limited: Callable[[Any], Any] = at_least_0) -> tuple[Any, Any]:
    """Return the areas of intersection, of ``limited`` sides, and union."""
    (a_low, a_high), (b_low, b_high) = corners(a), corners(b)
    common = _area(ops.maximum(a_low, b_low), ops.minimum(a_high, b_high), limited)
    return common, _area(a_low, a_high) + _area(b_low, b_high) - common


def _ratio(part: Any, whole: Any) -> Any:
    """Divide, where 0 / 0 is 0, and has the derivative 0."""
    empty = whole <= 0
    return ops.where(empty, 0.0, part / ops.where(empty, 1.0, whole))


def _hull(a: Any, b: Any) -> Any:
    """Return the area of the smallest box around two."""
    (a_low, a_high), (b_low, b_high) = corners(a), corners(b)
    return _area(ops.minimum(a_low, b_low), ops.maximum(a_high, b_high))


@public("fdbr.vision")
@where_it_lies
@in_single
def generalized_box_iou(a: Any, b: Any, *, box_format: str = "yxyx") -> Any:
    """Return the generalized intersection over union of all pairs of boxes.

    Rezatofighi et al., "Generalized intersection over union" (2019): from `box_iou` it subtracts
    the part of the smallest box around both that neither covers.  It is differentiable.

    Parameters
    ----------
    a, b, box_format
        As for `box_iou`.

    Returns
    -------
    array
        Shape ``(…, R, S)``, from -1 to 1.

    Raises
    ------
    ValueError, TypeError
        If boxes have another shape or are not of real numbers.

    >>> import numpy as np
    >>> from fdbr import vision
    >>> vision.generalized_box_iou(np.array([[0.0, 0, 1, 1]]), np.array([[0.0, 3, 1, 4]]))
    array([[-0.5]])
    """
    checked_format("generalized_box_iou", box_format)
    a, b = _pairs("generalized_box_iou", a, b)
    common, union = _overlap(a, b)
    hull = _hull(a, b)
    return _ratio(common, union) - _ratio(hull - union, hull)


@public("fdbr.vision")
@where_it_lies
@in_single
def giou_loss(predicted: Any, target: Any, *, eps: float = 1e-7) -> Any:
    """Return one minus the generalized intersection over union of each box and its target.

    It is torchvision's ``generalized_box_iou_loss`` without a reduction.

    Parameters
    ----------
    predicted, target
        Shape ``(…, 4)``; of one format, ``yxyx`` or ``xyxy``.
    eps
        What is added to both denominators.

    Returns
    -------
    array
        Shape ``(…)``.

    Raises
    ------
    ValueError, TypeError
        If boxes have another shape or are not of real numbers.

    >>> import numpy as np
    >>> from fdbr import vision
    >>> vision.giou_loss(np.array([0.0, 0, 1, 1]), np.array([0.0, 3, 1, 4])).round(3)
    np.float64(1.5)
    """
    a = floating(checked_boxes("giou_loss", "predicted", predicted))
    b = floating(checked_boxes("giou_loss", "target", target))
    common, union = _overlap(a, b, ops.relu)  # as torchvision, 0 for boxes that touch
    hull = _hull(a, b)
    return 1 - common / (union + eps) + (hull - union) / (hull + eps)


@public("fdbr.vision")
@where_it_lies
def convert_boxes(boxes: Any, source: str, target: str) -> Any:
    """Return boxes in another format.

    Parameters
    ----------
    boxes
        Shape ``(…, 4)``.
    source, target
        Two corners, ``"yxyx"`` or ``"xyxy"``; a corner and the size, ``"yxhw"`` or ``"xywh"``; the
        centre and the size, ``"cycxhw"`` or ``"cxcywh"``.

    Returns
    -------
    array
        Shape ``(…, 4)``.

    Raises
    ------
    ValueError, TypeError
        If ``boxes`` has another shape or is not of real numbers, or there is no such format.

    >>> import numpy as np
    >>> from fdbr import vision
    >>> vision.convert_boxes(np.array([[1.0, 2, 4, 8]]), "yxyx", "cxcywh")
    array([[5. , 2.5, 6. , 3. ]])
    """
    boxes = checked_boxes("convert_boxes", "boxes", boxes)
    for name, value in (("source", source), ("target", target)):
        if value not in _FORMATS:
            raise ValueError(
                f"fdbr.vision.convert_boxes: {name} must be one of {', '.join(_FORMATS)}, got "
                f"{value!r}"
            )
    if source == target:
        return boxes
    first, second = corners(boxes)
    if ("h" in source, "c" in source) != ("h" in target, "c" in target):
        first, second = without_wrapping(first), without_wrapping(second)
        if "c" in source:
            first, second = first - second / 2, first + second / 2
        elif "h" in source:
            second = first + second
        if "c" in target:
            first, second = (first + second) / 2, second - first
        elif "h" in target:
            second = second - first
    if (source.find("x") < source.find("y")) != (target.find("x") < target.find("y")):
        first, second = first[..., ::-1], second[..., ::-1]
    return from_corners(first, second)
