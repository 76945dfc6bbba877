"""Anchors, and the default boxes of SSD."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fdbr import ops
from fdbr.core.array_modules import array_module, where_it_lies
from fdbr.errors.public import public
from fdbr.vision.boxes.arguments import checked_boxes, checked_format, checked_size, is_pair

__all__ = ["base_anchors", "default_boxes", "grid_anchors"]


@public("fdbr.vision")
def base_anchors(
    sizes: Sequence[float],
    ratios: Sequence[float],
    *,
    chainer: bool = False,
    base_size: float = 16,
    box_format: str = "yxyx",
) -> Any:
    """Return the anchors of one element of a feature map.

    They are those of torchvision's ``AnchorGenerator``: around 0, with rounded corners.

    Parameters
    ----------
    sizes
        The square roots of the areas.
    ratios
        The quotients of height and width.
    chainer
        Whether the anchors are those of ChainerCV's ``generate_anchor_base``: around the centre of
        a square of side ``base_size``, and not rounded.  Its ``anchor_scales`` are ``sizes``
        divided by ``base_size``.
    base_size
        The side of this square.
    box_format
        ``"yxyx"`` or ``"xyxy"``.

    Returns
    -------
    array
        Shape ``(len(ratios) * len(sizes), 4)``, float32: for each ratio all sizes.

    Raises
    ------
    ValueError
        If sizes or ratios are not positive.

    >>> from fdbr import vision
    >>> vision.base_anchors([32], [0.5, 1])
    array([[-11., -23.,  11.,  23.],
           [-16., -16.,  16.,  16.]], dtype=float32)
    """
    across_first = checked_format("base_anchors", box_format)
    scale, ratio = np.asarray(sizes, np.float32), np.asarray(ratios, np.float32)
    if scale.ndim != 1 or ratio.ndim != 1 or not (scale > 0).all() or not (ratio > 0).all():
        raise ValueError(
            f"fdbr.vision.base_anchors: sizes {sizes} and ratios {ratios} must be lists of "
            "positive numbers"
        )
    root = np.sqrt(ratio)[:, None]
    height, width = (root * scale).reshape(-1), (1 / root * scale).reshape(-1)
    high = np.stack([width, height] if across_first else [height, width], axis=-1) / 2
    anchors = np.concatenate([-high, high], axis=-1)
    return anchors + np.float32(base_size / 2) if chainer else np.round(anchors)


@public("fdbr.vision")
@where_it_lies
def grid_anchors(
    grid: int | Sequence[int],
    stride: float | Sequence[float],
    base: Any,
    *,
    box_format: str = "yxyx",
) -> Any:
    """Return the anchors of all elements of a feature map.

    Parameters
    ----------
    grid
        The height and width of the feature map.
    stride
        The distance of neighbouring elements in the image: a number, or two, down and across.
    base
        The anchors of one element, of `base_anchors`, shape ``(A, 4)``.
    box_format
        The format of ``base`` and of the result.

    Returns
    -------
    array
        Shape ``(height * width * A, 4)``: all anchors of the first element, then those of its
        neighbour to the right.

    Raises
    ------
    ValueError, TypeError
        If an argument has another shape or is not of real numbers.

    >>> from fdbr import vision
    >>> vision.grid_anchors((1, 2), 8, vision.base_anchors([4], [1]))
    array([[-2., -2.,  2.,  2.],
           [-2.,  6.,  2., 10.]], dtype=float32)
    """
    across_first = checked_format("grid_anchors", box_format)
    base = checked_boxes("grid_anchors", "base", base)
    height, width = checked_size("grid_anchors", "grid", grid)
    steps: Any = stride if is_pair(stride) else (stride, stride)
    down, across = steps
    xp = array_module(base)
    y, x = (
        xp.arange(count, dtype=base.dtype) * float(step)
        for count, step in ((height, down), (width, across))
    )
    y, x = (xp.broadcast_to(part, (height, width)) for part in (y[:, None], x[None, :]))
    moved = xp.stack([x, y, x, y] if across_first else [y, x, y, x], axis=-1)
    return ops.reshape(
        xp.asarray(moved.reshape((-1, 1, 4)), dtype=base.dtype) + base[None], (-1, 4)
    )


@public("fdbr.vision")
def default_boxes(
    grids: Sequence[int | Sequence[int]],
    ratios: Sequence[Sequence[float]],
    size: int | Sequence[int],
    *,
    scales: Sequence[float] | None = None,
    steps: Sequence[float] | None = None,
    min_ratio: float = 0.15,
    max_ratio: float = 0.9,
    clip: bool = True,
    box_format: str = "yxyx",
) -> Any:
    """Return the default boxes of SSD.

    Liu et al., "SSD: single shot multibox detector" (2016), and torchvision's
    ``DefaultBoxGenerator``.  Each element has a square of the map's scale, one of the geometric
    mean of this and the next scale, and for each ratio two rectangles.  Those of ChainerCV's
    ``MultiboxCoder`` have ``clip=False`` and as scales its ``sizes`` divided by the size of the
    image.

    Parameters
    ----------
    grids
        The height and width of each feature map; an integer if these are equal.
    ratios
        For each feature map the quotients of sides, beside 1.
    size
        The height and width of the image.
    scales
        The sides of the squares as parts of the image's, for each feature map and one more; by
        default equally spaced from ``min_ratio`` to ``max_ratio``, and 1.
    steps
        For each feature map the distance of neighbouring elements in pixels; by default the size
        of the image divided by that of the feature map.
    min_ratio, max_ratio
        The first and the last default scale.
    clip
        Whether sides longer than the image's are as long as the image's.
    box_format
        ``"yxyx"`` or ``"xyxy"``.

    Returns
    -------
    array
        Shape ``(R, 4)``, float32, in pixels.

    Raises
    ------
    ValueError
        If the numbers of feature maps differ.

    >>> from fdbr import vision
    >>> vision.default_boxes([1], [[]], 100, scales=[0.25, 1.0])
    array([[37.5, 37.5, 62.5, 62.5],
           [25. , 25. , 75. , 75. ]], dtype=float32)
    """
    across_first = checked_format("default_boxes", box_format)
    shape = checked_size("default_boxes", "size", size)
    count = len(grids)
    if scales is None:
        span = (max_ratio - min_ratio) / max(count - 1, 1)
        last = 1.0 if count > 1 else max_ratio
        scales = [*(min_ratio + span * k for k in range(count)), last]
    if len(ratios) != count or len(scales) != count + 1 or len(steps or grids) != count:
        raise ValueError(
            f"fdbr.vision.default_boxes: {count} grids need as many ratios and steps, and one "
            f"scale more, got {len(ratios)} ratios, {len(scales)} scales and "
            f"{'no' if steps is None else len(steps)} steps"
        )
    out = []
    for k, grid in enumerate(grids):
        sides = [(scales[k],) * 2, (math.sqrt(scales[k] * scales[k + 1]),) * 2]
        for ratio in ratios[k]:
            short, long = scales[k] / math.sqrt(ratio), scales[k] * math.sqrt(ratio)
            sides += [(short, long), (long, short)]
        half = np.asarray(sides) / 2
        if clip:
            half = np.minimum(half, 0.5)
        centres = [
            (np.arange(n) + 0.5) / (n if steps is None else extent / steps[k])
            for n, extent in zip(checked_size("default_boxes", "grids", grid), shape, strict=True)
        ]
        centre = np.stack(np.meshgrid(*centres, indexing="ij"), axis=-1).reshape(-1, 1, 2)
        corners = [(centre + sign * half) * np.asarray(shape) for sign in (-1, 1)]
        out.append(np.stack(corners, axis=-2).reshape(-1, 2, 2))
    boxes = np.concatenate(out) if out else np.zeros((0, 2, 2))
    if across_first:
        boxes = boxes[..., ::-1]
    return boxes.reshape(-1, 4).astype(np.float32)
