"""Position-sensitive regions: the extractor of dilated features, and pooling of its maps."""

from typing import Any, Self

import numpy as np

from fdbr import ops, tree
from fdbr.core.array_modules import array_module
from fdbr.nn.models.building import Builder
from fdbr.nn.models.resnet import ResNet101
from fdbr.nn.pooling.dimensions import MaxPool2d
from fdbr.ops.nn.pooling.region_products import region_products
from fdbr.transforms.vjp import stop_gradient
from fdbr.tree import frozen
from fdbr.vision.models.fpn import ResNetBody

__all__ = ["DilatedBody", "ps_average_pool", "ps_max_align"]


@frozen
class DilatedBody(ResNetBody):
    """A ResNet-101 whose last stage keeps the size of the third, and is dilated instead.

    It is ChainerCV's ``ResNet101Extractor``: layers up to the first stage are not trained.
    """

    @classmethod
    def build(cls, of: Builder, width: int, depths: Any, weight_init: Any, pool: MaxPool2d) -> Self:
        """Return the network with fresh parameters."""
        body = cls.init(
            of.key(),
            ResNet101,
            width=width,
            depths=depths,
            chainer=True,
            eps=1e-5,
            weight_init=weight_init,
            dtype=of.dtype,
        )
        blocks = []
        for block in body.layer4.layers:
            conv1 = tree.replace(block.conv1, stride=(1, 1))
            conv2 = tree.replace(block.conv2, dilation=(2, 2), padding=((2, 2), (2, 2)))
            block = tree.replace(block, conv1=conv1, conv2=conv2)
            if block.downsample is not None:
                first, *rest = block.downsample.layers
                layers = (tree.replace(first, stride=(1, 1)), *rest)
                block = tree.replace(
                    block, downsample=tree.replace(block.downsample, layers=layers)
                )
            blocks.append(block)
        return tree.replace(
            body,
            bn1=tree.replace(body.bn1, eps=2e-5),
            maxpool=pool,
            layer4=tree.replace(body.layer4, layers=tuple(blocks)),
        )

    def _forward(self, of: Any, x: Any) -> Any:
        """Return the features of the third and the fourth stage, of one size."""
        x = stop_gradient(of.layer1(of.maxpool(ops.relu(of.bn1(of.conv1(x))))))
        third = of.layer3(of.layer2(x))
        return third, of.layer4(third)


def ps_average_pool(x: Any, boxes: Any, index: Any, *, size: int, groups: int, scale: float) -> Any:
    """Return means over windows of regions, each of its own group of channels.

    Dai, Li, He & Sun, *R-FCN: object detection via region-based fully convolutional networks*,
    NeurIPS 2016.  It is ChainerCV's ``ps_roi_average_pooling_2d``.

    Parameters
    ----------
    x
        Shape ``(N, C * groups ** 2, H, W)``.
    boxes, index
        Shapes ``(R, 4)`` and ``(R,)``: ``yxyx``, and the image of each.
    size
        The number of windows along each side of a region, a multiple of ``groups``.
    groups
        The number of groups of channels along each side.
    scale
        The factor from coordinates of boxes to those of ``x``.

    Returns
    -------
    array
        Shape ``(R, C, size, size)``; 0 for a window without elements.
    """
    weights = []
    for axis in (0, 1):
        start, step, window, element = _windows(x, boxes, axis, size, scale)
        low = ops.clip(ops.floor(window * step + start), 0, len(element))
        high = ops.clip(ops.ceil((window + 1) * step + start), 0, len(element))
        inside = (element >= low[..., None]) & (element < high[..., None])
        weights.append(inside / ops.maximum(high - low, 1)[..., None])
    return _in_groups(x, *weights, index, groups)


def ps_max_align(x: Any, boxes: Any, index: Any, *, size: int, scale: float, ratio: int) -> Any:
    """Return maxima of interpolated samples in windows, each of its own group of channels.

    It is ChainerCV's ``ps_roi_max_align_2d``, for as many groups as windows along each side.

    Parameters
    ----------
    x, boxes, index, size, scale
        As for `ps_average_pool`.
    ratio
        The number of samples along each side of a window.

    Returns
    -------
    array
        Shape ``(R, C, size, size)``; 0 for a window without samples in the image.
    """
    weights, valid = [], []
    for axis in (0, 1):
        start, step, window, element = _windows(x, boxes, axis, size * ratio, scale)
        position = start + (window + 0.5) * step
        valid.append((position >= -1) & (position <= len(element)))
        position = ops.clip(position, 0, len(element) - 1)
        weights.append(ops.maximum(1 - ops.abs(position[..., None] - element), 0))
    samples = _in_groups(x, *weights, index, size)
    samples = ops.where(valid[0][:, None, :, None] & valid[1][:, None, None], samples, -np.inf)
    count, channels = samples.shape[:2]
    maxima = ops.max(ops.reshape(samples, (count, channels, size, ratio, size, ratio)), axis=(3, 5))
    return ops.where(maxima == -np.inf, 0, maxima)


def _windows(x: Any, boxes: Any, axis: int, size: int, scale: float) -> tuple[Any, ...]:
    """Return starts and lengths of windows along an axis, numbers of windows and of elements."""
    boxes = stop_gradient(boxes)
    start, end = boxes[:, axis, None] * scale, boxes[:, axis + 2, None] * scale
    step = ops.maximum(end - start, 0.1) / size
    xp = array_module(boxes)
    windows, elements = (
        xp.arange(size, dtype="float32"),
        xp.arange(x.shape[2 + axis], dtype="float32"),
    )
    return start, step, windows, elements


def _in_groups(x: Any, rows: Any, columns: Any, index: Any, groups: int) -> Any:
    """Multiply each group of channels from both sides with the weights of its windows."""
    n, _, h, w = x.shape
    count, size, _ = rows.shape
    inner = size // groups
    x = ops.permute_dims(ops.reshape(x, (n, -1, groups, groups, h, w)), (0, 2, 3, 1, 4, 5))
    channels = x.shape[3]
    full = (count, groups, groups, inner)
    rows = ops.reshape(rows, (count, groups, 1, inner, h))
    columns = ops.reshape(columns, (count, 1, groups, inner, w))
    cells = index[:, None] * groups**2 + array_module(index).arange(groups**2)
    out = region_products(
        ops.reshape(x, (-1, channels, h, w)),
        ops.reshape(ops.broadcast_to(rows, (*full, h)), (-1, inner, h)),
        ops.reshape(ops.broadcast_to(columns, (*full, w)), (-1, inner, w)),
        ops.reshape(cells, (-1,)),
    )
    out = ops.reshape(out, (count, groups, groups, channels, inner, inner))
    return ops.reshape(ops.permute_dims(out, (0, 3, 1, 4, 2, 5)), (count, channels, size, size))
