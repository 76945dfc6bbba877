"""FCIS: instances from position-sensitive maps of what is inside and outside of them."""

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from fdbr import ops
from fdbr.core.array_modules import array_module, to_numpy, where_it_lies
from fdbr.errors.public import public
from fdbr.nn import initializers
from fdbr.nn.composite import Composite
from fdbr.nn.convolution.layers import Conv
from fdbr.nn.models.building import Builder, positive
from fdbr.nn.pooling.dimensions import MaxPool2d
from fdbr.ops.devices import beside
from fdbr.ops.nn.pooling.region_products import linear_weights, region_products
from fdbr.transforms.vjp import stop_gradient
from fdbr.tree import frozen, static
from fdbr.vision.boxes import box_iou, clip_boxes, decode_boxes, nms
from fdbr.vision.models.base import Prepared
from fdbr.vision.models.dilated_body import DilatedBody
from fdbr.vision.models.proposals import (
    STRIDE,
    WEIGHTS,
    ProposalHead,
    RegionDetector,
    SingleMapSettings,
    flat_regions,
    scaled_evenly,
)
from fdbr.vision.models.region_losses import RegionTargets, region_losses, region_targets
from fdbr.vision.models.resizing import in_originals
from fdbr.vision.results import Instances, Truths

__all__ = ["FCISHead", "FCIS_ResNet101", "MaskedRegions", "mask_voting"]

_GROUPS = 7
"""The number of groups of channels along each side of a region."""

_SIZE = 21
"""The height and width of a region's mask."""

_BINARY = 0.4
"""The probability from which a pixel belongs to a mask."""

_CODE_WEIGHTS = (5.0, 5.0, 2.0, 2.0)


class MaskedRegions(NamedTuple):
    """Regions with the probabilities of their classes and masks, before they vote.

    Attributes
    ----------
    boxes
        Shape ``(N, R, 4)``.
    scores
        The probability of each class, shape ``(N, R, classes)``; 0 for regions that do not count.
    masks
        The probability of each element of a region to belong to its object, ``(N, R, 21, 21)``.
    """

    boxes: Any
    scores: Any
    masks: Any


@public("fdbr.vision.models")
@frozen
class FCISHead(Composite):
    """The layers that classify and segment regions: ChainerCV's ``FCISResNet101Head``.

    Attributes
    ----------
    conv1, cls_seg, ag_loc
        A convolution, and those for the maps of classes and of encoded boxes.
    """

    conv1: Conv
    cls_seg: Conv
    ag_loc: Conv

    def _forward(self, of: Any, x: Any) -> tuple[Any, Any]:
        """Return the maps of classes and of encoded boxes."""
        h = ops.relu(of.conv1(x))
        return of.cls_seg(h), of.ag_loc(h)


