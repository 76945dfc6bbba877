"""The block of ConvNeXt."""

from typing import Any, Self

import numpy as np

from fdbr import ops, random
from fdbr.errors.checks import describe, integer
from fdbr.errors.layer_path import placed
from fdbr.errors.public import public
from fdbr.nn import initializers
from fdbr.nn.composite import Composite
from fdbr.nn.convolution.layers import Conv
from fdbr.nn.dropout import StochasticDepth
from fdbr.nn.linear import Linear
from fdbr.nn.normalization.layers import LayerNorm
from fdbr.nn.sequential import Sequential
from fdbr.tree import frozen

__all__ = ["ConvNeXtBlock"]


def channels_last(x: Any) -> Any:
    """Move the channels of ``(N, C, *spatial)`` to the last axis."""
    return ops.moveaxis(x, 1, -1)


def channels_first(x: Any) -> Any:
    """Move the channels of ``(N, *spatial, C)`` to axis 1."""
    return ops.moveaxis(x, -1, 1)


@public("fdbr.nn")
@frozen
class ConvNeXtBlock(Composite):
    """A depthwise convolution and a network for each pixel, added to the input.

    ``x + drop(layer_scale * block(x))``, where ``block`` is a depthwise convolution, `LayerNorm`
    over the channels, and two layers with ``gelu`` between them; ``drop`` skips it for some
    examples in training (`StochasticDepth`).  Liu et al., *A ConvNet for the 2020s*, CVPR 2022.
    Names and numbers are those of torchvision's ``CNBlock``.

    Attributes
    ----------
    layer_scale
        Shape ``(dim, 1, 1)``.
    block
        A `Sequential`; its layers 0, 2, 3 and 5 have parameters.
    stochastic_depth
        A `StochasticDepth`.

    >>> import fdbr
    >>> layer = fdbr.nn.ConvNeXtBlock.init(fdbr.random.key(0), 4, stochastic_depth_prob=0.1)
    >>> y, layer = layer.train(fdbr.ops.ones((2, 4, 9, 9)), key=fdbr.random.key(1))
    >>> y.shape, layer.block[3].weight.shape
    ((2, 4, 9, 9), (16, 4))
    """

    layer_scale: Any
    block: Sequential
    stochastic_depth: StochasticDepth

    @classmethod
    def init(
        cls,
        key: Any,
        dim: int,
        layer_scale: float = 1e-6,
        stochastic_depth_prob: float = 0.0,
        *,
        kernel_size: int = 7,
        ndim: int = 2,
        weight_init: initializers.Initializer | None = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a block with fresh parameters.

        Parameters
        ----------
        key
            A random key.
        dim
            The number of channels.
        layer_scale
            The initial factor of the residual branch.
        stochastic_depth_prob
            The probability, in [0, 1), that an example skips the branch in training.
        kernel_size, ndim
            The length of the depthwise kernel, an odd number, along each of the spatial axes.
        weight_init
            ``init(key, shape, dtype)``; by default LeCun's normal distribution (torchvision's
            models have a truncated normal one of standard deviation 0.02).
        dtype
            The dtype of the parameters.

        Raises
        ------
        TypeError, ValueError
            If a number of channels is not a positive integer, the kernel has even length, or the
            probability lies outside [0, 1).
        """
        where = "fdbr.nn.ConvNeXtBlock.init"
        dim = integer(where, "dim", dim, least=1)
        if not integer(where, "kernel_size", kernel_size, least=1) % 2:
            raise ValueError(
                f"{where}: kernel_size must be odd, for the result has the size of the input; "
                f"got {kernel_size}"
            )
        if not 0 <= stochastic_depth_prob < 1:
            raise ValueError(
                f"{where}: stochastic_depth_prob must be in [0, 1), got {stochastic_depth_prob}"
            )
        depthwise, wide, narrow = random.split(key, 3)
        settings: dict[str, Any] = {"weight_init": weight_init, "dtype": dtype}
        block = Sequential(
            Conv.init(
                depthwise,
                dim,
                dim,
                kernel_size,
                padding=kernel_size // 2,
                groups=dim,
                ndim=ndim,
                **settings,
            ),
            channels_last,
            LayerNorm.init(None, dim, eps=1e-6, dtype=dtype),
            Linear.init(wide, dim, 4 * dim, **settings),
            ops.gelu,
            Linear.init(narrow, 4 * dim, dim, **settings),
            channels_first,
        )
        scale = initializers.constant(layer_scale)(key, (dim, *(1,) * ndim), dtype)
        return cls(scale, block, StochasticDepth(stochastic_depth_prob))

    def _forward(self, of: Any, x: Any) -> Any:
        x = ops.asarray(x)
        axes = self.layer_scale.ndim
        if x.ndim == axes:  # a single example
            return self._forward(of, x[None])[0]
        if x.ndim != axes + 1:
            raise ValueError(
                placed(
                    f"fdbr.nn.ConvNeXtBlock: x must have a batch axis, {self.layer_scale.shape[0]} "
                    f"channels and {axes - 1} spatial axes, got {describe(x)}"
                )
            )
        branch = self.layer_scale * of.block(x)
        return x + (of.stochastic_depth(branch) if self.stochastic_depth.rate else branch)
