"""Faster R-CNN, and what Mask and Keypoint R-CNN have in common with it."""

import functools
import math
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from fdbr import ops, random
from fdbr.core.array_modules import array_module, to_numpy, where_it_lies
from fdbr.errors.public import public
from fdbr.nn.models.building import Builder, positive
from fdbr.nn.models.resnet import ResNet, ResNet50, ResNet101
from fdbr.transforms.vjp import stop_gradient
from fdbr.tree import frozen, static
from fdbr.vision.boxes import (
    base_anchors,
    clip_boxes,
    decode_boxes,
    grid_anchors,
)
from fdbr.vision.models.base import Detector, Prepared
from fdbr.vision.models.fpn import Backbone, FeaturePyramid, ResNetBody
from fdbr.vision.models.rcnn_heads import (
    FastRCNNPredictor,
    RegionProposalNetwork,
    RoIHeads,
    RPNHead,
    TwoMLPHead,
)
from fdbr.vision.models.region_features import JoinedLevels, join_levels, of_real, pool_levels
from fdbr.vision.models.region_losses import (
    BOX_WEIGHTS,
    AnchorTargets,
    RegionTargets,
    anchor_losses,
    anchor_targets,
    region_losses,
    region_targets,
)
from fdbr.vision.models.resizing import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    in_batch,
    in_originals,
    resize_and_batch,
)
from fdbr.vision.models.suppression import suppressed
from fdbr.vision.models.truths import padded_truths
from fdbr.vision.results import Detections, Truths, unpad

__all__ = [
    "FasterRCNN",
    "FasterRCNN_ResNet50_FPN",
    "FasterRCNN_ResNet101_FPN",
    "RegionSettings",
]

_ANCHOR_SIZES = (32, 64, 128, 256, 512)
_ANCHOR_RATIOS = (0.5, 1.0, 2.0)
_BOXES_AT_ONCE, _DETECTIONS_AT_ONCE = (256, 64, 8), (8, 1)
"""The sizes of parts in `of_real`.  By one thread, jitted, a box takes 0.81 ms of 256 at once, 0.89
of 64 and 1.28 of 16; a mask takes 31.5 ms of 8 or 100 at once, and 37.9 alone.
"""
_CHAINER_MEAN = (123.15163084, 115.90288257, 103.0626238)


class RegionSettings(NamedTuple):
    """The numbers of a detector with regions, under torchvision's names.

    ``rpn_…`` belongs to the network that proposes regions, ``box_…`` to the head that classifies
    them.

    Attributes
    ----------
    min_size, max_size
        The lengths to which the sides of images are resized.
    image_mean, image_std
        The mean and standard deviation of channels, of values from 0 to 1.
    size_divisible
        The sides of a batch are multiples of it.
    rpn_pre_nms_top_n_train, rpn_pre_nms_top_n_test
        The number of anchors of each level that become proposals.
    rpn_post_nms_top_n_train, rpn_post_nms_top_n_test
        The number of proposals that remain after suppression.
    rpn_nms_thresh, box_nms_thresh
        The largest overlap of two proposals, and of two detections of a class.
    rpn_fg_iou_thresh, rpn_bg_iou_thresh, box_fg_iou_thresh, box_bg_iou_thresh
        The overlaps with an object from which an anchor or a proposal is positive, and below which
        it is negative.
    rpn_batch_size_per_image, box_batch_size_per_image
        How many anchors and proposals of an image are sampled in training.
    rpn_positive_fraction, box_positive_fraction
        The largest fraction of positive ones.
    box_score_thresh
        Detections have larger scores.
    box_detections_per_img
        The largest number of detections of an image; ChainerCV has no limit.
    """

    min_size: int = 800
    max_size: int = 1333
    image_mean: tuple[float, ...] = IMAGENET_MEAN
    image_std: tuple[float, ...] | None = IMAGENET_STD
    size_divisible: int = 32
    rpn_pre_nms_top_n_train: int = 2000
    rpn_pre_nms_top_n_test: int = 1000
    rpn_post_nms_top_n_train: int = 2000
    rpn_post_nms_top_n_test: int = 1000
    rpn_nms_thresh: float = 0.7
    rpn_fg_iou_thresh: float = 0.7
    rpn_bg_iou_thresh: float = 0.3
    rpn_batch_size_per_image: int = 256
    rpn_positive_fraction: float = 0.5
    box_score_thresh: float = 0.05
    box_nms_thresh: float = 0.5
    box_detections_per_img: int = 100
    box_fg_iou_thresh: float = 0.5
    box_bg_iou_thresh: float = 0.5
    box_batch_size_per_image: int = 512
    box_positive_fraction: float = 0.25


