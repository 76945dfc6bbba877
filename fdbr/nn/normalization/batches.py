"""Batch normalisation, and instance normalisation: layers with running statistics."""

import math
from typing import Any, Self

import numpy as np

from fdbr import ops, tree
from fdbr.errors.checks import describe, integer
from fdbr.errors.layer_path import placed
from fdbr.errors.public import public
from fdbr.nn import initializers
from fdbr.nn.layer import Layer
from fdbr.nn.normalization.layers import Init, affine_parameters, check_channels
from fdbr.ops.dtypes import astype, rounded_like
from fdbr.transforms.vjp import stop_gradient
from fdbr.tree import buffer, frozen, static

__all__ = ["BatchNorm", "InstanceNorm"]


# --- running statistics ---------------------------------------------------------------


def first_statistics(key: Any, count: int, dtype: Any) -> tuple[Any, Any]:
    """Return the initial running mean and variance, 0 and 1."""
    return initializers.zeros()(key, (count,), dtype), initializers.ones()(key, (count,), dtype)


def proper_momentum(where: str, momentum: Any) -> float | None:
    """Check a momentum, a number in [0, 1] or `None`."""
    if momentum is None:
        return None
    if isinstance(momentum, bool) or not isinstance(momentum, int | float):
        raise TypeError(f"{where}: momentum must be a number or None, got {describe(momentum)}")
    if not 0 <= momentum <= 1:
        raise ValueError(
            f"{where}: momentum must be in [0, 1], got {momentum}; it is the share of the new batch"
        )
    return float(momentum)


def updated_statistics(layer: Any, mean: Any, variance: Any, count: int) -> Any:
    """Return a layer whose running statistics are updated by those of a batch.

    ``count`` is the number of elements of each mean; the variance is the biased one.
    """
    unbiased = count / max(count - 1, 1)
    return averaged(layer, {"running_mean": (mean, 1.0), "running_var": (variance, unbiased)})


def averaged(layer: Any, new: dict[str, tuple[Any, float]]) -> Any:
    """Return a layer whose buffers are averaged with new values, each times a factor."""
    changed: dict[str, Any] = {}
    momentum, batches = layer.momentum, layer.num_batches_tracked
    if momentum is None:
        changed["num_batches_tracked"] = batches + 1
    for name, (value, factor) in new.items():
        old = getattr(layer, name)
        share = 1 / astype(batches + 1, old.dtype) if momentum is None else momentum
        value = astype(stop_gradient(value), old.dtype)
        changed[name] = rounded_like((1 - share) * old + share * factor * value, old)
    return tree.replace(layer, **changed)


# --- the layers -----------------------------------------------------------------------


