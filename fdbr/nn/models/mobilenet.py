"""MobileNetV2 and V3: depthwise convolutions between 1x1 convolutions."""

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np

from fdbr import ops
from fdbr.errors.public import public
from fdbr.nn import initializers
from fdbr.nn.composite import Composite
from fdbr.nn.convolution.layers import Conv
from fdbr.nn.dropout import Dropout
from fdbr.nn.models.building import Builder, positive
from fdbr.nn.models.network import ImageNetwork
from fdbr.nn.pooling.dimensions import AdaptiveAvgPool2d
from fdbr.nn.sequential import Sequential
from fdbr.tree import frozen, static

__all__ = [
    "InvertedResidual",
    "InvertedResidualV2",
    "MobileNetV2",
    "MobileNetV3",
    "MobileNet_V3_Large",
    "MobileNet_V3_Small",
]

Stage = tuple[int, int, int, bool, bool, int]
"""The settings of a block: kernel, inner and output channels, whether it has squeeze and
excitation, whether its activation is `hard_swish` or `relu`, and stride.
"""

_SMALL: tuple[Stage, ...] = (
    (3, 16, 16, True, False, 2),
    (3, 72, 24, False, False, 2),
    (3, 88, 24, False, False, 1),
    (5, 96, 40, True, True, 2),
    (5, 240, 40, True, True, 1),
    (5, 240, 40, True, True, 1),
    (5, 120, 48, True, True, 1),
    (5, 144, 48, True, True, 1),
    (5, 288, 96, True, True, 2),
    (5, 576, 96, True, True, 1),
    (5, 576, 96, True, True, 1),
)

_LARGE: tuple[Stage, ...] = (
    (3, 16, 16, False, False, 1),
    (3, 64, 24, False, False, 2),
    (3, 72, 24, False, False, 1),
    (5, 72, 40, True, False, 2),
    (5, 120, 40, True, False, 1),
    (5, 120, 40, True, False, 1),
    (3, 240, 80, False, True, 2),
    (3, 200, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 480, 112, True, True, 1),
    (3, 672, 112, True, True, 1),
    (5, 672, 160, True, True, 2),
    (5, 960, 160, True, True, 1),
    (5, 960, 160, True, True, 1),
)


_V2: tuple[tuple[int, int, int, int], ...] = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""The stages of MobileNetV2: the factor of inner channels, output channels, the number of blocks,
and the stride of the first.
"""


def eighths(count: float) -> int:
    """Round to a multiple of 8, at least 8 and at least nine tenths of the number."""
    near = max(8, int(count + 4) // 8 * 8)
    return near + 8 if near < 0.9 * count else near


@public("fdbr.nn.models")
@frozen
class InvertedResidual(Composite):
    """An inverted residual: expand the channels, convolve each separately, and project.

    Sandler et al., *MobileNetV2*, CVPR 2018, with squeeze and excitation.

    Attributes
    ----------
    block
        The layers.
    residual
        Whether there is a residual connection.
    """

    block: Sequential
    residual: bool = static()

    @classmethod
    def build(cls, of: Builder, inputs: int, stage: Stage, width: float, dilation: int = 1) -> Self:
        """Return a block of a `MobileNetV3`; a dilated one keeps the size of its input."""
        kernel, inner, outputs, excited, hard, stride = stage
        act = ops.hard_swish if hard else ops.relu
        inner, outputs = eighths(inner * width), eighths(outputs * width)
        layers: list[Any] = [] if inner == inputs else [of.unit(inputs, inner, 1, act=act)]
        settings = {
            "groups": inner,
            "dilation": dilation,
            "padding": kernel // 2 * dilation,
        }
        step = stride if dilation == 1 else 1
        layers.append(of.unit(inner, inner, kernel, step, act=act, **settings))
        if excited:
            squeezed = eighths(inner // 4)
            layers.append(of.excitation(inner, squeezed, scale_activation=ops.hard_sigmoid))
        layers.append(of.unit(inner, outputs, 1, act=None))
        return cls(Sequential(*layers), stride == 1 and inputs == outputs)

    def _forward(self, of: Any, x: Any) -> Any:
        """Return the output of the block."""
        y = of.block(x)
        return x + y if self.residual else y


@public("fdbr.nn.models")
@frozen
class InvertedResidualV2(Composite):
    """The block of `MobileNetV2`: expand the channels, convolve each separately, and project.

    Attributes
    ----------
    conv
        The layers.
    residual
        Whether there is a residual connection.
    """

    conv: Sequential
    residual: bool = static()

    def chainer_names(self) -> dict[str, str]:
        """Return the names of ChainerCV's ``ExpandedConv2D`` in files."""
        *units, project, norm = range(len(self.conv))
        names = ("expand", "depthwise")[-len(units) :]
        found: dict[str, str] = {}
        for i, name in zip(units, names, strict=True):
            found |= _unit_names(f"conv.layers[{i}]", name)
        return {
            **found,
            f"conv.layers[{project}]": "project/conv/conv",
            f"conv.layers[{norm}]": "project/bn",
        }

    @classmethod
    def build(
        cls,
        of: Builder,
        inputs: int,
        outputs: int,
        stride: int,
        factor: int,
        settings: dict[str, Any],
    ) -> Self:
        """Return a block of a `MobileNetV2`; ``settings`` are those of its convolutions."""
        inner = inputs * factor
        layers: list[Any] = []
        if factor > 1:
            layers.append(of.unit(inputs, inner, 1, act=ops.relu6))
        layers += [
            of.unit(inner, inner, 3, stride, act=ops.relu6, groups=inner, **settings),
            of.conv(inner, outputs, 1, bias=False),
            of.batch_norm(outputs),
        ]
        return cls(Sequential(*layers), stride == 1 and inputs == outputs)

    def _forward(self, of: Any, x: Any) -> Any:
        """Return the output of the block."""
        y = of.conv(x)
        return x + y if self.residual else y


