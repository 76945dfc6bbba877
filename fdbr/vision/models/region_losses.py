"""The losses of detectors with regions: assignment, samples, and losses of sampled targets.

Functions that assign and sample are apart from those that compute losses, as in ChainerCV
(``bbox_head_loss_pre`` and ``bbox_head_loss_post``); all take padded truths, and their shapes do
not depend on numbers of objects.
"""

from typing import Any, NamedTuple

import numpy as np

from fdbr import ops
from fdbr.core.array_modules import array_module, where_it_lies
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.ops.devices import beside
from fdbr.transforms.vjp import stop_gradient
from fdbr.vision.boxes import box_iou, crop_masks, encode_boxes
from fdbr.vision.models.matching import BACKGROUND, IGNORED, Sample, match, sample
from fdbr.vision.results import Truths

__all__ = [
    "AnchorTargets",
    "RegionTargets",
    "anchor_losses",
    "anchor_targets",
    "keypoint_losses",
    "mask_losses",
    "region_losses",
    "region_targets",
]

BOX_WEIGHTS = (10.0, 10.0, 5.0, 5.0)


class AnchorTargets(NamedTuple):
    """The targets of a region proposal network.

    Attributes
    ----------
    sample
        Which anchors of each image the losses are computed of.
    codes
        The encoded boxes of the objects of the sampled anchors, shape ``(N, count, 4)``.
    """

    sample: Sample
    codes: Any


class RegionTargets(NamedTuple):
    """The targets of the heads of a detector.

    Attributes
    ----------
    sample
        Which proposals of each image the losses are computed of.
    boxes
        The sampled proposals, shape ``(N, count, 4)``.
    labels
        The class of each, shape ``(N, count)``: 0 for the background, 1 for the first class.
    codes
        The encoded boxes of their objects, shape ``(N, count, 4)``.
    objects
        The indices of their objects in the padded truths, shape ``(N, count)``.
    """

    sample: Sample
    boxes: Any
    labels: Any
    codes: Any
    objects: Any


@public("fdbr.vision.models")
@where_it_lies
def anchor_targets(
    key: Any,
    anchors: Any,
    truths: Truths,
    *,
    sizes: Any = None,
    high: float = 0.7,
    low: float = 0.3,
    count: int = 256,
    positive_fraction: float = 0.5,
) -> AnchorTargets:
    """Assign objects to anchors, and choose the anchors that are trained.

    Ren, He, Girshick & Sun, *Faster R-CNN*, NeurIPS 2015, section 3.1.2.

    Parameters
    ----------
    key
        A random key.
    anchors
        Shape ``(A, 4)``.
    truths
        The objects, padded: ``boxes`` of shape ``(N, D, 4)`` and ``labels`` of shape ``(N, D)``.
    sizes
        The sizes of the images, ``(N, 2)``, if anchors that are not within them are ignored, as by
        ChainerCV.
    high, low
        The overlaps from which an anchor is positive, and below which it is negative.
    count, positive_fraction
        The number of anchors for each image, and the largest fraction of positive ones.

    Returns
    -------
    AnchorTargets
        The targets.

    >>> import fdbr
    >>> import numpy as np
    >>> from fdbr import vision
    >>> anchors = np.array([[0, 0, 8, 8], [0, 8, 8, 16], [0, 0, 8, 16]], "float32")
    >>> truths = vision.Truths(anchors[None, :1], np.array([[4]]))
    >>> targets = vision.models.anchor_targets(fdbr.random.key(0), anchors, truths, count=2)
    >>> targets.sample.index, targets.sample.positive
    (array([[0, 1]]), array([[ True, False]]))
    """
    is_object = truths.labels >= 0
    iou = box_iou(truths.boxes, anchors)
    if sizes is not None:
        sizes = ops.astype(beside(ops.asarray(sizes), anchors), anchors.dtype)[:, None]
        within = ops.all((anchors[:, :2] >= 0) & (anchors[:, 2:] <= sizes), axis=-1)
        iou = ops.where(within[:, None], iou, -1)
    matched = match(iou, is_object, high, low, low_quality=True)
    labels = ops.where(matched == IGNORED, -1, ops.where(matched == BACKGROUND, 0, 1))
    if sizes is not None:
        labels = ops.where(within, labels, -1)
    chosen = sample(key, labels, count, positive_fraction)
    objects = ops.take_along_axis(ops.maximum(matched, 0), chosen.index, axis=1)
    return AnchorTargets(
        chosen, _codes(truths.boxes, objects, ops.take(anchors, chosen.index, axis=0), chosen)
    )