@public("fdbr.nn")
@frozen
class BatchNorm(Layer):
    """Normalise each channel to mean 0 and variance 1 over all other axes.

    `train` normalises by the statistics of the batch, and returns a successor in which they are
    averaged into ``running_mean`` and ``running_var``.  A call normalises by these.

    ``running = (1 - momentum) * running + momentum * statistic``, with the unbiased variance ``n /
    (n - 1) * variance``.  The momentum is PyTorch's: 0.1 corresponds to Chainer's ``decay=0.9``.

    Ioffe & Szegedy, *Batch normalization*, ICML 2015.

    Attributes
    ----------
    weight, bias
        Shape ``(num_features,)``, or `None`.
    running_mean, running_var
        Shape ``(num_features,)``; `None` if the layer always uses the statistics of its input.
    num_batches_tracked
        The number of batches averaged so far; `None` for a moving average.
    eps, momentum, axis
        The settings.

    >>> import fdbr
    >>> import numpy as np
    >>> layer = fdbr.nn.BatchNorm.init(None, 2)
    >>> x = np.array([[0.0, 1.0], [2.0, 5.0]], np.float32)
    >>> y, successor = layer.train(x)
    >>> successor.running_mean, successor.running_var
    (array([0.1, 0.3], dtype=float32), array([1.1, 1.7], dtype=float32))
    >>> y.round(3)
    array([[-1., -1.],
           [ 1.,  1.]], dtype=float32)
    """

    weight: Any
    bias: Any
    running_mean: Any = buffer(default=None)
    running_var: Any = buffer(default=None)
    num_batches_tracked: Any = buffer(default=None)
    eps: float = static(default=1e-5)
    momentum: float | None = static(default=0.1)
    axis: int = static(default=1)

    @classmethod
    def init(
        cls,
        key: Any,
        num_features: int,
        *,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        weight: bool = True,
        bias: bool = True,
        track_running_stats: bool = True,
        axis: int = 1,
        weight_init: Init = None,
        bias_init: Init = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a layer with weight 1, bias 0, and running statistics 0 and 1.

        Parameters
        ----------
        key
            A random key; `None` suffices for the default initializers.
        num_features
            The number of channels.
        eps
            A small number that is added to the variance (PyTorch's default; Chainer's is 2e-5).
        momentum
            The share of a new batch in the running statistics, 1 minus Chainer's decay; with
            `None` these are the plain averages over all batches, as in Chainer's finetuning.
        affine
            Whether the layer has parameters.
        weight, bias
            Whether the result is multiplied by a weight, and whether a bias is added; with
            ``weight=False`` only the bias is added, as with Chainer's ``use_gamma=False``.
        track_running_stats
            Whether the layer has running statistics; without them, a call uses those of its input.
        axis
            The axis of the channels.
        weight_init, bias_init
            ``init(key, shape, dtype)``; by default ones and zeros.
        dtype
            The dtype of parameters and statistics.

        Raises
        ------
        TypeError, ValueError
            If ``num_features`` is not a positive integer, or ``momentum`` not in [0, 1].
        """
        where = "fdbr.nn.BatchNorm.init"
        count = integer(where, "num_features", num_features, least=1)
        momentum = proper_momentum(where, momentum)
        scale = shift = mean = variance = batches = None
        if affine:
            scale, shift = affine_parameters(
                key, (count,), weight_init, bias_init, dtype, bias, weight
            )
        if track_running_stats:
            mean, variance = first_statistics(key, count, dtype)
            batches = initializers.zeros()(key, (), np.int64) if momentum is None else None
        return cls(scale, shift, mean, variance, batches, float(eps), momentum, axis)

    def __call__(self, x: Any) -> Any:
        """Return the array normalised by the running statistics.

        Raises
        ------
        ValueError
            If ``x`` does not have as many channels.
        """
        self._check(x)
        out, _, _ = ops.batch_norm(
            x,
            self.weight,
            self.bias,
            mean=self.running_mean,
            variance=self.running_var,
            axis=self.axis,
            eps=self.eps,
        )
        return out

    def train(self, x: Any, *, key: Any = None) -> tuple[Any, Self]:
        """Normalise by the batch's statistics; returns also the layer with updated running ones.

        Raises
        ------
        ValueError
            If ``x`` does not have as many channels, or only one element in each.
        """
        count = self._elements(x)
        out, mean, variance = ops.batch_norm(
            x, self.weight, self.bias, axis=self.axis, eps=self.eps
        )
        if self.running_mean is None:
            return out, self
        return out, updated_statistics(self, mean, variance, count)

    def finetuning(self) -> Self:
        """Return a layer that averages the statistics of the following batches equally.

        This is Chainer's ``start_finetuning``: after some calls of `train`, the running statistics
        are the averages over these batches.

        >>> import fdbr
        >>> import numpy as np
        >>> layer = fdbr.nn.BatchNorm.init(None, 1).finetuning()
        >>> for batch in ([[0.0], [2.0]], [[3.0], [5.0]]):
        ...     _, layer = layer.train(np.array(batch, np.float32))
        >>> layer.running_mean
        array([2.5], dtype=float32)
        """
        if self.running_mean is None:
            raise ValueError("fdbr.nn.BatchNorm.finetuning: the layer has no running statistics")
        none_yet = initializers.zeros()(self.running_mean, (), np.int64)
        return tree.replace(self, momentum=None, num_batches_tracked=none_yet)

    def _elements(self, x: Any) -> int:
        """Return the number of elements of each channel, at least 2."""
        self._check(x)
        count = math.prod(x.shape) // max(x.shape[self.axis], 1)
        if count < 2:
            raise ValueError(
                placed(
                    f"fdbr.nn.{type(self).__name__}: x {describe(x)} has {count} elements in each "
                    "channel, of which there is no variance; train with larger batches, or use "
                    "GroupNorm"
                )
            )
        return count

    def _check(self, x: Any) -> None:
        arrays = (self.running_mean, self.weight, self.bias)
        count = next((array.shape[0] for array in arrays if array is not None), "C")
        shape = getattr(x, "shape", ())
        axis = self.axis + len(shape) if self.axis < 0 else self.axis
        if 0 <= axis < len(shape) and count in ("C", shape[axis]):
            return
        raise ValueError(
            placed(
                f"fdbr.nn.{type(self).__name__}: axis {self.axis} of x must be that of the {count} "
                f"channels, got {describe(x)}; build the layer for as many channels, or give their "
                "axis: axis=-3 is that of images, with a batch or, as in a vmap, without"
            )
        )


@public("fdbr.nn")
@frozen
class InstanceNorm(Layer):
    """Normalise each channel of each example to mean 0 and variance 1 over its spatial axes.

    With running statistics, a call normalises by these, and `train` averages those of its examples
    into the successor's, as in PyTorch.

    Ulyanov, Vedaldi & Lempitsky, *Instance normalization*, arXiv:1607.08022.

    Attributes
    ----------
    weight, bias
        Shape ``(num_features,)``, or `None`.
    running_mean, running_var
        Shape ``(num_features,)``, or `None`.
    num_batches_tracked
        The number of batches averaged so far; `None` for a moving average.
    num_features, eps, momentum
        The settings.

    >>> import fdbr
    >>> import numpy as np
    >>> layer = fdbr.nn.InstanceNorm.init(None, 2)
    >>> layer(np.array([[[1.0, 3.0], [0.0, 8.0]]], np.float32)).round(3)
    array([[[-1.,  1.],
            [-1.,  1.]]], dtype=float32)
    """

    weight: Any
    bias: Any
    running_mean: Any = buffer(default=None)
    running_var: Any = buffer(default=None)
    num_batches_tracked: Any = buffer(default=None)
    num_features: int = static(default=1)
    eps: float = static(default=1e-5)
    momentum: float | None = static(default=0.1)

    @classmethod
    def init(
        cls,
        key: Any,
        num_features: int,
        *,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        weight_init: Init = None,
        bias_init: Init = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a layer, by default without parameters and running statistics as in PyTorch.

        Parameters
        ----------
        key
            A random key; `None` suffices for the default initializers.
        num_features
            The number of channels.
        eps, momentum, affine, track_running_stats, weight_init, bias_init, dtype
            As for `BatchNorm`.

        Raises
        ------
        TypeError, ValueError
            If ``num_features`` is not a positive integer, or ``momentum`` not in [0, 1].
        """
        where = "fdbr.nn.InstanceNorm.init"
        count = integer(where, "num_features", num_features, least=1)
        momentum = proper_momentum(where, momentum)
        scale = shift = mean = variance = batches = None
        if affine:
            scale, shift = affine_parameters(key, (count,), weight_init, bias_init, dtype, True)
        if track_running_stats:
            mean, variance = first_statistics(key, count, dtype)
            batches = initializers.zeros()(key, (), np.int64) if momentum is None else None
        return cls(scale, shift, mean, variance, batches, count, float(eps), momentum)

    def __call__(self, x: Any) -> Any:
        """Return the normalised array, of shape ``(N, num_features, *spatial)`` like ``x``.

        Raises
        ------
        ValueError
            If ``x`` does not have as many channels, or no spatial axis.
        """
        self._check(x)
        if self.running_mean is None:
            return ops.instance_norm(x, self.weight, self.bias, eps=self.eps)
        mean, variance = self.running_mean, self.running_var
        return ops.batch_norm(
            x, self.weight, self.bias, mean=mean, variance=variance, eps=self.eps
        )[0]

    def train(self, x: Any, *, key: Any = None) -> tuple[Any, Self]:
        """Normalise by the batch's statistics; returns also the layer with updated running ones."""
        self._check(x)
        out = ops.instance_norm(x, self.weight, self.bias, eps=self.eps)
        if self.running_mean is None:
            return out, self
        held = stop_gradient(ops.asarray(x))
        spatial = tuple(range(2, held.ndim))
        mean = ops.mean(ops.mean(held, axis=spatial), axis=0)
        variance = ops.mean(ops.var(held, axis=spatial), axis=0)
        return out, updated_statistics(self, mean, variance, math.prod(held.shape[2:]))

    def _check(self, x: Any) -> None:
        """Check the channels, and that a spatial axis follows them.

        A matrix is rejected: PyTorch takes it as one example of channels and positions, but here
        each of its elements would be a channel of its own, and become 0.
        """
        check_channels("InstanceNorm", x, self.num_features)
        if x.ndim < 3:
            raise ValueError(
                placed(
                    f"fdbr.nn.InstanceNorm: x {describe(x)} has no spatial axis to normalise over; "
                    f"its shape is (N, {self.num_features}, *spatial), and a single example is a "
                    "batch of one: layer(x[None])[0]"
                )
            )
