"""VGG: stages of convolutions with windows of 3 by 3, and three fully connected layers."""

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
    """VGG: stages of convolutions with windows of 3 by 3, and three fully connected layers.

    Simonyan & Zisserman, *Very deep convolutional networks for large-scale image recognition*,
    ICLR 2015.  The fields are torchvision's modules.  Images need 32 pixels a side at least.

    Attributes
    ----------
    features
        Convolutions, rectifiers, and a pooling after each stage.
    avgpool
        What brings images of any size to 7 by 7 means.
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

    def chainer_names(self) -> dict[str, str]:
        """The names of Chainer's ``VGG16Layers`` in files."""
        places = self._places(Conv, "conv") | self._places(BatchNorm, "bn")
        names = {f"features.layers[{i}]": name for name, i in places.items()}
        return {**names, **{f"classifier.layers[{i}]": f"fc{6 + i // 3}" for i in (0, 3, 6)}}

    def other_layers(self) -> dict[str, str]:
        """Chainer's names of layers: ``conv1_1`` to ``pool5``, rectified, ``fc6`` to ``fc8``."""
        names = {name: f"features[{i}]" for name, i in self._places(Lambda, "conv").items()}
        pools = [i for i, layer in enumerate(self.features) if isinstance(layer, MaxPool2d)]
        names |= {f"pool{stage}": f"features[{i}]" for stage, i in enumerate(pools, 1)}
        return names | {"fc6": "classifier[1]", "fc7": "classifier[4]", "fc8": "classifier[6]"}

    def _places(self, kind: type, name: str) -> dict[str, int]:
        """The layers of a kind, named by their stages and their places in them."""
        places: dict[str, int] = {}
        stage = place = 1
        for i, layer in enumerate(self.features):
            if isinstance(layer, kind):
                places[f"{name}{stage}_{place}"] = i
                place += 1
            elif isinstance(layer, MaxPool2d):
                stage, place = stage + 1, 1
        return places

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
        """A model with fresh parameters.

        Parameters
        ----------
        key
            A key.
        classes
            How many logits come out.
        batch_norm
            Whether convolutions are followed by batch normalisation (torchvision's ``vgg16_bn``).
        dropout
            The rate of the two dropouts in `train`.
        width
            How many channels the first stage has; each has twice those of the one before, up to
            ``8 * width``.
        depths
            How many convolutions each stage has; by default what the class says.
        hidden
            How many features the two hidden fully connected layers have.
        in_channels
            How many channels images have.
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
        """The logits."""
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
