"""RetinaNet and FCOS: boxes and classes at each element of a feature pyramid."""

import abc
import math
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np

from fdbr import ops, random
from fdbr.core.array_modules import array_module, where_it_lies
from fdbr.errors.public import public
from fdbr.nn import initializers
from fdbr.nn.composite import Composite
from fdbr.nn.convolution.layers import Conv
from fdbr.nn.models.building import Builder, positive
from fdbr.nn.normalization.layers import GroupNorm
from fdbr.nn.sequential import Sequential
from fdbr.ops.devices import beside
from fdbr.transforms.vjp import stop_gradient
from fdbr.tree import frozen, static
from fdbr.vision.boxes import (
    base_anchors,
    box_iou,
    clip_boxes,
    decode_boxes,
    encode_boxes,
    giou_loss,
    grid_anchors,
)
from fdbr.vision.models.base import Detector, Prepared
from fdbr.vision.models.fpn import Backbone, FeaturePyramid, LastLevels, ResNetBody
from fdbr.vision.models.matching import IGNORED, match
from fdbr.vision.models.resizing import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    in_batch,
    resize_and_batch,
)
from fdbr.vision.models.single_shot import (
    SWAPPED,
    of_matched,
)
from fdbr.vision.models.suppression import in_rows, suppressed
from fdbr.vision.models.truths import padded_truths
from fdbr.vision.results import Detections, Truths

__all__ = [
    "DenseDetector",
    "DenseHead",
    "FCOS_ResNet50_FPN",
    "RetinaNet_ResNet50_FPN",
    "RetinaNet_ResNet50_FPN_V2",
    "fcos_losses",
    "match_points",
    "retinanet_losses",
]

Level = tuple[Any, ...]
"""The logits, codes and, in FCOS, centernesses of one level, in rows."""


@public("fdbr.vision.models")
@frozen
class DenseClassificationHead(Composite):
    """Convolutions that give each anchor the logits of its classes.

    Attributes
    ----------
    conv
        The convolutions that come first.
    cls_logits
        The last convolution.
    """

    conv: Sequential
    cls_logits: Conv

    def torch_names(self) -> dict[str, Any]:
        """Return torchvision's names, which are others in older files."""
        return _older_names(self.conv)

    def _forward(self, of: Any, x: Any) -> Any:
        """Return the logits of one level."""
        return of.cls_logits(of.conv(x))


@public("fdbr.vision.models")
@frozen
class DenseRegressionHead(Composite):
    """Convolutions that give each anchor an encoded box, and in FCOS how central it is.

    Attributes
    ----------
    conv
        The convolutions that come first.
    bbox_reg, bbox_ctrness
        The last convolutions; in RetinaNet the second is `None`.
    """

    conv: Sequential
    bbox_reg: Conv
    bbox_ctrness: Any = None

    def torch_names(self) -> dict[str, Any]:
        """Return torchvision's names, which are others in older files."""
        return _older_names(self.conv)

    def _forward(self, of: Any, x: Any) -> tuple[Any, ...]:
        """Return the codes of one level, and its centernesses if there are any."""
        x = of.conv(x)
        if self.bbox_ctrness is None:
            return (of.bbox_reg(x),)
        return ops.relu(of.bbox_reg(x)), of.bbox_ctrness(x)


def _older_names(conv: Sequential) -> dict[str, Any]:
    units = [i for i, layer in enumerate(conv) if isinstance(layer, Sequential) and len(layer) == 2]
    return {f"conv.layers[{i}].layers[0]": (f"conv.{i}.0", f"~conv.{2 * i}") for i in units}


