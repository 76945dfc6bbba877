"""Assignment of true objects to anchors, and random samples of anchors."""

from typing import Any, NamedTuple

import numpy as np

from fdbr import ops, random
from fdbr.core.array_modules import array_module, where_it_lies
from fdbr.errors.public import public
from fdbr.ops.devices import device_of

__all__ = ["BACKGROUND", "IGNORED", "Sample", "match", "sample"]

BACKGROUND = -1
"""The match of an anchor whose overlaps are all below the lower threshold."""

IGNORED = -2
"""The match of an anchor whose best overlap is between the thresholds."""


@public("fdbr.vision.models")
@where_it_lies
def match(iou: Any, is_object: Any, high: float, low: float, *, low_quality: bool = False) -> Any:
    """Return the object that each anchor is assigned to: torchvision's ``Matcher``.

    An anchor is assigned to the object with which it overlaps most, if their overlap is at least
    ``high``.

    Parameters
    ----------
    iou
        The overlap of each object and each anchor, shape ``(…, objects, anchors)``.
    is_object
        Shape ``(…, objects)``, bool: which entries are objects, not padding.
    high, low
        The thresholds.
    low_quality
        Whether, in addition, the anchors that overlap most with an object are assigned to the
        object with which they overlap most themselves.

    Returns
    -------
    array
        Shape ``(…, anchors)``, int64: the index of an object; -1 for the background, where the
        largest overlap is below ``low``; -2 where it is between ``low`` and ``high``.

    >>> import numpy as np
    >>> from fdbr.vision import models
    >>> iou = np.array([[0.9, 0.0, 0.4, 0.1], [0.1, 0.0, 0.2, 0.6]])
    >>> models.match(iou, np.array([True, True]), 0.7, 0.3)
    array([ 0, -1, -2, -2])
    >>> models.match(iou, np.array([True, True]), 0.7, 0.3, low_quality=True)
    array([ 0, -1, -2,  1])
    """
    iou = ops.where(ops.expand_dims(is_object, -1), iou, -1)
    best = ops.argmax(iou, axis=-2)
    largest = ops.max(iou, axis=-2)
    matched = ops.where(largest < low, BACKGROUND, ops.where(largest < high, IGNORED, best))
    if not low_quality:
        return matched
    peaks = iou == ops.max(iou, axis=-1, keepdims=True)
    return ops.where(ops.any(peaks & ops.expand_dims(is_object, -1), axis=-2), best, matched)


class Sample(NamedTuple):
    """Randomly chosen anchors of each image, positive ones first.

    Attributes
    ----------
    index
        The indices of anchors, shape ``(N, count)``.
    positive
        Shape ``(N, count)``, bool: which of them are positive.
    chosen
        Shape ``(N, count)``, bool: which entries count.  There are others where an image has too
        few anchors.
    """

    index: Any
    positive: Any
    chosen: Any


@public("fdbr.vision.models")
@where_it_lies
def sample(key: Any, labels: Any, count: int, positive_fraction: float) -> Sample:
    """Choose positive and negative anchors: torchvision's ``BalancedPositiveNegativeSampler``.

    Parameters
    ----------
    key
        A random key.
    labels
        Shape ``(N, anchors)``: positive numbers, 0 for negative anchors, and -1 for anchors that
        are never chosen.
    count
        The number of anchors chosen in each image.
    positive_fraction
        The largest fraction of positive ones; negative ones replace those that are missing.

    Returns
    -------
    Sample
        The chosen anchors.

    >>> import fdbr
    >>> import numpy as np
    >>> from fdbr.vision import models
    >>> labels = np.array([[1, 0, -1, 0, 0, 2, 3]])
    >>> found = models.sample(fdbr.random.key(0), labels, 4, 0.5)
    >>> np.take_along_axis(labels, found.index, 1)[0, 2:], found.positive
    (array([0, 0]), array([[ True,  True, False, False]]))
    """
    anchors = labels.shape[1]
    draws = random.uniform(key, labels.shape, np.float32, device=device_of(labels))
    most = min(int(count * positive_fraction), anchors)
    value, positives = ops.top_k(ops.where(labels > 0, draws, -1), most)
    has_positive = value >= 0
    found = ops.sum(has_positive, axis=1, keepdims=True)
    value, negatives = ops.top_k(ops.where(labels == 0, draws, -1), min(count, anchors))
    ranks = array_module(labels).arange(negatives.shape[1])
    has_negative = (value >= 0) & (ranks < count - found)
    index = ops.concat([positives, negatives], axis=1)
    chosen = ops.concat([has_positive, has_negative], axis=1)
    positive = ops.concat([has_positive, ops.zeros_like(has_negative)], axis=1)
    order = ops.argsort(ops.logical_not(chosen), axis=1, stable=True)[:, :count]
    return Sample(*(ops.take_along_axis(part, order, axis=1) for part in (index, positive, chosen)))
