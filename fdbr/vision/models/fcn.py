"""Segmenters of torchvision: FCN, DeepLabv3 and LR-ASPP."""

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np

from fdbr import ops
from fdbr.errors.checks import integer
from fdbr.errors.public import public
from fdbr.nn.composite import Composite
from fdbr.nn.convolution.layers import Conv
from fdbr.nn.dropout import Dropout
from fdbr.nn.models.building import Builder
from fdbr.nn.models.mobilenet import MobileNet_V3_Large
from fdbr.nn.models.resnet import ResNet, ResNet50, ResNet101
from fdbr.nn.normalization.batches import BatchNorm
from fdbr.nn.pooling.dimensions import AdaptiveAvgPool2d, MaxPool2d
from fdbr.nn.sequential import Sequential
from fdbr.random import fold_in
from fdbr.tree import frozen, static
from fdbr.vision.models.base import Prepared, SegmentationLogits, Segmenter, resized

__all__ = [
    "ASPP",
    "DeepLabV3_MobileNet_V3_Large",
    "DeepLabV3_ResNet50",
    "DeepLabV3_ResNet101",
    "FCN_ResNet50",
    "FCN_ResNet101",
    "LRASPP_MobileNet_V3_Large",
]


# --- the networks below -----------------------------------------------------------------


@frozen
class ResNetFeatures(Composite):
    """A residual network without its last layers; returns the outputs of the last two stages."""

    conv1: Conv
    bn1: BatchNorm
    maxpool: MaxPool2d
    layer1: Sequential
    layer2: Sequential
    layer3: Sequential
    layer4: Sequential

    @classmethod
    def of(cls, network: ResNet) -> Self:
        """Return the layers of a network."""
        names = "conv1", "bn1", "maxpool", "layer1", "layer2", "layer3", "layer4"
        return cls(*(getattr(network, name) for name in names))

    def _forward(self, of: Any, x: Any) -> tuple[Any, Any]:
        x = of.maxpool(ops.relu(of.bn1(of.conv1(x))))
        x = of.layer3(of.layer2(of.layer1(x)))
        return x, of.layer4(x)


@frozen
class MobileNetFeatures(Composite):
    """The layers of a MobileNetV3; returns an earlier output, of stride 8, and the last one."""

    layers: tuple[Any, ...]
    early: int = static()

    torch_names: ClassVar[dict[str, str]] = {"layers": ""}

    @classmethod
    def of(cls, network: MobileNet_V3_Large) -> Self:
        """Return the features of a network."""
        strided = [i for i, stage in enumerate(network._stages, 1) if stage[-1] > 1]
        return cls(network.features.layers, strided[-3])

    def _forward(self, of: Any, x: Any) -> tuple[Any, Any]:
        early = None
        for i, layer in enumerate(of.layers):
            x = layer(x)
            if i == self.early:
                early = x
        return early, x


def _backbone(
    key: Any, network: Any, width: Any, depths: Any, weight_init: Any, dtype: Any
) -> tuple[Any, int, int]:
    """Return a dilated network without its last layers, and the channels of its two outputs."""
    options: dict[str, Any] = {"width": width, "weight_init": weight_init, "dtype": dtype}
    if issubclass(network, ResNet):
        dilated = False, True, True
        whole = network.init(key, 1, depths=depths, replace_stride_with_dilation=dilated, **options)
        return ResNetFeatures.of(whole), 16 * width, 32 * width
    features = MobileNetFeatures.of(network.init(key, 1, dilated=True, **options))
    early = features.layers[features.early].block[-1][0].weight.shape[0]
    return features, early, features.layers[-1][0].weight.shape[0]


# --- the layers above -------------------------------------------------------------------