@public("fdbr.vision.models")
@frozen
class FCIS_ResNet101(RegionDetector):
    """A detector of instances that pools masks and classes from the same maps.

    Li, Qi, Dai, Ji & Wei, *Fully convolutional instance-aware semantic segmentation*, CVPR 2017.
    The structure is that of ChainerCV's ``FCISResNet101``: `nn.load_chainer_npz` loads its files.
    `detect` returns `MaskedRegions`, and `finish` applies `mask_voting`.

    Attributes
    ----------
    extractor, rpn, head
        The layers.
    classes, settings
        The number of classes, and the thresholds and sizes.

    >>> import fdbr
    >>> from fdbr import vision
    >>> model = vision.models.FCIS_ResNet101.init(
    ...     fdbr.random.key(0), 3, width=2, depths=(1, 1, 1, 1), min_size=64, post_test=20
    ... )
    >>> found = model.predict([fdbr.ops.ones((3, 40, 60), dtype="float32")])
    >>> [masks.shape[1:] for masks in found.masks]
    [(40, 60)]
    """

    extractor: DilatedBody
    rpn: ProposalHead
    head: FCISHead
    classes: int = static()
    settings: SingleMapSettings = static(default=SingleMapSettings())

    _mean: ClassVar[tuple[float, ...]] = (123.15, 115.9, 103.06)
    _masks: ClassVar[bool] = True
    _result: ClassVar[Any] = Instances
    _defaults: ClassVar[dict[str, Any]] = {"pre_train": 6000, "post_train": 300}

    @classmethod
    def init(
        cls,
        key: Any,
        classes: int = 20,
        *,
        width: int = 64,
        depths: Sequence[int] | None = None,
        weight_init: initializers.Initializer | None = None,
        dtype: Any = np.float32,
        **settings: Any,
    ) -> Self:
        """Return a model with fresh parameters.

        Parameters
        ----------
        key
            A random key.
        classes
            The number of classes, without the background.
        width
            The number of channels of the first convolution, to which the others are proportional.
        depths
            The number of blocks of each of the four stages; by default ResNet-101's.
        weight_init, dtype
            As for `nn.models.ResNet.init`.
        settings
            As for `FasterRCNN_VGG16.init`.

        Raises
        ------
        TypeError, ValueError
            If a size is not positive, or there is no such setting.
        """
        positive(cls, classes=classes, width=width)
        chosen = cls._settings(settings)
        of = Builder(key, weight_init, dtype)
        pool = MaxPool2d(3, stride=2, cover_all=True)
        body = DilatedBody.build(of, width, depths, weight_init, pool)
        hidden = 16 * width
        head = FCISHead(
            of.conv(2 * hidden, hidden, 1, stddev=0.01),
            of.conv(hidden, _GROUPS**2 * (classes + 1) * 2, 1, stddev=0.01),
            of.conv(hidden, _GROUPS**2 * 2 * 4, 1, stddev=0.01),
        )
        rpn = ProposalHead.build(of, hidden, 8 * width, 3 * len(chosen.anchor_sizes))
        return cls(body, rpn, head, classes, chosen)

    def prepare(self, images: Any) -> Prepared:
        """Return images as `RegionDetector.prepare`, of four pixels a side at least."""
        prepared = super().prepare(images)
        # Chainer's first pooling has windows of three elements.
        pads = [(0, max(4 - n, 0)) for n in prepared.batch.shape[2:]]
        return prepared._replace(batch=ops.pad(prepared.batch, ((0, 0), (0, 0), *pads)))

    def _features(self, of: Any, batch: Any) -> tuple[Any, Any]:
        proposing, features = of.extractor(batch)
        return proposing, of.head(features)

    def regions(self, maps: Any, boxes: Any) -> tuple[Any, Any, Any]:
        """Pool the maps of the head in boxes.

        Parameters
        ----------
        maps
            The maps of classes and of encoded boxes.
        boxes
            Shape ``(N, R, 4)``.

        Returns
        -------
        tuple
            The logits of outside and inside for each class, ``(N, R, C, 2, 21, 21)``; the encoded
            boxes of background and object, ``(N, R, 2, 4)``; the logits of classes, ``(N, R, C)``.
        """
        flat, index = flat_regions(boxes)
        masks, codes = (
            ops.ps_roi_average_pool(
                x,
                flat,
                _SIZE,
                1 / STRIDE,
                group_size=_GROUPS,
                batch_index=index,
                box_format="yxyx",
                chainer=True,
            )
            for x in maps
        )
        each = boxes.shape[:2]
        masks = ops.reshape(masks, (*each, self.classes + 1, 2, _SIZE, _SIZE))
        codes = ops.reshape(ops.mean(codes, axis=(2, 3)), (*each, 2, 4))
        return masks, codes, ops.mean(ops.max(masks, axis=3), axis=(3, 4))

    def detect(self, batch: Any, sizes: Any, originals: Any = None) -> MaskedRegions:
        """Return the regions of a batch, in its pixels: proposals, and these once corrected."""
        scales, _ = scaled_evenly(sizes, originals)
        maps, codes, logits = self(batch)
        anchors = self.anchors(maps)
        boxes, real = self.propose(codes, logits, anchors, sizes, "test", scales)
        found = []
        for _ in range(2):
            masks, codes, scores = self.regions(maps, boxes)
            best = ops.argmax(scores, axis=-1)[..., None, None, None, None]
            own = ops.take_along_axis(masks, best, axis=2)[:, :, 0]
            large = ops.all(boxes[..., 2:] - boxes[..., :2] >= self.settings.proposal_size, axis=-1)
            counted = (real & large)[..., None]
            scores = ops.where(counted, ops.softmax(scores, axis=-1)[..., 1:], 0)
            found.append(MaskedRegions(boxes, scores, ops.softmax(own, axis=2)[:, :, 1]))
            boxes = decode_boxes(codes[:, :, 1], boxes, weights=_CODE_WEIGHTS, clip=None)
            boxes = clip_boxes(boxes, sizes)
        return MaskedRegions(*(ops.concat(part, axis=1) for part in zip(*found, strict=True)))

    def finish(self, found: MaskedRegions, prepared: Prepared) -> Instances:
        """Return the ragged result of `mask_voting` for each of the images that were given."""
        _, extents = scaled_evenly(prepared.sizes, prepared.originals)
        boxes = in_originals(found.boxes, prepared._replace(sizes=extents))
        s = self.settings
        voted = [
            mask_voting(
                corners,
                scores,
                masks,
                (int(height), int(width)),
                score_threshold=s.score_threshold,
                nms_threshold=s.nms_threshold,
                limit=s.limit,
            )
            for corners, scores, masks, (height, width) in zip(
                clip_boxes(boxes, prepared.originals),
                found.scores,
                found.masks,
                prepared.originals,
                strict=True,
            )
        ]
        return Instances(*(tuple(part) for part in zip(*voted, strict=True)))

    def _region_losses(
        self, key: Any, features: Any, boxes: Any, real: Any, truths: Truths
    ) -> dict[str, Any]:
        overlaps = ops.where((truths.labels >= 0)[:, None], box_iou(boxes, truths.boxes), 0)
        count = self.settings.region_count or boxes.shape[1] + truths.labels.shape[1]
        targets = region_targets(
            key, boxes, real & (ops.max(overlaps, axis=-1) >= 0.1), truths, count=count
        )
        ratios = np.array(_CODE_WEIGHTS, np.float32) / np.array(WEIGHTS, np.float32)
        targets = targets._replace(codes=targets.codes * beside(ratios, targets.codes))
        outputs = self.regions(features, stop_gradient(targets.boxes))
        return self.instance_losses(*outputs, targets, instance_masks(targets, truths.masks))

    def instance_losses(
        self, masks: Any, codes: Any, scores: Any, targets: RegionTargets, wanted: Any
    ) -> dict[str, Any]:
        """Return the losses of regions for sampled targets.

        Parameters
        ----------
        masks, codes, scores
            The result of `regions` for the sampled ones.
        targets
            The result of `region_targets`.
        wanted
            Which elements of each region belong to its object, ``(N, R, 21, 21)``.

        Returns
        -------
        dict
            ``loss_classifier``, ``loss_box_reg``, and ``loss_mask``: ten times the mean cross
            entropy of the elements of positive regions, with the number of all regions as divisor.
        """
        shape = (*codes.shape[:2], self.classes + 1, 4)
        is_object = (array_module(codes).arange(self.classes + 1) > 0)[:, None]
        codes = ops.where(is_object, codes[:, :, 1:], codes[:, :, :1])
        found = region_losses(scores, ops.broadcast_to(codes, shape), targets, chainer=True)
        own = targets.labels[..., None, None, None, None]
        own = ops.take_along_axis(masks, own, axis=2)[:, :, 0]
        entropy = ops.binary_cross_entropy_with_logits(
            own[:, :, 1] - own[:, :, 0], wanted, reduction="none"
        )
        _, is_positive, chosen = targets.sample
        entropy = ops.where(is_positive, ops.mean(entropy, axis=(2, 3)), 0)
        count = ops.maximum(ops.sum(ops.astype(chosen, np.float32)), 1)
        return {**found, "loss_mask": 10 * ops.sum(entropy) / count}


