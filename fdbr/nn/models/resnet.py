"""Residual networks: ResNet, ResNeXt, and both with squeeze and excitation."""

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np

from fdbr import ops
from fdbr.errors.public import public
from fdbr.nn import initializers
from fdbr.nn.convolution.layers import Conv
from fdbr.nn.linear import Linear
from fdbr.nn.models.building import Builder, numbers_of_blocks, positive
from fdbr.nn.models.network import ImageNetwork
from fdbr.nn.models.residual import BasicBlock, BlockSettings, Bottleneck
from fdbr.nn.normalization.batches import BatchNorm
from fdbr.nn.pooling.dimensions import AdaptiveAvgPool2d, MaxPool2d
from fdbr.nn.sequential import Sequential
from fdbr.tree import frozen

__all__ = [
    "ResNeXt50_32x4d",
    "ResNeXt101_32x8d",
    "ResNeXt101_64x4d",
    "ResNet",
    "ResNet18",
    "ResNet34",
    "ResNet50",
    "ResNet101",
    "ResNet152",
    "SEResNeXt50",
    "SEResNeXt101",
    "SEResNet50",
    "SEResNet101",
    "SEResNet152",
    "Wide_ResNet50_2",
    "Wide_ResNet101_2",
]


@public("fdbr.nn.models")
@frozen
class ResNet(ImageNetwork):
    """Residual networks; the subclasses set the depths.

    He, Zhang, Ren & Sun, *Deep residual learning for image recognition*, CVPR 2016.  The fields
    are torchvision's modules.

    Attributes
    ----------
    conv1, bn1, maxpool
        The layers before the blocks.
    layer1, layer2, layer3, layer4
        The blocks, in stages of one size.
    avgpool, fc
        The layers after the blocks.

    >>> import fdbr
    >>> from fdbr import nn
    >>> model = nn.models.ResNet18.init(fdbr.random.key(0), 10, width=4)
    >>> images = fdbr.ops.ones((2, 3, 32, 32), dtype="float32")
    >>> model(images).shape
    (2, 10)
    >>> logits, model = model.train(images)
    >>> features = model.extract(images, ["layer2[0].bn1", "avgpool"])
    >>> {name: out.shape for name, out in features.items()}
    {'layer2[0].bn1': (2, 8, 4, 4), 'avgpool': (2, 32, 1, 1)}
    """

    conv1: Conv
    bn1: BatchNorm
    maxpool: MaxPool2d
    layer1: Sequential
    layer2: Sequential
    layer3: Sequential
    layer4: Sequential
    avgpool: AdaptiveAvgPool2d
    fc: Linear

    _block: ClassVar[Any] = Bottleneck
    _depths: ClassVar[tuple[int, ...]] = (3, 4, 6, 3)
    _groups: ClassVar[tuple[int, int]] = (1, 64)
    _reduction: ClassVar[int | None] = None

    def chainer_names(self) -> dict[str, Any]:
        """Return the names of Chainer's and ChainerCV's residual networks in files."""
        stages = enumerate((self.layer1, self.layer2, self.layer3, self.layer4), 1)
        blocks = {
            f"layer{stage}.layers[{i}]": f"res{stage + 1}/{f'b{i}' if i else 'a'}"
            for stage, layers in stages
            for i in range(len(layers))
        }
        stem = {"conv1": ("conv1", "~conv1/conv"), "bn1": ("bn1", "~conv1/bn")}
        return {**stem, **blocks, "fc": "fc6"}

    def other_layers(self) -> dict[str, str]:
        """Return Chainer's names: ``res2`` to ``res5`` of stages, ``fc6`` of the last layer."""
        return {**{f"res{i + 1}": f"layer{i}" for i in range(1, 5)}, "fc6": "fc"}

    @classmethod
    def init(
        cls,
        key: Any,
        classes: int = 1000,
        *,
        width: int = 64,
        depths: Sequence[int] | None = None,
        groups: int | None = None,
        width_per_group: int | None = None,
        in_channels: int = 3,
        replace_stride_with_dilation: Sequence[bool] = (False, False, False),
        downsample_fb: bool | None = None,
        chainer: bool = False,
        stem_bias: bool | None = None,
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
            The number of channels of the first convolution, and of the narrow ones of the first
            stage; each further stage has twice as many.
        depths
            The number of blocks of each of the four stages; by default the class's.
        groups, width_per_group
            The groups and widths of the 3x3 convolutions in bottlenecks, as in torchvision; by
            default the class's.
        in_channels
            The number of channels of the images.
        replace_stride_with_dilation
            For each of the last three stages, whether it keeps the size of its input: its stride
            is 1, and the 3x3 convolutions after its first block, and in later stages, are dilated
            by another factor of 2.
        downsample_fb
            Whether the stride of a bottleneck is that of its 3x3 convolution (as in torchvision,
            and in Chainer with this argument), or of its first 1x1 convolution (as in the paper,
            and in Chainer by default).
        chainer
            Whether the model is Chainer's ``ResNet50Layers`` in all other respects: the first
            convolution has a bias, the first pooling no padding, but windows that extend over the
            edge, batch normalisation ``eps=2e-5``, and ``downsample_fb`` is False by default.
            ChainerCV's networks are the same: with ``arch="fb"``, as its ``SEResNeXt50``, they have
            ``downsample_fb=True, stem_bias=False``; with ``arch="he"``, as its ``SEResNet50``,
            ``stem_bias=False``, except ``ResNet50(arch="he")``.
        stem_bias
            Whether the first convolution has a bias; by default what ``chainer`` says.
        weight_init
            ``init(key, shape, dtype)`` for all weights; by default uniform numbers with the
            variance that torchvision gives its normal ones.
        dtype
            The dtype of the parameters.
        """
        positive(cls, classes=classes, width=width, in_channels=in_channels)
        depths = numbers_of_blocks(cls, cls._depths if depths is None else depths, 4)
        of = Builder(key, weight_init, dtype, eps=2e-5 if chainer else 1e-5)
        settings = BlockSettings(
            cls._groups[0] if groups is None else groups,
            cls._groups[1] if width_per_group is None else width_per_group,
            not chainer if downsample_fb is None else downsample_fb,
            cls._reduction,
        )
        bias = chainer if stem_bias is None else stem_bias
        stem = of.conv(in_channels, width, 7, 2, bias=bias), of.batch_norm(width)
        dilated = tuple(replace_stride_with_dilation)
        if len(dilated) != 3:
            raise ValueError(
                f"fdbr.nn.models.{cls.__name__}.init: replace_stride_with_dilation must have a "
                f"value for each of the last three stages, got {replace_stride_with_dilation!r}"
            )
        stages = []
        inputs, dilation = width, 1
        for stage, (depth, kept) in enumerate(zip(depths, (True, *dilated), strict=True)):
            blocks = []
            for i in range(depth):
                stride = 1 if kept or i else 2
                blocks.append(
                    cls._block.build(of, inputs, width * 2**stage, stride, settings, dilation)
                )
                inputs = width * 2**stage * cls._block.expansion
                if stage and kept and not i:
                    dilation *= 2
            stages.append(Sequential(*blocks))
        pool = (
            MaxPool2d(3, stride=2, cover_all=True) if chainer else MaxPool2d(3, stride=2, padding=1)
        )
        fc = of.linear(inputs, classes, 0.01)
        return cls(*stem, pool, *stages, AdaptiveAvgPool2d(1), fc)  # type: ignore[call-arg, arg-type]

    def _forward(self, of: Any, x: Any) -> Any:
        """Return the logits."""
        x = of.maxpool(ops.relu(of.bn1(of.conv1(x))))
        x = of.layer4(of.layer3(of.layer2(of.layer1(x))))
        x = of.avgpool(x)
        return of.fc(ops.reshape(x, x.shape[:2]))


@public("fdbr.nn.models")
@frozen
class ResNet18(ResNet):
    """`ResNet` with two `BasicBlock` in each stage: 11,689,512 parameters."""

    _block: ClassVar[Any] = BasicBlock
    _depths: ClassVar[tuple[int, ...]] = (2, 2, 2, 2)


@public("fdbr.nn.models")
@frozen
class ResNet34(ResNet):
    """`ResNet` with 3, 4, 6 and 3 `BasicBlock`: 21,797,672 parameters."""

    _block: ClassVar[Any] = BasicBlock


@public("fdbr.nn.models")
@frozen
class ResNet50(ResNet):
    """`ResNet` with 3, 4, 6 and 3 `Bottleneck`: 25,557,032 parameters."""


@public("fdbr.nn.models")
@frozen
class ResNet101(ResNet):
    """`ResNet` with 3, 4, 23 and 3 `Bottleneck`: 44,549,160 parameters."""

    _depths: ClassVar[tuple[int, ...]] = (3, 4, 23, 3)


@public("fdbr.nn.models")
@frozen
class ResNet152(ResNet):
    """`ResNet` with 3, 8, 36 and 3 `Bottleneck`: 60,192,808 parameters."""

    _depths: ClassVar[tuple[int, ...]] = (3, 8, 36, 3)


@public("fdbr.nn.models")
@frozen
class ResNeXt50_32x4d(ResNet):
    """`ResNet50` with 32 groups of 4 channels: 25,028,904 parameters.

    Xie et al., *Aggregated residual transformations for deep neural networks*, CVPR 2017.
    """

    _groups: ClassVar[tuple[int, int]] = (32, 4)


@public("fdbr.nn.models")
@frozen
class ResNeXt101_32x8d(ResNet):
    """`ResNet101` with 32 groups of 8 channels: 88,791,336 parameters."""

    _depths: ClassVar[tuple[int, ...]] = (3, 4, 23, 3)
    _groups: ClassVar[tuple[int, int]] = (32, 8)


@public("fdbr.nn.models")
@frozen
class ResNeXt101_64x4d(ResNet):
    """`ResNet101` with 64 groups of 4 channels: 83,455,272 parameters."""

    _depths: ClassVar[tuple[int, ...]] = (3, 4, 23, 3)
    _groups: ClassVar[tuple[int, int]] = (64, 4)


@public("fdbr.nn.models")
@frozen
class Wide_ResNet50_2(ResNet):
    """`ResNet50` with twice as many inner channels: 68,883,240 parameters.

    Zagoruyko & Komodakis, *Wide residual networks*, BMVC 2016.
    """

    _groups: ClassVar[tuple[int, int]] = (1, 128)


@public("fdbr.nn.models")
@frozen
class Wide_ResNet101_2(ResNet):
    """`ResNet101` with twice as many inner channels: 126,886,696 parameters."""

    _depths: ClassVar[tuple[int, ...]] = (3, 4, 23, 3)
    _groups: ClassVar[tuple[int, int]] = (1, 128)


@public("fdbr.nn.models")
@frozen
class SEResNet50(ResNet):
    """`ResNet50` with squeeze and excitation in each block: 28,088,024 parameters.

    Hu, Shen & Sun, *Squeeze-and-excitation networks*, CVPR 2018.  The names are those of the
    ``seresnet50`` of PyTorch Image Models: ``se.fc1`` and ``se.fc2`` in each block.
    """

    _reduction: ClassVar[int | None] = 16


@public("fdbr.nn.models")
@frozen
class SEResNet101(SEResNet50):
    """`ResNet101` with squeeze and excitation in each block: 49,326,872 parameters."""

    _depths: ClassVar[tuple[int, ...]] = (3, 4, 23, 3)


@public("fdbr.nn.models")
@frozen
class SEResNet152(SEResNet50):
    """`ResNet152` with squeeze and excitation in each block: 66,821,848 parameters."""

    _depths: ClassVar[tuple[int, ...]] = (3, 8, 36, 3)


@public("fdbr.nn.models")
@frozen
class SEResNeXt50(SEResNet50):
    """`ResNeXt50_32x4d` with squeeze and excitation in each block: 27,559,896 parameters."""

    _groups: ClassVar[tuple[int, int]] = (32, 4)


@public("fdbr.nn.models")
@frozen
class SEResNeXt101(SEResNet101):
    """`ResNet101` with 32 groups of 4 channels, squeeze and excitation: 48,955,416 parameters."""

    _groups: ClassVar[tuple[int, int]] = (32, 4)
