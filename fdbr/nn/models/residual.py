"""The blocks of residual networks."""

from typing import Any, ClassVar, Self

from fdbr import ops
from fdbr.errors.public import public
from fdbr.nn.composite import Composite
from fdbr.nn.convolution.layers import Conv
from fdbr.nn.models.building import Builder, positive
from fdbr.nn.normalization.batches import BatchNorm
from fdbr.nn.sequential import Sequential
from fdbr.tree import frozen

__all__ = ["BasicBlock", "BlockSettings", "Bottleneck"]


@frozen
class BlockSettings:
    """The settings that the blocks of a network share."""

    groups: int
    width_per_group: int
    downsample_fb: bool
    reduction: int | None

    def excitation(self, of: Builder, channels: int) -> Any:
        """Return a block's squeeze and excitation, or `None`."""
        if self.reduction is None:
            return None
        return of.excitation(channels, max(channels // self.reduction, 1))


@public("fdbr.nn.models")
@frozen
class BasicBlock(Composite):
    """Two 3x3 convolutions with a residual connection.

    Attributes
    ----------
    conv1, bn1, conv2, bn2
        Convolutions with their batch normalisations.
    se
        Squeeze and excitation before the addition, or `None`.
    downsample
        A projection of the input to the output's shape, or `None`.
    """

    conv1: Conv
    bn1: BatchNorm
    conv2: Conv
    bn2: BatchNorm
    se: Any = None
    downsample: Sequential | None = None

    expansion: ClassVar[int] = 1

    @classmethod
    def build(
        cls,
        of: Builder,
        inputs: int,
        planes: int,
        stride: int,
        shared: BlockSettings,
        dilation: int = 1,
    ) -> Self:
        """Return a block of a `ResNet`."""
        atrous = {"padding": dilation, "dilation": dilation}
        return cls(
            of.conv(inputs, planes, 3, stride, bias=False, **atrous),
            of.batch_norm(planes),
            of.conv(planes, planes, 3, bias=False, **atrous),
            of.batch_norm(planes),
            shared.excitation(of, planes),
            _downsample(of, inputs, planes, stride),
        )

    def _forward(self, of: Any, x: Any) -> Any:
        """Return the output of the block."""
        y = ops.relu(of.bn1(of.conv1(x)))
        y = of.bn2(of.conv2(y))
        return _joined(of, x, y)


@public("fdbr.nn.models")
@frozen
class Bottleneck(Composite):
    """A 1x1, a narrower 3x3 and a 1x1 convolution with a residual connection.

    Attributes
    ----------
    conv1, bn1, conv2, bn2, conv3, bn3
        Convolutions with their batch normalisations.
    se
        Squeeze and excitation before the addition, or `None`.
    downsample
        A projection of the input to the output's shape, or `None`.
    """

    conv1: Conv
    bn1: BatchNorm
    conv2: Conv
    bn2: BatchNorm
    conv3: Conv
    bn3: BatchNorm
    se: Any = None
    downsample: Sequential | None = None

    expansion: ClassVar[int] = 4
    chainer_names: ClassVar[dict[str, Any]] = {
        "conv1": ("conv1", "~conv1/conv"),
        "bn1": ("bn1", "~conv1/bn"),
        "conv2": ("conv2", "~conv2/conv"),
        "bn2": ("bn2", "~conv2/bn"),
        "conv3": ("conv3", "~conv3/conv"),
        "bn3": ("bn3", "~conv3/bn"),
        "se.fc1": ("se/fc1", "~se/down"),
        "se.fc2": ("se/fc2", "~se/up"),
        "downsample.layers[0]": ("conv4", "~residual_conv/conv"),
        "downsample.layers[1]": ("bn4", "~residual_conv/bn"),
    }
    """Chainer's names, and those of ChainerCV's ``Bottleneck``."""

    @classmethod
    def build(
        cls,
        of: Builder,
        inputs: int,
        planes: int,
        stride: int,
        shared: BlockSettings,
        dilation: int = 1,
    ) -> Self:
        """Return a block of a `ResNet`."""
        inner = int(planes * shared.width_per_group / 64) * shared.groups
        positive(cls, **{"groups * int(planes * width_per_group / 64)": inner})
        outputs = planes * cls.expansion
        first, second = (1, stride) if shared.downsample_fb else (stride, 1)
        atrous = {"padding": dilation, "dilation": dilation}
        return cls(
            of.conv(inputs, inner, 1, first, bias=False),
            of.batch_norm(inner),
            of.conv(inner, inner, 3, second, groups=shared.groups, bias=False, **atrous),
            of.batch_norm(inner),
            of.conv(inner, outputs, 1, bias=False),
            of.batch_norm(outputs),
            shared.excitation(of, outputs),
            _downsample(of, inputs, outputs, stride),
        )

    def _forward(self, of: Any, x: Any) -> Any:
        """Return the output of the block."""
        y = ops.relu(of.bn1(of.conv1(x)))
        y = ops.relu(of.bn2(of.conv2(y)))
        y = of.bn3(of.conv3(y))
        return _joined(of, x, y)


def _joined(of: Any, x: Any, y: Any) -> Any:
    """Add a block's input to the output of its convolutions."""
    if of.se is not None:
        y = of.se(y)
    return ops.relu(y + (x if of.downsample is None else of.downsample(x)))


def _downsample(of: Builder, inputs: int, outputs: int, stride: int) -> Sequential | None:
    if stride == 1 and inputs == outputs:
        return None
    return of.unit(inputs, outputs, 1, stride, act=None)
