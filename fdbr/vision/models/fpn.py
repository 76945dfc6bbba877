"""Feature pyramids over residual networks, and how parts of them are kept from training."""

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np

from fdbr import ops, tree
from fdbr.errors.checks import integer
from fdbr.errors.public import public
from fdbr.nn.composite import Composite
from fdbr.nn.convolution.layers import Conv
from fdbr.nn.layer import Layer
from fdbr.nn.models.building import Builder
from fdbr.nn.models.resnet import ResNet, ResNet50
from fdbr.nn.normalization.batches import BatchNorm
from fdbr.nn.pooling.dimensions import MaxPool2d
from fdbr.nn.sequential import Sequential
from fdbr.pytrees.classes import fields_of
from fdbr.tree import buffer, frozen, static

__all__ = [
    "Backbone",
    "FeaturePyramid",
    "FrozenBatchNorm",
    "LastLevels",
    "ResNetBody",
    "split_backbone",
]

CHAINER_NORM = {
    "weight": "gamma",
    "bias": "beta",
    "running_mean": "avg_mean",
    "running_var": "avg_var",
}


@public("fdbr.vision.models")
@frozen
class FrozenBatchNorm(Layer):
    """Normalise each channel by statistics and with a scale that training does not change.

    It is torchvision's ``FrozenBatchNorm2d``: detectors are trained with batches that are too small
    for statistics of their own.

    Attributes
    ----------
    weight, bias, running_mean, running_var
        Shape ``(channels,)``; no gradient is computed for them.
    eps
        A number that is added to the variance.

    >>> import numpy as np
    >>> from fdbr import nn
    >>> layer = FrozenBatchNorm.of(nn.BatchNorm.init(None, 2))
    >>> layer(np.ones((1, 2, 1, 1), "float32")).shape
    (1, 2, 1, 1)
    """

    weight: Any = buffer()
    bias: Any = buffer()
    running_mean: Any = buffer()
    running_var: Any = buffer()
    eps: float = static(default=1e-5)

    chainer_names: ClassVar[dict[str, str]] = CHAINER_NORM

    @classmethod
    def of(cls, norm: BatchNorm) -> Self:
        """Return the frozen layer with the arrays of a batch normalisation."""
        return cls(norm.weight, norm.bias, norm.running_mean, norm.running_var, norm.eps)

    def __call__(self, x: Any) -> Any:
        """Return the normalised array, of the shape of ``x``: ``(N, channels, H, W)``."""
        out, _, _ = ops.batch_norm(
            x,
            self.weight,
            self.bias,
            mean=self.running_mean,
            variance=self.running_var,
            eps=self.eps,
        )
        return out


def _with_norms(part: Any, eps: float, frozen: bool) -> Any:
    """Return a part of a network whose batch normalisations have another ``eps``, or are frozen."""
    if isinstance(part, BatchNorm):
        part = tree.replace(part, eps=eps)
        return FrozenBatchNorm.of(part) if frozen else part
    if isinstance(part, tuple):
        return tuple(_with_norms(member, eps, frozen) for member in part)
    if isinstance(part, Composite | Sequential):
        names, _ = fields_of(type(part)) or ((), ())
        parts = {name: _with_norms(getattr(part, name), eps, frozen) for name in names}
        return tree.replace(part, **parts)
    return part


def _damped(stage: Sequential, factor: float) -> Sequential:
    """Return a stage in whose blocks the last normalisation before the addition is scaled."""
    blocks = []
    for block in stage.layers:
        name = "bn3" if hasattr(block, "bn3") else "bn2"
        norm = getattr(block, name)
        norm = tree.replace(norm, weight=norm.weight * factor)
        blocks.append(tree.replace(block, **{name: norm}))
    return Sequential(*blocks)


_VARIANCE = 64.0**2
"""About the variance of the input of ChainerCV's networks: pixels from 0 to 255, less a mean."""


