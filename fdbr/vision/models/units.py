"""ChainerCV's pairs of convolution and batch normalisation."""

import math
from collections.abc import Callable
from typing import Any, Self

from fdbr import ops
from fdbr.errors.public import public
from fdbr.nn.composite import Composite
from fdbr.nn.convolution.layers import Conv
from fdbr.nn.models.building import Builder
from fdbr.nn.normalization.batches import BatchNorm
from fdbr.tree import frozen, static

__all__ = ["ConvUnit", "SeparableConvUnit"]

Activation = Callable[[Any], Any] | None


def _activated(act: Activation, x: Any) -> Any:
    return x if act is None else act(x)


@public("fdbr.vision.models")
@frozen
class ConvUnit(Composite):
    """A convolution, batch normalisation and an activation: ChainerCV's ``Conv2DBNActiv``.

    Attributes
    ----------
    conv, bn
        The layers.
    act
        A function of one array, or `None`.
    """

    conv: Conv
    bn: BatchNorm
    act: Activation = static(default=ops.relu)

    @classmethod
    def build(
        cls,
        of: Builder,
        inputs: int,
        outputs: int,
        kernel: int,
        stride: int = 1,
        *,
        act: Activation = ops.relu,
        **settings: Any,
    ) -> Self:
        """Return a unit; by default the convolution is padded to keep the size."""
        conv = of.conv(inputs, outputs, kernel, stride, bias=False, **settings)
        return cls(conv, of.batch_norm(outputs), act)

    def _forward(self, of: Any, x: Any) -> Any:
        """Return the output, shape ``(N, outputs, H, W)``."""
        return _activated(self.act, of.bn(of.conv(x)))


@public("fdbr.vision.models")
@frozen
class SeparableConvUnit(Composite):
    """A convolution of each channel and a 1x1 convolution, each with normalisation and activation.

    It is ChainerCV's ``SeparableConv2DBNActiv``; Chollet, *Xception: deep learning with depthwise
    separable convolutions*, CVPR 2017.

    Attributes
    ----------
    depthwise, dw_bn, pointwise, pw_bn
        The layers.
    dw_act, pw_act
        Functions of one array, or `None`: the activations after the normalisations.
    """

    depthwise: Conv
    dw_bn: BatchNorm
    pointwise: Conv
    pw_bn: BatchNorm
    dw_act: Activation = static(default=None)
    pw_act: Activation = static(default=ops.relu)

    @classmethod
    def build(
        cls,
        of: Builder,
        inputs: int,
        outputs: int,
        stride: int = 1,
        dilation: int = 1,
        *,
        dw_act: Activation = None,
        pw_act: Activation = ops.relu,
    ) -> Self:
        """Return a unit with kernels of 3x3, padded on both sides by ``dilation``."""
        settings: dict[str, Any] = {
            "padding": dilation,
            "dilation": dilation,
            "groups": inputs,
            "bias": False,
        }
        # He's variance by default, of one channel.  PyTorch's, 1 / inputs of it, would make values
        # so small that the eps of 1e-3 outweighs their variance.
        settings["stddev"] = math.sqrt(2 / 9)
        return cls(
            of.conv(inputs, inputs, 3, stride, **settings),
            of.batch_norm(inputs),
            of.conv(inputs, outputs, 1, bias=False),
            of.batch_norm(outputs),
            dw_act,
            pw_act,
        )

    def _forward(self, of: Any, x: Any) -> Any:
        """Return the output, shape ``(N, outputs, H, W)``."""
        x = _activated(self.dw_act, of.dw_bn(of.depthwise(x)))
        return _activated(self.pw_act, of.pw_bn(of.pointwise(x)))