def _fcn_head(of: Builder, inputs: int, classes: int) -> Sequential:
    inner = max(inputs // 4, 1)
    conv, norm = of.conv(inputs, inner, 3, bias=False), of.batch_norm(inner)
    return Sequential(conv, norm, ops.relu, Dropout(0.1), of.conv(inner, classes, 1))


@public("fdbr.vision.models")
@frozen
class ASPP(Composite):
    """Atrous spatial pyramid pooling: convolutions of several dilations side by side.

    Chen, Papandreou, Schroff & Adam, *Rethinking atrous convolution for semantic image
    segmentation*, 2017.  The fields are torchvision's modules.

    Attributes
    ----------
    convs
        A 1x1 convolution, 3x3 convolutions of each dilation, and the mean of all pixels with a 1x1
        convolution.
    project
        A 1x1 convolution of all outputs, and dropout.

    >>> import fdbr
    >>> layer = ASPP.init(fdbr.random.key(0), 8, 4, rates=(2, 4))
    >>> layer(fdbr.ops.ones((1, 8, 9, 9), dtype="float32")).shape
    (1, 4, 9, 9)
    """

    convs: tuple[Sequential, ...]
    project: Sequential

    @classmethod
    def init(
        cls,
        key: Any,
        in_channels: int,
        out_channels: int = 256,
        *,
        rates: Sequence[int] = (12, 24, 36),
        dropout: float = 0.5,
        weight_init: Any = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a layer with fresh parameters.

        Parameters
        ----------
        key
            A random key.
        in_channels, out_channels
            The numbers of channels.
        rates
            The dilations.
        dropout
            The rate of dropout in `train`.
        weight_init
            ``init(key, shape, dtype)`` for all weights.
        dtype
            The dtype of the parameters.
        """
        of = Builder(key, weight_init, dtype)
        atrous = [
            of.unit(in_channels, out_channels, 3, padding=rate, dilation=rate) for rate in rates
        ]
        pooled = of.unit(in_channels, out_channels, 1)
        convs = (
            of.unit(in_channels, out_channels, 1),
            *atrous,
            Sequential(AdaptiveAvgPool2d(1), *pooled),
        )
        project = of.unit(len(convs) * out_channels, out_channels, 1)
        return cls(convs, Sequential(*project, Dropout(dropout)))

    def _forward(self, of: Any, x: Any) -> Any:
        """Return the output, of the height and width of ``x``."""
        *convs, pooled = of.convs
        mean = pooled(x)
        parts = [
            *(conv(x) for conv in convs),
            ops.broadcast_to(mean, (*mean.shape[:2], *x.shape[2:])),
        ]
        return of.project(ops.concat(parts, axis=1))


def _deeplab_head(of: Builder, inputs: int, classes: int, channels: int) -> Sequential:
    init = of.options()["weight_init"]
    aspp = ASPP.init(of.key(), inputs, channels, weight_init=init, dtype=of.dtype)
    conv, norm = of.conv(channels, channels, 3, bias=False), of.batch_norm(channels)
    return Sequential(aspp, conv, norm, ops.relu, of.conv(channels, classes, 1))


@frozen
class LRASPPHead(Composite):
    """The layers of `LRASPP_MobileNet_V3_Large` after its backbone."""

    cbr: Sequential
    scale: Sequential
    low_classifier: Conv
    high_classifier: Conv

    @classmethod
    def build(cls, of: Builder, low: int, high: int, classes: int, channels: int) -> Self:
        """Return the layers."""
        return cls(
            of.unit(high, channels, 1),
            Sequential(AdaptiveAvgPool2d(1), of.conv(high, channels, 1, bias=False), ops.sigmoid),
            of.conv(low, classes, 1),
            of.conv(channels, classes, 1),
        )

    def _forward(self, of: Any, low: Any, high: Any) -> Any:
        x = of.cbr(high) * of.scale(high)
        x = resized(x, low.shape[2:], align_corners=False)
        return of.low_classifier(low) + of.high_classifier(x)


# --- the models -------------------------------------------------------------------------


@frozen
class _TorchSegmenter(Segmenter):
    """The base class of torchvision's segmenters: how images are prepared."""

    _mean: ClassVar[tuple[float, float, float]] = (0.485 * 255, 0.456 * 255, 0.406 * 255)
    _std: ClassVar[tuple[float, float, float]] = (0.229 * 255, 0.224 * 255, 0.225 * 255)

    def prepare(self, images: Any) -> Prepared:
        """Return images of one size as a batch, with the shorter side of the model's ``size``."""
        prepared = super().prepare(images)
        size: int | None = self.size  # type: ignore[attr-defined]
        if size is None:
            return prepared
        height, width = prepared.batch.shape[2:]
        short = min(height, width)
        new = (size * height // short, size * width // short)
        batch = prepared.batch
        if new != (height, width):
            batch = ops.interpolate(batch, new, mode="bilinear", antialias=True)
        return prepared._replace(batch=batch, sizes=np.array([new] * len(images), np.int32))


@public("fdbr.vision.models")
@frozen
class FCN_ResNet50(_TorchSegmenter):
    """A fully convolutional network over a dilated ResNet-50: 35,322,218 parameters.

    Long, Shelhamer & Darrell, *Fully convolutional networks for semantic segmentation*, CVPR 2015.
    The fields are torchvision's modules.

    Attributes
    ----------
    backbone
        The residual network, whose last two stages are dilated.
    classifier
        The layers after it.
    aux_classifier
        Those after its third stage, whose loss helps training, or `None`.
    size
        The length of the shorter side to which `predict` resizes images, or `None`.

    >>> import fdbr
    >>> from fdbr import vision
    >>> model = vision.models.FCN_ResNet50.init(
    ...     fdbr.random.key(0), 3, width=2, depths=(1, 1, 1, 1), size=None
    ... )
    >>> images = fdbr.random.uniform(fdbr.random.key(1), (2, 3, 33, 40), "float32") * 255
    >>> [found.shape for found in model.predict(images)]
    [(33, 40), (33, 40)]
    >>> labels = fdbr.ops.zeros((2, 33, 40), dtype="int32")
    >>> losses, model = model.losses(images, labels, key=fdbr.random.key(2))
    >>> sorted(losses)
    ['aux', 'out']
    """

    backbone: ResNetFeatures | MobileNetFeatures
    classifier: Any
    aux_classifier: Sequential | None
    size: int | None = static(default=520)

    _network: ClassVar[Any] = ResNet50

    @classmethod
    def init(
        cls,
        key: Any,
        classes: int = 21,
        *,
        width: Any = None,
        depths: Sequence[int] | None = None,
        channels: int = 256,
        aux_loss: bool = True,
        size: int | None = 520,
        weight_init: Any = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a model with fresh parameters.

        Parameters
        ----------
        key
            A random key.
        classes
            The number of classes, with that of the background.
        width, depths
            As for the network below, such as `fdbr.nn.models.ResNet50`; MobileNetV3 has no depths.
        channels
            The number of channels of DeepLabv3's layers after the network.
        aux_loss
            Whether the model has the auxiliary classifier.
        size
            The length of the shorter side to which `predict` resizes images; with `None` it does
            not.
        weight_init
            ``init(key, shape, dtype)`` for all weights.
        dtype
            The dtype of the parameters.
        """
        where = f"fdbr.vision.models.{cls.__name__}.init"
        integer(where, "classes", classes, least=1)
        if width is None:
            width = 64 if issubclass(cls._network, ResNet) else 1.0
        backbone, early, last = _backbone(
            fold_in(key, 0), cls._network, width, depths, weight_init, dtype
        )
        of = Builder(fold_in(key, 1), weight_init, dtype)
        classifier = cls._head(of, last, classes, channels)
        aux = _fcn_head(of, early, classes) if aux_loss else None
        return cls(backbone, classifier, aux, size)

    @classmethod
    def _head(cls, of: Builder, inputs: int, classes: int, channels: int) -> Any:
        return _fcn_head(of, inputs, classes)

    def _forward(self, of: Any, x: Any) -> Any:
        size = x.shape[2:]
        early, last = of.backbone(x)
        out = resized(of.classifier(last), size, align_corners=False)
        if not of.training:
            return out
        if self.aux_classifier is None:
            return SegmentationLogits(out)
        return SegmentationLogits(out, resized(of.aux_classifier(early), size, align_corners=False))


@public("fdbr.vision.models")
@frozen
class FCN_ResNet101(FCN_ResNet50):
    """`FCN_ResNet50` over a ResNet-101: 54,314,346 parameters."""

    _network: ClassVar[Any] = ResNet101


@public("fdbr.vision.models")
@frozen
class DeepLabV3_ResNet50(FCN_ResNet50):
    """DeepLabv3, `ASPP` over a dilated ResNet-50: 42,004,074 parameters.

    Chen, Papandreou, Schroff & Adam, *Rethinking atrous convolution for semantic image
    segmentation*, 2017.  The fields are torchvision's modules.

    >>> import fdbr
    >>> from fdbr import vision
    >>> model = vision.models.DeepLabV3_ResNet50.init(
    ...     fdbr.random.key(0), 3, width=2, depths=(1, 1, 1, 1), channels=4, size=None
    ... )
    >>> model(fdbr.ops.ones((1, 3, 33, 40), dtype="float32")).shape
    (1, 3, 33, 40)
    """

    @classmethod
    def _head(cls, of: Builder, inputs: int, classes: int, channels: int) -> Any:
        return _deeplab_head(of, inputs, classes, channels)


@public("fdbr.vision.models")
@frozen
class DeepLabV3_ResNet101(DeepLabV3_ResNet50):
    """`DeepLabV3_ResNet50` over a ResNet-101: 60,996,202 parameters."""

    _network: ClassVar[Any] = ResNet101


@public("fdbr.vision.models")
@frozen
class DeepLabV3_MobileNet_V3_Large(DeepLabV3_ResNet50):
    """`DeepLabV3_ResNet50` over a dilated MobileNetV3: 11,029,328 parameters."""

    _network: ClassVar[Any] = MobileNet_V3_Large


@public("fdbr.vision.models")
@frozen
class LRASPP_MobileNet_V3_Large(_TorchSegmenter):
    """LR-ASPP, a light head over a dilated MobileNetV3: 3,221,538 parameters.

    Howard et al., *Searching for MobileNetV3*, ICCV 2019, section 6.4.  The fields are
    torchvision's modules.

    Attributes
    ----------
    backbone, classifier
        The network, and the layers after it.
    size
        The length of the shorter side to which `predict` resizes images, or `None`.

    >>> import fdbr
    >>> from fdbr import vision
    >>> model = vision.models.LRASPP_MobileNet_V3_Large.init(fdbr.random.key(0), 3, width=0.25)
    >>> model(fdbr.ops.ones((1, 3, 33, 40), dtype="float32")).shape
    (1, 3, 33, 40)
    """

    backbone: MobileNetFeatures
    classifier: LRASPPHead
    size: int | None = static(default=520)

    @classmethod
    def init(
        cls,
        key: Any,
        classes: int = 21,
        *,
        width: float = 1.0,
        channels: int = 128,
        size: int | None = 520,
        weight_init: Any = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a model with fresh parameters.

        Parameters
        ----------
        key
            A random key.
        classes
            The number of classes, with that of the background.
        width
            The factor of the numbers of channels of the network.
        channels
            The number of channels of the layers after the network.
        size, weight_init, dtype
            As for `FCN_ResNet50.init`.
        """
        integer("fdbr.vision.models.LRASPP_MobileNet_V3_Large.init", "classes", classes, least=1)
        backbone, low, high = _backbone(
            fold_in(key, 0), MobileNet_V3_Large, width, None, weight_init, dtype
        )
        of = Builder(fold_in(key, 1), weight_init, dtype)
        return cls(backbone, LRASPPHead.build(of, low, high, classes, channels), size)

    def _forward(self, of: Any, x: Any) -> Any:
        out = resized(of.classifier(*of.backbone(x)), x.shape[2:], align_corners=False)
        return SegmentationLogits(out) if of.training else out