def instance_masks(targets: RegionTargets, masks: Any) -> Any:
    """Return which elements of sampled regions belong to their objects, ``(N, R, 21, 21)``.

    The masks, of shape ``(N, D, H, W)``, are interpolated at the elements of the rounded box.
    """
    n, count = targets.objects.shape
    xp = array_module(targets.boxes)
    boxes = ops.round(ops.reshape(targets.boxes, (-1, 4)))
    weights = []
    for axis in (0, 1):
        low, length = boxes[:, axis, None], boxes[:, axis + 2, None] - boxes[:, axis, None]
        position = (xp.arange(_SIZE, dtype="float32") + 0.5) * (length / _SIZE) - 0.5
        position = low + ops.clip(position, 0, ops.maximum(length - 1, 0))
        elements = xp.arange(masks.shape[2 + axis], dtype="float32")
        weights.append(linear_weights(position[..., None] - elements))
    first = xp.arange(n)[:, None] * masks.shape[1]
    flat = ops.reshape(ops.astype(masks, np.float32), (-1, 1, *masks.shape[2:]))
    rows, columns = weights
    found = region_products(flat, rows, columns, ops.reshape(targets.objects + first, (-1,)))
    wanted = ops.reshape(found, (n, count, _SIZE, _SIZE)) >= _BINARY
    return ops.astype(wanted, np.float32)