@public("fdbr.vision.models")
@frozen
class DenseHead(Composite):
    """The two heads of RetinaNet or FCOS.

    Attributes
    ----------
    classification_head, regression_head
        The heads.
    """

    classification_head: DenseClassificationHead
    regression_head: DenseRegressionHead

    @classmethod
    def build(
        cls, of: Builder, channels: int, classes: int, anchors: int, *, groups: int, fcos: bool
    ) -> Self:
        """Return heads of four convolutions, with group normalisation if ``groups`` is not 0."""

        def tower() -> Sequential:
            layers: list[Any] = []
            for _ in range(4):
                conv = of.conv(channels, channels, 3, bias=fcos or not groups)
                norm = (
                    [GroupNorm.init(of.key(), groups, channels, dtype=of.dtype)] if groups else []
                )
                layers += [conv, *norm, ops.relu] if fcos else [Sequential(conv, *norm, ops.relu)]
            return Sequential(*layers)

        rare = initializers.Constant(-math.log(99))  # 0.01, the focal loss's prior probability
        logits = of.conv(channels, anchors * classes, 3, bias_init=rare)
        centre = of.conv(channels, anchors, 3) if fcos else None
        return cls(
            DenseClassificationHead(tower(), logits),
            DenseRegressionHead(tower(), of.conv(channels, 4 * anchors, 3), centre),
        )

    def _forward(self, of: Any, maps: Sequence[Any]) -> list[Level]:
        """Return the outputs of all levels, in rows of an anchor."""
        heads = of.classification_head, of.regression_head
        anchors = self.regression_head.bbox_reg.weight.shape[0] // 4
        levels = []
        for x in maps:
            parts = heads[0](x), *heads[1](x)
            levels.append(tuple(in_rows(part, part.shape[1] // anchors) for part in parts))
        return levels


@public("fdbr.vision.models")
@frozen
class DenseDetector(Detector):
    """The base class of detectors that score the anchors of a feature pyramid.

    The fields are torchvision's modules, and `tree.replace` changes settings.

    Attributes
    ----------
    backbone
        A residual network with a pyramid.
    head
        The convolutions that give classes and boxes.
    min_size, max_size
        The sizes to which images are resized: the shorter side, and at most the longer.
    mean, std
        The normalisation of the three colours, from 0 to 1.
    score_threshold
        A detection has a larger score.
    nms_threshold
        The overlap above which the less certain of two detections of a class is suppressed.
    candidates
        The number of scores of a level among which detections are chosen.
    detections
        The largest number of detections of an image.
    """

    backbone: Backbone
    head: DenseHead
    min_size: int = static(default=800)
    max_size: int = static(default=1333)
    mean: tuple[float, ...] = static(default=IMAGENET_MEAN)
    std: tuple[float, ...] = static(default=IMAGENET_STD)
    score_threshold: float = static(default=0.05)
    nms_threshold: float = static(default=0.5)
    candidates: int = static(default=1000)
    detections: int = static(default=300)

    _sizes: ClassVar[tuple[tuple[float, ...], ...]] = ()
    _ratios: ClassVar[tuple[float, ...]] = (1.0,)
    _groups: ClassVar[int] = 0
    _fcos: ClassVar[bool] = False
    _p6_of_body: ClassVar[bool] = False
    _frozen: ClassVar[bool] = True
    _defaults: ClassVar[dict[str, Any]] = {}

    @classmethod
    def init(
        cls,
        key: Any,
        classes: int = 91,
        *,
        width: int = 64,
        depths: Sequence[int] | None = None,
        channels: int = 256,
        eps: float | None = None,
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
            The number of classes.  No class is the background, so it is torchvision's number, and
            labels are torchvision's; its published weights have 91 classes and never find class 0.
        width, depths, eps
            The residual network, as for `ResNetBody.init`.
        channels
            The number of channels of the pyramid and the heads.
        weight_init
            ``init(key, shape, dtype)`` for all weights; by default uniform numbers with the
            variance that torchvision gives its weights.
        dtype
            The dtype of the parameters.
        settings
            Other attributes, such as ``min_size`` and ``score_threshold``.
        """
        positive(cls, classes=classes, channels=channels)
        first, second = random.split(key)
        options: dict[str, Any] = {"width": width, "depths": depths, "eps": eps, "dtype": dtype}
        body = ResNetBody.init(first, weight_init=weight_init, frozen=cls._frozen, **options)
        of = Builder(second, weight_init, dtype, stddev=0.01)
        inputs = [8 * width, 16 * width, 32 * width]
        last = LastLevels.build(of, inputs[-1] if cls._p6_of_body else channels, channels)
        anchors = len(cls._ratios) * len(cls._sizes[0])
        groups = min(cls._groups, channels)
        head = DenseHead.build(of, channels, classes, anchors, groups=groups, fcos=cls._fcos)
        fpn = FeaturePyramid.build(of, inputs, channels, last)
        return cls(Backbone(body, fpn), head, **{**cls._defaults, **settings})

    def _forward(self, of: Any, batch: Any) -> tuple[list[Level], list[Any]]:
        """Return the outputs of the head and the anchors of each level."""
        maps = of.backbone(batch)
        anchors = [
            beside(
                grid_anchors(
                    x.shape[2:],
                    [n // part for n, part in zip(batch.shape[2:], x.shape[2:], strict=True)],
                    base_anchors(sizes, self._ratios),
                ).astype(batch.dtype),
                x,
            )
            for x, sizes in zip(maps, self._sizes, strict=True)
        ]
        return [
            (logits, ops.take(codes, SWAPPED, axis=-1), *rest)
            for logits, codes, *rest in of.head(maps)
        ], anchors

    def prepare(self, images: Any) -> Prepared:
        """Return images resized, normalised and extended to one size."""
        prepared = resize_and_batch(
            images, min_size=self.min_size, max_size=self.max_size, mean=self.mean, std=self.std
        )
        dtype = self.head.classification_head.cls_logits.weight.dtype
        return prepared._replace(batch=ops.astype(prepared.batch, dtype, copy=False))

    def detect(self, batch: Any, sizes: Any) -> Detections:
        """Return the padded objects in a batch, in its pixels."""
        found = []
        for (logits, codes, *rest), anchors in zip(*self(batch), strict=True):
            count, classes = logits.shape[0], logits.shape[-1]
            scores = ops.reshape(self._scores(logits, *rest), (count, -1))
            scores, index = ops.top_k(scores, min(self.candidates, scores.shape[-1]))
            certain = scores > self.score_threshold
            labels = ops.astype(ops.where(certain, index % classes, -1), np.int32)
            index = index // classes
            codes = ops.take_along_axis(codes, index[..., None], axis=1)
            boxes = self._decode(codes, ops.take(anchors, index, axis=0))
            found.append((clip_boxes(boxes, sizes), scores, labels))
        boxes, scores, labels = (ops.concat(parts, axis=1) for parts in zip(*found, strict=True))
        return suppressed(
            boxes, scores, labels, threshold=self.nms_threshold, limit=self.detections
        )

    @where_it_lies
    def losses(self, images: Any, truths: Any, *, key: Any = None) -> tuple[dict[str, Any], Self]:
        """Return the losses of training by their names, and the model's successor.

        Parameters
        ----------
        images, truths, key
            As for `Detector.losses`; the key is not used.

        Returns
        -------
        tuple
            The losses, and the model.

        Raises
        ------
        ValueError, TypeError
            If images or truths are invalid; the message has the index of the image.
        """
        classes = self.head.classification_head.cls_logits.weight.shape[0]
        classes //= len(self._ratios) * len(self._sizes[0])
        truths = padded_truths(self, images, truths, classes)
        prepared = self.prepare(images)
        truths = in_batch(truths, prepared)
        (levels, anchors), successor = self._trained(key, prepared.batch)
        joined = (ops.concat(parts, axis=1) for parts in zip(*levels, strict=True))
        return self._losses(truths, anchors, *joined), successor

    def _scores(self, logits: Any, *rest: Any) -> Any:
        """Return the scores of one level."""
        return ops.sigmoid(logits)

    def _decode(self, codes: Any, anchors: Any) -> Any:
        """Return the boxes that codes mean."""
        return decode_boxes(codes, anchors)

    @abc.abstractmethod
    def _losses(self, truths: Truths, anchors: list[Any], *outputs: Any) -> dict[str, Any]:
        """Return the losses of the outputs of all levels, given their anchors."""


# --- RetinaNet ----------------------------------------------------------------------------


@public("fdbr.vision.models")
@where_it_lies
def retinanet_losses(
    logits: Any,
    codes: Any,
    anchors: Any,
    matches: Any,
    boxes: Any,
    labels: Any,
    *,
    giou: bool = False,
) -> dict[str, Any]:
    """Return RetinaNet's losses, given what each anchor is to find.

    The classes' loss is the focal loss of all anchors that are not ignored, the boxes' the L1 loss
    of the matched anchors' codes.  Both are divided by the number of matched anchors of an image,
    and are means over images.  Lin, Goyal, Girshick, He & Dollár, *Focal loss for dense object
    detection*, ICCV 2017.

    Parameters
    ----------
    logits, codes
        The outputs of the head, shapes ``(N, K, classes)`` and ``(N, K, 4)``.
    anchors
        Shape ``(K, 4)``.
    matches
        The result of `match`, shape ``(N, K)``: -1 for the background, -2 for ignored anchors.
    boxes, labels
        The box and the label of the object that an anchor is matched with, shapes ``(N, K, 4)`` and
        ``(N, K)``; elsewhere the label is negative.
    giou
        Whether the boxes' loss is `fdbr.vision.giou_loss` of decoded boxes.

    Returns
    -------
    dict
        The scalars ``"classification"`` and ``"bbox_regression"``.

    >>> import numpy as np
    >>> from fdbr.vision import models
    >>> anchors = np.array([[0, 0, 4, 4], [4, 4, 8, 8]], "float32")
    >>> logits, codes = np.zeros((1, 2, 1)), np.zeros((1, 2, 4))
    >>> index = np.array([[0, -1]])
    >>> losses = models.retinanet_losses(logits, codes, anchors, index, anchors[None], index)
    >>> [f"{name} {loss:.3f}" for name, loss in losses.items()]
    ['classification 0.173', 'bbox_regression 0.000']
    """
    matched = matches >= 0
    count = ops.maximum(ops.sum(ops.astype(matched, logits.dtype), axis=1), 1)
    each = ops.sum(ops.sigmoid_focal_loss(logits, _one_hot(labels, logits)), axis=-1)
    each = ops.where(matches != IGNORED, each, 0)
    if giou:
        distance = giou_loss(decode_boxes(codes, anchors), boxes)
    else:
        distance = ops.sum(ops.abs(codes - encode_boxes(boxes, anchors)), axis=-1)
    distance = ops.where(matched, distance, 0)
    return {
        "classification": ops.mean(ops.sum(each, axis=1) / count),
        "bbox_regression": ops.mean(ops.sum(distance, axis=1) / count),
    }


def _one_hot(labels: Any, logits: Any) -> Any:
    """Return 1 for the class of each anchor's object, and 0 elsewhere."""
    return ops.astype(
        labels[..., None] == array_module(labels).arange(logits.shape[-1]), logits.dtype
    )


@public("fdbr.vision.models")
@frozen
class RetinaNet_ResNet50_FPN(DenseDetector):
    """RetinaNet on a pyramid over ResNet-50: torchvision's ``retinanet_resnet50_fpn``.

    Lin, Goyal, Girshick, He & Dollár, *Focal loss for dense object detection*, ICCV 2017.  The
    batch normalisation of the residual network is frozen; the published weights ``COCO_V1`` need
    ``eps=0``.

    >>> import fdbr
    >>> from fdbr.vision import models
    >>> options = {"width": 2, "depths": (1, 1, 1, 1), "channels": 4, "min_size": 32}
    >>> model = models.RetinaNet_ResNet50_FPN.init(fdbr.random.key(0), 3, **options)
    >>> model.predict([fdbr.ops.ones((3, 32, 48))]).boxes
    (array([], shape=(0, 4), dtype=float32),)
    """

    _sizes: ClassVar[tuple[tuple[float, ...], ...]] = tuple(
        (x, int(x * 2 ** (1 / 3)), int(x * 2 ** (2 / 3))) for x in (32, 64, 128, 256, 512)
    )
    _ratios: ClassVar[tuple[float, ...]] = (0.5, 1.0, 2.0)
    _giou: ClassVar[bool] = False

    def _losses(self, truths: Truths, anchors: list[Any], *outputs: Any) -> dict[str, Any]:
        logits, codes = outputs
        whole = ops.concat(anchors)
        is_object = truths.labels >= 0
        matches = match(box_iou(truths.boxes, whole), is_object, 0.5, 0.4, low_quality=True)
        boxes, labels = of_matched(matches, truths.boxes, truths.labels, whole)
        return retinanet_losses(logits, codes, whole, matches, boxes, labels, giou=self._giou)


@public("fdbr.vision.models")
@frozen
class RetinaNet_ResNet50_FPN_V2(RetinaNet_ResNet50_FPN):
    """`RetinaNet_ResNet50_FPN` with group normalisation: ``retinanet_resnet50_fpn_v2``.

    Its boxes are trained by `fdbr.vision.giou_loss`, and the pyramid's coarse levels begin with the
    residual network's last output.  The batch normalisation of the residual network is trained, as
    by torchvision: `losses` returns a successor with new running statistics.
    """

    _frozen: ClassVar[bool] = False
    _groups: ClassVar[int] = 32
    _p6_of_body: ClassVar[bool] = True
    _giou: ClassVar[bool] = True


# --- FCOS ---------------------------------------------------------------------------------


@public("fdbr.vision.models")
@where_it_lies
def match_points(boxes: Any, labels: Any, anchors: Sequence[Any], *, radius: float = 1.5) -> Any:
    """Return which object each element of a feature pyramid is to find, as FCOS does.

    An element is matched with an object if its centre is in the box, nearer to the box's centre
    than ``radius`` times the stride, and the largest distance to a side is between four and eight
    strides; there is no lower limit in the first level, and no upper limit in the last.  Of several
    objects it finds the smallest.  Tian, Shen, Chen & He, *FCOS: a simple and strong anchor-free
    object detector*, TPAMI 2020.

    Parameters
    ----------
    boxes, labels
        The objects of each image, padded: shapes ``(N, R, 4)`` and ``(N, R)``, where the label is
        -1 if there is no object.
    anchors
        For each level the squares around its elements, whose sides are the stride: shapes
        ``(K, 4)``.
    radius
        The largest distance to the centre, in strides, in each axis.

    Returns
    -------
    array
        Shape ``(N, K of all levels)``, int32: the index of an object, or -1.

    >>> import numpy as np
    >>> from fdbr.vision import models
    >>> anchors = [np.array([[-4, -4, 4, 4], [-4, 4, 4, 12], [4, 4, 12, 12]], "float32")]
    >>> models.match_points(np.array([[[2.0, 2, 20, 20]]]), np.array([[0]]), anchors)
    array([[-1, -1,  0]], dtype=int32)
    """
    boxes, labels = (stop_gradient(ops.asarray(part)) for part in (boxes, labels))
    if not labels.shape[1]:
        return ops.full((labels.shape[0], sum(map(len, anchors))), -1, dtype=np.int32)
    whole = ops.concat(list(anchors))
    stride = whole[:, 2] - whole[:, 0]
    lengths = [len(level) for level in anchors]
    least = ops.concat([stride[: lengths[0]] * 0, stride[lengths[0] :] * 4])
    most = ops.concat([stride[: -lengths[-1]] * 8, stride[-lengths[-1] :] * np.inf])
    centre = ((whole[:, :2] + whole[:, 2:]) / 2)[:, None, :]  # (K, 1, 2), and (N, 1, R, 4)
    low, high = boxes[:, None, :, :2], boxes[:, None, :, 2:]
    near = ops.max(ops.abs(centre - (low + high) / 2), axis=-1) < radius * stride[:, None]
    sides = ops.concat([centre - low, high - centre], axis=-1)
    farthest = ops.max(sides, axis=-1)
    fits = near & (ops.min(sides, axis=-1) > 0) & (labels >= 0)[:, None, :]
    fits = fits & (farthest > least[:, None]) & (farthest < most[:, None])
    area = ops.prod(high - low, axis=-1)
    # torchvision's expression: areas beyond 1e8 count as no match
    preference = ops.where(fits, 1e8 - area, 0)
    best = ops.argmax(preference, axis=-1)
    found = ops.max(preference, axis=-1) >= 1e-5
    return ops.astype(ops.where(found, best, -1), np.int32)


@public("fdbr.vision.models")
@where_it_lies
def fcos_losses(
    logits: Any, codes: Any, centernesses: Any, anchors: Any, boxes: Any, labels: Any
) -> dict[str, Any]:
    """Return FCOS's losses, given what each element is to find.

    The classes' loss is the focal loss of all elements, the boxes' is `fdbr.vision.giou_loss` of
    the matched ones, and the centernesses' the binary cross entropy of the matched ones.  All are
    divided by the number of matched elements in the batch.  Tian, Shen, Chen & He, *FCOS: a simple
    and strong anchor-free object detector*, TPAMI 2020.

    Parameters
    ----------
    logits, codes, centernesses
        The outputs of the head, shapes ``(N, K, classes)``, ``(N, K, 4)`` and ``(N, K, 1)``.
    anchors
        The squares around the elements, shape ``(K, 4)``.
    boxes, labels
        The box and the label of the object that an element is matched with, shapes ``(N, K, 4)``
        and ``(N, K)``; elsewhere the label is -1 and the box the anchor.

    Returns
    -------
    dict
        The scalars ``"classification"``, ``"bbox_regression"`` and ``"bbox_ctrness"``.

    >>> import numpy as np
    >>> from fdbr.vision import models
    >>> anchors = np.array([[0, 0, 4, 4], [4, 4, 8, 8]], "float32")
    >>> logits, codes, labels = np.zeros((1, 2, 1)), np.full((1, 2, 4), 0.5), np.array([[0, -1]])
    >>> losses = models.fcos_losses(logits, codes, logits, anchors, anchors[None], labels)
    >>> [f"{name} {abs(loss):.3f}" for name, loss in losses.items()]
    ['classification 0.173', 'bbox_regression 0.000', 'bbox_ctrness 0.693']
    """
    matched = labels >= 0
    count = ops.maximum(ops.sum(ops.astype(matched, logits.dtype)), 1)
    focal = ops.sigmoid_focal_loss(logits, _one_hot(labels, logits), reduction="sum")
    overlap = giou_loss(_around(codes, anchors), boxes)
    centre = (anchors[:, :2] + anchors[:, 2:]) / 2
    before, after = centre - boxes[..., :2], boxes[..., 2:] - centre
    central = ops.prod(ops.minimum(before, after) / ops.maximum(before, after), axis=-1)
    target = ops.sqrt(ops.where(matched, central, 1))
    entropy = ops.binary_cross_entropy_with_logits(
        centernesses[..., 0], ops.astype(target, logits.dtype), reduction="none"
    )
    return {
        "classification": focal / count,
        "bbox_regression": ops.sum(ops.where(matched, overlap, 0)) / count,
        "bbox_ctrness": ops.sum(ops.where(matched, entropy, 0)) / count,
    }


def _around(codes: Any, anchors: Any) -> Any:
    """Return boxes, given the distances of their sides from the centres of anchors, in sides."""
    size = anchors[..., 2:] - anchors[..., :2]
    centre = (anchors[..., :2] + anchors[..., 2:]) / 2
    return ops.concat([centre - codes[..., :2] * size, centre + codes[..., 2:] * size], axis=-1)


@public("fdbr.vision.models")
@frozen
class FCOS_ResNet50_FPN(DenseDetector):
    """FCOS on a pyramid over ResNet-50: torchvision's ``fcos_resnet50_fpn``.

    Tian, Shen, Chen & He, *FCOS: a simple and strong anchor-free object detector*, TPAMI 2020.  The
    batch normalisation of the residual network is frozen.

    >>> import fdbr
    >>> from fdbr.vision import models
    >>> options = {"width": 2, "depths": (1, 1, 1, 1), "channels": 4, "min_size": 32}
    >>> model = models.FCOS_ResNet50_FPN.init(fdbr.random.key(0), 3, **options)
    >>> model.predict([fdbr.ops.ones((3, 32, 48))]).boxes
    (array([], shape=(0, 4), dtype=float32),)
    """

    _sizes: ClassVar[tuple[tuple[float, ...], ...]] = ((8,), (16,), (32,), (64,), (128,))
    _groups: ClassVar[int] = 32
    _fcos: ClassVar[bool] = True
    _defaults: ClassVar[dict[str, Any]] = {
        "score_threshold": 0.2,
        "nms_threshold": 0.6,
        "detections": 100,
    }

    def _scores(self, logits: Any, *rest: Any) -> Any:
        return ops.sqrt(ops.sigmoid(logits) * ops.sigmoid(rest[0]))

    def _decode(self, codes: Any, anchors: Any) -> Any:
        return _around(codes, anchors)

    def _losses(self, truths: Truths, anchors: list[Any], *outputs: Any) -> dict[str, Any]:
        whole = ops.concat(anchors)
        matches = match_points(truths.boxes, truths.labels, anchors)
        boxes, labels = of_matched(matches, truths.boxes, truths.labels, whole)
        logits, codes, centernesses = outputs
        return fcos_losses(logits, codes, centernesses, whole, boxes, labels)
