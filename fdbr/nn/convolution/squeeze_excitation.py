"""Squeeze and excitation: channels are weighted by global features."""

from collections.abc import Callable
from typing import Any, Self

import numpy as np

from fdbr import ops, random
from fdbr.errors.checks import name_of
from fdbr.errors.public import public
from fdbr.nn import initializers
from fdbr.nn.composite import Composite
from fdbr.nn.convolution.layers import Conv
from fdbr.tree import frozen, static

__all__ = ["SqueezeExcitation"]


@public("fdbr.nn")
@frozen
class SqueezeExcitation(Composite):
    """Scale each channel by a factor that a small network computes from all channels' means.

    ``x * scale_activation(fc2(activation(fc1(mean(x)))))``: Hu, Shen & Sun,
    *Squeeze-and-excitation networks*, CVPR 2018.  Names are torchvision's.

    Attributes
    ----------
    fc1, fc2
        `Conv` of one pixel, from ``input_channels`` to ``squeeze_channels`` and back.
    activation, scale_activation
        Functions.

    >>> import fdbr
    >>> layer = fdbr.nn.SqueezeExcitation.init(fdbr.random.key(0), 16, 4)
    >>> layer.fc1.weight.shape, layer(fdbr.ops.ones((2, 16, 7, 7))).shape
    ((4, 16, 1, 1), (2, 16, 7, 7))
    """

    fc1: Conv
    fc2: Conv
    activation: Callable[[Any], Any] = static(default=ops.relu, repr=name_of)
    scale_activation: Callable[[Any], Any] = static(default=ops.sigmoid, repr=name_of)

    @classmethod
    def init(
        cls,
        key: Any,
        input_channels: int,
        squeeze_channels: int,
        *,
        activation: Callable[[Any], Any] = ops.relu,
        scale_activation: Callable[[Any], Any] = ops.sigmoid,
        bias: bool = True,
        ndim: int = 2,
        weight_init: initializers.Initializer | None = None,
        bias_init: initializers.Initializer | None = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a layer with fresh parameters.

        Parameters
        ----------
        key
            A random key.
        input_channels, squeeze_channels
            The number of channels, and the width of the small network.
        activation, scale_activation
            The activations after its first and its second layer; MobileNetV3 has
            ``ops.hard_sigmoid`` as the second.
        bias
            Whether the small network has biases.
        ndim
            The number of spatial axes.
        weight_init, bias_init
            ``init(key, shape, dtype)``, as for `Conv.init`.
        dtype
            The dtype of the parameters.

        Raises
        ------
        TypeError, ValueError
            If a number of channels is not a positive integer.
        """
        first, second = random.split(key)
        settings: dict[str, Any] = {"bias": bias, "ndim": ndim, "dtype": dtype}
        settings |= {"weight_init": weight_init, "bias_init": bias_init}
        return cls(
            Conv.init(first, input_channels, squeeze_channels, 1, **settings),
            Conv.init(second, squeeze_channels, input_channels, 1, **settings),
            activation,
            scale_activation,
        )

    def _forward(self, of: Any, x: Any) -> Any:
        x = ops.asarray(x)
        axes = tuple(range(2 - self.fc1.weight.ndim, 0))
        means = ops.mean(x, axis=axes, keepdims=True)
        return x * self.scale_activation(of.fc2(self.activation(of.fc1(means))))