@public("fdbr.vision.models")
@where_it_lies
def mask_voting(
    boxes: Any,
    scores: Any,
    masks: Any,
    size: tuple[int, int],
    *,
    score_threshold: float,
    nms_threshold: float = 0.3,
    merge_threshold: float = 0.5,
    binary_threshold: float = _BINARY,
    limit: int = 100,
) -> Instances:
    """Return the instances that regions of an image have found, by a vote on their pixels.

    For each class, suppression chooses regions.  The mask of each is the mean of the masks of all
    regions that overlap it, weighted with their scores: the method of the paper's authors and of
    ChainerCV's ``mask_voting``.  It runs in host memory, and moves the result to the device of
    ``boxes``.

    Parameters
    ----------
    boxes
        Shape ``(R, 4)``, within the image.
    scores
        The probability of each class, shape ``(R, classes)``.
    masks
        The probability of each element of a region to belong to its object, shape ``(R, S, S)``.
    size
        The height and width of the image.
    score_threshold
        The least score of an instance.
    nms_threshold
        The largest overlap of two instances of a class.
    merge_threshold
        The least overlap of regions that vote on an instance.
    binary_threshold
        The probability from which an element belongs to a mask.
    limit
        The largest number of instances.

    Returns
    -------
    Instances
        Of one image, in decreasing order of scores.

    >>> import numpy as np
    >>> from fdbr import vision
    >>> boxes = np.array([[0, 0, 2, 2], [0, 0, 2, 3]], "float32")
    >>> found = vision.models.mask_voting(
    ...     boxes, np.array([[0.9], [0.3]]), np.ones((2, 2, 2)), (3, 4), score_threshold=0.5
    ... )
    >>> found.boxes, found.labels
    (array([[0., 0., 2., 2.]], dtype=float32), array([0], dtype=int32))
    """
    xp = array_module(boxes)
    boxes, scores, masks = (to_numpy(part) for part in (boxes, scores, masks))
    count, classes = scores.shape
    real = scores > 0
    certain = np.where(real & (scores >= score_threshold), scores, -np.inf)
    # One suppression of all classes, each with a copy of the boxes.
    kept = np.asarray(
        nms(
            np.repeat(boxes, classes, axis=0),
            certain.reshape(-1),
            nms_threshold,
            labels=np.tile(np.arange(classes, dtype=np.int32), count),
            limit=limit,
            chainer=True,
        )
    )
    overlaps = np.asarray(box_iou(boxes, boxes)) if count else np.zeros((0, 0))
    parts = [
        _in_image(box, mask, size, binary_threshold) for box, mask in zip(boxes, masks, strict=True)
    ]
    found = []
    for region, label in zip(kept[kept >= 0] // classes, kept[kept >= 0] % classes, strict=True):
        voters = np.flatnonzero((overlaps[region] >= merge_threshold) & real[:, label])
        canvas = np.zeros(size, np.float32)
        shares = scores[voters, label] / scores[voters, label].sum()
        for voter, share in zip(voters, shares, strict=True):
            rows, columns, part = parts[voter]
            canvas[rows, columns] += part * share
        voted = canvas >= binary_threshold
        ys, xs = np.flatnonzero(voted.any(axis=1)), np.flatnonzero(voted.any(axis=0))
        if not len(ys):
            continue
        box = np.array([ys[0], xs[0], ys[-1] + 1, xs[-1] + 1], np.float32)
        # The paper's code keeps masks of the regions' size, which blurs them.
        inside = canvas[ys[0] : ys[-1] + 1, xs[0] : xs[-1] + 1]
        small = np.clip(_resized(inside, masks.shape[1:]), 0, 1)
        mask = np.zeros(size, bool)
        large = _resized(small, inside.shape)
        mask[ys[0] : ys[-1] + 1, xs[0] : xs[-1] + 1] = large > binary_threshold
        found.append((box, label, scores[region, label], mask))
    fields = (
        np.array([box for box, *_ in found], np.float32).reshape(-1, 4),
        np.array([label for _, label, *_ in found], np.int32),
        np.array([score for _, _, score, _ in found], np.float32),
        np.array([mask for *_, mask in found], bool).reshape(-1, *size),
    )
    return Instances(*map(xp.asarray, fields))


def _in_image(box: Any, mask: Any, size: tuple[int, int], threshold: float) -> tuple[Any, ...]:
    """Return the rows and columns of a region, and which of its pixels belong to the object."""
    y_min, x_min, y_max, x_max = np.round(box).astype(int).tolist()
    if y_max <= y_min or x_max <= x_min:
        return slice(0), slice(0), np.zeros((0, 0), np.float32)
    part = _resized(mask, (y_max - y_min, x_max - x_min)) >= threshold
    return slice(y_min, y_max), slice(x_min, x_max), part.astype(np.float32)


def _resized(mask: Any, size: tuple[int, ...]) -> Any:
    whole = np.asarray(mask, np.float32)[None, None]
    return np.asarray(ops.interpolate(whole, size=size, mode="bilinear"))[0, 0]
