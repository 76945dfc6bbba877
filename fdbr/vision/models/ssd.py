"""SSD: boxes and classes from feature maps of several sizes, in one step."""

import functools
import math
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from fdbr import ops, random, tree
from fdbr.core.array_modules import array_module, where_it_lies
from fdbr.errors.public import public
from fdbr.nn import initializers
from fdbr.nn.composite import Composite
from fdbr.nn.convolution.layers import Conv
from fdbr.nn.models.building import Builder, positive
from fdbr.nn.models.mobilenet import InvertedResidual, MobileNet_V3_Large, eighths
from fdbr.nn.models.network import Network
from fdbr.nn.pooling.dimensions import MaxPool2d
from fdbr.nn.sequential import Sequential
from fdbr.ops.devices import beside
from fdbr.ops.nn.resampling.interpolation import resize_linearly
from fdbr.tree import frozen, static
from fdbr.vision.boxes import clip_boxes, decode_boxes, default_boxes, encode_boxes
from fdbr.vision.models.base import Detector, Prepared, resized
from fdbr.vision.models.resizing import in_batch, normalized
from fdbr.vision.models.single_shot import (
    SWAPPED,
    match_default_boxes,
    multibox_loss,
    of_matched,
)
from fdbr.vision.models.suppression import in_rows, suppressed
from fdbr.vision.models.truths import padded_truths
from fdbr.vision.results import Detections

__all__ = [
    "SSD",
    "MobileNetExtractor",
    "SSD300_VGG16",
    "SSD512_VGG16",
    "SSDHead",
    "SSDLite320_MobileNet_V3_Large",
    "ScoringHead",
    "VGG16Extractor",
]

WEIGHTS = (10.0, 10.0, 5.0, 5.0)
"""The factors of encoded boxes, the reciprocals of the variances 0.1 and 0.2."""


class _Boxes(NamedTuple):
    """The default boxes of a model: a tuple for each feature map, and one more scale."""

    aspect_ratios: tuple[tuple[float, ...], ...]
    scales: tuple[float, ...]
    steps: tuple[int, ...] | None


_WIDE, _NARROW = (2.0, 3.0), (2.0,)
_300 = _Boxes(
    (_NARROW, _WIDE, _WIDE, _WIDE, _NARROW, _NARROW),
    (0.07, 0.15, 0.33, 0.51, 0.69, 0.87, 1.05),
    (8, 16, 32, 64, 100, 300),
)
_512 = _Boxes(
    (_NARROW, _WIDE, _WIDE, _WIDE, _WIDE, _NARROW, _NARROW),
    (0.07, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9, 1.05),
    (8, 16, 32, 64, 128, 256, 512),
)
_LITE = _Boxes((_WIDE,) * 6, (0.2, 0.35, 0.5, 0.65, 0.8, 0.95, 1.0), None)
_SIZES = 30, 60, 111, 162, 213, 264, 315  # of ChainerCV's SSD300
_BOXES = {  # by the size of the input, and whether the model is ChainerCV's
    (300, False): _300,
    (300, True): _300._replace(scales=tuple(size / 300 for size in _SIZES)),
    (512, False): _512,
    (512, True): _512,
}
_MEAN = {False: (0.48235 * 255, 0.45882 * 255, 0.40784 * 255), True: (123.0, 117.0, 104.0)}


@public("fdbr.vision.models")
@frozen
class ScoringHead(Composite):
    """One layer for each feature map, which gives numbers for each default box.

    Attributes
    ----------
    module_list
        The layers, in the order of the feature maps.
    columns
        The number of numbers for a default box.
    """

    module_list: tuple[Any, ...]
    columns: int = static()

    def _forward(self, of: Any, maps: Sequence[Any]) -> Any:
        """Return the numbers, shape ``(N, K, columns)``."""
        layers = of.module_list
        rows = [in_rows(layer(x), self.columns) for layer, x in zip(layers, maps, strict=True)]
        return ops.concat(rows, axis=1)


