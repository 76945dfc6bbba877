"""Convolutional layers with deformed windows."""

import math
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from fdbr import ops, random
from fdbr.errors.checks import integer
from fdbr.errors.public import public
from fdbr.nn import initializers
from fdbr.nn.composite import Composite
from fdbr.nn.convolution.layers import Conv
from fdbr.nn.convolution.settings import channels_of, kernel_of, settings_of
from fdbr.nn.layer import Layer
from fdbr.nn.parameters import Init, weight_and_bias
from fdbr.nn.settings import setting
from fdbr.tree import frozen, static

__all__ = ["DeformConv", "DeformableConv"]


@public("fdbr.nn")
@frozen
class DeformConv(Layer):
    """The deformable convolution for given offsets, `ops.deform_conv`.

    Attributes
    ----------
    weight
        Shape ``(out_channels, in_channels // groups, *kernel)``, as in torchvision.
    bias
        Shape ``(out_channels,)``, or `None`.
    stride, padding, dilation, planar
        As for `ops.deform_conv`.

    >>> import fdbr
    >>> layer = fdbr.nn.DeformConv.init(fdbr.random.key(0), 4, 8, 3)
    >>> layer(fdbr.ops.ones((2, 4, 9, 9)), fdbr.ops.zeros((2, 18, 7, 7))).shape
    (2, 8, 7, 7)
    """

    weight: Any
    bias: Any = None
    stride: Any = setting(default=1)
    padding: Any = setting(default=0)
    dilation: Any = setting(default=1)
    planar: bool = static(default=False)

    @classmethod
    def init(
        cls,
        key: Any,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        *,
        stride: int | Sequence[int] = 1,
        padding: Any = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        bias: bool = True,
        planar: bool = False,
        ndim: int | None = None,
        weight_init: Init = None,
        bias_init: Init = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a layer with fresh parameters.

        Parameters
        ----------
        key
            A random key.
        in_channels, out_channels
            The numbers of channels of the input and the output.
        kernel_size, ndim
            The lengths of the kernel, as in `Conv.init`.
        stride, padding, dilation, groups
            The layer's settings, for all axes or one for each.
        bias
            Whether the layer has a bias.
        planar
            Whether offsets are laid out as in Chainer.
        weight_init, bias_init
            ``init(key, shape, dtype)``; by default LeCun's normal distribution, and zeros
            (Chainer's default are zeros for both).
        dtype
            The dtype of the parameters.

        Raises
        ------
        TypeError, ValueError
            If a setting is of a wrong type or value, or groups do not divide the channels.
        """
        where = "fdbr.nn.DeformConv.init"
        kernel = kernel_of(where, kernel_size, ndim)
        settings = settings_of(where, kernel, stride, padding, dilation)
        inputs, outputs, groups = channels_of(where, in_channels, out_channels, groups)
        shape = (outputs, inputs // groups, *kernel)
        weight, own_bias = weight_and_bias(key, shape, outputs, bias, weight_init, bias_init, dtype)
        return cls(weight, own_bias, *settings, bool(planar))

    def __call__(self, x: Any, offset: Any, mask: Any = None) -> Any:
        """Return the output for ``x``, with windows deformed by ``offset`` and weighted by
        ``mask``.

        Raises
        ------
        ValueError
            If shapes do not fit.
        """
        return ops.deform_conv(
            x,
            offset,
            self.weight,
            self.bias,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            mask=mask,
            planar=self.planar,
        )

    def train(
        self, x: Any, offset: Any = None, mask: Any = None, *, key: Any = None
    ) -> tuple[Any, Self]:
        """Return ``(self(x, offset, mask), self)``."""
        return self(x, offset, mask), self


@public("fdbr.nn")
@frozen
class DeformableConv(Composite):
    """The deformable convolution whose offsets are a convolution of the input.

    Dai et al., *Deformable convolutional networks*, ICCV 2017; with a mask, which is the sigmoid
    of a further part of that convolution, Zhu et al., *Deformable ConvNets v2*, CVPR 2019.  Names
    are Chainer's.

    Attributes
    ----------
    offset_conv
        A `Conv`.
    deform_conv
        A `DeformConv`.
    mask
        Whether there is a mask.

    >>> import fdbr
    >>> layer = fdbr.nn.DeformableConv.init(fdbr.random.key(0), 4, 8, 3, padding=1)
    >>> layer(fdbr.ops.ones((2, 4, 9, 9))).shape
    (2, 8, 9, 9)
    """

    offset_conv: Conv
    deform_conv: DeformConv
    mask: bool = static(default=False)

    @classmethod
    def init(
        cls,
        key: Any,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        *,
        stride: int | Sequence[int] = 1,
        padding: Any = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        offset_groups: int = 1,
        bias: bool = True,
        offset_bias: bool = True,
        mask: bool = False,
        planar: bool = False,
        ndim: int | None = None,
        weight_init: Init = None,
        bias_init: Init = None,
        offset_weight_init: Init = None,
        offset_bias_init: Init = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a layer with fresh parameters.

        Parameters
        ----------
        key
            A random key.
        in_channels, out_channels
            The numbers of channels of the input and the output.
        kernel_size, ndim
            The lengths of both kernels, as in `Conv.init`.
        stride, padding, dilation, groups
            The settings of both convolutions; ``groups`` are those of the second only.
        offset_groups
            The number of groups of channels with separate offsets.
        bias, offset_bias
            Whether the second and the first convolution have a bias.
        mask
            Whether each element of a window is also weighted.
        planar
            Whether offsets are laid out as in Chainer, whose weights then fit.
        weight_init, bias_init
            Initializers of the second convolution; by default LeCun's normal distribution, and
            zeros.
        offset_weight_init, offset_bias_init
            Initializers of the first; by default zeros, so that windows are not deformed at first.
        dtype
            The dtype of the parameters.

        Raises
        ------
        TypeError, ValueError
            If a setting is of a wrong type or value, or groups do not divide the channels.
        """
        where = "fdbr.nn.DeformableConv.init"
        kernel = kernel_of(where, kernel_size, ndim)
        count = integer(where, "offset_groups", offset_groups, least=1) * math.prod(kernel)
        if integer(where, "in_channels", in_channels, least=1) % offset_groups:
            raise ValueError(
                f"{where}: offset_groups must divide in_channels={in_channels}, got {offset_groups}"
            )
        windows: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation}
        first, second = random.split(key)
        zeros = initializers.zeros()
        offset_conv = Conv.init(
            first,
            in_channels,
            count * (len(kernel) + bool(mask)),
            kernel,
            bias=offset_bias,
            weight_init=offset_weight_init or zeros,
            bias_init=offset_bias_init or zeros,
            dtype=dtype,
            **windows,
        )
        deform_conv = DeformConv.init(
            second,
            in_channels,
            out_channels,
            kernel,
            groups=groups,
            bias=bias,
            planar=planar,
            weight_init=weight_init,
            bias_init=bias_init,
            dtype=dtype,
            **windows,
        )
        return cls(offset_conv, deform_conv, bool(mask))

    def _forward(self, of: Any, x: Any) -> Any:
        steps = of.offset_conv(x)
        if not self.mask:
            return of.deform_conv(x, steps)
        rank = self.deform_conv.weight.ndim - 2
        channels = steps.shape[-rank - 1] // (rank + 1) * rank
        of_steps, of_mask = (slice(channels), slice(channels, None))
        rest = (slice(None),) * rank
        mask = ops.sigmoid(steps[(..., of_mask, *rest)])
        return of.deform_conv(x, steps[(..., of_steps, *rest)], mask)