@public("fdbr.vision.models")
@where_it_lies
def region_targets(
    key: Any,
    proposals: Any,
    is_proposal: Any,
    truths: Truths,
    *,
    high: float = 0.5,
    low: float = 0.5,
    count: int = 512,
    positive_fraction: float = 0.25,
) -> RegionTargets:
    """Assign objects to proposals, and choose the proposals that are trained.

    The boxes of the objects are proposals themselves, too.

    Parameters
    ----------
    key
        A random key.
    proposals
        Shape ``(N, R, 4)``.
    is_proposal
        Shape ``(N, R)``, bool: which entries are proposals, not padding.
    truths, high, low, count, positive_fraction
        As for `anchor_targets`.

    Returns
    -------
    RegionTargets
        The targets.

    >>> import fdbr
    >>> import numpy as np
    >>> from fdbr import vision
    >>> boxes = np.array([[[0, 0, 8, 8], [0, 9, 8, 16]]], "float32")
    >>> truths = vision.Truths(boxes[:, :1], np.array([[4]]))
    >>> some = np.array([[True, True]])
    >>> targets = vision.models.region_targets(fdbr.random.key(0), boxes, some, truths, count=4)
    >>> targets.labels[targets.sample.chosen]
    array([5, 0])
    """
    is_object = truths.labels >= 0
    proposals = ops.concat([proposals, truths.boxes], axis=1)
    is_proposal = ops.concat([is_proposal, is_object], axis=1)
    matched = match(box_iou(truths.boxes, proposals), is_object, high, low)
    nearest = ops.maximum(matched, 0)
    labels = ops.take_along_axis(truths.labels, nearest, axis=1) + 1
    labels = ops.where(matched == BACKGROUND, 0, labels)
    chosen = sample(
        key, ops.where(is_proposal & (matched != IGNORED), labels, -1), count, positive_fraction
    )
    objects = ops.take_along_axis(nearest, chosen.index, axis=1)
    boxes = _rows(proposals, chosen.index)
    return RegionTargets(
        chosen,
        boxes,
        ops.where(chosen.positive, ops.take_along_axis(labels, chosen.index, axis=1), 0),
        _codes(truths.boxes, objects, boxes, chosen, BOX_WEIGHTS),
        objects,
    )


def _rows(values: Any, index: Any) -> Any:
    """Return the chosen entries of each image, shape ``(N, count, …)``."""
    index = ops.reshape(index, (*index.shape, *(1,) * (values.ndim - 2)))
    return ops.take_along_axis(values, index, axis=1)


def _codes(
    truths: Any, objects: Any, boxes: Any, chosen: Sample, weights: Any = (1.0, 1.0, 1.0, 1.0)
) -> Any:
    """Return the encoded boxes of objects; 0 where a box has none, or no area."""
    has_code = chosen.positive & ops.all(boxes[..., 2:] > boxes[..., :2], axis=-1)
    unit = beside(np.array([0, 0, 1, 1], np.float32), boxes)
    boxes, aims = (ops.where(has_code[..., None], b, unit) for b in (boxes, _rows(truths, objects)))
    return stop_gradient(encode_boxes(aims, boxes, weights=weights))


@public("fdbr.vision.models")
@where_it_lies
def anchor_losses(
    logits: Any, codes: Any, targets: AnchorTargets, *, chainer: bool = False
) -> dict[str, Any]:
    """Return the losses of a region proposal network.

    The cross entropy of the sampled anchors, and the smooth L1 loss of the positive ones' boxes
    (``beta=1/9``), both divided by the number of sampled anchors.

    Parameters
    ----------
    logits, codes
        What the network returns for each anchor, shapes ``(N, A)`` and ``(N, A, 4)``.
    targets
        The result of `anchor_targets`.
    chainer
        Whether the losses are the means over images of those of each image, as in ChainerCV's
        ``rpn_loss``, rather than those of all images' samples together.

    Returns
    -------
    dict
        ``loss_objectness`` and ``loss_rpn_box_reg``.
    """
    index, positive, chosen = targets.sample
    logits = ops.take_along_axis(logits, index, axis=1)
    aims = ops.astype(positive, logits.dtype)
    entropy = ops.binary_cross_entropy_with_logits(logits, aims, reduction="none")
    boxes = _smooth(_rows(codes, index), targets.codes, 1 / 9)
    return {
        "loss_objectness": _mean(entropy, chosen, chosen, chainer),
        "loss_rpn_box_reg": _mean(boxes, positive, chosen, chainer),
    }


