"""Features of boxes, from several levels of a pyramid.

`fdbr.ops.roi_average_align` takes one image and, by default, numbers of samples that depend on the
boxes.  Here all shapes are known from those of the arguments.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fdbr import ops
from fdbr.control_flow import while_loop
from fdbr.core.array_modules import array_module
from fdbr.ops.dtypes import is_traced
from fdbr.ops.nn.pooling.region_products import linear_weights, region_products

__all__ = [
    "JoinedLevels",
    "join_levels",
    "levels_of",
    "of_real",
    "pool_levels",
]


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


class JoinedLevels(NamedTuple):
    """The levels of a pyramid beside each other.

    Attributes
    ----------
    features
        Shape ``(N, H, W, C)``: channels are last, so that all features of an element are read
        together.
    table
        For each level its height and width, its first row and column in ``features``, and the
        number of its elements in a pixel: shape ``(L, 5)``, float32.
    """

    features: Any
    table: Any


def join_levels(levels: Sequence[Any], stride: int = 4) -> JoinedLevels:
    """Return the levels of a pyramid as one array.

    The first level is above; below it the others are side by side.

    Parameters
    ----------
    levels
        The features, shapes ``(N, C, H, W)``, each of half the size of the one before it.
    stride
        The distance of neighbouring elements of the first level, in pixels.
    """
    first, *rest = (ops.permute_dims(x, (0, 2, 3, 1)) for x in levels)
    height, width = first.shape[1:3]
    across, corners = 0, [(0, 0)]
    for x in rest:
        corners.append((height, across))
        across += x.shape[2]
    if rest:
        most, whole = rest[0].shape[1], max(width, across)
        below = [ops.pad(x, ((0, 0), (0, most - x.shape[1]), (0, 0), (0, 0))) for x in rest]
        parts = [
            ops.pad(x, ((0, 0), (0, 0), (0, whole - x.shape[2]), (0, 0)))
            for x in (first, ops.concat(below, axis=2))
        ]
        first = ops.concat(parts, axis=1)
    table = [
        (*x.shape[2:], *corner, 1 / (stride * 2**i))
        for i, (x, corner) in enumerate(zip(levels, corners, strict=True))
    ]
    return JoinedLevels(first, array_module(first).asarray(np.array(table, np.float32)))


def pool_levels(
    joined: JoinedLevels, boxes: Any, images: Any, size: int, *, chainer: bool = False
) -> Any:
    """Return the features in boxes, each from one level of a pyramid.

    It is torchvision's ``MultiScaleRoIAlign`` with two samples along each axis of a window.

    Parameters
    ----------
    joined
        The result of `join_levels`.
    boxes
        Shape ``(R, 4)``, ``yxyx``, in pixels of the images.
    images
        The index of the image of each box, shape ``(R,)``.
    size
        The height and width of the result.
    chainer
        As for `levels_of`.

    Returns
    -------
    array
        Shape ``(R, C, size, size)``.
    """
    features, table = joined
    xp = array_module(boxes)
    chosen = ops.take(table, levels_of(boxes, table.shape[0], chainer=chainer), axis=0)
    weights = []
    for axis in (0, 1):
        extent, offset, scale = chosen[:, axis, None], chosen[:, 2 + axis, None, None], chosen[:, 4]
        start, end = boxes[:, axis] * scale, boxes[:, axis + 2] * scale
        step = ops.maximum(end - start, 1)[:, None] / size
        total = 0
        for half in (0.25, 0.75):
            position = start[:, None] + (xp.arange(size, dtype=np.float32) + half) * step
            inside = (position >= -1) & (position <= extent)
            position = ops.clip(position, 0, extent - 1)[:, :, None]
            elements = xp.arange(features.shape[1 + axis], dtype=np.float32) - offset
            hat = linear_weights(position - elements)
            total = total + ops.where(inside[:, :, None], hat, 0)
        weights.append(ops.astype(total / 2, features.dtype, copy=False))
    rows, columns = weights
    return region_products(ops.permute_dims(features, (0, 3, 1, 2)), rows, columns, images)


def of_real(
    function: Callable[[Any], tuple[Any, ...]],
    is_real: Any,
    outputs: tuple[Any, ...],
    sizes: Sequence[int],
) -> tuple[Any, ...]:
    """Return the results of a function for the real rows of padded arrays, and zeros for others.

    The time that it takes follows from the number of real rows, which is not known in `fdbr.jit`:
    there a loop takes several rows at once until all are done, so that there is one trace for all
    numbers.  The sizes of these parts affect rounding only.

    Parameters
    ----------
    function
        A function of indices of rows, ``(n,)``, that returns arrays with a first axis of n rows.
    is_real
        Which rows are real, shape ``(R,)``.
    outputs
        Zeros of the shapes ``(R, …)`` and dtypes of the results.
    sizes
        The numbers of rows that are computed at once in `fdbr.jit`, in decreasing order: parts of
        the first one until fewer rows are left, then parts of the next.
    """
    rows = is_real.shape[0]
    count = ops.sum(ops.astype(is_real, np.int64))
    order = ops.argsort(ops.logical_not(is_real), stable=True)
    xp = array_module(is_real)
    start = xp.zeros((), dtype=np.int64)
    # Parts of equal size: if all rows are real, the last part has hardly any to spare.
    parts = [-(-rows // -(-rows // size)) for size in sizes] if rows else []
    if not is_traced(count):
        parts = [int(count)]
    for size in parts:
        # A part that has almost as many rows as the larger size is computed sooner by it.
        least = 1 if size == parts[-1] else size - size // 5

        def more(val: Any, least: int = least) -> Any:
            return count - val[0] >= least

        def body(val: Any, size: int = size) -> Any:
            start, outputs = val
            index = ops.take(order, ops.minimum(start + xp.arange(size), rows - 1))
            real = ops.take(is_real, index)
            found = [
                ops.at(whole)[index].set(
                    ops.where(ops.reshape(real, (-1, *(1,) * (part.ndim - 1))), part, 0)
                )
                for whole, part in zip(outputs, function(index), strict=True)
            ]
            return start + size, tuple(found)

        start, outputs = while_loop(more, body, (start, outputs))
    return outputs
