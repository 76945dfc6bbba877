"""Convolutional layers in any number of dimensions."""

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np

from fdbr import ops
from fdbr.errors.public import public
from fdbr.nn import initializers
from fdbr.nn.convolution.settings import (
    MODES,
    axes_of,
    channels_of,
    check_room,
    kernel_of,
    settings_of,
)
from fdbr.nn.layer import Layer
from fdbr.nn.parameters import weight_and_bias
from fdbr.nn.settings import setting
from fdbr.ops.nn.windows import geometry_of
from fdbr.tree import frozen, static

__all__ = [
    "Conv",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
]


@public("fdbr.nn")
@frozen
class Conv(Layer):
    """The convolutional layer, `ops.conv`, in any number of dimensions.

    Attributes
    ----------
    weight
        Shape ``(out_channels, in_channels // groups, *kernel)``, as in PyTorch.
    bias
        Shape ``(out_channels,)``, or `None`.
    stride, padding, dilation, groups, cover_all
        As for `ops.conv`.
    padding_mode
        The padding: ``"zeros"``; ``"reflect"``, the input mirrored at its edge; ``"replicate"``,
        the edge itself; ``"circular"``, the other end.

    >>> import fdbr
    >>> layer = fdbr.nn.Conv.init(fdbr.random.key(0), 3, 8, 5, stride=2, padding=2)
    >>> layer.weight.shape
    (8, 3, 5, 5)
    >>> images = fdbr.random.normal(fdbr.random.key(1), (10, 3, 28, 28), "float32")
    >>> layer(images).shape
    (10, 8, 14, 14)
    """

    weight: Any
    bias: Any = None
    stride: Any = setting(default=1)
    padding: Any = setting(default=0)
    dilation: Any = setting(default=1)
    groups: int = static(default=1)
    padding_mode: str = static(default="zeros")
    cover_all: bool = static(default=False)

    _dimensions: ClassVar[int | None] = None

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
        padding_mode: str = "zeros",
        cover_all: bool = False,
        ndim: int | None = None,
        weight_init: initializers.Initializer | None = None,
        bias_init: initializers.Initializer | None = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a layer with fresh parameters.

        Parameters
        ----------
        key
            A random key.
        in_channels, out_channels
            The numbers of channels of the input and the output.
        kernel_size
            The lengths of the kernel, one for each spatial axis; or one integer for all of
            ``ndim`` axes.
        stride, padding, dilation, groups, padding_mode, cover_all
            The layer's settings, for all axes or one for each.
        bias
            Whether the layer has a bias.
        ndim
            The number of spatial axes, if ``kernel_size`` is one integer: by default 2, or the
            class's number (1 of `Conv1d`).
        weight_init, bias_init
            ``init(key, shape, dtype)``; by default LeCun's normal distribution, and zeros.
        dtype
            The dtype of the parameters.

        Returns
        -------
        Conv
            The layer.

        Raises
        ------
        TypeError, ValueError
            If a setting is of a wrong type or value, or groups do not divide the channels.

        >>> import fdbr
        >>> key = fdbr.random.key(0)
        >>> fdbr.nn.Conv.init(key, 2, 4, (3, 3, 1)).weight.shape
        (4, 2, 3, 3, 1)
        >>> fdbr.nn.Conv.init(key, 2, 4, 3, ndim=1, padding="same")(fdbr.ops.ones((2, 9))).shape
        (4, 9)
        """
        where = f"fdbr.nn.{cls.__name__}.init"
        kernel = kernel_of(where, kernel_size, ndim, cls._dimensions)
        settings = settings_of(where, kernel, stride, padding, dilation)
        inputs, outputs, groups = channels_of(where, in_channels, out_channels, groups)
        if padding_mode not in MODES:
            raise ValueError(
                f"{where}: padding_mode must be one of {', '.join(MODES)}, got {padding_mode!r}"
            )
        weight, own_bias = weight_and_bias(
            key, (outputs, inputs // groups, *kernel), outputs, bias, weight_init, bias_init, dtype
        )
        return cls(weight, own_bias, *settings, groups, padding_mode, bool(cover_all))

    def __call__(self, x: Any) -> Any:
        """Return the output for ``x``.

        Parameters
        ----------
        x
            Shape ``(N, in_channels, *spatial)``, or ``(in_channels, *spatial)``.

        Returns
        -------
        array
            Shape ``(N, out_channels, *counts)``, without ``N`` for a single example.

        Raises
        ------
        ValueError
            If ``x`` has other axes or channels, or is smaller than the kernel.
        """
        padding, cover_all = self.padding, self.cover_all
        if self.padding_mode != "zeros":
            x, padding, cover_all = self._around(x), 0, False
        return ops.conv(
            x,
            self.weight,
            self.bias,
            stride=self.stride,
            padding=padding,
            dilation=self.dilation,
            groups=self.groups,
            cover_all=cover_all,
        )

    def _around(self, x: Any) -> Any:
        """Pad ``x`` by the layer's mode."""
        x = ops.asarray(x)
        kernel = self.weight.shape[2:]
        if x.ndim not in (len(kernel) + 1, len(kernel) + 2):
            return x  # `conv` raises for it
        size = x.shape[x.ndim - len(kernel) :]
        settings = self.stride, self.padding, self.dilation, size, self.cover_all
        pairs = geometry_of("conv", kernel, *settings).padding
        where = f"fdbr.nn.{type(self).__name__} with padding_mode={self.padding_mode!r}"
        check_room(where, self.padding_mode, x, pairs)
        widths = ((0, 0),) * (x.ndim - len(kernel)) + pairs
        return ops.pad(x, widths, MODES[self.padding_mode])