def _unit_names(path: str, name: str) -> dict[str, str]:
    """Return the names of ChainerCV's ``TFConv2DBNActiv`` for a `Builder.unit`."""
    return {f"{path}.layers[0]": f"{name}/conv/conv", f"{path}.layers[1]": f"{name}/bn"}


@public("fdbr.nn.models")
@frozen
class MobileNetV2(ImageNetwork):
    """MobileNetV2: residual connections between layers of few channels; 3,504,872 parameters.

    Sandler et al., *MobileNetV2: inverted residuals and linear bottlenecks*, CVPR 2018.  The fields
    are torchvision's modules.

    Attributes
    ----------
    features
        A convolution, the blocks, and a convolution.
    classifier
        Dropout and a fully connected layer; with ``chainer`` a 1x1 convolution.

    >>> import fdbr
    >>> from fdbr import nn
    >>> model = nn.models.MobileNetV2.init(fdbr.random.key(0), 10, width=0.25)
    >>> images = fdbr.ops.ones((2, 3, 32, 32), dtype="float32")
    >>> logits, model = model.train(images, key=fdbr.random.key(1))
    >>> model(images).shape
    (2, 10)
    """

    features: Sequential
    classifier: Sequential

    def chainer_names(self) -> dict[str, str]:
        """Return the names of ChainerCV's ``MobileNetV2`` in files."""
        last = len(self.features) - 1
        blocks = {
            f"features.layers[{i}]": f"expanded_conv_{i - 1}" if i > 1 else "expanded_conv"
            for i in range(1, last)
        }
        return {
            **_unit_names("features.layers[0]", "conv"),
            **blocks,
            **_unit_names(f"features.layers[{last}]", "conv1"),
            "classifier.layers[1]": "logits_conv/conv",
        }

    def other_layers(self) -> dict[str, str]:
        """Return ChainerCV's names: ``conv``, ``expanded_conv_1`` …, ``conv1``, ``logits_conv``."""
        last = len(self.features) - 1
        blocks = {
            f"expanded_conv_{i - 1}" if i > 1 else "expanded_conv": f"features.{i}"
            for i in range(1, last)
        }
        ends = {"conv": "features.0", "conv1": f"features.{last}", "logits_conv": "classifier.1"}
        return {**blocks, **ends}

    @classmethod
    def init(
        cls,
        key: Any,
        classes: int = 1000,
        *,
        width: float = 1.0,
        dropout: float | None = None,
        in_channels: int = 3,
        chainer: bool = False,
        weight_init: initializers.Initializer | None = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a model with fresh parameters.

        Parameters
        ----------
        key
            A random key.
        classes
            The number of classes.
        width
            The factor of the numbers of channels.
        dropout
            The rate of dropout in `train`: by default torchvision's 0.2, with ``chainer`` 0.
        in_channels
            The number of channels of the images.
        chainer
            Whether the model is ChainerCV's in all other respects, which has weights of
            TensorFlow: 3x3 convolutions padded as there (``"same"``: with stride 2 and an even
            size more at the end), batch normalisation with ``eps=1e-3`` and ``momentum=1e-3``, and
            a 1x1 convolution instead of the fully connected layer.
        weight_init
            ``init(key, shape, dtype)`` for all weights; by default uniform numbers with the
            variance that torchvision gives its normal ones.
        dtype
            The dtype of the parameters.
        """
        positive(cls, classes=classes, in_channels=in_channels)
        if not width > 0:
            raise ValueError(
                f"fdbr.nn.models.{cls.__name__}.init: width must be a positive number, got "
                f"{width!r}"
            )
        batch: dict[str, Any] = {"eps": 1e-3, "momentum": 1e-3} if chainer else {}
        of = Builder(key, weight_init, dtype, **batch)
        settings = {"padding": "same"} if chainer else {}
        inputs = eighths(32 * width)
        layers: list[Any] = [of.unit(in_channels, inputs, 3, 2, act=ops.relu6, **settings)]
        for factor, channels, count, stride in _V2:
            outputs = eighths(channels * width)
            for i in range(count):
                step = 1 if i else stride
                layers.append(InvertedResidualV2.build(of, inputs, outputs, step, factor, settings))
                inputs = outputs
        hidden = eighths(1280 * max(width, 1.0))
        layers.append(of.unit(inputs, hidden, 1, act=ops.relu6))
        rate = (0.0 if chainer else 0.2) if dropout is None else dropout
        logits = (
            of.conv(hidden, classes, 1, stddev=0.01)
            if chainer
            else of.linear(hidden, classes, 0.01)
        )
        return cls(Sequential(*layers), Sequential(Dropout(rate), logits))

    def _forward(self, of: Any, x: Any) -> Any:
        """Return the logits."""
        is_conv = isinstance(self.classifier[1], Conv)
        x = of.classifier(ops.mean(of.features(x), axis=(2, 3), keepdims=is_conv))
        return ops.reshape(x, x.shape[:2])


@public("fdbr.nn.models")
@frozen
class MobileNetV3(ImageNetwork):
    """MobileNetV3; the subclasses set the sizes.

    Howard et al., *Searching for MobileNetV3*, ICCV 2019.  The fields are torchvision's modules.

    Attributes
    ----------
    features
        A convolution, the blocks, and a convolution.
    avgpool
        Means over all pixels.
    classifier
        Two fully connected layers with dropout between.

    >>> import fdbr
    >>> from fdbr import nn
    >>> model = nn.models.MobileNet_V3_Small.init(fdbr.random.key(0), 10, width=0.25)
    >>> images = fdbr.ops.ones((2, 3, 32, 32), dtype="float32")
    >>> logits, model = model.train(images, key=fdbr.random.key(1))
    >>> model(images).shape
    (2, 10)
    """

    features: Sequential
    avgpool: AdaptiveAvgPool2d
    classifier: Sequential

    _stages: ClassVar[tuple[Stage, ...]] = _LARGE
    _hidden: ClassVar[int] = 1280

    @classmethod
    def init(
        cls,
        key: Any,
        classes: int = 1000,
        *,
        width: float = 1.0,
        blocks: Sequence[int] | None = None,
        dropout: float = 0.2,
        dilated: bool = False,
        in_channels: int = 3,
        weight_init: initializers.Initializer | None = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a model with fresh parameters.

        Parameters
        ----------
        key
            A random key.
        classes
            The number of classes.
        width
            The factor of the numbers of channels.
        blocks
            The indices of the paper's blocks that the model has, from 0; by default all.
        dropout
            The rate of dropout in `train`.
        dilated
            Whether the last stage keeps the size of its input, and has convolutions dilated by 2,
            as in models of segmentation.
        in_channels
            The number of channels of the images.
        weight_init
            ``init(key, shape, dtype)`` for all weights; by default uniform numbers with the
            variance that torchvision gives its normal ones.
        dtype
            The dtype of the parameters.
        """
        positive(cls, classes=classes, in_channels=in_channels)
        if not width > 0:
            raise ValueError(
                f"fdbr.nn.models.{cls.__name__}.init: width must be a positive number, got "
                f"{width!r}"
            )
        of = Builder(key, weight_init, dtype, eps=1e-3, momentum=0.01)
        stages = cls._stages if blocks is None else [cls._stages[i] for i in blocks]
        inputs = eighths(16 * width)
        layers: list[Any] = [of.unit(in_channels, inputs, 3, 2, act=ops.hard_swish)]
        last = max((i for i, stage in enumerate(stages) if stage[-1] > 1), default=len(stages))
        for i, stage in enumerate(stages):
            dilation = 2 if dilated and i >= last else 1
            layers.append(InvertedResidual.build(of, inputs, stage, width, dilation))
            inputs = eighths(stage[2] * width)
        layers.append(of.unit(inputs, 6 * inputs, 1, act=ops.hard_swish))
        hidden = eighths(cls._hidden * width)
        first, second = of.linear(6 * inputs, hidden, 0.01), of.linear(hidden, classes, 0.01)
        classifier = Sequential(first, ops.hard_swish, Dropout(dropout), second)
        return cls(Sequential(*layers), AdaptiveAvgPool2d(1), classifier)

    def _forward(self, of: Any, x: Any) -> Any:
        """Return the logits."""
        x = of.avgpool(of.features(x))
        return of.classifier(ops.reshape(x, x.shape[:2]))


@public("fdbr.nn.models")
@frozen
class MobileNet_V3_Large(MobileNetV3):
    """`MobileNetV3` with fifteen blocks: 5,483,032 parameters."""


@public("fdbr.nn.models")
@frozen
class MobileNet_V3_Small(MobileNetV3):
    """`MobileNetV3` with eleven blocks: 2,542,856 parameters."""

    _stages: ClassVar[tuple[Stage, ...]] = _SMALL
    _hidden: ClassVar[int] = 1024
