"""Matching and losses of detectors without proposals."""

from typing import Any

import numpy as np

from fdbr import ops
from fdbr.control_flow import while_loop
from fdbr.core.array_modules import array_module, where_it_lies
from fdbr.errors.public import public
from fdbr.transforms.vjp import stop_gradient
from fdbr.vision.boxes import box_iou
from fdbr.vision.models.matching import match

__all__ = [
    "match_default_boxes",
    "multibox_loss",
    "of_matched",
]

SWAPPED = np.array([1, 0, 3, 2])
"""PyTorch's order of a box's four numbers, x before y, as indices into ours; and the reverse."""


@public("fdbr.vision.models")
@where_it_lies
def match_default_boxes(
    boxes: Any, labels: Any, anchors: Any, *, threshold: float = 0.5, chainer: bool = False
) -> Any:
    """Return which object each default box is to find.

    A default box is matched with the object that it overlaps most, if their overlap (IoU) is at
    least ``threshold``.  In addition, each object is matched with one default box, whatever their
    overlap: with the one that it overlaps most; if this is so for several objects, it finds the
    last.  Liu et al., *SSD: single shot multibox detector*, ECCV 2016, section 2.2.

    Parameters
    ----------
    boxes, labels
        The objects of each image, padded: shapes ``(N, R, 4)`` and ``(N, R)``, where the label is
        -1 if there is no object.
    anchors
        The default boxes, shape ``(K, 4)``.
    threshold
        The smallest overlap of a match.
    chainer
        Whether the additional matches are ChainerCV's: one to one, those with the largest overlap
        first, of objects and default boxes that overlap.  An object within several default boxes
        of one size overlaps them equally, up to rounding, which in ChainerCV is that of float64.

    Returns
    -------
    array
        Shape ``(N, K)``, int32: the index of an object, or -1.

    >>> import numpy as np
    >>> from fdbr import vision
    >>> anchors = np.array([[0, 0, 4, 4], [4, 4, 8, 8], [9, 9, 10, 10]], "float32")
    >>> truths = np.array([[[0, 0, 4, 5], [6, 6, 9, 9]]], "float32")
    >>> vision.models.match_default_boxes(truths, np.array([[0, 0]]), anchors)
    array([[ 0,  1, -1]], dtype=int32)
    """
    boxes, labels, anchors = (stop_gradient(ops.asarray(part)) for part in (boxes, labels, anchors))
    count, shape = labels.shape[1], (labels.shape[0], anchors.shape[0])
    if not count or not anchors.shape[0]:
        return array_module(anchors).full(shape, -1, dtype=np.int32)
    overlaps = ops.where((labels >= 0)[..., None], box_iou(boxes, anchors), -1)  # (N, R, K)
    matches = match(overlaps, labels >= 0, threshold, threshold)
    forced = _one_to_one(overlaps) if chainer else _best_of_each(overlaps)
    return ops.astype(ops.where(forced >= 0, forced, matches), np.int32)


def _best_of_each(overlaps: Any) -> Any:
    """Return for each default box the last object that overlaps it most, or -1."""
    count, size = overlaps.shape[1:]
    xp, best = array_module(overlaps), ops.argmax(overlaps, axis=2)
    hits = (best[..., None] == xp.arange(size)) & (overlaps[:, :, :1] >= 0)
    return ops.max(ops.where(hits, xp.arange(count)[:, None], -1), axis=1)


def _one_to_one(overlaps: Any) -> Any:
    """Return for each default box its object in ChainerCV's one-to-one matching, or -1."""
    (images, count, size), xp = overlaps.shape, array_module(overlaps)

    def unfinished(val: Any) -> Any:
        return ops.any(val[0] > 1e-6)

    def match(val: Any) -> Any:
        # ChainerCV has the default boxes on the first axis, which decides between equal overlaps.
        left, matches = val
        flat = ops.reshape(ops.swapaxes(left, 1, 2), (images, -1))
        best = ops.argmax(flat, axis=1)
        row = (best % count)[:, None] == xp.arange(count)
        column = (best // count)[:, None] == xp.arange(size)
        fits = ops.max(flat, axis=1)[:, None] > 1e-6
        matches = ops.where(column & fits, (best % count)[:, None], matches)
        return ops.where(row[:, :, None] | column[:, None, :], 0, left), matches

    start = overlaps, xp.full((images, size), -1, dtype=np.int64)
    return while_loop(unfinished, match, start)[1]


def of_matched(matches: Any, boxes: Any, labels: Any, anchors: Any) -> tuple[Any, Any]:
    """Return the boxes and labels of the matched objects.

    Where there is none, they are the anchor itself and -1.

    Returns
    -------
    boxes, labels
        Shapes ``(N, K, 4)`` and ``(N, K)``.
    """
    if not labels.shape[1]:
        return ops.broadcast_to(anchors, (*matches.shape, 4)), matches
    found, index = matches >= 0, ops.maximum(matches, 0)
    their = ops.take_along_axis(boxes, index[..., None], axis=1)
    return (
        ops.where(found[..., None], ops.astype(their, anchors.dtype), anchors),
        ops.where(found, ops.take_along_axis(labels, index, axis=1), -1),
    )


@public("fdbr.vision.models")
@where_it_lies
def multibox_loss(
    logits: Any, codes: Any, labels: Any, true_codes: Any, *, negatives: float = 3.0
) -> dict[str, Any]:
    """Return SSD's losses, given what each default box is to find.

    The classes' loss is the cross entropy of the default boxes that are matched, and of those
    others whose cross entropy is largest in their image: ``negatives`` for each matched one.  The
    boxes' loss is the smooth L1 loss of the matched default boxes' codes.  Both are divided by the
    number of matched default boxes in the batch, and are 0 if there are none.  Liu et al., *SSD:
    single shot multibox detector*, ECCV 2016, equations 1 to 3.

    Parameters
    ----------
    logits
        Shape ``(N, K, classes + 1)``; the first class is the background.
    codes
        The predicted boxes, encoded: shape ``(N, K, 4)``.
    labels
        Shape ``(N, K)``: the label of the object, or -1 for the background.
    true_codes
        The boxes of the objects, encoded: shape ``(N, K, 4)``.
    negatives
        The number of default boxes of the background for each matched one.

    Returns
    -------
    dict
        The scalars ``"bbox_regression"`` and ``"classification"``.

    >>> import numpy as np
    >>> from fdbr import vision
    >>> logits, codes = np.zeros((1, 3, 2)), np.zeros((1, 3, 4))
    >>> labels = np.array([[0, -1, -1]])
    >>> losses = vision.models.multibox_loss(logits, codes, labels, codes, negatives=1)
    >>> [f"{name} {loss:.3f}" for name, loss in losses.items()]  # log(2) of two boxes
    ['bbox_regression 0.000', 'classification 1.386']
    """
    matched = labels >= 0
    count = ops.maximum(ops.astype(ops.sum(ops.astype(matched, np.int64)), logits.dtype), 1)
    each = ops.softmax_cross_entropy(logits, labels + 1, reduction="none")
    ranked = ops.where(matched, -np.inf, stop_gradient(each))
    rank = ops.argsort(ops.argsort(ranked, axis=1, descending=True), axis=1)
    mined = rank < negatives * ops.sum(ops.astype(matched, np.int64), axis=1, keepdims=True)
    distance = ops.smooth_l1_loss(codes, true_codes, reduction="none")
    return {
        "bbox_regression": ops.sum(ops.where(matched[..., None], distance, 0)) / count,
        "classification": ops.sum(ops.where(matched | mined, each, 0)) / count,
    }