@public("fdbr.nn")
@frozen
class Conv1d(Conv):
    """`Conv` over one spatial axis.

    >>> import fdbr
    >>> fdbr.nn.Conv1d.init(fdbr.random.key(0), 2, 4, 3)(fdbr.ops.ones((2, 9))).shape
    (4, 7)
    """

    _dimensions: ClassVar[int | None] = 1


@public("fdbr.nn")
@frozen
class Conv2d(Conv):
    """`Conv` over two spatial axes.

    >>> import fdbr
    >>> fdbr.nn.Conv2d.init(fdbr.random.key(0), 2, 4, 3)(fdbr.ops.ones((2, 9, 8))).shape
    (4, 7, 6)
    """

    _dimensions: ClassVar[int | None] = 2


@public("fdbr.nn")
@frozen
class Conv3d(Conv):
    """`Conv` over three spatial axes.

    >>> import fdbr
    >>> fdbr.nn.Conv3d.init(fdbr.random.key(0), 2, 4, 3)(fdbr.ops.ones((2, 5, 4, 3))).shape
    (4, 3, 2, 1)
    """

    _dimensions: ClassVar[int | None] = 3


@public("fdbr.nn")
@frozen
class ConvTranspose(Layer):
    """The transposed convolutional layer, `ops.conv_transpose`, in any number of dimensions.

    Attributes
    ----------
    weight
        Shape ``(in_channels, out_channels // groups, *kernel)``, as in PyTorch.
    bias
        Shape ``(out_channels,)``, or `None`.
    stride, padding, output_padding, dilation, groups
        As for `ops.conv_transpose`.

    >>> import fdbr
    >>> layer = fdbr.nn.ConvTranspose.init(fdbr.random.key(0), 8, 3, 4, stride=2, padding=1)
    >>> layer.weight.shape
    (8, 3, 4, 4)
    >>> layer(fdbr.random.normal(fdbr.random.key(1), (10, 8, 7, 7), "float32")).shape
    (10, 3, 14, 14)
    """

    weight: Any
    bias: Any = None
    stride: Any = setting(default=1)
    padding: Any = setting(default=0)
    output_padding: Any = setting(default=0)
    dilation: Any = setting(default=1)
    groups: int = static(default=1)

    _dimensions: ClassVar[int | None] = None

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
        output_padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        bias: bool = True,
        ndim: int | None = None,
        weight_init: initializers.Initializer | None = None,
        bias_init: initializers.Initializer | None = None,
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
        stride, padding, output_padding, dilation, groups
            The layer's settings, for all axes or one for each.
        bias
            Whether the layer has a bias.
        weight_init, bias_init
            ``init(key, shape, dtype)``; by default LeCun's normal distribution, and zeros.
        dtype
            The dtype of the parameters.

        Returns
        -------
        ConvTranspose
            The layer.

        Raises
        ------
        TypeError, ValueError
            If a setting is of a wrong type or value, or groups do not divide the channels.
        """
        where = f"fdbr.nn.{cls.__name__}.init"
        kernel = kernel_of(where, kernel_size, ndim, cls._dimensions)
        stride, padding, dilation = settings_of(where, kernel, stride, padding, dilation)
        more = axes_of(where, "output_padding", output_padding, kernel, least=0)
        inputs, outputs, groups = channels_of(where, in_channels, out_channels, groups)
        weight, own_bias = weight_and_bias(
            key, (inputs, outputs // groups, *kernel), outputs, bias, weight_init, bias_init, dtype
        )
        return cls(weight, own_bias, stride, padding, more, dilation, groups)

    def __call__(self, x: Any, output_size: int | Sequence[int] | None = None) -> Any:
        """Return the output for ``x``.

        Parameters
        ----------
        x
            Shape ``(N, in_channels, *spatial)``, or ``(in_channels, *spatial)``.
        output_size
            The lengths of the result's spatial axes, instead of ``output_padding``.

        Returns
        -------
        array
            Shape ``(N, out_channels, *lengths)``, without ``N`` for a single example.

        Raises
        ------
        ValueError
            If ``x`` has other axes or channels, or no result has that size.
        """
        return ops.conv_transpose(
            x,
            self.weight,
            self.bias,
            stride=self.stride,
            padding=self.padding,
            output_padding=self.output_padding,
            dilation=self.dilation,
            groups=self.groups,
            output_size=output_size,
        )


@public("fdbr.nn")
@frozen
class ConvTranspose1d(ConvTranspose):
    """`ConvTranspose` over one spatial axis.

    >>> import fdbr
    >>> fdbr.nn.ConvTranspose1d.init(fdbr.random.key(0), 2, 4, 3)(fdbr.ops.ones((2, 9))).shape
    (4, 11)
    """

    _dimensions: ClassVar[int | None] = 1


@public("fdbr.nn")
@frozen
class ConvTranspose2d(ConvTranspose):
    """`ConvTranspose` over two spatial axes.

    >>> import fdbr
    >>> fdbr.nn.ConvTranspose2d.init(fdbr.random.key(0), 2, 4, 3)(fdbr.ops.ones((2, 9, 8))).shape
    (4, 11, 10)
    """

    _dimensions: ClassVar[int | None] = 2


@public("fdbr.nn")
@frozen
class ConvTranspose3d(ConvTranspose):
    """`ConvTranspose` over three spatial axes.

    >>> import fdbr
    >>> fdbr.nn.ConvTranspose3d.init(fdbr.random.key(0), 2, 4, 1)(fdbr.ops.ones((2, 3, 4, 5))).shape
    (4, 3, 4, 5)
    """

    _dimensions: ClassVar[int | None] = 3
