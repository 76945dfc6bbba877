"""MobileNetV3: depthwise convolutions between 1x1 convolutions."""

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np

from fdbr import ops
from fdbr.errors.public import public
from fdbr.nn import initializers
from fdbr.nn.composite import Composite
from fdbr.nn.dropout import Dropout
from fdbr.nn.models.building import Builder, positive
from fdbr.nn.models.network import ImageNetwork
from fdbr.nn.pooling.dimensions import AdaptiveAvgPool2d
from fdbr.nn.sequential import Sequential
from fdbr.tree import frozen, static

__all__ = ["InvertedResidual", "MobileNetV3", "MobileNet_V3_Large", "MobileNet_V3_Small"]

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
    def build(cls, of: Builder, inputs: int, stage: Stage, width: float) -> Self:
        """Return a block of a `MobileNetV3`."""
        kernel, inner, outputs, excited, hard, stride = stage
        act = ops.hard_swish if hard else ops.relu
        inner, outputs = eighths(inner * width), eighths(outputs * width)
        layers: list[Any] = [] if inner == inputs else [of.unit(inputs, inner, 1, act=act)]
        layers.append(of.unit(inner, inner, kernel, stride, act=act, groups=inner))
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
        for stage in stages:
            layers.append(InvertedResidual.build(of, inputs, stage, width))
            inputs = eighths(stage[2] * width)
        layers.append(of.unit(inputs, 6 * inputs, 1, act=ops.hard_swish))
        hidden = eighths(cls._hidden * width)
        first, last = of.linear(6 * inputs, hidden, 0.01), of.linear(hidden, classes, 0.01)
        classifier = Sequential(first, ops.hard_swish, Dropout(dropout), last)
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
