"""A builder of a model's layers, each with its own key."""

import math
from typing import Any

import numpy as np

from fdbr import ops, random
from fdbr.core.array_modules import array_module, lock
from fdbr.errors.checks import integer
from fdbr.nn import initializers
from fdbr.nn.convolution.layers import Conv
from fdbr.nn.convolution.squeeze_excitation import SqueezeExcitation
from fdbr.nn.linear import Linear
from fdbr.nn.normalization.batches import BatchNorm
from fdbr.nn.normalization.layers import LayerNorm
from fdbr.nn.sequential import Sequential
from fdbr.tree import frozen, static

__all__ = ["Builder", "Spread", "numbers_of_blocks", "positive"]

PART = 1 << 22
"""The number of values drawn at a time, which bounds the temporary memory of drawing."""


@frozen
class Spread:
    """Values distributed uniformly, of mean 0 and a standard deviation.

    The standard deviation is ``stddev``; or, if that is 0, ``sqrt(2 / fan_out)``, which keeps the
    variance of gradients through convolutions and rectifiers (He et al., ICCV 2015).  Uniform
    numbers take half the time of normal ones, which saves seconds for large models.
    """

    stddev: float = static(default=0.0)

    def __call__(self, key: Any, shape: Any, dtype: Any = np.float32) -> Any:
        """Return an array of that shape and dtype."""
        fan_out = shape[0] * math.prod(shape[2:])
        draw = initializers.Uniform(math.sqrt(3) * (self.stddev or math.sqrt(2 / fan_out)))
        count = math.prod(shape)
        if count <= PART:
            return draw(key, shape, dtype)
        out = array_module(key).empty(shape, dtype=dtype)
        flat = out.reshape(-1)
        for i, part in enumerate(random.split(key, -(-count // PART))):
            piece = flat[i * PART : (i + 1) * PART]
            piece[...] = draw(part, piece.shape, dtype)
        return lock(out)


class Builder:
    """Builds the layers of a model in their order.

    Parameters
    ----------
    key
        The key of the model.
    weight_init
        The initializer of all weights; `None` for the default of each layer.
    dtype
        The dtype of all parameters.
    stddev
        The default standard deviation of weights, as for `Spread`.
    eps, momentum
        The settings of batch normalisation.
    """

    def __init__(
        self,
        key: Any,
        weight_init: Any,
        dtype: Any,
        *,
        stddev: float = 0.0,
        eps: float = 1e-5,
        momentum: float = 0.1,
    ) -> None:
        self._key = key
        self._made = 0
        self._init = weight_init
        self._default = Spread(stddev)
        self._batch: dict[str, Any] = {"eps": eps, "momentum": momentum}
        self.dtype = dtype

    def key(self) -> Any:
        """Return the next key."""
        self._made += 1
        return random.fold_in(self._key, self._made - 1)

    def options(self, stddev: float | None = None) -> dict[str, Any]:
        """Return the options of layers that have a weight."""
        default = self._default if stddev is None else Spread(stddev)
        return {"weight_init": self._init or default, "dtype": self.dtype}

    def conv(
        self, inputs: int, outputs: int, kernel: Any, stride: int = 1, **settings: Any
    ) -> Conv:
        """Return a convolution, by default padded to keep the size up to its stride."""
        settings.setdefault("padding", kernel // 2)
        options = self.options(settings.pop("stddev", None))
        return Conv.init(self.key(), inputs, outputs, kernel, stride=stride, **settings, **options)

    def linear(
        self, inputs: int, outputs: int, stddev: float | None = None, **settings: Any
    ) -> Linear:
        """Return a fully connected layer."""
        return Linear.init(self.key(), inputs, outputs, **settings, **self.options(stddev))

    def batch_norm(self, count: int) -> BatchNorm:
        """Return a batch normalisation."""
        return BatchNorm.init(self.key(), count, dtype=self.dtype, **self._batch)

    def layer_norm(self, count: int, eps: float) -> LayerNorm:
        """Return a layer normalisation."""
        return LayerNorm.init(self.key(), count, eps=eps, dtype=self.dtype)

    def excitation(self, channels: int, squeezed: int, **settings: Any) -> SqueezeExcitation:
        """Return a squeeze and excitation."""
        options = self.options()
        return SqueezeExcitation.init(self.key(), channels, squeezed, **settings, **options)

    def weight(self, shape: tuple[int, ...], stddev: float) -> Any:
        """Return a parameter that belongs to no layer."""
        return (self._init or Spread(stddev))(self.key(), shape, self.dtype)

    def unit(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        stride: int = 1,
        *,
        act: Any = ops.relu,
        **settings: Any,
    ) -> Sequential:
        """Return a convolution without bias, batch normalisation, and an activation if there is
        one.
        """
        conv = self.conv(inputs, outputs, kernel, stride, bias=False, **settings)
        rest = [self.batch_norm(outputs)] if act is None else [self.batch_norm(outputs), act]
        return Sequential(conv, *rest)


def positive(model: Any, **sizes: Any) -> None:
    """Raise for sizes that are not positive integers."""
    for name, size in sizes.items():
        integer(f"fdbr.nn.models.{model.__name__}.init", name, size, least=1)


def numbers_of_blocks(model: Any, depths: Any, stages: int | None = None) -> tuple[int, ...]:
    """Check the numbers of blocks of each stage."""
    numbers = tuple(depths)
    positive(model, **{f"depths[{i}]": depth for i, depth in enumerate(numbers)})
    if not numbers or stages not in (None, len(numbers)):
        raise ValueError(
            f"fdbr.nn.models.{model.__name__}.init: depths must be a number for each stage"
            f"{f', of which there are {stages}' if stages else ''}; got {depths!r}"
        )
    return numbers
