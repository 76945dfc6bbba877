"""Non-maximum suppression."""

import numbers
from typing import Any

import numpy as np

from fdbr import ops
from fdbr.core.array_modules import array_module, where_it_lies
from fdbr.errors.checks import describe, integer
from fdbr.errors.public import public
from fdbr.ops.devices import beside
from fdbr.ops.dtypes import is_short
from fdbr.ops.nn.suppression import suppress
from fdbr.ops.shape.creation import floating
from fdbr.pytrees.dtypes import dtype_kind
from fdbr.vision.boxes.arguments import checked_boxes, checked_format

__all__ = ["nms"]


@public("fdbr.vision")
@where_it_lies
def nms(
    boxes: Any,
    scores: Any,
    threshold: float = 0.5,
    *,
    labels: Any = None,
    limit: int | None = None,
    chainer: bool = False,
    box_format: str = "yxyx",
) -> Any:
    """Return the indices of the boxes that overlap no kept box with a higher score.

    Boxes are taken in decreasing order of their scores, equal ones in that of their indices.  One
    is kept unless its intersection over union with a kept one exceeds ``threshold``.  It is
    torchvision's ``nms``, and with ``labels`` its ``batched_nms``, where only boxes of one label
    suppress each other.

    Parameters
    ----------
    boxes
        Shape ``(R, 4)``; with a limit also ``(…, R, 4)``.
    scores
        Shape ``(R,)`` or ``(…, R)``.  A box with the score -inf or NaN is never kept, and
        suppresses none.
    threshold
        The largest intersection over union of two kept boxes.
    labels
        The class of each box, integers of the shape of ``scores``.  A box with the label -1 is
        never kept.
    limit
        The largest number of boxes to keep.  The result has then a fixed shape, so that `fdbr.jit`
        has one trace however many boxes are kept, and `fdbr.vmap` applies.
    chainer
        Whether a box with an overlap of exactly ``threshold`` is left out too, as in ChainerCV's
        ``non_maximum_suppression``; torchvision keeps it.
    box_format
        ``"yxyx"`` or ``"xyxy"``, which have the same result.

    Returns
    -------
    array
        The indices, int64, in decreasing order of score.  Shape ``(K,)``, where K is the number of
        kept boxes; with a limit ``(…, limit)``, padded with -1.

    Raises
    ------
    ValueError, TypeError
        If shapes do not fit, ``threshold`` is no number or ``limit`` negative, boxes or scores are
        not of real numbers, or labels not of integers.

    Notes
    -----
    A box whose minimum exceeds its maximum, or which has NaN, overlaps none.

    >>> import numpy as np
    >>> from fdbr import vision
    >>> boxes = np.array([[0.0, 0, 2, 2], [0, 0, 2, 3], [4, 4, 5, 5]])
    >>> scores = np.array([0.5, 0.9, 0.7])
    >>> vision.nms(boxes, scores)
    array([1, 2])
    >>> vision.nms(boxes, scores, labels=np.array([0, 1, 1]), limit=4)
    array([ 1,  2,  0, -1])
    """
    checked_format("nms", box_format)
    boxes = floating(checked_boxes("nms", "boxes", boxes))
    scores = ops.asarray(scores)
    if dtype_kind(scores.dtype) not in "fiu":
        raise TypeError(f"fdbr.vision.nms: scores must be real numbers, got {describe(scores)}")
    if labels is None:
        labels = array_module(scores).zeros(scores.shape, dtype="int32")
    labels = beside(ops.asarray(labels), boxes)
    if dtype_kind(labels.dtype) not in "iu":
        raise TypeError(f"fdbr.vision.nms: labels must be integers, got {describe(labels)}")
    shape = tuple(boxes.shape[:-1])
    if not shape or tuple(scores.shape) != shape or tuple(labels.shape) != shape:
        raise ValueError(
            f"fdbr.vision.nms: boxes {describe(boxes)} of shape (…, R, 4) need scores and labels "
            f"of shape (…, R), got scores {describe(scores)} and labels {describe(labels)}"
        )
    if not isinstance(threshold, numbers.Real) or threshold != threshold:
        raise ValueError(f"fdbr.vision.nms: threshold must be a number, got {threshold!r}")
    if limit is None and len(shape) > 1:
        raise ValueError(
            f"fdbr.vision.nms: boxes {describe(boxes)} with leading axes need a limit, because "
            "their results differ in length"
        )
    most = shape[-1] if limit is None else integer("fdbr.vision.nms", "limit", limit, 0)
    boxes, scores = (ops.astype(v, "float32") if is_short(v) else v for v in (boxes, scores))
    scores = floating(scores)
    if chainer:
        # An overlap reaches the threshold if it exceeds the number before it.
        threshold = np.nextafter(np.dtype(boxes.dtype).type(threshold), -np.inf)
    kept = suppress(boxes, scores, labels, threshold=float(threshold), limit=most)
    return kept if limit is not None else kept[kept >= 0]
