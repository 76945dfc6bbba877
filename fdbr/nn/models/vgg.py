"""VGG: stages of convolutions with 3x3 kernels, and three fully connected layers."""

import itertools
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np

from fdbr import ops
from fdbr.errors.public import public
from fdbr.nn import initializers
from fdbr.nn.convolution.layers import Conv
from fdbr.nn.dropout import Dropout
from fdbr.nn.models.building import Builder, numbers_of_blocks, positive
from fdbr.nn.models.network import ImageNetwork
from fdbr.nn.normalization.batches import BatchNorm
from fdbr.nn.pooling.dimensions import AdaptiveAvgPool2d, MaxPool2d
from fdbr.nn.sequential import Lambda, Sequential
from fdbr.tree import frozen

__all__ = ["VGG", "VGG11", "VGG13", "VGG16", "VGG19"]


@public("fdbr.nn.models")
@frozen
class VGG(ImageNetwork):
    """VGG: stages of convolutions with 3x3 kernels, and three fully connected layers.

    Simonyan & Zisserman, *Very deep convolutional networks for large-scale image recognition*, ICLR
    2015.  The fields are torchvision's modules.  Images must have at least 32x32 pixels.

    Attributes
    ----------
    features
        Convolutions, rectifiers, and a pooling after each stage.
    avgpool
        An adaptive pooling of images of any size to 7x7 means.
    classifier
        Fully connected layers, rectifiers and dropout.

    >>> import fdbr
    >>> from fdbr import nn
    >>> model = nn.models.VGG16.init(fdbr.random.key(0), 10, width=2, hidden=8)
    >>> image = fdbr.ops.ones((3, 32, 32), dtype="float32")
    >>> model(image).shape
    (10,)
    >>> {name: out.shape for name, out in model.extract(image, ["features[30]", "fc7"]).items()}
    {'features[30]': (16, 1, 1), 'fc7': (8,)}
    """

    features: Sequential
    avgpool: AdaptiveAvgPool2d
    classifier: Sequential

    _depths: ClassVar[tuple[int, ...]] = (2, 2, 3, 3, 3)

    def chainer_names(self) -> dict[str, Any]:
        """Return the names of Chainer's ``VGG16Layers`` and ChainerCV's ``VGG16`` in files."""
        positions = self._positions(Conv, "conv") | self._positions(BatchNorm, "bn")
        names = {f"features.layers[{i}]": (name, f"~{name}/conv") for name, i in positions.items()}
        return {**names, **{f"classifier.layers[{i}]": f"fc{6 + i // 3}" for i in (0, 3, 6)}}

    def other_layers(self) -> dict[str, str]:
        """Return Chainer's names of layers: ``conv1_1`` to ``pool5``, rectified, ``fc6`` to
        ``fc8``.
        """
        names = {name: f"features[{i}]" for name, i in self._positions(Lambda, "conv").items()}
        pools = [i for i, layer in enumerate(self.features) if isinstance(layer, MaxPool2d)]
        names |= {f"pool{stage}": f"features[{i}]" for stage, i in enumerate(pools, 1)}
        return names | {"fc6": "classifier[1]", "fc7": "classifier[4]", "fc8": "classifier[6]"}

    def _positions(self, kind: type, name: str) -> dict[str, int]:
        """Name the layers of a type by their stages and positions within them."""
        positions: dict[str, int] = {}
        stage = position = 1
        for i, layer in enumerate(self.features):
            if isinstance(layer, kind):
                positions[f"{name}{stage}_{position}"] = i
                position += 1
            elif isinstance(layer, MaxPool2d):
                stage, position = stage + 1, 1
        return positions

    @classmethod
    def init(
        cls,
        key: Any,
        classes: int = 1000,
        *,
        batch_norm: bool = False,
        dropout: float = 0.5,
        width: int = 64,
        depths: Sequence[int] | None = None,
        hidden: int = 4096,
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
        batch_norm
            Whether convolutions are followed by batch normalisation (torchvision's ``vgg16_bn``).
        dropout
            The rate of the two dropouts in `train`.
        width
            The number of channels of the first stage; each stage doubles it, up to ``8 * width``.
        depths
            The number of convolutions of each stage; by default the class's.
        hidden
            The number of features of the two hidden fully connected layers.
        in_channels
            The number of channels of the images.
        weight_init
            ``init(key, shape, dtype)`` for all weights; by default uniform numbers with the
            variance that torchvision gives its normal ones.
        dtype
            The dtype of the parameters.
        """
        positive(cls, classes=classes, width=width, hidden=hidden, in_channels=in_channels)
        depths = numbers_of_blocks(cls, cls._depths if depths is None else depths)
        of = Builder(key, weight_init, dtype)
        layers: list[Any] = []
        inputs = in_channels
        for stage, depth in enumerate(depths):
            outputs = width * min(2**stage, 8)
            for _ in range(depth):
                layers.append(of.conv(inputs, outputs, 3))
                layers += [of.batch_norm(outputs), ops.relu] if batch_norm else [ops.relu]
                inputs = outputs
            layers.append(MaxPool2d(2))
        sizes = (inputs * 49, hidden, hidden, classes)
        first, second, last = (of.linear(n, m, 0.01) for n, m in itertools.pairwise(sizes))
        classifier = (first, ops.relu, Dropout(dropout), second, ops.relu, Dropout(dropout), last)
        return cls(Sequential(*layers), AdaptiveAvgPool2d((7, 7)), Sequential(*classifier))

    def _forward(self, of: Any, x: Any) -> Any:
        """Return the logits."""
        x = of.avgpool(of.features(x))
        return of.classifier(ops.reshape(x, (x.shape[0], -1)))


@public("fdbr.nn.models")
@frozen
class VGG11(VGG):
    """`VGG` with eight convolutions, configuration A: 132,863,336 parameters."""

    _depths: ClassVar[tuple[int, ...]] = (1, 1, 2, 2, 2)


@public("fdbr.nn.models")
@frozen
class VGG13(VGG):
    """`VGG` with ten convolutions, configuration B: 133,047,848 parameters."""

    _depths: ClassVar[tuple[int, ...]] = (2, 2, 2, 2, 2)


@public("fdbr.nn.models")
@frozen
class VGG16(VGG):
    """`VGG` with thirteen convolutions, configuration D: 138,357,544 parameters."""


@public("fdbr.nn.models")
@frozen
class VGG19(VGG):
    """`VGG` with sixteen convolutions, configuration E: 143,667,240 parameters."""

    _depths: ClassVar[tuple[int, ...]] = (2, 2, 4, 4, 4)
