"""ConvNeXt: a convolutional network with design choices of transformers."""

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np

from fdbr import ops
from fdbr.errors.public import public
from fdbr.nn import initializers
from fdbr.nn.convolution.convnext import ConvNeXtBlock
from fdbr.nn.models.building import Builder, numbers_of_blocks, positive
from fdbr.nn.models.network import ImageNetwork
from fdbr.nn.normalization.layers import LayerNorm
from fdbr.nn.pooling.dimensions import AdaptiveAvgPool2d
from fdbr.nn.pooling.layers import Flatten
from fdbr.nn.sequential import Sequential
from fdbr.tree import frozen

__all__ = [
    "ConvNeXt",
    "ConvNeXt_Base",
    "ConvNeXt_Large",
    "ConvNeXt_Small",
    "ConvNeXt_Tiny",
    "LayerNorm2d",
]


@public("fdbr.nn.models")
@frozen
class LayerNorm2d(LayerNorm):
    """`LayerNorm` over the channels of images, axis 1."""

    def __call__(self, x: Any) -> Any:
        """Return the normalised images."""
        return ops.layer_norm(x, self.weight, self.bias, axis=1, eps=self.eps)


@public("fdbr.nn.models")
@frozen
class ConvNeXt(ImageNetwork):
    """ConvNeXt; its subclasses set the sizes.

    Liu et al., *A ConvNet for the 2020s*, CVPR 2022.  The fields are torchvision's modules.  Images
    must have at least 32x32 pixels.

    Attributes
    ----------
    features
        A stem, and stages of blocks with a 2x2 convolution between them.
    avgpool
        Means over all pixels.
    classifier
        A layer normalisation, and a fully connected layer.

    >>> import fdbr
    >>> from fdbr import nn
    >>> model = nn.models.ConvNeXt_Tiny.init(fdbr.random.key(0), 10, width=4, depths=(1, 1, 2, 1))
    >>> images = fdbr.ops.ones((2, 3, 32, 32), dtype="float32")
    >>> logits, model = model.train(images, key=fdbr.random.key(1))
    >>> model.extract(images, ["features[3]"])["features[3]"].shape
    (2, 8, 4, 4)
    """

    features: Sequential
    avgpool: AdaptiveAvgPool2d
    classifier: Sequential

    _width: ClassVar[int] = 96
    _depths: ClassVar[tuple[int, ...]] = (3, 3, 9, 3)
    _rate: ClassVar[float] = 0.1

    @classmethod
    def init(
        cls,
        key: Any,
        classes: int = 1000,
        *,
        width: int | None = None,
        depths: Sequence[int] | None = None,
        stochastic_depth_prob: float | None = None,
        layer_scale: float = 1e-6,
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
            The number of channels of the first stage; each further stage has twice as many.  By
            default the class's.
        depths
            The number of blocks of each stage; by default the class's.
        stochastic_depth_prob
            The probability that an example skips the last block in `train`; the probabilities of
            the blocks before rise to it from 0.  By default the class's.
        layer_scale
            The initial factor of the residual branches.
        in_channels
            The number of channels of the images.
        weight_init
            ``init(key, shape, dtype)`` for all weights; by default uniform numbers of standard
            deviation 0.02, as torchvision's.
        dtype
            The dtype of the parameters.
        """
        width = cls._width if width is None else width
        depths = numbers_of_blocks(cls, cls._depths if depths is None else depths)
        rate = cls._rate if stochastic_depth_prob is None else stochastic_depth_prob
        positive(cls, classes=classes, width=width, in_channels=in_channels)
        of = Builder(key, weight_init, dtype, stddev=0.02)

        def norm(count: int) -> LayerNorm2d:
            return LayerNorm2d.init(of.key(), count, eps=1e-6, dtype=dtype)

        layers: list[Any] = [Sequential(of.conv(in_channels, width, 4, 4, padding=0), norm(width))]
        done, last = 0, max(sum(depths) - 1, 1)
        for stage, depth in enumerate(depths):
            channels = width * 2**stage
            if stage:
                down = of.conv(channels // 2, channels, 2, 2, padding=0)
                layers.append(Sequential(norm(channels // 2), down))
            blocks = []
            for _ in range(depth):
                options = of.options()
                blocks.append(
                    ConvNeXtBlock.init(
                        of.key(), channels, layer_scale, rate * done / last, **options
                    )
                )
                done += 1
            layers.append(Sequential(*blocks))
        classifier = Sequential(norm(channels), Flatten(), of.linear(channels, classes))
        return cls(Sequential(*layers), AdaptiveAvgPool2d(1), classifier)

    def _forward(self, of: Any, x: Any) -> Any:
        return of.classifier(of.avgpool(of.features(x)))


@public("fdbr.nn.models")
@frozen
class ConvNeXt_Tiny(ConvNeXt):
    """`ConvNeXt` of 96 channels and 18 blocks: 28,589,128 parameters."""


@public("fdbr.nn.models")
@frozen
class ConvNeXt_Small(ConvNeXt):
    """`ConvNeXt` of 96 channels and 36 blocks: 50,223,688 parameters."""

    _depths: ClassVar[tuple[int, ...]] = (3, 3, 27, 3)
    _rate: ClassVar[float] = 0.4


@public("fdbr.nn.models")
@frozen
class ConvNeXt_Base(ConvNeXt_Small):
    """`ConvNeXt` of 128 channels and 36 blocks: 88,591,464 parameters."""

    _width: ClassVar[int] = 128
    _rate: ClassVar[float] = 0.5


@public("fdbr.nn.models")
@frozen
class ConvNeXt_Large(ConvNeXt_Base):
    """`ConvNeXt` of 192 channels and 36 blocks: 197,767,336 parameters."""

    _width: ClassVar[int] = 192
