"""Features of boxes, from several levels of a pyramid.

`fdbr.ops.roi_average_align` takes one image and, by default, numbers of samples that depend on the
boxes.  Here all shapes are known from those of the arguments.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fdbr import ops
from fdbr.core.array_modules import array_module
from fdbr.ops.nn.pooling.region_products import region_products

__all__ = ["levels_of", "pool_levels"]


def levels_of(boxes: Any, count: int, *, chainer: bool = False) -> Any:
    """Return the level of a pyramid to which each box belongs, from 0 to ``count - 1``.

    ``floor(4 + log2(sqrt(area) / 224))``, where level 0 has a stride of 4: equation 1 of Lin et al.
    (2017).  A small number is added to the logarithm, or in ChainerCV to its argument.
    """
    sides = ops.maximum(boxes[..., 2:] - boxes[..., :2], 0)
    scale = ops.sqrt(sides[..., 0] * sides[..., 1]) / 224
    level = (
        ops.log2(scale + 1e-6) + 2 if chainer else 2 + ops.log2(ops.maximum(scale, 1e-20)) + 1e-6
    )
    return ops.astype(ops.clip(ops.floor(level), 0, count - 1), np.int64)


def pool_levels(
    levels: Sequence[Any], boxes: Any, size: int, *, stride: int = 4, chainer: bool = False
) -> Any:
    """Return the features in boxes, each from one level of a pyramid.

    It is torchvision's ``MultiScaleRoIAlign`` with two samples along each axis of a window.

    Parameters
    ----------
    levels
        The features, shapes ``(N, C, H, W)``, each of half the size of the one before it.
    boxes
        Shape ``(N, R, 4)``, ``yxyx``, in pixels of the images.
    size
        The height and width of the result.
    stride
        The distance of neighbouring elements of the first level, in pixels.
    chainer
        As for `levels_of`.

    Returns
    -------
    array
        Shape ``(N * R, C, size, size)``.
    """
    canvas, corners = _joined(levels)
    images, each = boxes.shape[:2]
    flat = ops.reshape(boxes, (-1, 4))
    xp = array_module(flat)
    level = levels_of(flat, len(levels), chainer=chainer)
    shapes = [np.array(x.shape[2:]) for x in levels]
    table = np.array(
        [
            [*s, *c, 1 / (stride * 2**i)]
            for i, (s, c) in enumerate(zip(shapes, corners, strict=True))
        ]
    )
    chosen = ops.take(xp.asarray(table.astype(np.float32)), level, axis=0)
    weights = []
    for axis in (0, 1):
        extent, offset, scale = chosen[:, axis, None], chosen[:, 2 + axis, None, None], chosen[:, 4]
        start, end = flat[:, axis] * scale, flat[:, axis + 2] * scale
        step = ops.maximum(end - start, 1)[:, None] / size
        total = 0
        for half in (0.25, 0.75):
            position = start[:, None] + (xp.arange(size, dtype=np.float32) + half) * step
            inside = (position >= -1) & (position <= extent)
            position = ops.clip(position, 0, extent - 1)[:, :, None]
            elements = xp.arange(canvas.shape[2 + axis], dtype=np.float32) - offset
            hat = ops.maximum(1 - ops.abs(position - elements), 0)
            total = total + ops.where(inside[:, :, None], hat, 0)
        weights.append(ops.astype(total / 2, canvas.dtype, copy=False))
    index = xp.arange(images * each) // max(each, 1)
    rows, columns = weights
    return region_products(canvas, rows, columns, index)


def _joined(levels: Sequence[Any]) -> tuple[Any, list[tuple[int, int]]]:
    """Return one array with the levels beside each other, and the first row and column of each.

    The first level is above; below it the others are side by side.
    """
    first, *rest = levels
    height, width = first.shape[2:]
    if not rest:
        return first, [(0, 0)]
    most = rest[0].shape[2]
    across, corners = 0, [(0, 0)]
    below = []
    for x in rest:
        corners.append((height, across))
        below.append(ops.pad(x, ((0, 0), (0, 0), (0, most - x.shape[2]), (0, 0))))
        across += x.shape[3]
    row = ops.concat(below, axis=3)
    whole = max(width, across)
    parts = [ops.pad(x, ((0, 0),) * 3 + ((0, whole - x.shape[3]),)) for x in (first, row)]
    return ops.concat(parts, axis=2), corners
