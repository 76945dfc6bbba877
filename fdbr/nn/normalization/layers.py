"""Layers that normalise each example over some axes."""

from typing import Any, Self

import numpy as np

from fdbr import ops, random
from fdbr.errors.checks import describe, integer
from fdbr.errors.layer_path import placed
from fdbr.errors.public import public
from fdbr.nn import initializers
from fdbr.nn.layer import Layer
from fdbr.tree import frozen, static

__all__ = ["GroupNorm", "LayerNorm", "RMSNorm"]

Init = initializers.Initializer | None


def affine_parameters(
    key: Any,
    shape: tuple[int, ...],
    weight_init: Init,
    bias_init: Init,
    dtype: Any,
    bias: bool,
    weight: bool = True,
) -> tuple[Any, Any]:
    """Return a weight, by default ones, and a bias, by default zeros; either may be `None`."""
    weight_key, bias_key = (None, None) if key is None else random.split(key)
    return (
        (weight_init or initializers.ones())(weight_key, shape, dtype) if weight else None,
        (bias_init or initializers.zeros())(bias_key, shape, dtype) if bias else None,
    )


def _alone(x: Any, channels: int) -> str:
    """Return advice for a single example without a batch axis."""
    if getattr(x, "shape", ())[:1] != (channels,):
        return ""
    return "; a single example, as in a vmap, is a batch of one: layer(x[None])[0]"


def check_channels(name: str, x: Any, channels: int) -> None:
    if getattr(x, "shape", ())[1:2] != (channels,):
        raise ValueError(
            placed(
                f"fdbr.nn.{name}: x must have shape (N, {channels}, ...), got {describe(x)}; build "
                f"the layer for as many channels{_alone(x, channels)}"
            )
        )


