"""The blocks of GoogLeNet, and of networks in networks."""

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from fdbr import ops, random, tree
from fdbr.errors.checks import integer, name_of
from fdbr.errors.public import public
from fdbr.nn import initializers
from fdbr.nn.composite import Composite
from fdbr.nn.convolution.layers import Conv
from fdbr.nn.layer import Layer
from fdbr.tree import frozen, static

__all__ = ["Inception", "MLPConv"]

Init = initializers.Initializer | None


@public("fdbr.nn")
@frozen
class Inception(Composite):
    """Convolutions of 1, 3 and 5 pixels and a maximum, side by side along the channels.

    ``relu(concat([conv1(x), conv3(relu(proj3(x))), conv5(relu(proj5(x))), projp(max_pool(x))]))``,
    with as many pixels as ``x``: Szegedy et al., *Going deeper with convolutions*, CVPR 2015.
    Names are Chainer's.

    Attributes
    ----------
    conv1, proj3, conv3, proj5, conv5, projp
        `Conv`, of 1, 1, 3, 1, 5 and 1 pixels.

    >>> import fdbr
    >>> layer = fdbr.nn.Inception.init(fdbr.random.key(0), 16, 8, 4, 12, 2, 4, 4)
    >>> layer(fdbr.ops.ones((1, 16, 7, 7))).shape
    (1, 28, 7, 7)
    """

    conv1: Conv
    proj3: Conv
    conv3: Conv
    proj5: Conv
    conv5: Conv
    projp: Conv

    @classmethod
    def init(
        cls,
        key: Any,
        in_channels: int,
        out1: int,
        proj3: int,
        out3: int,
        proj5: int,
        out5: int,
        proj_pool: int,
        *,
        weight_init: Init = None,
        bias_init: Init = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a block with fresh parameters.

        Parameters
        ----------
        key
            A random key.
        in_channels
            The number of channels of the input.
        out1, out3, out5, proj_pool
            How many channels of the output come from the convolutions of 1, 3 and 5 pixels, and
            from the maximum.
        proj3, proj5
            The numbers of input channels of the convolutions of 3 and 5 pixels.
        weight_init, bias_init
            ``init(key, shape, dtype)``, as for `Conv.init`.
        dtype
            The dtype of the parameters.

        Raises
        ------
        TypeError, ValueError
            If a number of channels is not a positive integer.
        """
        settings = {"weight_init": weight_init, "bias_init": bias_init, "dtype": dtype}
        keys = random.split(key, 6)
        return cls(
            Conv.init(keys[0], in_channels, out1, 1, **settings),
            Conv.init(keys[1], in_channels, proj3, 1, **settings),
            Conv.init(keys[2], proj3, out3, 3, padding=1, **settings),
            Conv.init(keys[3], in_channels, proj5, 1, **settings),
            Conv.init(keys[4], proj5, out5, 5, padding=2, **settings),
            Conv.init(keys[5], in_channels, proj_pool, 1, **settings),
        )

    def _forward(self, of: Any, x: Any) -> Any:
        parts = [
            of.conv1(x),
            of.conv3(ops.relu(of.proj3(x))),
            of.conv5(ops.relu(of.proj5(x))),
            of.projp(ops.max_pool(x, (3, 3), stride=1, padding=1)),
        ]
        return ops.relu(ops.concat(parts, axis=-3))


@public("fdbr.nn")
@frozen
class MLPConv(Layer):
    """A convolution, and after it convolutions of one pixel: a small network for each window.

    The activation is applied between them, not after the last one: Lin, Chen & Yan, *Network in
    network*, ICLR 2014.

    Attributes
    ----------
    layers
        A tuple of `Conv`.
    activation
        A function.

    >>> import fdbr
    >>> layer = fdbr.nn.MLPConv.init(fdbr.random.key(0), 3, (16, 16, 8), 5, padding=2)
    >>> layer(fdbr.ops.ones((2, 3, 9, 9))).shape
    (2, 8, 9, 9)
    """

    layers: tuple[Any, ...]
    activation: Callable[[Any], Any] = static(default=ops.relu, repr=name_of)

    @classmethod
    def init(
        cls,
        key: Any,
        in_channels: int,
        out_channels: Sequence[int],
        kernel_size: int | Sequence[int],
        *,
        stride: int | Sequence[int] = 1,
        padding: Any = 0,
        activation: Callable[[Any], Any] = ops.relu,
        ndim: int | None = None,
        weight_init: Init = None,
        bias_init: Init = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a block with fresh parameters.

        Parameters
        ----------
        key
            A random key.
        in_channels
            The number of channels of the input.
        out_channels
            The number of output channels of each convolution.
        kernel_size, stride, padding, ndim
            Those of the first convolution, as for `Conv.init`.
        activation
            A function.
        weight_init, bias_init
            ``init(key, shape, dtype)``, as for `Conv.init`.
        dtype
            The dtype of the parameters.

        Raises
        ------
        TypeError, ValueError
            If a setting does not fit, or there is no convolution.
        """
        where = "fdbr.nn.MLPConv.init"
        if not isinstance(out_channels, Sequence) or not out_channels:
            raise ValueError(
                f"{where}: out_channels must be a sequence of numbers, one for each convolution, "
                f"got {out_channels!r}"
            )
        outputs = [integer(where, "out_channels", count, least=1) for count in out_channels]
        settings = {"weight_init": weight_init, "bias_init": bias_init, "dtype": dtype}
        first, *keys = random.split(key, len(outputs))
        layers = [
            Conv.init(
                first,
                in_channels,
                outputs[0],
                kernel_size,
                stride=stride,
                padding=padding,
                ndim=ndim,
                **settings,
            )
        ]
        one = (1,) * (layers[0].weight.ndim - 2)
        for own, before, after in zip(keys, outputs, outputs[1:], strict=False):
            layers.append(Conv.init(own, before, after, one, **settings))
        return cls(tuple(layers), activation)

    def __call__(self, x: Any) -> Any:
        """Return the output of the last convolution.

        Raises
        ------
        ValueError
            If ``x`` does not fit the first convolution.
        """
        *others, last = self.layers
        for layer in others:
            x = self.activation(layer(x))
        return last(x)

    def train(self, x: Any, *, key: Any = None) -> tuple[Any, Self]:
        """Return the output in training, and the block of the layers' successors."""
        keys = [None] * len(self.layers)
        if key is not None:
            keys = list(random.split(key, len(self.layers)))
        successors: list[Any] = []
        for layer, own in zip(self.layers, keys, strict=True):
            x, successor = layer.train(self.activation(x) if successors else x, key=own)
            successors.append(successor)
        return x, tree.replace(self, layers=tuple(successors))
