"""Predictions of a network as rows, and the choice of objects among them."""

from typing import Any

import numpy as np

from fdbr import ops
from fdbr.ops.devices import beside
from fdbr.vision.boxes import nms
from fdbr.vision.results import PADDING, Detections

__all__ = ["best_objects", "in_rows"]


def in_rows(maps: Any, columns: int) -> Any:
    """Return maps ``(N, A * columns, H, W)`` as rows ``(N, H * W * A, columns)``."""
    n, channels, height, width = maps.shape
    count = height * width * (channels // columns)
    return ops.reshape(ops.permute_dims(maps, (0, 2, 3, 1)), (n, count, columns))


def best_objects(
    boxes: Any, scores: Any, *, score_threshold: float, nms_threshold: float, limit: int
) -> Detections:
    """Return the padded objects with the highest scores, without those that overlap better ones.

    Parameters
    ----------
    boxes
        Shape ``(N, K, 4)``; or ``(N, K, C, 4)``, a box for each class.
    scores
        Shape ``(N, K, C)``.
    score_threshold
        Scores must be above it.
    nms_threshold
        The overlap from which on the worse of two objects of a class is left out, as in ChainerCV.
    limit
        The number of entries for each image.
    """
    n, k, c = scores.shape
    if boxes.ndim == 3:
        boxes = ops.broadcast_to(boxes[:, :, None], (n, k, c, 4))
    boxes = ops.reshape(boxes, (n, k * c, 4))
    scores = ops.reshape(scores, (n, k * c))
    labels = beside(np.tile(np.arange(c, dtype=np.int32), (n, k)), scores)
    certain = ops.where(scores > score_threshold, scores, -np.inf)
    kept = nms(boxes, certain, nms_threshold, labels=labels, limit=limit, chainer=True)
    found, indices = kept >= 0, ops.maximum(kept, 0)
    corners = ops.broadcast_to(indices[..., None], (*indices.shape, 4))
    return Detections(
        ops.where(found[..., None], ops.take_along_axis(boxes, corners, axis=1), 0),
        ops.where(found, ops.astype(indices % c, np.int32), PADDING),
        ops.where(found, ops.take_along_axis(scores, indices, axis=1), 0),
    )
