"""GoogLeNet: blocks of parallel convolutions with windows of several sizes."""

from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from fdbr import ops
from fdbr.errors.public import public
from fdbr.nn import initializers
from fdbr.nn.composite import Composite
from fdbr.nn.convolution.layers import Conv
from fdbr.nn.dropout import Dropout
from fdbr.nn.linear import Linear
from fdbr.nn.models.building import Builder, positive
from fdbr.nn.models.network import ImageNetwork
from fdbr.nn.normalization.batches import BatchNorm
from fdbr.nn.pooling.dimensions import AdaptiveAvgPool2d, AvgPool2d, MaxPool2d
from fdbr.nn.sequential import Sequential
from fdbr.tree import frozen, static

__all__ = ["BasicConv", "GoogLeNet", "GoogLeNetOutputs", "InceptionAux", "InceptionBranches"]

_CHANNELS = {
    "inception3a": (192, 64, 96, 128, 16, 32, 32),
    "inception3b": (256, 128, 128, 192, 32, 96, 64),
    "inception4a": (480, 192, 96, 208, 16, 48, 64),
    "inception4b": (512, 160, 112, 224, 24, 64, 64),
    "inception4c": (512, 128, 128, 256, 24, 64, 64),
    "inception4d": (512, 112, 144, 288, 32, 64, 64),
    "inception4e": (528, 256, 160, 320, 32, 128, 128),
    "inception5a": (832, 256, 160, 320, 32, 128, 128),
    "inception5b": (832, 384, 192, 384, 48, 128, 128),
}
"""The numbers of channels of each block: its input; the outputs of the 1x1 branch, within and after
the 3x3 branch, within and after the 5x5 branch, and after the pooling.
"""


@public("fdbr.nn.models")
class GoogLeNetOutputs(NamedTuple):
    """The outputs of `GoogLeNet` in training: the logits, and those of the auxiliary heads."""

    logits: Any
    aux_logits2: Any
    aux_logits1: Any


@public("fdbr.nn.models")
@frozen
class BasicConv(Composite):
    """A convolution, batch normalisation unless ``bn`` is `None`, and a rectifier."""

    conv: Conv
    bn: BatchNorm | None

    def _forward(self, of: Any, x: Any) -> Any:
        x = of.conv(x)
        return ops.relu(x if of.bn is None else of.bn(x))


@public("fdbr.nn.models")
@frozen
class InceptionBranches(Composite):
    """Four branches side by side: the outputs are joined along the channels.

    Attributes
    ----------
    branch1, branch2, branch3, branch4
        A 1x1 convolution; a 1x1 and a 3x3 one; a 1x1 and another larger one; a pooling and a 1x1
        convolution.
    """

    branch1: BasicConv
    branch2: Sequential
    branch3: Sequential
    branch4: Sequential

    chainer_names: ClassVar[dict[str, str]] = {
        "branch1.conv": "conv1",
        "branch2.layers[0].conv": "proj3",
        "branch2.layers[1].conv": "conv3",
        "branch3.layers[0].conv": "proj5",
        "branch3.layers[1].conv": "conv5",
        "branch4.layers[1].conv": "projp",
    }

    def _forward(self, of: Any, x: Any) -> Any:
        parts = [of.branch1(x), of.branch2(x), of.branch3(x), of.branch4(x)]
        return ops.concat(parts, axis=1)


@public("fdbr.nn.models")
@frozen
class InceptionAux(Composite):
    """An auxiliary classifier on the features of an inner layer.

    Attributes
    ----------
    avgpool, conv, fc1, fc2, dropout
        The layers; dropout precedes the last one.
    """

    avgpool: AdaptiveAvgPool2d | AvgPool2d
    conv: BasicConv
    fc1: Linear
    fc2: Linear
    dropout: Dropout

    def _forward(self, of: Any, x: Any) -> Any:
        x = of.conv(of.avgpool(x))
        x = ops.relu(of.fc1(ops.reshape(x, (x.shape[0], -1))))
        return of.fc2(of.dropout(x))


