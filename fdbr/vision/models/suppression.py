"""Predictions of a network as rows, and the choice of objects among them."""

from typing import Any

import numpy as np

from fdbr import ops
from fdbr.ops.devices import beside
from fdbr.vision.boxes import nms
from fdbr.vision.results import PADDING, Detections

__all__ = ["best_objects", "in_rows", "suppressed"]


def in_rows(maps: Any, columns: int) -> Any:
    """Return maps ``(N, A * columns, H, W)`` as rows ``(N, H * W * A, columns)``."""
    n, channels, height, width = maps.shape
    count = height * width * (channels // columns)
    return ops.reshape(ops.permute_dims(maps, (0, 2, 3, 1)), (n, count, columns))


def suppressed(
    boxes: Any, scores: Any, labels: Any, *, threshold: float, limit: int, chainer: bool = False
) -> Detections:
    """Return the boxes that overlap no better box of their label, padded.

    Parameters
    ----------
    boxes, scores, labels
        Shapes ``(N, K, 4)``, ``(N, K)`` and ``(N, K)``; a score of -inf or a label of -1 excludes a
        box.
    threshold
        The overlap (IoU) above which the box with the smaller score is left out.
    limit
        The number of entries for each image.
    chainer
        As for `fdbr.vision.nms`.
    """
    kept = nms(boxes, scores, threshold, labels=labels, limit=limit, chainer=chainer)
    found, index = kept >= 0, ops.maximum(kept, 0)
    return Detections(
        ops.where(found[..., None], ops.take_along_axis(boxes, index[..., None], axis=1), 0),
        ops.astype(ops.where(found, ops.take_along_axis(labels, index, axis=1), PADDING), np.int32),
        ops.where(found, ops.take_along_axis(scores, index, axis=1), 0),
    )


def best_objects(boxes: Any, scores: Any, *, nms_threshold: float, limit: int) -> Detections:
    """Return the `suppressed` objects of all classes.

    Parameters
    ----------
    boxes
        Shape ``(N, K, 4)``; or ``(N, K, C, 4)``, a box for each class.
    scores
        Shape ``(N, K, C)``; -inf excludes a box.
    nms_threshold, limit
        As for `suppressed`, with ``chainer=True``.
    """
    n, k, c = scores.shape
    if boxes.ndim == 3:
        boxes = ops.broadcast_to(boxes[:, :, None], (n, k, c, 4))
    return suppressed(
        ops.reshape(boxes, (n, k * c, 4)),
        ops.reshape(scores, (n, k * c)),
        beside(np.tile(np.arange(c, dtype=np.int32), (n, k)), scores),
        threshold=nms_threshold,
        limit=limit,
        chainer=True,
    )
