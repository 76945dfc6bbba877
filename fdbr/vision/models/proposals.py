"""The base of ChainerCV's detectors with regions: proposals from one map, heads, and losses."""

import abc
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from fdbr import ops, random, tree
from fdbr.core.array_modules import where_it_lies
from fdbr.nn.composite import Composite
from fdbr.nn.convolution.layers import Conv
from fdbr.nn.models.building import Builder
from fdbr.ops.devices import beside
from fdbr.transforms.vjp import stop_gradient
from fdbr.tree import frozen
from fdbr.vision.boxes import base_anchors, clip_boxes, decode_boxes, grid_anchors
from fdbr.vision.models.base import Detector, Prepared
from fdbr.vision.models.region_losses import (
    RegionTargets,
    anchor_losses,
    anchor_targets,
    region_losses,
    region_targets,
)
from fdbr.vision.models.resizing import in_batch, resize_and_batch
from fdbr.vision.models.suppression import best_objects, in_rows, suppressed
from fdbr.vision.models.truths import padded_truths
from fdbr.vision.results import Truths

__all__ = ["ProposalHead", "RegionDetector", "SingleMapSettings", "propose_boxes"]

STRIDE = 16
"""The number of pixels between the elements of the maps from which boxes are proposed."""


class SingleMapSettings(NamedTuple):
    """The numbers of a detector that proposes boxes from one map.

    Attributes
    ----------
    min_size, max_size
        The lengths to which the sides of images are resized.
    anchor_sizes
        The square roots of the areas of anchors; their ratios are 1/2, 1 and 2.
    proposal_nms_threshold, nms_threshold
        The largest overlap of two proposals, and of two detections of a class.
    pre_train, pre_test
        The number of anchors that become proposals.
    post_train, post_test
        The number of proposals that remain after suppression.
    proposal_size
        Smaller proposals are left out: their least height and width in the resized image.
    region_count
        The number of proposals of an image that are sampled in training; `None` for all.
    score_threshold
        Detections have larger scores.
    limit
        The largest number of detections of an image.
    """

    min_size: int = 600
    max_size: int = 1000
    anchor_sizes: tuple[float, ...] = (128, 256, 512)
    proposal_nms_threshold: float = 0.7
    nms_threshold: float = 0.3
    pre_train: int = 12000
    pre_test: int = 6000
    post_train: int = 2000
    post_test: int = 300
    proposal_size: float = 16
    region_count: int | None = 128
    score_threshold: float = 0.7
    limit: int = 100


@frozen
class ProposalHead(Composite):
    """The layers of a region proposal network: ChainerCV's ``RegionProposalNetwork``.

    Attributes
    ----------
    conv1, score, loc
        A convolution, and those for the logits of background and object and for encoded boxes.
    """

    conv1: Conv
    score: Conv
    loc: Conv

    @classmethod
    def build(cls, of: Builder, inputs: int, hidden: int, anchors: int) -> Self:
        """Return layers for that many anchors of an element."""
        return cls(
            of.conv(inputs, hidden, 3, stddev=0.01),
            of.conv(hidden, 2 * anchors, 1, stddev=0.01),
            of.conv(hidden, 4 * anchors, 1, stddev=0.01),
        )

    def _forward(self, of: Any, x: Any) -> tuple[Any, Any]:
        """Return the encoded boxes ``(N, K, 4)`` and the logits ``(N, K, 2)``."""
        h = ops.relu(of.conv1(x))
        return in_rows(of.loc(h), 4), in_rows(of.score(h), 2)


def propose_boxes(
    codes: Any,
    scores: Any,
    anchors: Any,
    sizes: Any,
    *,
    pre: int,
    post: int,
    threshold: float,
    least: float,
) -> tuple[Any, Any]:
    """Return the proposed boxes of images: ChainerCV's ``ProposalCreator``.

    Parameters
    ----------
    codes, scores, anchors
        Shapes ``(N, K, 4)``, ``(N, K)`` and ``(K, 4)``.
    sizes
        The sizes of the images, ``(N, 2)``, within which boxes are clipped.
    pre, post
        The numbers of boxes before and after suppression.
    threshold
        The overlap from which on the worse of two proposals is left out.
    least
        The least height and width.

    Returns
    -------
    tuple
        The boxes, shape ``(N, min(post, K), 4)``, and which of them are proposals.
    """
    boxes = clip_boxes(decode_boxes(codes, anchors, clip=None), sizes)
    large = ops.all(boxes[..., 2:] - boxes[..., :2] >= least, axis=-1)
    scores, best = ops.top_k(ops.where(large, scores, -np.inf), min(pre, scores.shape[1]))
    boxes = ops.take_along_axis(boxes, best[..., None], axis=1)
    found = suppressed(
        boxes,
        scores,
        ops.zeros_like(best),
        threshold=threshold,
        limit=min(post, scores.shape[1]),
        chainer=True,
    )
    return found.boxes, found.labels >= 0