@public("fdbr.vision.models")
@frozen
class ResNetBody(Composite):
    """The layers of a residual network that detectors use, by default with frozen normalisations.

    Without published weights the statistics are no data's, and with the scale 1 each block would
    double the variance: the outputs of ResNet-101 would be a million times as large as its input.
    So the fresh scale of the B blocks' last normalisations is ``B ** -0.5`` if they are frozen, and
    the fresh variance of ChainerCV's first normalisation that of pixels from 0 to 255.

    Attributes
    ----------
    conv1, bn1, maxpool
        The layers before the blocks.
    layer1, layer2, layer3, layer4
        The blocks, in stages of one size; a call returns the outputs of all four.

    >>> import fdbr
    >>> body = ResNetBody.init(fdbr.random.key(0), width=4, depths=(1, 1, 1, 1))
    >>> [c.shape for c in body(fdbr.ops.ones((1, 3, 64, 64), dtype="float32"))]
    [(1, 16, 16, 16), (1, 32, 8, 8), (1, 64, 4, 4), (1, 128, 2, 2)]
    """

    conv1: Conv
    bn1: FrozenBatchNorm | BatchNorm
    maxpool: MaxPool2d
    layer1: Sequential
    layer2: Sequential
    layer3: Sequential
    layer4: Sequential

    @classmethod
    def init(
        cls,
        key: Any,
        network: type[ResNet] = ResNet50,
        *,
        width: int = 64,
        depths: Sequence[int] | None = None,
        chainer: bool = False,
        frozen: bool = True,
        eps: float | None = None,
        weight_init: Any = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a network with fresh parameters.

        Parameters
        ----------
        key
            A random key.
        network
            The class of the residual network.
        width, depths, weight_init, dtype
            As for `fdbr.nn.models.ResNet.init`.
        chainer
            Whether the network is ChainerCV's: the stride of a bottleneck is that of its first
            convolution, the first convolution of `ResNet50` has a bias, and ``eps`` is 2e-5.
        frozen
            Whether each batch normalisation is a `FrozenBatchNorm` rather than an `nn.BatchNorm`,
            which is trained.
        eps
            The number that normalisations add to variances, by default 1e-5.  torchvision sets it
            to 0 for the weights that it publishes under the name ``COCO_V1``.
        """
        options: dict[str, Any] = {"width": width, "weight_init": weight_init, "dtype": dtype}
        net = network.init(key, 1, depths=depths, downsample_fb=not chainer, **options)
        conv1 = net.conv1
        if chainer and network._depths == ResNet50._depths:
            conv1 = tree.replace(conv1, bias=ops.zeros_like(net.bn1.bias))
        eps = (2e-5 if chainer else 1e-5) if eps is None else eps
        bn1 = net.bn1
        if chainer:
            bn1 = tree.replace(bn1, running_var=bn1.running_var * _VARIANCE)
        blocks = sum(len(getattr(net, name)) for name in _STAGES)
        scale = blocks**-0.5 if frozen else 1.0
        stages = (_damped(getattr(net, name), scale) for name in _STAGES)
        return cls(conv1, *(_with_norms(part, eps, frozen) for part in (bn1, net.maxpool, *stages)))

    def chainer_names(self) -> dict[str, str]:
        """Return the names of ChainerCV's ``ResNet``."""
        names = {"conv1": "conv1/conv", "bn1": "conv1/bn"}
        for stage, name in enumerate(_STAGES, 2):
            for i in range(len(getattr(self, name))):
                block = f"res{stage}/{f'b{i}' if i else 'a'}"
                inside = f"{name}.layers[{i}]"
                for j in (1, 2, 3):
                    names[f"{inside}.conv{j}"] = f"{block}/conv{j}/conv"
                    names[f"{inside}.bn{j}"] = f"{block}/conv{j}/bn"
                names[f"{inside}.downsample.layers[0]"] = f"{block}/residual_conv/conv"
                names[f"{inside}.downsample.layers[1]"] = f"{block}/residual_conv/bn"
        return names

    def _forward(self, of: Any, x: Any) -> list[Any]:
        """Return the outputs of the four stages."""
        x = of.maxpool(ops.relu(of.bn1(of.conv1(x))))
        outputs = []
        for name in _STAGES:
            x = getattr(of, name)(x)
            outputs.append(x)
        return outputs


_STAGES = ("layer1", "layer2", "layer3", "layer4")


@frozen
class LastLevel(Layer):
    """One further level of a pyramid, every second element of its last one."""

    def __call__(self, pyramid: list[Any], inputs: list[Any]) -> list[Any]:
        """Return the level."""
        return [pyramid[-1][:, :, ::2, ::2]]


@public("fdbr.vision.models")
@frozen
class LastLevels(Composite):
    """Two further levels of a pyramid by convolutions of stride 2: torchvision's ``LastLevelP6P7``.

    Lin, Goyal, Girshick, He & Dollár, *Focal loss for dense object detection*, ICCV 2017.

    Attributes
    ----------
    p6, p7
        The convolutions; the first one's input is the last level, or, if its channels are not as
        many, the last output of the network below.
    """

    p6: Conv
    p7: Conv

    @classmethod
    def build(cls, of: Builder, inputs: int, channels: int) -> Self:
        """Return the levels of a pyramid."""
        return cls(of.conv(inputs, channels, 3, 2), of.conv(channels, channels, 3, 2))

    def _forward(self, of: Any, pyramid: list[Any], inputs: list[Any]) -> list[Any]:
        """Return the two levels."""
        last = pyramid[-1]
        p6 = of.p6(last if self.p6.weight.shape[1] == self.p7.weight.shape[1] else inputs[-1])
        return [p6, of.p7(ops.relu(p6))]


@public("fdbr.vision.models")
@frozen
class FeaturePyramid(Composite):
    """Levels of features with equally many channels, each joined with the coarser ones.

    Lin, Dollár, Girshick, He, Hariharan & Belongie, *Feature pyramid networks for object
    detection*, CVPR 2017.

    Attributes
    ----------
    inner_blocks
        1x1 convolutions of each input.
    layer_blocks
        3x3 convolutions of the sums.
    extra_blocks
        A layer that takes the levels and the inputs and returns further levels; by default every
        second element of the last level.
    """

    inner_blocks: tuple[Conv, ...]
    layer_blocks: tuple[Conv, ...]
    extra_blocks: Any

    @classmethod
    def build(
        cls, of: Builder, inputs: Sequence[int], channels: int, extra_blocks: Any = None
    ) -> Self:
        """Return the pyramid over features with these numbers of channels."""
        inner = tuple(of.conv(n, channels, 1, stddev=n**-0.5) for n in inputs)
        outer = tuple(of.conv(channels, channels, 3, stddev=(9 * channels) ** -0.5) for _ in inner)
        return cls(inner, outer, extra_blocks or LastLevel())

    def torch_names(self) -> dict[str, Any]:
        """Return torchvision's names, which older files have without a number."""
        return {
            f"{name}[{i}]": (f"{name}.{i}.0", f"~{name}.{i}")
            for name in ("inner_blocks", "layer_blocks")
            for i in range(len(self.inner_blocks))
        }

    def chainer_names(self) -> dict[str, str]:
        """Return ChainerCV's names."""
        return {"inner_blocks": "inner", "layer_blocks": "outer"}

    def _forward(self, of: Any, inputs: list[Any]) -> list[Any]:
        """Return the levels, from the finest one."""
        inner, outer = of.inner_blocks, of.layer_blocks
        levels: list[Any] = []
        above = None
        for i in reversed(range(len(inputs))):
            x = inner[i](inputs[i])
            above = x if above is None else x + ops.interpolate(above, size=x.shape[2:])
            levels.insert(0, outer[i](above))
        return levels + of.extra_blocks(levels, inputs)


@public("fdbr.vision.models")
@frozen
class Backbone(Composite):
    """A network and the pyramid of features over it: torchvision's ``BackboneWithFPN``.

    Attributes
    ----------
    body
        A layer that returns a list of features, from the finest.
    fpn
        The pyramid, over the last of these features.
    """

    body: Any
    fpn: FeaturePyramid

    def _forward(self, of: Any, x: Any) -> list[Any]:
        """Return the levels of the pyramid of a batch of images."""
        return of.fpn(of.body(x)[-len(self.fpn.inner_blocks) :])


@public("fdbr.vision.models")
def split_backbone(model: Any, trainable_layers: int = 3) -> tuple[Any, Any]:
    """Split a detector into what is trained and what stays as it is.

    It is torchvision's ``trainable_backbone_layers``.  `tree.combine` puts the parts together:

    ``fdbr.grad(lambda part: total(tree.combine(part, fixed).losses(images, truths, key=key)))``.

    Parameters
    ----------
    model
        A model with a `ResNetBody` as its field ``backbone.body``.
    trainable_layers
        How many of the body's layers are trained, from the last: 4 are all stages, and 5 includes
        the first convolution.

    Returns
    -------
    trained, fixed
        Trees of the model's structure, each with `None` for the leaves that the other has.

    Raises
    ------
    TypeError, ValueError
        If ``trainable_layers`` is no integer from 0 to 5.

    >>> import fdbr
    >>> from fdbr import tree
    >>> from fdbr.vision import models
    >>> class Model(fdbr.nn.Layer):
    ...     backbone: object
    >>> Model = fdbr.frozen(Model)
    >>> body = models.ResNetBody.init(fdbr.random.key(0), width=2, depths=(1, 1, 1, 1))
    >>> model = Model(models.Backbone(body, None))
    >>> trained, fixed = models.split_backbone(model, 1)
    >>> trained.backbone.body.conv1.weight is None, fixed.backbone.body.conv1.weight.shape
    (True, (2, 3, 7, 7))
    >>> tree.combine(trained, fixed) == model
    True
    """
    where = "fdbr.vision.models.split_backbone"
    count = integer(where, "trainable_layers", trainable_layers, least=0)
    if count > 5:
        raise ValueError(f"{where}: trainable_layers must be from 0 to 5, got {count}")
    names = ("conv1", "bn1", *_STAGES)[: 6 - count - count // 5]
    prefixes = tuple(f"backbone.body.{name}." for name in names)
    held = iter([path.startswith(prefixes) for path in tree.paths(model)])
    fixed, trained = tree.partition(model, lambda leaf: next(held))
    return trained, fixed
