"""The extractor of detectors that pool position-sensitive maps."""

from typing import Any, Self

from fdbr import ops, tree
from fdbr.nn.models.building import Builder
from fdbr.nn.models.resnet import ResNet101
from fdbr.nn.pooling.dimensions import MaxPool2d
from fdbr.transforms.vjp import stop_gradient
from fdbr.tree import frozen
from fdbr.vision.models.fpn import ResNetBody

__all__ = ["DilatedBody"]


@frozen
class DilatedBody(ResNetBody):
    """A ResNet-101 whose last stage keeps the size of the third, and is dilated instead.

    It is ChainerCV's ``ResNet101Extractor``: layers up to the first stage are not trained.
    """

    @classmethod
    def build(cls, of: Builder, width: int, depths: Any, weight_init: Any, pool: MaxPool2d) -> Self:
        """Return the network with fresh parameters."""
        body = cls.init(
            of.key(),
            ResNet101,
            width=width,
            depths=depths,
            chainer=True,
            eps=1e-5,
            weight_init=weight_init,
            dtype=of.dtype,
        )
        blocks = []
        for block in body.layer4.layers:
            conv1 = tree.replace(block.conv1, stride=(1, 1))
            conv2 = tree.replace(block.conv2, dilation=(2, 2), padding=((2, 2), (2, 2)))
            block = tree.replace(block, conv1=conv1, conv2=conv2)
            if block.downsample is not None:
                first, *rest = block.downsample.layers
                layers = (tree.replace(first, stride=(1, 1)), *rest)
                block = tree.replace(
                    block, downsample=tree.replace(block.downsample, layers=layers)
                )
            blocks.append(block)
        return tree.replace(
            body,
            bn1=tree.replace(body.bn1, eps=2e-5),
            maxpool=pool,
            layer4=tree.replace(body.layer4, layers=tuple(blocks)),
        )

    def _forward(self, of: Any, x: Any) -> Any:
        """Return the features of the third and the fourth stage, of one size."""
        x = stop_gradient(of.layer1(of.maxpool(ops.relu(of.bn1(of.conv1(x))))))
        third = of.layer3(of.layer2(x))
        return third, of.layer4(third)