@public("fdbr.vision.models")
@where_it_lies
def region_losses(
    logits: Any, codes: Any, targets: RegionTargets, *, chainer: bool = False
) -> dict[str, Any]:
    """Return the losses of a head that classifies proposals and corrects their boxes.

    Parameters
    ----------
    logits, codes
        What the head returns for the sampled proposals, shapes ``(N, count, 1 + classes)`` and
        ``(N, count, 1 + classes, 4)``.
    targets
        The result of `region_targets`.
    chainer
        As for `anchor_losses`; and ``beta`` is 1 instead of 1/9, as in ``bbox_head_loss_post``.

    Returns
    -------
    dict
        ``loss_classifier`` and ``loss_box_reg``.
    """
    _, positive, chosen = targets.sample
    entropy = ops.softmax_cross_entropy(logits, targets.labels, reduction="none")
    own = ops.take_along_axis(codes, targets.labels[:, :, None, None], axis=2)[:, :, 0]
    boxes = _smooth(own, targets.codes, 1.0 if chainer else 1 / 9)
    return {
        "loss_classifier": _mean(entropy, chosen, chosen, chainer),
        "loss_box_reg": _mean(boxes, positive, chosen, chainer),
    }


@public("fdbr.vision.models")
@where_it_lies
def mask_losses(
    logits: Any, targets: RegionTargets, masks: Any, *, chainer: bool = False
) -> dict[str, Any]:
    """Return the loss of a head that computes masks: the mean cross entropy of their elements.

    Parameters
    ----------
    logits
        What the head returns for the first P sampled proposals of each image, which include the
        positive ones: shape ``(N, P, 1 + classes, S, S)``.
    targets
        The result of `region_targets`.
    masks
        The masks of the objects, shape ``(N, D, H, W)``, floating.
    chainer
        Whether the targets are those of ChainerCV's ``mask_head_loss_pre``.

    Returns
    -------
    dict
        ``loss_mask``.
    """
    count, most, _, size, _ = logits.shape
    boxes, labels, objects, positive = (
        part[:, :most]
        for part in (targets.boxes, targets.labels, targets.objects, targets.sample.positive)
    )
    first = array_module(labels).arange(count)[:, None] * masks.shape[1]
    aims = crop_masks(
        ops.reshape(masks, (-1, *masks.shape[2:])),
        ops.reshape(boxes, (-1, 4)),
        size,
        indices=ops.reshape(objects + first, (-1,)),
        chainer=chainer,
    )
    own = ops.take_along_axis(logits, labels[:, :, None, None, None], axis=2)[:, :, 0]
    entropy = ops.binary_cross_entropy_with_logits(
        own, stop_gradient(ops.reshape(aims, own.shape)), reduction="none"
    )
    return {"loss_mask": _mean(ops.mean(entropy, axis=(2, 3)), positive, positive, False)}


@public("fdbr.vision.models")
@where_it_lies
def keypoint_losses(logits: Any, targets: RegionTargets, truths: Truths) -> dict[str, Any]:
    """Return the loss of a head that finds points: the mean cross entropy over their positions.

    Parameters
    ----------
    logits
        What the head returns for the first P sampled proposals of each image, which include the
        positive ones: shape ``(N, P, K, S, S)``.
    targets
        The result of `region_targets`.
    truths
        The objects, padded, with ``points`` of shape ``(N, D, K, 2)`` and ``visible`` of shape
        ``(N, D, K)``.

    Returns
    -------
    dict
        ``loss_keypoint``.
    """
    most, size = logits.shape[1], logits.shape[-1]
    boxes, objects = targets.boxes[:, :most], targets.objects[:, :most]
    points, visible = _rows(truths.points, objects), _rows(truths.visible != 0, objects)
    if points.shape[2] != logits.shape[2]:
        raise ValueError(
            f"fdbr.vision.models.keypoint_losses: each object must have {logits.shape[2]} points "
            f"as the logits, got {describe(truths.points)}"
        )
    low, high = boxes[:, :, None, :2], boxes[:, :, None, 2:]
    scale = size / ops.where(high > low, high - low, 1)
    cell = ops.where(points == high, size - 1, ops.floor((points - low) * scale))
    inside = ops.all((cell >= 0) & (cell < size), axis=-1)
    counted = inside & visible & targets.sample.positive[:, :most, None]
    position = ops.where(counted, cell[..., 0] * size + cell[..., 1], 0)
    flat = ops.reshape(logits, (*logits.shape[:3], size * size))
    entropy = ops.softmax_cross_entropy(flat, ops.astype(position, np.int64), reduction="none")
    return {"loss_keypoint": _mean(entropy, counted, counted, False)}


def _smooth(x: Any, y: Any, beta: float) -> Any:
    return ops.sum(ops.smooth_l1_loss(x, y, beta=beta, reduction="none"), axis=-1)


def _mean(values: Any, counted: Any, divisor: Any, by_image: bool) -> Any:
    """Sum the values that count, and divide by a number of entries."""
    axes = tuple(range(1, values.ndim)) if by_image else None
    total = ops.sum(ops.where(counted, values, 0), axis=axes)
    number = ops.maximum(ops.sum(ops.astype(divisor, values.dtype), axis=axes), 1)
    return ops.mean(total / number)
