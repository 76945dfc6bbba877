"""Depthwise convolutions, and convolutions with separate weights for each window."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from fdbr import ops
from fdbr.core.array_modules import array_module, lock
from fdbr.errors.checks import integer
from fdbr.errors.public import public
from fdbr.nn import initializers
from fdbr.nn.convolution.settings import axes_of, kernel_of, settings_of
from fdbr.nn.layer import Layer
from fdbr.nn.parameters import Init, weight_and_bias
from fdbr.nn.settings import setting
from fdbr.ops.nn.windows import geometry_of
from fdbr.tree import frozen, static

__all__ = ["DepthwiseConv", "LocalConv"]


@public("fdbr.nn")
@frozen
class DepthwiseConv(Layer):
    """The depthwise convolution, which convolves each channel separately: `ops.depthwise_conv`.

    It is `Conv` with as many groups as channels.

    Attributes
    ----------
    weight
        Shape ``(channels * multiplier, 1, *kernel)``, as in PyTorch.
    bias
        Shape ``(channels * multiplier,)``, or `None`.
    stride, padding, dilation
        As for `ops.conv`.
    multiplier
        The number of output channels for each input channel.

    >>> import fdbr
    >>> layer = fdbr.nn.DepthwiseConv.init(fdbr.random.key(0), 3, 2, 5, padding="same")
    >>> layer.weight.shape, layer(fdbr.ops.ones((10, 3, 8, 8))).shape
    ((6, 1, 5, 5), (10, 6, 8, 8))
    """

    weight: Any
    bias: Any = None
    stride: Any = setting(default=1)
    padding: Any = setting(default=0)
    dilation: Any = setting(default=1)
    multiplier: int = static(default=1)

    @classmethod
    def init(
        cls,
        key: Any,
        in_channels: int,
        multiplier: int,
        kernel_size: int | Sequence[int],
        *,
        stride: int | Sequence[int] = 1,
        padding: Any = 0,
        dilation: int | Sequence[int] = 1,
        bias: bool = True,
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
        in_channels
            The number of channels of the input.
        multiplier
            The number of output channels for each input channel.
        kernel_size, ndim
            The lengths of the kernel, as in `Conv.init`.
        stride, padding, dilation
            The layer's settings, for all axes or one for each.
        bias
            Whether the layer has a bias.
        weight_init, bias_init
            ``init(key, shape, dtype)``; by default LeCun's normal distribution, and zeros.
        dtype
            The dtype of the parameters.

        Raises
        ------
        TypeError, ValueError
            If a setting is of a wrong type or value.
        """
        where = "fdbr.nn.DepthwiseConv.init"
        kernel = kernel_of(where, kernel_size, ndim)
        settings = settings_of(where, kernel, stride, padding, dilation)
        multiplier = integer(where, "multiplier", multiplier, least=1)
        count = multiplier * integer(where, "in_channels", in_channels, least=1)
        shape = (count, 1, *kernel)
        weight, own_bias = weight_and_bias(key, shape, count, bias, weight_init, bias_init, dtype)
        return cls(weight, own_bias, *settings, multiplier)

    def __call__(self, x: Any) -> Any:
        """Return the output for ``x`` of shape ``(N, in_channels, *spatial)``, where ``N`` may be
        missing.

        Raises
        ------
        ValueError
            If ``x`` has other axes or channels, or is smaller than the kernel.
        """
        return ops.depthwise_conv(
            x,
            self.weight,
            self.bias,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
        )


@public("fdbr.nn")
@frozen
class LocalConv(Layer):
    """The convolution with separate weights and bias for each window: `ops.local_conv`.

    Attributes
    ----------
    weight
        Shape ``(out_channels, *counts, in_channels, *kernel)``, as in Chainer, where ``counts``
        are the numbers of windows.
    bias
        Shape ``(out_channels, *counts)``, or `None`.
    stride, padding, dilation
        As for `ops.conv`.

    >>> import fdbr
    >>> layer = fdbr.nn.LocalConv.init(fdbr.random.key(0), 3, 4, (8, 6), 3)
    >>> layer.weight.shape, layer(fdbr.ops.ones((10, 3, 8, 6))).shape
    ((4, 6, 4, 3, 3, 3), (10, 4, 6, 4))
    """

    weight: Any
    bias: Any = None
    stride: Any = setting(default=1)
    padding: Any = setting(default=0)
    dilation: Any = setting(default=1)

    @classmethod
    def init(
        cls,
        key: Any,
        in_channels: int,
        out_channels: int,
        in_size: int | Sequence[int],
        kernel_size: int | Sequence[int],
        *,
        stride: int | Sequence[int] = 1,
        padding: Any = 0,
        dilation: int | Sequence[int] = 1,
        bias: bool = True,
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
        in_size
            The lengths of the spatial axes of the input.
        kernel_size, ndim
            The lengths of the kernel, as in `Conv.init`; if both sizes are integers, there are 2
            spatial axes.
        stride, padding, dilation
            The layer's settings, for all axes or one for each.
        bias
            Whether the layer has a bias.
        weight_init, bias_init
            ``init(key, shape, dtype)``; by default LeCun's normal distribution, and zeros.
            ``weight_init`` gets the shape of a convolution with one kernel for each window.
        dtype
            The dtype of the parameters.

        Raises
        ------
        TypeError, ValueError
            If a setting is of a wrong type or value, or the kernel larger than the input.
        """
        where = "fdbr.nn.LocalConv.init"
        if ndim is None and isinstance(in_size, Sequence):
            ndim = len(in_size)
        kernel = kernel_of(where, kernel_size, ndim)
        settings = settings_of(where, kernel, stride, padding, dilation)
        size = axes_of(where, "in_size", in_size, kernel, least=1)
        size = (size,) * len(kernel) if isinstance(size, int) else size
        inputs = integer(where, "in_channels", in_channels, least=1)
        outputs = integer(where, "out_channels", out_channels, least=1)
        counts = geometry_of("local_conv", kernel, *settings, size).counts(size)
        if min(counts) < 1:
            raise ValueError(
                f"{where}: kernel_size {kernel} does not fit into in_size {size} with padding "
                f"{settings[1]!r} and dilation {settings[2]!r}"
            )
        windows = int(np.prod(counts))
        shape = (outputs * windows, inputs, *kernel)
        weight, _ = weight_and_bias(key, shape, 0, False, weight_init, None, dtype)
        weight = weight.reshape((outputs, *counts, inputs, *kernel))
        weight = lock(array_module(weight).array(weight))  # memory of its own, not a view
        if not bias:
            return cls(weight, None, *settings)
        own_bias = (bias_init or initializers.zeros())(key, (outputs, *counts), dtype)
        return cls(weight, own_bias, *settings)

    def __call__(self, x: Any) -> Any:
        """Return the output for ``x`` of shape ``(N, in_channels, *in_size)``, where ``N`` may be
        missing.

        Raises
        ------
        ValueError
            If ``x`` has another size.
        """
        return ops.local_conv(
            x,
            self.weight,
            self.bias,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
        )