class RegionDetector(Detector):
    """The methods of detectors with one map of proposals; the subclasses have the fields."""

    __slots__ = ()
    extractor: Any
    rpn: ProposalHead
    head: Any
    classes: int
    settings: SingleMapSettings

    _by_size: ClassVar[bool] = True  # ChainerCV predicts images one after the other
    _mean: ClassVar[tuple[float, ...]] = (122.7717, 115.9465, 102.9801)
    _defaults: ClassVar[dict[str, Any]] = {}

    @classmethod
    def _settings(cls, given: dict[str, Any]) -> SingleMapSettings:
        for name in given:
            if name not in SingleMapSettings._fields:
                raise TypeError(
                    f"fdbr.vision.models.{cls.__name__}.init: there is no setting {name!r}, only "
                    f"{', '.join(SingleMapSettings._fields)}"
                )
        return SingleMapSettings(**{**cls._defaults, **given})

    def prepare(self, images: Any) -> Prepared:
        """Return images resized as the settings say, without the mean of ChainerCV's images."""
        s = self.settings
        return resize_and_batch(
            images,
            min_size=s.min_size,
            max_size=s.max_size,
            mean=self._mean,
            std=None,
            size_divisible=1,
        )

    def _forward(self, of: Any, batch: Any) -> tuple[Any, Any, Any]:
        """Return the features of regions, and the encoded boxes and logits of anchors."""
        proposing, features = self._features(of, batch)
        return features, *of.rpn(proposing)

    @abc.abstractmethod
    def _features(self, of: Any, batch: Any) -> tuple[Any, Any]:
        """Return the features for proposals, and those for regions."""

    def anchors(self, features: Any) -> Any:
        """Return the anchors ``(K, 4)`` around the elements of feature maps of one size."""
        features = tree.leaves(features)[0]
        base = base_anchors(self.settings.anchor_sizes, (0.5, 1, 2), chainer=True)
        return beside(grid_anchors(features.shape[2:], STRIDE, base), features)

    def propose(self, codes: Any, logits: Any, anchors: Any, sizes: Any, mode: str) -> Any:
        """Return proposals by `propose_boxes`, in the mode ``"train"`` or ``"test"``."""
        s = self.settings
        return propose_boxes(
            stop_gradient(codes),
            stop_gradient(logits)[..., 1],
            anchors,
            sizes,
            pre=getattr(s, f"pre_{mode}"),
            post=getattr(s, f"post_{mode}"),
            threshold=s.proposal_nms_threshold,
            least=s.proposal_size,
        )

    def detect(self, batch: Any, sizes: Any) -> Any:
        """Return the padded objects in a batch, in its pixels."""
        features, codes, logits = self(batch)
        anchors = self.anchors(features)
        boxes, real = self.propose(codes, logits, anchors, sizes, "test")
        offsets, scores = self._regions(features, boxes)
        decoded = decode_boxes(offsets[:, :, 1:], boxes[:, :, None], weights=WEIGHTS, clip=None)
        s = self.settings
        scores = ops.softmax(scores, axis=-1)[..., 1:]
        return best_objects(
            clip_boxes(decoded, sizes[:, None]),
            ops.where(real[..., None] & (scores > s.score_threshold), scores, -np.inf),
            nms_threshold=s.nms_threshold,
            limit=s.limit,
        )

    def _regions(self, features: Any, boxes: Any) -> tuple[Any, Any]:
        """Return the encoded boxes ``(N, R, C, 4)`` and the logits ``(N, R, C)`` of regions."""
        n, count, _ = boxes.shape
        codes, scores = self.head(features, *flat_regions(boxes))
        shape = (n, count, self.classes + 1)
        return ops.reshape(codes, (*shape, 4)), ops.reshape(scores, shape)

    @where_it_lies
    def losses(self, images: Any, truths: Any, *, key: Any) -> tuple[dict[str, Any], Self]:
        """Return the losses of training by their names, and the model's successor.

        Parameters
        ----------
        images, truths
            As for `Detector.losses`.
        key
            A random key, which samples anchors and proposals.

        Returns
        -------
        tuple
            ``loss_objectness`` and ``loss_rpn_box_reg`` of proposals, ``loss_classifier`` and
            ``loss_box_reg`` of regions, ``loss_mask`` of models with masks; and the model.

        Raises
        ------
        ValueError, TypeError
            If an image or an object is not proper; the message has the index of the image.
        """
        needs = ("masks",) if self._masks else ()
        truths = padded_truths(self, images, truths, self.classes, needs=needs)
        prepared = self.prepare(images)
        truths = in_batch(truths, prepared)
        first, second, third = random.split(key, 3)
        (features, codes, logits), successor = self.train(prepared.batch, key=third)
        anchors = self.anchors(features)
        targets = anchor_targets(first, anchors, truths, sizes=prepared.sizes)
        found = anchor_losses(logits[..., 1] - logits[..., 0], codes, targets)
        boxes, real = self.propose(codes, logits, anchors, prepared.sizes, "train")
        return {**found, **self._region_losses(second, features, boxes, real, truths)}, successor

    _masks: ClassVar[bool] = False

    def _region_losses(
        self, key: Any, features: Any, boxes: Any, real: Any, truths: Truths
    ) -> dict[str, Any]:
        count = self.settings.region_count or boxes.shape[1] + truths.labels.shape[1]
        targets = region_targets(key, boxes, real, truths, count=count)
        codes, scores = self._regions(features, stop_gradient(targets.boxes))
        return self.head_losses(scores, codes, targets)

    def head_losses(self, scores: Any, codes: Any, targets: RegionTargets) -> dict[str, Any]:
        """Return the losses of regions for sampled targets."""
        return region_losses(scores, codes, targets, chainer=True)


WEIGHTS = (10.0, 10.0, 5.0, 5.0)
"""The reciprocals of ChainerCV's standard deviations of encoded boxes."""


def flat_regions(boxes: Any) -> tuple[Any, Any]:
    """Return the boxes of all images as rows, and the index of each one's image."""
    n, count, _ = boxes.shape
    index = np.repeat(np.arange(n, dtype=np.int32), count)
    return ops.reshape(boxes, (n * count, 4)), beside(index, boxes)