@public("fdbr.nn.models")
@frozen
class GoogLeNet(ImageNetwork):
    """GoogLeNet, with batch normalisation as in torchvision, or as in the paper and in Chainer.

    Szegedy et al., *Going deeper with convolutions*, CVPR 2015.  The fields are torchvision's
    modules: 6,624,904 parameters without the auxiliary heads, 13,004,888 with them.

    In training with auxiliary heads the output is `GoogLeNetOutputs`, of three logits.

    Attributes
    ----------
    conv1 to maxpool2
        The layers before the blocks.
    inception3a to inception5b
        The blocks, with poolings between.
    aux1, aux2
        Auxiliary heads on ``inception4a`` and ``inception4d``, or `None`.
    avgpool, dropout, fc
        The layers after the blocks.
    local_norm
        Whether the first poolings are combined with local response normalisation, as in the paper.

    >>> import fdbr
    >>> from fdbr import nn
    >>> model = nn.models.GoogLeNet.init(fdbr.random.key(0), 10, width=4)
    >>> images = fdbr.ops.ones((2, 3, 64, 64), dtype="float32")
    >>> outputs, model = model.train(images, key=fdbr.random.key(1))
    >>> outputs.aux_logits1.shape, model(images).shape
    ((2, 10), (2, 10))
    """

    conv1: BasicConv
    maxpool1: MaxPool2d
    conv2: BasicConv
    conv3: BasicConv
    maxpool2: MaxPool2d
    inception3a: InceptionBranches
    inception3b: InceptionBranches
    maxpool3: MaxPool2d
    inception4a: InceptionBranches
    inception4b: InceptionBranches
    inception4c: InceptionBranches
    inception4d: InceptionBranches
    inception4e: InceptionBranches
    maxpool4: MaxPool2d
    inception5a: InceptionBranches
    inception5b: InceptionBranches
    aux1: InceptionAux | None
    aux2: InceptionAux | None
    avgpool: AdaptiveAvgPool2d
    dropout: Dropout
    fc: Linear
    local_norm: bool = static(default=False)

    chainer_names: ClassVar[dict[str, str]] = {
        "conv1.conv": "conv1",
        "conv2.conv": "conv2_reduce",
        "conv3.conv": "conv2",
        **{name: name.replace("inception", "inc") for name in _CHANNELS},
        "fc": "loss3_fc",
        **{
            f"aux{i}.{own}": f"loss{i}_{there}"
            for i in (1, 2)
            for own, there in (("conv.conv", "conv"), ("fc1", "fc1"), ("fc2", "fc2"))
        },
    }

    def other_layers(self) -> dict[str, str]:
        """Return Chainer's names: ``inception_3a`` to ``inception_5b``, and ``loss3_fc``."""
        return {**{n.replace("inception", "inception_"): n for n in _CHANNELS}, "loss3_fc": "fc"}

    @classmethod
    def init(
        cls,
        key: Any,
        classes: int = 1000,
        *,
        aux_logits: bool = True,
        dropout: float | None = None,
        dropout_aux: float | None = None,
        width: int = 64,
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
        aux_logits
            Whether the model has the auxiliary heads.
        dropout, dropout_aux
            The rates of dropout before the last layer and in the auxiliary heads, in `train`: by
            default torchvision's 0.2 and 0.7, with ``chainer`` 0.4 and 0.
        width
            The number of channels of the first convolution; all others are proportional.
        in_channels
            The number of channels of the images.
        chainer
            Whether to build the model of the paper, as in Chainer and in Caffe: convolutions with a
            bias and no batch normalisation, local response normalisation, 5x5 kernels (torchvision
            has 3x3 there), other poolings.
        weight_init
            ``init(key, shape, dtype)`` for all weights; by default uniform numbers of standard
            deviation 0.01, as torchvision's; with ``chainer`` LeCun's.
        dtype
            The dtype of the parameters.
        """
        positive(cls, classes=classes, width=width, in_channels=in_channels)
        if chainer and weight_init is None:
            weight_init = initializers.lecun_uniform()
        of = Builder(key, weight_init, dtype, stddev=0.01, eps=1e-3)
        make = _Parts(of, width, chainer)
        fields: dict[str, Any] = {
            "conv1": make.conv(in_channels, make.sized(64), 7, 2),
            "maxpool1": MaxPool2d(3, stride=2, ceil_mode=True),
            "conv2": make.conv(make.sized(64), make.sized(64), 1),
            "conv3": make.conv(make.sized(64), make.sized(192), 3),
            "maxpool2": MaxPool2d(3, stride=2, ceil_mode=True),
            "maxpool3": MaxPool2d(3, stride=2, ceil_mode=True),
            "maxpool4": MaxPool2d(3 if chainer else 2, stride=2, ceil_mode=True),
            "avgpool": AdaptiveAvgPool2d(1),
            "aux1": None,
            "aux2": None,
        }
        inputs = make.sized(192)
        outputs = {}
        for name, (_, *channels) in _CHANNELS.items():
            fields[name], inputs = make.branches(inputs, *map(make.sized, channels))
            outputs[name] = inputs
        rates = (0.4, 0.0) if chainer else (0.2, 0.7)
        if aux_logits:
            rate = rates[1] if dropout_aux is None else dropout_aux
            fields["aux1"] = make.head(outputs["inception4a"], classes, rate)
            fields["aux2"] = make.head(outputs["inception4d"], classes, rate)
        fields["dropout"] = Dropout(rates[0] if dropout is None else dropout)
        fields["fc"] = of.linear(inputs, classes)
        return cls(**fields, local_norm=chainer)

    def _forward(self, of: Any, x: Any) -> Any:
        x = self._normed(of.maxpool1(of.conv1(x)))
        x = of.maxpool2(self._normed(of.conv3(of.conv2(x))))
        x = of.maxpool3(of.inception3b(of.inception3a(x)))
        x = of.inception4a(x)
        heads = of.training and self.aux1 is not None
        first = of.aux1(x) if heads else None
        x = of.inception4d(of.inception4c(of.inception4b(x)))
        second = of.aux2(x) if heads else None
        x = of.maxpool4(of.inception4e(x))
        x = of.avgpool(of.inception5b(of.inception5a(x)))
        logits = of.fc(of.dropout(ops.reshape(x, x.shape[:2])))
        return GoogLeNetOutputs(logits, second, first) if heads else logits

    def _normed(self, x: Any) -> Any:
        """Apply local response normalisation over five channels, if the model has it."""
        if not self.local_norm:
            return x
        return ops.local_response_norm(x, 5, alpha=1e-4, beta=0.75, k=1.0)


class _Parts:
    """Builds the parts of GoogLeNet."""

    def __init__(self, of: Builder, width: int, chainer: bool) -> None:
        self.of = of
        self.width = width
        self.chainer = chainer

    def sized(self, count: int) -> int:
        """Scale a number of channels by the width."""
        return max(count * self.width // 64, 1)

    def conv(self, inputs: int, outputs: int, kernel: int, stride: int = 1) -> BasicConv:
        """Return a convolution with what follows it."""
        conv = self.of.conv(inputs, outputs, kernel, stride, bias=self.chainer)
        return BasicConv(conv, None if self.chainer else self.of.batch_norm(outputs))

    def branches(self, inputs: int, *channels: int) -> tuple[InceptionBranches, int]:
        """Return a block, and how many channels come out of it."""
        one, within3, three, within5, five, pooled = channels
        block = InceptionBranches(
            self.conv(inputs, one, 1),
            Sequential(self.conv(inputs, within3, 1), self.conv(within3, three, 3)),
            Sequential(
                self.conv(inputs, within5, 1), self.conv(within5, five, 5 if self.chainer else 3)
            ),
            Sequential(MaxPool2d(3, stride=1, padding=1), self.conv(inputs, pooled, 1)),
        )
        return block, one + three + five + pooled

    def head(self, inputs: int, classes: int, rate: float) -> InceptionAux:
        """Return an auxiliary head."""
        inner, hidden = self.sized(128), self.sized(1024)
        return InceptionAux(
            AvgPool2d(5, stride=3) if self.chainer else AdaptiveAvgPool2d(4),
            self.conv(inputs, inner, 1),
            self.of.linear(inner * 16, hidden),
            self.of.linear(hidden, classes),
            Dropout(rate),
        )
