"""Plain modules of PyTorch for models that torchvision does not have."""

from typing import Any

import torch
import torchvision
from torch import nn
from torch.nn import functional
from torchvision.models.googlenet import BasicConv2d, GoogLeNet, Inception, InceptionAux
from torchvision.models.resnet import Bottleneck, ResNet

__all__ = ["chainer_googlenet", "chainer_resnet50", "se_resnet"]

DEPTHS = {"50": [3, 4, 6, 3], "101": [3, 4, 23, 3], "152": [3, 8, 36, 3]}


class Excited(Bottleneck):
    """A bottleneck with squeeze and excitation before the addition."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        channels = self.conv3.out_channels
        self.se = torchvision.ops.SqueezeExcitation(channels, channels // 16)

    def forward(self, x: Any) -> Any:
        """The block's output."""
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.se(self.bn3(self.conv3(y)))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


def se_resnet(name: str, classes: int) -> Any:
    """SE-ResNet or SE-ResNeXt of a depth, as SEResNet50."""
    groups = {"groups": 32, "width_per_group": 4} if "NeXt" in name else {}
    depth = name.removeprefix("SEResNet").removeprefix("SEResNeXt")
    return ResNet(Excited, DEPTHS[depth], num_classes=classes, **groups)


def chainer_resnet50(classes: int) -> Any:
    """ResNet-50 as Chainer has it."""
    model = ResNet(Bottleneck, DEPTHS["50"], num_classes=classes)
    model.conv1 = nn.Conv2d(3, 64, 7, 2, 3)
    model.maxpool = nn.MaxPool2d(3, 2, ceil_mode=True)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eps = 2e-5
        if isinstance(module, Bottleneck):
            module.conv1.stride, module.conv2.stride = module.conv2.stride, (1, 1)
    return model


class Biased(BasicConv2d):
    """A convolution with a bias, and no batch normalisation."""

    def __init__(self, inputs: int, outputs: int, **settings: Any) -> None:
        nn.Module.__init__(self)
        self.conv = nn.Conv2d(inputs, outputs, **settings)

    def forward(self, x: Any) -> Any:
        """The rectified result."""
        return functional.relu(self.conv(x))


class Wide(Inception):
    """A block whose third branch has windows of 5 by 5."""

    def __init__(self, inputs: int, *channels: int) -> None:
        super().__init__(inputs, *channels, conv_block=Biased)
        self.branch3[1] = Biased(channels[3], channels[4], kernel_size=5, padding=2)


class Head(InceptionAux):
    """An auxiliary head with a pooling of its own, and no dropout."""

    def __init__(self, inputs: int, classes: int, **_: Any) -> None:
        super().__init__(inputs, classes, conv_block=Biased, dropout=0.0)

    def forward(self, x: Any) -> Any:
        """The logits."""
        x = self.conv(functional.avg_pool2d(x, 5, 3)).flatten(1)
        return self.fc2(functional.relu(self.fc1(x)))


class Caffe(GoogLeNet):
    """GoogLeNet as in the paper, in Caffe and in Chainer."""

    def __init__(self, classes: int) -> None:
        blocks = [Biased, Wide, Head]
        super().__init__(classes, init_weights=False, blocks=blocks, dropout=0.0)
        norm = nn.LocalResponseNorm(5)
        first, second = (nn.MaxPool2d(3, 2, ceil_mode=True) for _ in range(2))
        self.maxpool1: Any = nn.Sequential(first, norm)
        self.maxpool2: Any = nn.Sequential(norm, second)
        self.maxpool4 = nn.MaxPool2d(3, 2, ceil_mode=True)


def chainer_googlenet(classes: int) -> Any:
    """GoogLeNet as Chainer has it."""
    torch.manual_seed(0)
    return Caffe(classes)
