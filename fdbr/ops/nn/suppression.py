"""Suppression of boxes that overlap one with a higher score."""

import math
from typing import Any

import numpy as np

from fdbr.ops.declare import constant
from fdbr.ops.declare.batches import spread

__all__ = ["float_below", "suppress"]

_BLOCK = 1024
"""How many boxes are compared with each other at once: 4 MB for each quantity of the pairs."""


def _batch(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    return apply(
        *(spread(v, flag, size) for v, flag in zip(values, batched, strict=True)), **params
    )


@constant(batch=_batch, fresh=True)
def suppress(xp: Any, boxes: Any, scores: Any, labels: Any, *, threshold: float, limit: int) -> Any:
    """Find the boxes that overlap no box of their label with a higher score that is kept.

    ``boxes`` have the shape ``(…, R, 4)``, scores and labels ``(…, R)``.  The result, ``(…,
    limit)``, has the indices in decreasing order of score, and then -1.  Scores of -inf and NaN,
    and labels of -1, are never kept.
    """
    count, shape = boxes.shape[-2], boxes.shape[:-2]
    images = math.prod(shape)
    boxes = boxes.reshape((images, count, 4))
    scores, labels = scores.reshape((images, count)), labels.reshape((images, count))
    out = xp.full((images, limit), -1, dtype=xp.int64)
    threshold = float_below(threshold, boxes.dtype)
    for i in range(images):
        order = ranking(xp, scores[i], labels[i])
        kept = order[_kept(xp, boxes[i][order], labels[i][order], threshold, limit)]
        out[i, : len(kept)] = kept
    return out.reshape((*shape, limit))


def ranking(xp: Any, scores: Any, labels: Any) -> Any:
    """Return the indices of the boxes that may be kept, by decreasing score, then by index."""
    order = xp.argsort(-scores, kind="stable")
    return order[((scores > -xp.inf) & (labels != -1))[order]]


def float_below(threshold: float, dtype: Any) -> Any:
    """Return the largest number of a dtype that is at most a Python number.

    A number of the dtype exceeds it exactly if it exceeds ``threshold``.
    """
    rounded = np.dtype(dtype).type(threshold)
    return np.nextafter(rounded, -np.inf) if float(rounded) > threshold else rounded


def _kept(xp: Any, boxes: Any, labels: Any, threshold: Any, limit: int) -> Any:
    """Return the positions of boxes, in order of score, that are kept.

    Within a block a box is kept unless it overlaps a kept one before it; if this is applied to any
    choice again and again, then in each iteration one more box at least is as it must be.
    """
    kept = xp.zeros((0,), dtype=xp.int64)
    for start in range(0, len(boxes), _BLOCK):
        if len(kept) >= limit:
            break
        block, names = boxes[start : start + _BLOCK], labels[start : start + _BLOCK]
        free = ~_overlap(xp, boxes[kept], labels[kept], block, names, threshold).any(axis=0)
        rivals = xp.triu(_overlap(xp, block, names, block, names, threshold), 1)
        chosen = free
        while True:
            again = free & ~(rivals & chosen[:, None]).any(axis=0)
            if bool((again == chosen).all()):
                break
            chosen = again
        kept = xp.concatenate([kept, start + xp.flatnonzero(chosen)])
    return kept[:limit]


def _overlap(xp: Any, a: Any, m: Any, b: Any, n: Any, threshold: Any) -> Any:
    """Return which pairs have one label, and an intersection over union above the threshold."""
    low = xp.maximum(a[:, None, :2], b[None, :, :2])
    high = xp.minimum(a[:, None, 2:], b[None, :, 2:])
    common = _area(xp, low, high)
    union = _area(xp, a[:, :2], a[:, 2:])[:, None] + _area(xp, b[:, :2], b[:, 2:])[None] - common
    with np.errstate(divide="ignore", invalid="ignore"):  # NaN of two empty boxes is no overlap
        return (common / union > threshold) & (m[:, None] == n[None])


def _area(xp: Any, low: Any, high: Any) -> Any:
    sides = xp.maximum(high - low, 0)
    return sides[..., 0] * sides[..., 1]