_OF_CHAINER: dict[str, Any] = {
    "image_mean": _CHAINER_MEAN,
    "image_std": None,
    "rpn_positive_fraction": 0.25,
    "box_score_thresh": 0.7,
}


@public("fdbr.vision.models")
@frozen
class FasterRCNN(Detector):
    """Faster R-CNN over a pyramid of features; the subclasses set the network.

    Ren, He, Girshick & Sun, *Faster R-CNN: towards real-time object detection with region proposal
    networks*, NeurIPS 2015.  The fields are torchvision's modules, so that `nn.load_torch_state`
    loads its weights, old ones too; a model made with ``chainer=True`` is ChainerCV's
    ``FasterRCNNFPNResNet50``, whose file `nn.load_chainer_npz` loads.  Class 0 is torchvision's
    class 1, since the background has no label here.  A box that lies outside an image is empty, at
    its border, where ChainerCV returns a minimum above the maximum.

    Attributes
    ----------
    backbone
        The network and its pyramid.
    rpn
        The layers that propose regions.
    roi_heads
        The layers that classify regions.
    settings
        The thresholds and sizes, a `RegionSettings`.
    chainer
        Whether the model is ChainerCV's.

    >>> import fdbr
    >>> import numpy as np
    >>> from fdbr.vision import models
    >>> model = models.FasterRCNN_ResNet50_FPN.init(
    ...     fdbr.random.key(0), 3, width=2, depths=(1, 1, 1, 1), min_size=64
    ... )
    >>> found = model.predict([np.zeros((3, 40, 60), "float32")])
    >>> [boxes.shape[1] for boxes in found.boxes]
    [4]
    """

    backbone: Backbone
    rpn: RegionProposalNetwork
    roi_heads: RoIHeads
    settings: RegionSettings = static()
    chainer: bool = static(default=False)

    _network: ClassVar[type[ResNet]] = ResNet50
    chainer_names: ClassVar = {
        "backbone.body": "extractor/base",
        "backbone.fpn": "extractor",
        "roi_heads": "",
    }

    @classmethod
    def init(
        cls,
        key: Any,
        classes: int = 90,
        *,
        width: int = 64,
        depths: Sequence[int] | None = None,
        chainer: bool = False,
        eps: float | None = None,
        weight_init: Any = None,
        dtype: Any = np.float32,
        **settings: Any,
    ) -> Self:
        """Return a model with fresh parameters.

        Parameters
        ----------
        key
            A random key.
        classes
            The number of classes, without the background: 90 for torchvision's weights, 80 for
            ChainerCV's.
        width
            The number of channels of the first convolution.  The pyramid and the heads are
            proportional: with 64, the pyramid has 256 channels.
        depths, eps, weight_init, dtype
            As for `ResNetBody.init`.
        chainer
            Whether the model is ChainerCV's: its anchors, order of coordinates, normalisation of
            images, thresholds, sizes of samples, and losses.
        settings
            Other values of a `RegionSettings`.

        Raises
        ------
        TypeError, ValueError
            If a size is not positive, or there is no such setting.
        """
        positive(cls, classes=classes, width=width)
        chosen = cls._settings(chainer, settings)
        of = Builder(key, weight_init, dtype)
        body = ResNetBody.init(
            of.key(),
            cls._network,
            width=width,
            depths=depths,
            chainer=chainer,
            eps=eps,
            weight_init=weight_init,
            dtype=dtype,
        )
        channels, features = 4 * width, 16 * width
        fpn = FeaturePyramid.build(of, [channels * 2**i for i in range(4)], channels)
        ratios = len(_ANCHOR_RATIOS)
        rpn = RPNHead(
            of.conv(channels, channels, 3, stddev=0.01),
            of.conv(channels, ratios, 1, stddev=0.01),
            of.conv(channels, 4 * ratios, 1, stddev=0.01),
        )
        heads = RoIHeads(
            TwoMLPHead(of.linear(channels * 49, features), of.linear(features, features)),
            FastRCNNPredictor(
                of.linear(features, 1 + classes, 0.01), of.linear(features, 4 + 4 * classes, 0.001)
            ),
            **cls._further_heads(of, width, 1 + classes, chosen),
        )
        kept = {k: v for k, v in chosen.items() if k in RegionSettings._fields}
        return cls(
            Backbone(body, fpn), RegionProposalNetwork(rpn), heads, RegionSettings(**kept), chainer
        )

    @classmethod
    def _settings(cls, chainer: bool, given: dict[str, Any]) -> dict[str, Any]:
        """Return the settings that are not the defaults, or raise for an unknown one."""
        names = (*RegionSettings._fields, *cls._further_settings)
        for name in given:
            if name not in names:
                raise TypeError(
                    f"fdbr.vision.models.{cls.__name__}.init: there is no setting {name!r}, only "
                    f"{', '.join(names)}"
                )
        fixed = {k: tuple(v) if isinstance(v, list) else v for k, v in given.items()}
        return {**(_OF_CHAINER if chainer else {}), **fixed}

    _further_settings: ClassVar[tuple[str, ...]] = ()
    _needs: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def _further_heads(
        cls, of: Builder, width: int, outputs: int, settings: dict[str, Any]
    ) -> dict[str, Any]:
        """Return heads besides that for boxes."""
        return {}

    def _forward(self, of: Any, batch: Any) -> tuple[list[Any], list[Any]]:
        """Return the logits and codes of all anchors, for each level of the pyramid."""
        out: tuple[list[Any], list[Any]] = of.rpn(of.backbone(batch))
        return out

    def prepare(self, images: Any) -> Prepared:
        """Return images as the input of the network.

        They are resized so that the shorter side is ``min_size``, or the longer one ``max_size``.
        """
        s = self.settings
        return resize_and_batch(
            images,
            min_size=s.min_size,
            max_size=s.max_size,
            mean=s.image_mean,
            std=s.image_std,
            size_divisible=s.size_divisible,
            chainer=self.chainer,
        )

    # --- proposals

    def anchors(self, levels: Sequence[Any], batch: Any) -> list[Any]:
        """Return the anchors of each level of a pyramid, shape ``(A, 4)``."""
        grids = tuple((int(x.shape[2]), int(x.shape[3])) for x in levels)
        shape = int(batch.shape[2]), int(batch.shape[3])
        xp = array_module(batch)
        return [xp.asarray(part) for part in _anchors(grids, shape, self.chainer)]

    def propose(
        self,
        logits: Sequence[Any],
        codes: Sequence[Any],
        anchors: Sequence[Any],
        sizes: Any,
        pre: int,
        post: int,
    ) -> tuple[Any, Any]:
        """Return the proposals of a region proposal network.

        Parameters
        ----------
        logits, codes, anchors
            For each level, arrays of shapes ``(N, A)``, ``(N, A, 4)`` and ``(A, 4)``.
        sizes
            The sizes of the images, ``(N, 2)``, within which boxes are clipped.
        pre, post
            The numbers of proposals of each level, and after suppression.

        Returns
        -------
        tuple
            The boxes, shape ``(N, R, 4)``, and which of them are proposals, ``(N, R)``.
        """
        scores, boxes, labels = [], [], []
        for i, (logit, code, anchor) in enumerate(zip(logits, codes, anchors, strict=True)):
            best, index = ops.top_k(stop_gradient(logit), min(pre, logit.shape[1]))
            code = ops.take_along_axis(stop_gradient(code), index[:, :, None], axis=1)
            decoded = decode_boxes(self._ordered(code), ops.take(anchor, index, axis=0))
            # torchvision's probabilities are equal where the sigmoid has no more digits.
            scores.append(best if self.chainer else ops.sigmoid(best))
            boxes.append(decoded)
            labels.append(ops.full_like(index, i))
        whole = clip_boxes(ops.concat(boxes, axis=1), sizes)
        score = ops.concat(scores, axis=1)
        sides = whole[..., 2:] - whole[..., :2]
        has_area = ops.all(sides > 0 if self.chainer else sides >= 1e-3, axis=-1)
        found = suppressed(
            whole,
            ops.where(has_area, score, -np.inf),
            ops.concat(labels, axis=1),
            threshold=self.settings.rpn_nms_thresh,
            limit=min(post, score.shape[1]),
            chainer=self.chainer,
        )
        return found.boxes, found.labels >= 0

    def _ordered(self, codes: Any) -> Any:
        """Return codes with rows before columns, which torchvision has the other way round."""
        return codes if self.chainer else ops.take(codes, [1, 0, 3, 2], axis=-1)

    def _proposals(self, levels: Any, batch: Any, sizes: Any, mode: str) -> tuple[Any, ...]:
        """Return anchors, logits and codes of all levels, and proposals."""
        logits, codes = self.rpn(levels)
        anchors = self.anchors(levels, batch)
        if self.chainer:  # its proposals are clipped to the batch
            sizes = np.array(batch.shape[2:], np.float32)
        pre = getattr(self.settings, f"rpn_pre_nms_top_n_{mode}")
        post = getattr(self.settings, f"rpn_post_nms_top_n_{mode}")
        return (anchors, logits, codes, *self.propose(logits, codes, anchors, sizes, pre, post))

    # --- inference

    def detect(self, batch: Any, sizes: Any) -> Any:
        """Return the padded objects in a batch, in its pixels; all shapes depend on ``batch``'s.

        Parameters
        ----------
        batch
            The images, shape ``(N, 3, H, W)``.
        sizes
            Their sizes within the batch, shape ``(N, 2)``.

        Returns
        -------
        Detections
            Of ``box_detections_per_img`` entries.
        """
        return self._detected(batch, sizes)[0]

    def _pool(self, joined: JoinedLevels, boxes: Any, size: int, index: Any = None) -> Any:
        """Return the features of the boxes of images ``(N, R, 4)``, or of those with an index."""
        flat = ops.reshape(stop_gradient(boxes), (-1, 4))
        index = array_module(flat).arange(flat.shape[0]) if index is None else index
        flat = ops.take(flat, index, axis=0)
        return pool_levels(joined, flat, index // boxes.shape[1], size, chainer=self.chainer)

    def _detected(self, batch: Any, sizes: Any) -> tuple[Detections, JoinedLevels]:
        """Return the detections in a batch, and the features for further heads."""
        s = self.settings
        levels = self.backbone(batch)
        *_, rois, is_roi = self._proposals(levels, batch, sizes, "test")
        joined = join_levels(levels[:4])
        images, each = rois.shape[:2]
        outputs, dtype = self.roi_heads.box_predictor.cls_score.weight.shape[0], joined[0].dtype
        shape, xp = (images * each, outputs), array_module(rois)
        logits, codes = of_real(
            lambda index: self.roi_heads(self._pool(joined, rois, 7, index)),
            ops.reshape(is_roi, (-1,)),
            (xp.zeros(shape, dtype=dtype), xp.zeros((*shape, 4), dtype=dtype)),
            _BOXES_AT_ONCE,
        )
        classes = logits.shape[1] - 1
        scores = ops.reshape(ops.softmax(logits, axis=1)[:, 1:], (images, each, classes))
        reached = scores >= s.box_score_thresh if self.chainer else scores > s.box_score_thresh
        scores = ops.where(is_roi[:, :, None] & reached, scores, -np.inf)
        scores = ops.reshape(scores, (images, each * classes))
        # At most 1 / threshold classes of a region have a score above the threshold.
        most = min(classes, int(1 / s.box_score_thresh) if s.box_score_thresh > 0 else classes)
        codes = ops.reshape(codes[:, 1:], (images, each * classes, 4))
        if most < classes:
            scores, index = ops.top_k(scores, each * most)
            codes = ops.take_along_axis(codes, index[:, :, None], axis=1)
        else:
            xp = array_module(scores)
            index = xp.broadcast_to(xp.arange(each * classes), scores.shape)
        own = ops.take_along_axis(rois, (index // classes)[:, :, None], axis=1)
        boxes = clip_boxes(decode_boxes(self._ordered(codes), own, weights=BOX_WEIGHTS), sizes)
        if not self.chainer:
            is_large = ops.all(boxes[..., 2:] - boxes[..., :2] >= 1e-2, axis=-1)
            scores = ops.where(is_large, scores, -np.inf)
        labels = index % classes
        found = suppressed(
            boxes,
            scores,
            labels,
            threshold=s.box_nms_thresh,
            limit=s.box_detections_per_img,
            chainer=self.chainer,
        )
        return found, joined

    def _of_found(
        self, found: Detections, joined: JoinedLevels, head: Any, shape: tuple[int, ...]
    ) -> Any:
        """Return what a head gives for detections, shape ``(N, D, *shape)``.

        The head is a function of features and of the indices of detections.
        """
        labels, dtype = found.labels, joined.features.dtype
        (result,) = of_real(
            lambda index: (head(self._pool(joined, found.boxes, 14, index), index),),
            ops.reshape(labels >= 0, (-1,)),
            (array_module(labels).zeros((math.prod(labels.shape), *shape), dtype=dtype),),
            _DETECTIONS_AT_ONCE,
        )
        return ops.reshape(result, (*labels.shape, *shape))

    def finish(self, found: Any, prepared: Prepared) -> Any:
        """Return the ragged result of `detect` in pixels of the images that were given."""
        return unpad(found._replace(boxes=in_originals(found.boxes, prepared)))

    # --- training

    @where_it_lies
    def losses(self, images: Any, truths: Truths, *, key: Any) -> tuple[dict[str, Any], Self]:
        """Return the losses of training by torchvision's names, and the model.

        Parameters
        ----------
        images, truths
            As for `Detector.losses`.
        key
            A random key, which samples anchors and proposals.

        Returns
        -------
        tuple
            ``loss_objectness``, ``loss_rpn_box_reg``, ``loss_classifier`` and ``loss_box_reg``;
            ``loss_mask`` and ``loss_keypoint`` of models with masks and points.  The model itself
            follows, since normalisations are frozen.
        """
        classes = self.roi_heads.box_predictor.cls_score.weight.shape[0] - 1
        truths = padded_truths(self, images, truths, classes, needs=self._needs)
        prepared = self.prepare(images)
        truths = in_batch(truths, prepared)
        levels = self.backbone(prepared.batch)
        anchors, logits, codes, rois, is_roi = self._proposals(
            levels, prepared.batch, prepared.sizes, "train"
        )
        first, second = random.split(key)
        of_anchors = self.anchor_targets(first, ops.concat(anchors), truths, prepared.sizes)
        found = anchor_losses(
            ops.concat(logits, axis=1),
            self._ordered(ops.concat(codes, axis=1)),
            of_anchors,
            chainer=self.chainer,
        )
        of_regions = self.region_targets(second, rois, is_roi, truths)
        joined = join_levels(levels[:4])
        return {**found, **self._head_losses(joined, of_regions, truths)}, self

    def anchor_targets(self, key: Any, anchors: Any, truths: Truths, sizes: Any) -> AnchorTargets:
        """Return the targets of anchors by the function of that name, with the model's settings."""
        s = self.settings
        return anchor_targets(
            key,
            anchors,
            truths,
            sizes=_below(sizes) if self.chainer else None,
            high=s.rpn_fg_iou_thresh,
            low=s.rpn_bg_iou_thresh,
            count=s.rpn_batch_size_per_image,
            positive_fraction=s.rpn_positive_fraction,
        )

    def region_targets(self, key: Any, rois: Any, is_roi: Any, truths: Truths) -> RegionTargets:
        """Return the targets of proposals by the function of that name, with the settings."""
        s = self.settings
        return region_targets(
            key,
            rois,
            is_roi,
            truths,
            high=s.box_fg_iou_thresh,
            low=s.box_bg_iou_thresh,
            count=s.box_batch_size_per_image,
            positive_fraction=s.box_positive_fraction,
        )

    def _head_losses(
        self, joined: JoinedLevels, targets: RegionTargets, truths: Truths
    ) -> dict[str, Any]:
        """Return the losses of the heads."""
        logits, codes = self.roi_heads(self._pool(joined, targets.boxes, 7))
        logits, codes = (
            ops.reshape(v, (*targets.labels.shape, *v.shape[1:])) for v in (logits, codes)
        )
        return region_losses(logits, self._ordered(codes), targets, chainer=self.chainer)

    def _positive(self, joined: JoinedLevels, targets: RegionTargets) -> Any:
        """Return the features of the sampled proposals that may be positive."""
        s = self.settings
        most = int(s.box_batch_size_per_image * s.box_positive_fraction)
        return self._pool(joined, targets.boxes[:, :most], 14)


def _below(sizes: Any) -> Any:
    """Return the numbers before the sizes of images as integers.

    ChainerCV's pyramids ignore anchors that touch the border; its single maps do not.
    """
    return np.nextafter(np.trunc(np.asarray(to_numpy(sizes), np.float32)), np.float32(0))


@functools.lru_cache(maxsize=64)
def _anchors(
    grids: tuple[tuple[int, int], ...], shape: tuple[int, int], chainer: bool
) -> tuple[Any, ...]:
    """Return the anchors of each level, which are centred at elements, or in ChainerCV's beside."""
    found = []
    for i, (grid, size) in enumerate(zip(grids, _ANCHOR_SIZES, strict=True)):
        stride = (shape[0] // grid[0], shape[1] // grid[1])
        base = base_anchors([size], _ANCHOR_RATIOS)
        if chainer:
            stride = (4 * 2**i, 4 * 2**i)
            ratio = np.array(_ANCHOR_RATIOS)
            width = np.round(stride[0] / np.sqrt(ratio))
            half = np.stack([np.round(width * ratio), width], axis=1) * (size / stride[0] / 2)
            base = np.concatenate([stride[0] / 2 - half, stride[0] / 2 + half], 1).astype("float32")
        found.append(grid_anchors(grid, stride, base))
    return tuple(found)


@public("fdbr.vision.models")
@frozen
class FasterRCNN_ResNet50_FPN(FasterRCNN):
    """`FasterRCNN` over a `ResNet50`: 41,755,286 parameters for 90 classes."""


@public("fdbr.vision.models")
@frozen
class FasterRCNN_ResNet101_FPN(FasterRCNN):
    """`FasterRCNN` over a `ResNet101`."""

    _network: ClassVar[type[ResNet]] = ResNet101