@public("fdbr.vision.models")
@frozen
class SSDHead(Composite):
    """The convolutions of SSD that give classes and encoded boxes: ChainerCV's ``Multibox``.

    Attributes
    ----------
    classification_head, regression_head
        A `ScoringHead` for the logits of the classes, and one for the boxes.

    >>> import fdbr
    >>> head = SSDHead.init(fdbr.random.key(0), [8, 4], 3, [(2.0,), (2.0, 3.0)])
    >>> maps = [fdbr.ops.ones((1, 8, 2, 2)), fdbr.ops.ones((1, 4, 1, 1))]
    >>> logits, codes = head(maps)
    >>> logits.shape, codes.shape  # 2 * 2 * 4 and 6 default boxes; the background is a class
    ((1, 22, 4), (1, 22, 4))
    """

    classification_head: ScoringHead
    regression_head: ScoringHead

    chainer_names: ClassVar[dict[str, str]] = {
        "classification_head.module_list": "conf",
        "regression_head.module_list": "loc",
    }

    @classmethod
    def init(
        cls,
        key: Any,
        channels: Sequence[int],
        classes: int,
        aspect_ratios: Sequence[Sequence[float]],
        *,
        light: bool = False,
        weight_init: initializers.Initializer | None = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a head with fresh parameters.

        Parameters
        ----------
        key
            A random key.
        channels
            The number of channels of each feature map.
        classes
            The number of classes, without the background.
        aspect_ratios
            For each feature map the quotients of sides of default boxes, beside 1.
        light
            Whether the convolutions are SSDLite's: a depthwise one, normalised, and one of 1x1.
        weight_init, dtype
            As for models.
        """
        of = Builder(key, weight_init, dtype, eps=1e-3, momentum=0.03)
        parts = []
        for columns in (classes + 1, 4):
            layers: list[Any] = []
            for count, ratios in zip(channels, aspect_ratios, strict=True):
                outputs = columns * 2 * (len(ratios) + 1)
                if light:
                    depthwise = of.unit(count, count, 3, act=ops.relu6, groups=count, stddev=0.03)
                    layers.append(Sequential(depthwise, of.conv(count, outputs, 1, stddev=0.03)))
                else:
                    layers.append(_xavier(of, count, outputs, 3))
            parts.append(ScoringHead(tuple(layers), columns))
        return cls(*parts)

    def _forward(self, of: Any, maps: Sequence[Any]) -> tuple[Any, Any]:
        """Return the logits and the encoded boxes."""
        return of.classification_head(maps), of.regression_head(maps)


def _xavier(of: Builder, inputs: int, outputs: int, kernel: int, **settings: Any) -> Conv:
    """Return a convolution with weights of Glorot and Bengio's variance."""
    stddev = math.sqrt(2 / ((inputs + outputs) * kernel**2))
    return of.conv(inputs, outputs, kernel, stddev=stddev, **settings)


@public("fdbr.vision.models")
@frozen
class SSD(Detector):
    """SSD: boxes and classes from feature maps of several sizes, in one step.

    Liu et al., *SSD: single shot multibox detector*, ECCV 2016.  The fields are torchvision's
    modules.  `SSD` itself is for backbones of your own; subclasses have those of the literature.
    `tree.replace` changes settings, as ChainerCV's ``use_preset`` does.

    Attributes
    ----------
    backbone
        A layer that returns the feature maps of a batch of images.
    head
        The convolutions that give classes and boxes.
    size
        The height and width to which images are resized.
    aspect_ratios, scales, steps
        The default boxes, as `fdbr.vision.default_boxes` has them.
    mean, std
        The normalisation of the three colours, from 0 to 255.
    score_threshold
        A detection has a larger score; with ``chainer`` also an equal one.
    nms_threshold
        The overlap above which the less certain of two detections of a class is suppressed.
    candidates
        The number of default boxes of a class among which detections are chosen.
    detections
        The largest number of detections of an image.
    chainer
        Whether default boxes, decoded boxes and matches are ChainerCV's: boxes may exceed the
        image, their codes begin with y, default boxes and objects are matched one to one, and
        images are resized as by OpenCV.

    >>> import fdbr
    >>> from fdbr import vision
    >>> model = vision.models.SSD300_VGG16.init(fdbr.random.key(0), 3, width=1)
    >>> images = [fdbr.random.uniform(fdbr.random.key(1), (3, 90, 120), "float32", 0, 255)]
    >>> found = model.predict(images)
    >>> found.boxes[0].shape == (len(found.labels[0]), 4)
    True
    """

    backbone: Any
    head: SSDHead
    size: int = static()
    aspect_ratios: tuple[tuple[float, ...], ...] = static()
    scales: tuple[float, ...] = static()
    steps: tuple[float, ...] | None = static(default=None)
    mean: tuple[float, ...] = static(default=(123.0, 117.0, 104.0))
    std: tuple[float, ...] = static(default=(1.0, 1.0, 1.0))
    score_threshold: float = static(default=0.01)
    nms_threshold: float = static(default=0.45)
    candidates: int = static(default=400)
    detections: int = static(default=200)
    chainer: bool = static(default=False)

    chainer_names: ClassVar[dict[str, str]] = {"backbone": "extractor", "head": "multibox"}

    def _forward(self, of: Any, batch: Any) -> tuple[Any, Any, Any]:
        """Return the logits and codes of each default box, and the default boxes."""
        maps = of.backbone(batch)
        logits, codes = of.head(maps)
        anchors = default_boxes(
            [x.shape[2:] for x in maps],
            self.aspect_ratios,
            self.size,
            scales=self.scales,
            steps=self.steps,
            clip=not self.chainer,
        ).astype(codes.dtype)
        anchors = beside(anchors, codes)
        return logits, codes if self.chainer else ops.take(codes, SWAPPED, axis=-1), anchors

    def prepare(self, images: Any) -> Prepared:
        """Return images resized to the model's size, and normalised."""
        dtype = tree.leaves(self.head)[0].dtype
        shape = (self.size, self.size)
        batches = [images] if getattr(images, "ndim", 0) == 4 else [image[None] for image in images]
        batches = [ops.astype(part, dtype, copy=False) for part in batches]
        resize = (
            resize_linearly if self.chainer else functools.partial(resized, align_corners=False)
        )
        batches = [resize(x, shape) for x in batches] or [np.zeros((0, 3, *shape), dtype)]
        sizes = np.full((len(images), 2), self.size, np.int32)
        originals = np.array([image.shape[1:] for image in images], np.int32).reshape(-1, 2)
        return Prepared(normalized(ops.concat(batches), self.mean, self.std), sizes, originals)

    def detect(self, batch: Any, sizes: Any) -> Detections:
        """Return the padded objects in a batch, in its pixels."""
        logits, codes, anchors = self(batch)
        limit = None if self.chainer else math.log(1000 / 16)
        boxes = decode_boxes(codes, anchors, weights=WEIGHTS, clip=limit)
        if not self.chainer:
            boxes = clip_boxes(boxes, (self.size, self.size))
        scores = ops.swapaxes(ops.softmax(logits, axis=-1)[..., 1:], 1, 2)
        scores, index = ops.top_k(scores, min(self.candidates, scores.shape[-1]))
        least = self.score_threshold
        certain = scores >= least if self.chainer else scores > least
        classes = array_module(scores).arange(scores.shape[1], dtype=np.int32)
        labels = ops.where(certain, classes[:, None], -1)
        scores, index, labels = (
            ops.reshape(part, (len(batch), -1)) for part in (scores, index, labels)
        )
        boxes = ops.take_along_axis(boxes, index[..., None], axis=1)
        return suppressed(
            boxes,
            scores,
            labels,
            threshold=self.nms_threshold,
            limit=self.detections,
            chainer=self.chainer,
        )

    @where_it_lies
    def losses(self, images: Any, truths: Any, *, key: Any = None) -> tuple[dict[str, Any], Self]:
        """Return the losses of training by their names, and the model's successor.

        Parameters
        ----------
        images, truths, key
            As for `Detector.losses`; the key is needed only if the backbone draws random numbers.

        Returns
        -------
        tuple
            The losses of `multibox_loss`, and the model with new running statistics.

        Raises
        ------
        ValueError, TypeError
            If images or truths are invalid; the message has the index of the image.
        """
        classes = self.head.classification_head.columns - 1
        truths = padded_truths(self, images, truths, classes)
        prepared = self.prepare(images)
        truths = in_batch(truths, prepared)
        (logits, codes, anchors), successor = self._trained(key, prepared.batch)
        matches = match_default_boxes(truths.boxes, truths.labels, anchors, chainer=self.chainer)
        boxes, labels = of_matched(matches, truths.boxes, truths.labels, anchors)
        targets = encode_boxes(boxes, anchors, weights=WEIGHTS)
        return multibox_loss(logits, codes, labels, targets), successor


# --- VGG --------------------------------------------------------------------------------


@public("fdbr.vision.models")
@frozen
class VGG16Extractor(Network):
    """The layers of VGG16 and more after them, which give SSD's feature maps.

    Attributes
    ----------
    scale_weight
        The factors of the first feature map's channels, whose vectors are normalised.
    features
        The layers up to the first feature map, conv4_3.
    extra
        The layers between neighbouring feature maps.
    chainer
        Whether the norm of a vector is increased by 1e-5, as in ChainerCV's ``Normalize``, or is at
        least 1e-12.
    """

    scale_weight: Any
    features: Sequential
    extra: tuple[Sequential, ...]
    chainer: bool = static(default=False)

    @classmethod
    def init(
        cls,
        key: Any,
        *,
        size: int = 300,
        width: int = 64,
        chainer: bool = False,
        weight_init: initializers.Initializer | None = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return layers with fresh parameters.

        Parameters
        ----------
        key
            A random key.
        size
            300 or 512, the size of images.
        width, chainer, weight_init, dtype
            As for `SSD300_VGG16.init`.
        """
        of = Builder(key, weight_init, dtype)
        layers: list[Any] = []
        inputs = 3
        stages: list[Any] = []
        for outputs, depth in ((width, 2), (2 * width, 2), (4 * width, 3), (8 * width, 3)):
            for _ in range(depth):
                layers += [of.conv(inputs, outputs, 3), ops.relu]
                inputs = outputs
            layers.append(MaxPool2d(2, ceil_mode=True))
        pool = layers.pop()
        for _ in range(3):
            stages += [of.conv(inputs, inputs, 3), ops.relu]
        last = Sequential(
            MaxPool2d(3, stride=1, padding=1),
            _xavier(of, inputs, 16 * width, 3, padding=6, dilation=6),
            ops.relu,
            _xavier(of, 16 * width, 16 * width, 1),
            ops.relu,
        )
        extra = [Sequential(pool, *stages, last)]
        inputs = 16 * width
        for narrow, outputs, kernel, stride, padding in _EXTRA[size]:
            first = _xavier(of, inputs, narrow * width, 1)
            settings = {"stride": stride, "padding": padding}
            second = _xavier(of, narrow * width, outputs * width, kernel, **settings)
            extra.append(Sequential(first, ops.relu, second, ops.relu))
            inputs = outputs * width
        scale = ops.full((8 * width,), 20.0, dtype=dtype)
        return cls(scale, Sequential(*layers), tuple(extra), chainer)

    def chainer_names(self) -> dict[str, str]:
        """Return the names of ChainerCV's ``VGG16Extractor300`` and ``VGG16Extractor512``."""
        convolutions = [i for i, layer in enumerate(self.features) if isinstance(layer, Conv)]
        positions = [(stage, i) for stage, n in ((1, 2), (2, 2), (3, 3), (4, 3)) for i in range(n)]
        names = {
            f"features.layers[{at}]": f"conv{stage}_{i + 1}"
            for at, (stage, i) in zip(convolutions, positions, strict=True)
        }
        names |= {f"extra[0].layers[{2 * i + 1}]": f"conv5_{i + 1}" for i in range(3)}
        names |= {f"extra[0].layers[7].layers[{2 * i - 11}]": f"conv{i}" for i in (6, 7)}
        for k in range(1, len(self.extra)):
            names |= {f"extra[{k}].layers[{2 * i}]": f"conv{k + 7}_{i + 1}" for i in (0, 1)}
        return names | {"scale_weight": "norm4/scale"}

    def _forward(self, of: Any, x: Any) -> list[Any]:
        """Return the feature maps."""
        x = of.features(x)
        eps = 1e-5 if self.chainer else 1e-12
        unit = ops.normalize(x, axis=1, eps=eps, add_eps=self.chainer)
        maps = [self.scale_weight[:, None, None] * unit]
        for block in of.extra:
            x = block(x)
            maps.append(x)
        return maps


_EXTRA = {  # widths of both convolutions; kernel, stride and padding of the second
    300: ((4, 8, 3, 2, 1), (2, 4, 3, 2, 1), (2, 4, 3, 1, 0), (2, 4, 3, 1, 0)),
    512: (
        (4, 8, 3, 2, 1),
        (2, 4, 3, 2, 1),
        (2, 4, 3, 2, 1),
        (2, 4, 3, 2, 1),
        (2, 4, 4, 1, 1),
    ),
}


@public("fdbr.vision.models")
@frozen
class SSD300_VGG16(SSD):
    """`SSD` on images of 300x300 pixels with the layers of VGG16: torchvision's ``ssd300_vgg16``.

    With ``chainer=True`` it is ChainerCV's ``SSD300``, and `fdbr.nn.load_chainer_npz` loads its
    files.
    """

    _size: ClassVar[int] = 300

    @classmethod
    def init(
        cls,
        key: Any,
        classes: int = 90,
        *,
        width: int = 64,
        chainer: bool = False,
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
            The number of classes, without the background: one less than torchvision's number, and
            labels are one less than torchvision's.
        width
            The number of channels of the first convolution.
        chainer
            Whether the model is ChainerCV's, by default with its preset ``"visualize"``:
            ``score_threshold=0.6``; ``"evaluate"`` is 0.01.  ChainerCV has no limits, which large
            numbers as ``candidates`` and ``detections`` give.  See the attribute.
        weight_init
            ``init(key, shape, dtype)`` for all weights; by default uniform numbers with the
            variance that torchvision gives its weights.
        dtype
            The dtype of the parameters.
        settings
            Other attributes: ``score_threshold``, ``nms_threshold``, ``candidates``,
            ``detections``.
        """
        positive(cls, classes=classes, width=width)
        boxes = _BOXES[cls._size, chainer]
        options = {"weight_init": weight_init, "dtype": dtype}
        first, second = random.split(key)
        backbone = VGG16Extractor.init(
            first, size=cls._size, width=width, chainer=chainer, **options
        )
        outputs = [outputs * width for _, outputs, *_ in _EXTRA[cls._size]]
        channels = [8 * width, 16 * width, *outputs]
        head = SSDHead.init(second, channels, classes, boxes.aspect_ratios, **options)
        if chainer:
            settings = {"score_threshold": 0.6, **settings}
        settings = {"mean": _MEAN[chainer], "chainer": chainer, **settings}
        return cls(backbone, head, cls._size, *boxes, **settings)


@public("fdbr.vision.models")
@frozen
class SSD512_VGG16(SSD300_VGG16):
    """`SSD` on images of 512x512 pixels with the layers of VGG16.

    The layers and default boxes are the paper's, as in ChainerCV's ``SSD512``, which the model is
    with ``chainer=True``; the fields are those of `SSD300_VGG16`.
    """

    _size: ClassVar[int] = 512


# --- MobileNetV3 --------------------------------------------------------------------------


@public("fdbr.vision.models")
@frozen
class MobileNetExtractor(Network):
    """The layers of MobileNetV3 and more after them, which give SSDLite's feature maps.

    Attributes
    ----------
    features
        The layers up to the first feature map, and those up to the second.
    extra
        The layers between the others.
    """

    features: tuple[Sequential, ...]
    extra: tuple[Sequential, ...]

    def torch_names(self) -> dict[str, str]:
        """Return torchvision's names, which count the layers of the divided block from 1."""
        divided = self.features[1][0]
        return {
            f"features[1].layers[0].layers[{i}]": f"features.1.0.{i + 1}"
            for i in range(len(divided))
        }

    def _forward(self, of: Any, x: Any) -> list[Any]:
        """Return the feature maps."""
        maps = []
        for block in (*of.features, *of.extra):
            x = block(x)
            maps.append(x)
        return maps


@public("fdbr.vision.models")
@frozen
class SSDLite320_MobileNet_V3_Large(SSD):
    """`SSD` on images of 320x320 pixels with depthwise convolutions.

    Howard et al., *Searching for MobileNetV3*, ICCV 2019, section 6.3; torchvision's
    ``ssdlite320_mobilenet_v3_large``: the layers of MobileNetV3 after the first feature map have
    half its channels.

    >>> import fdbr
    >>> from fdbr import vision
    >>> key = fdbr.random.key(0)
    >>> model = vision.models.SSDLite320_MobileNet_V3_Large.init(key, 3, width=0.1)
    >>> model.size, len(model.head.regression_head.module_list)
    (320, 6)
    """

    @classmethod
    def init(
        cls,
        key: Any,
        classes: int = 90,
        *,
        width: float = 1.0,
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
            The factor of the numbers of channels.
        weight_init, dtype, settings
            As for `SSD300_VGG16.init`.
        """
        positive(cls, classes=classes)
        first, second = random.split(key)
        of = Builder(first, weight_init, dtype, eps=1e-3, momentum=0.03, stddev=0.03)
        stages = [*MobileNet_V3_Large._stages[:12], *_HALF_TAIL]
        inputs = eighths(16 * width)
        blocks: list[Any] = [of.unit(3, inputs, 3, 2, act=ops.hard_swish)]
        for stage in stages:
            blocks.append(InvertedResidual.build(of, inputs, stage, width))
            inputs = eighths(stage[2] * width)
        blocks.append(of.unit(inputs, 6 * inputs, 1, act=ops.hard_swish))
        divided = blocks[13].block  # the first feature map is within this block
        features = (
            Sequential(*blocks[:13], divided[0]),
            Sequential(divided[1:], *blocks[14:]),
        )
        channels = [divided[0][0].weight.shape[0], 6 * inputs]
        extra = []
        for outputs in (512, 256, 256, 128):
            outputs = max(16, int(outputs * width))
            half = outputs // 2
            units = [
                of.unit(channels[-1], half, 1, act=ops.relu6),
                of.unit(half, half, 3, 2, act=ops.relu6, groups=half),
                of.unit(half, outputs, 1, act=ops.relu6),
            ]
            extra.append(Sequential(*units))
            channels.append(outputs)
        options = {"weight_init": weight_init, "dtype": dtype}
        head = SSDHead.init(second, channels, classes, _LITE.aspect_ratios, light=True, **options)
        defaults = {
            "score_threshold": 0.001,
            "nms_threshold": 0.55,
            "candidates": 300,
            "detections": 300,
            "mean": (127.5,) * 3,
            "std": (127.5,) * 3,
        }
        backbone = MobileNetExtractor(features, tuple(extra))
        return cls(backbone, head, 320, *_LITE, **{**defaults, **settings})


_HALF_TAIL = ((5, 672, 80, True, True, 2), (5, 480, 80, True, True, 1), (5, 480, 80, True, True, 1))
