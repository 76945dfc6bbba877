"""Boxes as offsets from anchors, and boxes from offsets."""

import math
from collections.abc import Sequence
from typing import Any

from fdbr import ops
from fdbr.core.array_modules import where_it_lies
from fdbr.errors.public import public
from fdbr.ops.dtypes import in_single
from fdbr.ops.shape.creation import floating
from fdbr.vision.boxes.arguments import checked_boxes, checked_format, corners, from_corners

__all__ = ["decode_boxes", "encode_boxes"]

_LEAST = 2.0**-23
"""The smallest side of a box, float32's epsilon, so that logarithms and quotients are finite."""


@public("fdbr.vision")
@where_it_lies
@in_single
def encode_boxes(
    boxes: Any,
    anchors: Any,
    *,
    weights: Sequence[float] = (1.0, 1.0, 1.0, 1.0),
    means: Sequence[float] = (0.0, 0.0, 0.0, 0.0),
    box_format: str = "yxyx",
) -> Any:
    """Return the offsets of boxes from anchors.

    Girshick, "Rich feature hierarchies" (2014): the difference of centres in sizes of the anchor,
    and the logarithm of the quotient of sizes, ``(offset - mean) * weight``.  It is torchvision's
    ``BoxCoder.encode``.  ChainerCV's ``bbox2loc`` with its means and standard deviations has the
    weights ``1 / std``, and SSD's variances ``(v, u)`` are the weights ``(1/v, 1/v, 1/u, 1/u)``.

    Parameters
    ----------
    boxes, anchors
        Shape ``(…, 4)``, whose leading axes broadcast.  Sides below 2 ** -23 count as 2 ** -23.
    weights, means
        Four numbers in the order of the offsets.
    box_format
        ``"yxyx"``: the offsets are ``(dy, dx, dh, dw)``; ``"xyxy"``: ``(dx, dy, dw, dh)``.

    Returns
    -------
    array
        Shape ``(…, 4)``.

    Raises
    ------
    ValueError, TypeError
        If an argument has another shape or is not of real numbers.

    >>> import numpy as np
    >>> from fdbr import vision
    >>> vision.encode_boxes(np.array([[1.0, 0, 3, 2]]), np.array([[0.0, 0, 2, 2]]))
    array([[0.5, 0. , 0. , 0. ]])
    """
    checked_format("encode_boxes", box_format)
    boxes = floating(checked_boxes("encode_boxes", "boxes", boxes))
    centre, size = _centre_and_size(boxes)
    anchor_centre, anchor_size = _anchors("encode_boxes", anchors, boxes)
    anchor_size = ops.maximum(anchor_size, _LEAST)
    moved = (centre - anchor_centre) / anchor_size
    grown = ops.log(ops.maximum(size, _LEAST) / anchor_size)
    w, m = (_four("encode_boxes", *given) for given in (("weights", weights), ("means", means)))
    offsets = [*ops.unstack(moved, axis=-1), *ops.unstack(grown, axis=-1)]
    return ops.stack([(o - m[i]) * w[i] for i, o in enumerate(offsets)], axis=-1)


@public("fdbr.vision")
@where_it_lies
@in_single
def decode_boxes(
    offsets: Any,
    anchors: Any,
    *,
    weights: Sequence[float] = (1.0, 1.0, 1.0, 1.0),
    means: Sequence[float] = (0.0, 0.0, 0.0, 0.0),
    clip: float | None = math.log(1000 / 16),
    box_format: str = "yxyx",
) -> Any:
    """Return the boxes at offsets from anchors, the inverse of `encode_boxes`.

    It is torchvision's ``BoxCoder.decode``, and ChainerCV's ``loc2bbox`` with ``clip=None``.

    Parameters
    ----------
    offsets
        Shape ``(…, 4)``.  Offsets for each class, ``(R, 4 * C)``, are reshaped to ``(R, C, 4)``
        before, for anchors of shape ``(R, 1, 4)``.
    anchors
        Shape ``(…, 4)``, whose leading axes broadcast.
    weights, means, box_format
        As for `encode_boxes`.
    clip
        The largest logarithm of a quotient of sizes, which keeps the exponential finite; `None`
        for no limit.

    Returns
    -------
    array
        Shape ``(…, 4)``.

    Raises
    ------
    ValueError, TypeError
        If an argument has another shape or is not of real numbers.

    >>> import numpy as np
    >>> from fdbr import vision
    >>> vision.decode_boxes(np.array([[0.5, 0, 0, 0]]), np.array([[0.0, 0, 2, 2]]))
    array([[1., 0., 3., 2.]])
    """
    checked_format("decode_boxes", box_format)
    offsets = floating(checked_boxes("decode_boxes", "offsets", offsets))
    w, m = (_four("decode_boxes", *given) for given in (("weights", weights), ("means", means)))
    dy, dx, dh, dw = (
        o / w[i] + m[i] if m[i] else o / w[i] for i, o in enumerate(ops.unstack(offsets, axis=-1))
    )
    moved, grown = ops.stack([dy, dx], axis=-1), ops.stack([dh, dw], axis=-1)
    if clip is not None:
        grown = ops.minimum(grown, clip)
    anchor_centre, anchor_size = _anchors("decode_boxes", anchors, offsets)
    centre = moved * anchor_size + anchor_centre
    half = ops.exp(grown) * anchor_size * 0.5
    return from_corners(centre - half, centre + half)


def _centre_and_size(boxes: Any) -> tuple[Any, Any]:
    low, high = corners(boxes)
    size = high - low
    return low + 0.5 * size, size


def _anchors(function: str, anchors: Any, like: Any) -> tuple[Any, Any]:
    anchors = checked_boxes(function, "anchors", anchors)
    return _centre_and_size(ops.astype(anchors, like.dtype, copy=False))


def _four(function: str, name: str, values: Sequence[float]) -> list[float]:
    numbers = [float(value) for value in values]
    if len(numbers) != 4:
        raise ValueError(f"fdbr.vision.{function}: {name} must be four numbers, got {numbers}")
    return numbers
