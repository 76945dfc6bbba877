"""Images as the input of detectors: normalised, resized, and extended to one size."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fdbr import ops
from fdbr.ops.devices import beside
from fdbr.ops.nn.resampling.interpolation import resize_linearly
from fdbr.vision.results import Truths

__all__ = [
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "Prepared",
    "in_batch",
    "in_originals",
    "normalized",
    "resize_and_batch",
]

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


class Prepared(NamedTuple):
    """Images as the input of a network.

    Attributes
    ----------
    batch
        The images resized, normalised and extended to one size, shape ``(N, 3, H, W)``.
    sizes
        The height and width of each image within ``batch``, shape ``(N, 2)``, int32.
    originals
        The height and width of each image as it was given, shape ``(N, 2)``, int32.
    """

    batch: Any
    sizes: Any
    originals: Any


def normalized(x: Any, mean: Sequence[float], std: Sequence[float]) -> Any:
    """Return images less the mean and over the standard deviation of each channel."""
    return (x - _channels(x, mean)) / _channels(x, std)


def resize_and_batch(
    images: Any,
    *,
    min_size: int,
    max_size: int,
    mean: Sequence[float],
    std: Sequence[float] | None,
    size_divisible: int = 32,
    chainer: bool = False,
) -> Prepared:
    """Return images as one batch: torchvision's ``GeneralizedRCNNTransform``.

    Each image is resized by linear interpolation, so that its shorter side is ``min_size``, or its
    longer one ``max_size`` if it would be longer than that.

    Parameters
    ----------
    images
        Arrays of shape ``(3, H, W)``, from 0 to 255.
    min_size, max_size
        The lengths of sides.
    mean, std
        The mean and standard deviation of each channel, of values from 0 to 1.  Without ``std``,
        ``mean`` is that of values from 0 to 255 and is subtracted after the resizing.
    size_divisible
        The height and width of the batch are multiples of it.
    chainer
        Whether ``sizes`` of the result are ChainerCV's, which are not rounded.  Then, and without
        ``std``, images are resized as by OpenCV, which ChainerCV uses.
    """
    resized, sizes = [], []
    for image in images:
        height, width = (int(n) for n in image.shape[1:])
        scale = min(min_size / min(height, width), max_size / max(height, width))
        size = max(int(height * scale), 1), max(int(width * scale), 1)
        x = ops.astype(image, np.float32, copy=False)
        if std is not None:
            x = normalized(x / 255, mean, std)
        if std is None or chainer:
            x = resize_linearly(x, size)
        elif size != (height, width):
            x = ops.interpolate(x[None], size=size, mode="bilinear")[0]
        resized.append(x if std is not None else x - _channels(x, mean))
        sizes.append((height * scale, width * scale) if chainer else size)
    most = [max(x.shape[axis] for x in resized) for axis in (1, 2)]
    height, width = (math.ceil(n / size_divisible) * size_divisible for n in most)
    batch = [
        ops.pad(x, ((0, 0), (0, height - x.shape[1]), (0, width - x.shape[2]))) for x in resized
    ]
    originals = np.array([image.shape[1:] for image in images], np.int32)
    return Prepared(
        ops.stack(batch),
        np.array(sizes, np.float32 if chainer else np.int32),
        originals,
    )


def _channels(x: Any, values: Sequence[float]) -> Any:
    return beside(np.array(values, x.dtype)[:, None, None], x)


def in_batch(truths: Truths, prepared: Prepared) -> Truths:
    """Return padded truths in pixels of a batch instead of those of the images as given.

    Masks are resized as by torchvision, to nearest neighbours.
    """
    factors = prepared.sizes / prepared.originals
    boxes = _scaled(truths.boxes, factors)
    points = None if truths.points is None else _scaled(truths.points, factors)
    masks = truths.masks
    if masks is not None:
        height, width = prepared.batch.shape[2:]
        resized = []
        for mask, size, original in zip(masks, prepared.sizes, prepared.originals, strict=True):
            (h, w), (new_h, new_w) = original.tolist(), (int(n) for n in size)
            small = ops.interpolate(
                ops.astype(mask[:, :h, :w] != 0, np.float32), size=(new_h, new_w), mode="nearest"
            )
            resized.append(ops.pad(small, ((0, 0), (0, height - new_h), (0, width - new_w))))
        masks = ops.stack(resized)
    return truths._replace(boxes=boxes, masks=masks, points=points)


def in_originals(boxes: Any, prepared: Prepared) -> Any:
    """Return padded boxes or points in pixels of the images as they were given."""
    return _scaled(boxes, prepared.originals / prepared.sizes)


def _scaled(boxes: Any, factors: Any) -> Any:
    """Multiply boxes ``(N, …, 4)`` or points ``(N, …, 2)`` by each image's factors ``(N, 2)``."""
    factors = np.tile(np.asarray(factors, np.float32), boxes.shape[-1] // 2)
    shape = (len(factors), *(1,) * (boxes.ndim - 2), factors.shape[1])
    return boxes * beside(factors.reshape(shape), boxes)