@public("fdbr.nn")
@frozen
class LayerNorm(Layer):
    """Normalise the last axes of each example to mean 0 and variance 1.

    Ba, Kiros & Hinton, *Layer normalization*, arXiv:1607.06450.

    Attributes
    ----------
    weight, bias
        Shape ``normalized_shape``, or `None`.
    normalized_shape, eps
        The settings.

    >>> import fdbr
    >>> import numpy as np
    >>> layer = fdbr.nn.LayerNorm.init(None, 2)
    >>> layer(np.array([[1.0, 3.0]], np.float32)).round(3)
    array([[-1.,  1.]], dtype=float32)
    """

    weight: Any
    bias: Any
    normalized_shape: tuple[int, ...] = static()
    eps: float = static(default=1e-5)

    @classmethod
    def init(
        cls,
        key: Any,
        normalized_shape: int | tuple[int, ...],
        *,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        weight_init: Init = None,
        bias_init: Init = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a layer with weight 1 and bias 0.

        Parameters
        ----------
        key
            A random key; `None` suffices for the default initializers.
        normalized_shape
            The lengths of the last axes, over which the statistics are taken.
        eps
            A small number that is added to the variance (Chainer's default is 1e-6).
        elementwise_affine, bias
            Whether the result is multiplied by a weight, and whether a bias is then added.
        weight_init, bias_init
            ``init(key, shape, dtype)``; by default ones and zeros.
        dtype
            The dtype of the parameters.

        Raises
        ------
        TypeError, ValueError
            If the lengths are not positive integers.
        """
        shape = _lengths("fdbr.nn.LayerNorm.init", normalized_shape)
        scale = shift = None
        if elementwise_affine:
            scale, shift = affine_parameters(key, shape, weight_init, bias_init, dtype, bias)
        return cls(scale, shift, shape, float(eps))

    def __call__(self, x: Any) -> Any:
        """Return the normalised array.

        Raises
        ------
        ValueError
            If ``x`` does not end in axes of these lengths.
        """
        _check_last(self, x)
        axes = tuple(range(-len(self.normalized_shape), 0))
        return ops.layer_norm(x, self.weight, self.bias, axis=axes, eps=self.eps)


@public("fdbr.nn")
@frozen
class RMSNorm(Layer):
    """Divide the last axes of each example by the root of their mean square.

    Zhang & Sennrich, *Root mean square layer normalization*, NeurIPS 2019.

    Attributes
    ----------
    weight
        Shape ``normalized_shape``, or `None`.
    normalized_shape, eps
        The settings.

    >>> import fdbr
    >>> import numpy as np
    >>> layer = fdbr.nn.RMSNorm.init(None, 2)
    >>> layer(np.array([[1.0, 7.0]], np.float32)).round(3)
    array([[0.2, 1.4]], dtype=float32)
    """

    weight: Any
    normalized_shape: tuple[int, ...] = static()
    eps: float | None = static(default=None)

    @classmethod
    def init(
        cls,
        key: Any,
        normalized_shape: int | tuple[int, ...],
        *,
        eps: float | None = None,
        elementwise_affine: bool = True,
        weight_init: Init = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a layer with weight 1.

        Parameters
        ----------
        key
            A random key; `None` suffices for the default initializer.
        normalized_shape
            The lengths of the last axes, over which the mean square is taken.
        eps
            A small number that is added to the mean square; by default the dtype's ``eps``, as in
            PyTorch.
        elementwise_affine
            Whether the result is multiplied by a weight.
        weight_init
            ``init(key, shape, dtype)``; by default ones.
        dtype
            The dtype of the weight.

        Raises
        ------
        TypeError, ValueError
            If the lengths are not positive integers.
        """
        shape = _lengths("fdbr.nn.RMSNorm.init", normalized_shape)
        weight = None
        if elementwise_affine:
            weight, _ = affine_parameters(key, shape, weight_init, None, dtype, False)
        return cls(weight, shape, None if eps is None else float(eps))

    def __call__(self, x: Any) -> Any:
        """Return the normalised array.

        Raises
        ------
        ValueError
            If ``x`` does not end in axes of these lengths.
        """
        _check_last(self, x)
        axes = tuple(range(-len(self.normalized_shape), 0))
        return ops.rms_norm(x, self.weight, axis=axes, eps=self.eps)


@public("fdbr.nn")
@frozen
class GroupNorm(Layer):
    """Normalise each group of channels of each example to mean 0 and variance 1.

    Wu & He, *Group normalization*, ECCV 2018.

    Attributes
    ----------
    weight, bias
        Shape ``(num_channels,)``, or `None`.
    num_groups, num_channels, eps
        The settings.

    >>> import fdbr
    >>> import numpy as np
    >>> layer = fdbr.nn.GroupNorm.init(None, 2, 4)
    >>> layer(np.array([[1.0, 3.0, 0.0, 8.0]], np.float32)).round(3)
    array([[-1.,  1., -1.,  1.]], dtype=float32)
    """

    weight: Any
    bias: Any
    num_groups: int = static()
    num_channels: int = static()
    eps: float = static(default=1e-5)

    @classmethod
    def init(
        cls,
        key: Any,
        num_groups: int,
        num_channels: int,
        *,
        eps: float = 1e-5,
        affine: bool = True,
        weight_init: Init = None,
        bias_init: Init = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a layer with weight 1 and bias 0.

        Parameters
        ----------
        key
            A random key; `None` suffices for the default initializers.
        num_groups, num_channels
            The number of groups, and the number of channels that they divide.
        eps
            A small number that is added to the variance.
        affine
            Whether the result is multiplied by a weight, and whether a bias is then added.
        weight_init, bias_init
            ``init(key, shape, dtype)``; by default ones and zeros.
        dtype
            The dtype of the parameters.

        Raises
        ------
        TypeError, ValueError
            If the numbers are not positive integers, or the groups do not divide the channels.
        """
        where = "fdbr.nn.GroupNorm.init"
        groups = integer(where, "num_groups", num_groups, least=1)
        channels = integer(where, "num_channels", num_channels, least=1)
        if channels % groups:
            raise ValueError(f"{where}: {groups} groups do not divide {channels} channels evenly")
        scale = shift = None
        if affine:
            scale, shift = affine_parameters(key, (channels,), weight_init, bias_init, dtype, True)
        return cls(scale, shift, groups, channels, float(eps))

    def __call__(self, x: Any) -> Any:
        """Return the normalised array, of shape ``(N, num_channels, *spatial)`` like ``x``.

        Raises
        ------
        ValueError
            If ``x`` does not have as many channels.
        """
        check_channels("GroupNorm", x, self.num_channels)
        return ops.group_norm(x, self.num_groups, self.weight, self.bias, eps=self.eps)


# --- arguments ------------------------------------------------------------------------


def _lengths(where: str, shape: Any) -> tuple[int, ...]:
    lengths = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    if not lengths:
        raise ValueError(f"{where}: normalized_shape is empty; give the lengths of the last axes")
    return tuple([integer(where, "normalized_shape", length, least=1) for length in lengths])


def _check_last(layer: Any, x: Any) -> None:
    lengths = layer.normalized_shape
    if getattr(x, "shape", ())[-len(lengths) :] == lengths:
        return
    wanted = ", ".join(map(str, lengths))
    raise ValueError(
        placed(
            f"fdbr.nn.{type(layer).__name__}: x must have shape (..., {wanted}), got "
            f"{describe(x)}; reshape x, or build the layer for such inputs"
        )
    )
