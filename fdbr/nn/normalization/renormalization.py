"""Batch normalisation that is corrected towards inference, or decorrelates channels."""

import math
from typing import Any, Self

import numpy as np

from fdbr import ops, tree
from fdbr.core.array_modules import lock
from fdbr.errors.checks import describe, integer
from fdbr.errors.layer_path import placed
from fdbr.errors.public import public
from fdbr.nn import initializers
from fdbr.nn.layer import Layer
from fdbr.nn.normalization.batches import (
    BatchNorm,
    averaged,
    first_statistics,
    proper_momentum,
    updated_statistics,
)
from fdbr.nn.normalization.layers import Init, affine_parameters
from fdbr.tree import buffer, frozen, static

__all__ = ["BatchRenorm", "DecorrelatedBatchNorm"]


@public("fdbr.nn")
@frozen
class BatchRenorm(BatchNorm):
    """Batch normalisation, corrected in training towards the running statistics.

    A call is `BatchNorm`'s; training is `ops.batch_renorm` with the running statistics before their
    update.

    Ioffe, *Batch renormalization*, NIPS 2017.

    Attributes
    ----------
    weight, bias, running_mean, running_var, num_batches_tracked, eps, momentum, axis
        As of `BatchNorm`.
    r_max, d_max
        The limits of the correction.  ``tree.replace(layer, r_max=..., d_max=...)`` has others: the
        paper begins with 1 and 0 and increases them to 3 and 5.

    >>> import fdbr
    >>> import numpy as np
    >>> layer = fdbr.nn.BatchRenorm.init(None, 1, eps=0.0)
    >>> y, successor = layer.train(np.array([[1.0], [3.0]], np.float32))
    >>> y
    array([[1.],
           [3.]], dtype=float32)
    """

    r_max: float = static(default=3.0)
    d_max: float = static(default=5.0)

    @classmethod
    def init(  # type: ignore[override]
        cls,
        key: Any,
        num_features: int,
        *,
        r_max: float = 3.0,
        d_max: float = 5.0,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        weight: bool = True,
        bias: bool = True,
        axis: int = 1,
        weight_init: Init = None,
        bias_init: Init = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a layer with weight 1, bias 0, and running statistics 0 and 1.

        Parameters
        ----------
        key, num_features, eps, momentum, affine, weight, bias, axis, weight_init, bias_init, dtype
            As for `BatchNorm`.
        r_max, d_max
            The limits; Chainer's defaults are 1 and 0, with which training is `BatchNorm`'s.

        Raises
        ------
        TypeError, ValueError
            As for `BatchNorm`, or if ``r_max`` is below 1 or ``d_max`` below 0.
        """
        where = "fdbr.nn.BatchRenorm.init"
        count = integer(where, "num_features", num_features, least=1)
        momentum = proper_momentum(where, momentum)
        if not (r_max >= 1 and d_max >= 0):
            raise ValueError(
                f"{where}: r_max must be at least 1 and d_max at least 0, got {r_max} and {d_max}"
            )
        scale = shift = batches = None
        if affine:
            scale, shift = affine_parameters(
                key, (count,), weight_init, bias_init, dtype, bias, weight
            )
        mean, variance = first_statistics(key, count, dtype)
        if momentum is None:
            batches = initializers.zeros()(key, (), np.int64)
        limits = float(r_max), float(d_max)
        return cls(scale, shift, mean, variance, batches, float(eps), momentum, axis, *limits)

    def train(self, x: Any, *, key: Any = None) -> tuple[Any, Self]:
        """Normalise with the correction; returns also the layer with updated running statistics.

        Raises
        ------
        ValueError
            If ``x`` does not have as many channels, or one element only in each.
        """
        count = self._elements(x)
        out, mean, variance = ops.batch_renorm(
            x,
            self.weight,
            self.bias,
            running_mean=self.running_mean,
            running_var=self.running_var,
            r_max=self.r_max,
            d_max=self.d_max,
            axis=self.axis,
            eps=self.eps,
        )
        return out, updated_statistics(self, mean, variance, count)


@public("fdbr.nn")
@frozen
class DecorrelatedBatchNorm(Layer):
    """Whiten channels: mean 0 and, within each group, the identity as covariance.

    Huang, Yang, Lang & Deng, *Decorrelated batch normalization*, CVPR 2018.

    Attributes
    ----------
    running_mean
        Shape ``(groups, num_features / groups)``.
    running_projection
        Shape ``(groups, num_features / groups, num_features / groups)``.
    num_batches_tracked
        The number of batches averaged so far; `None` for a moving average.
    eps, momentum
        The settings.

    >>> import fdbr
    >>> import numpy as np
    >>> layer = fdbr.nn.DecorrelatedBatchNorm.init(None, 2, groups=1, eps=0.0)
    >>> y, successor = layer.train(np.array([[1.0, 1.0], [2.0, 3.0], [4.0, 2.0]], np.float32))
    >>> bool(np.allclose(y.T @ y / 3, np.eye(2), atol=1e-5))
    True
    """

    running_mean: Any = buffer()
    running_projection: Any = buffer()
    num_batches_tracked: Any = buffer(default=None)
    eps: float = static(default=2e-5)
    momentum: float | None = static(default=0.1)

    @classmethod
    def init(
        cls,
        key: Any,
        num_features: int,
        *,
        groups: int = 16,
        eps: float = 2e-5,
        momentum: float | None = 0.1,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a layer whose running statistics are 0 and the identity.

        Parameters
        ----------
        key
            A random key, which is not used and may be `None`.
        num_features, groups
            The number of channels, and the number of groups that divide them.
        eps
            A small number that is added to the variances.
        momentum
            The share of a new batch in the running statistics, 1 minus Chainer's decay; with
            `None` these are the plain averages over all batches.
        dtype
            The dtype of the statistics.

        Raises
        ------
        TypeError, ValueError
            If a size is not a positive integer, or the groups do not divide the channels.
        """
        where = "fdbr.nn.DecorrelatedBatchNorm.init"
        count = integer(where, "num_features", num_features, least=1)
        parts = integer(where, "groups", groups, least=1)
        if count % parts:
            raise ValueError(f"{where}: {parts} groups do not divide {count} channels evenly")
        momentum = proper_momentum(where, momentum)
        size = count // parts
        mean = initializers.zeros()(key, (parts, size), dtype)
        same = ops.eye(size, dtype=dtype) + initializers.zeros()(key, (parts, size, size), dtype)
        batches = initializers.zeros()(key, (), np.int64) if momentum is None else None
        return cls(mean, lock(same), batches, float(eps), momentum)

    def __call__(self, x: Any) -> Any:
        """Return the array normalised by the running statistics.

        Raises
        ------
        ValueError
            If ``x`` does not have as many channels.
        """
        self._check(x)
        groups = self.running_mean.shape[0]
        known = {"mean": self.running_mean, "projection": self.running_projection}
        return ops.decorrelated_batch_norm(x, groups, **known)[0]

    def train(self, x: Any, *, key: Any = None) -> tuple[Any, Self]:
        """Normalise by the batch's statistics; returns also the layer with updated running ones.

        Raises
        ------
        ValueError
            If ``x`` does not have as many channels.
        """
        self._check(x)
        groups = self.running_mean.shape[0]
        out, mean, projection = ops.decorrelated_batch_norm(x, groups, eps=self.eps)
        count = math.prod(x.shape) // x.shape[1]
        unbiased = count / max(count - 1, 1)  # as in Chainer
        new = {"running_mean": (mean, 1.0), "running_projection": (projection, unbiased)}
        return out, averaged(self, new)

    def finetuning(self) -> Self:
        """Return a layer that averages the statistics of the following batches equally."""
        none_yet = initializers.zeros()(self.running_mean, (), np.int64)
        return tree.replace(self, momentum=None, num_batches_tracked=none_yet)

    def _check(self, x: Any) -> None:
        count = math.prod(self.running_mean.shape)
        if getattr(x, "shape", ())[1:2] != (count,):
            raise ValueError(
                placed(
                    f"fdbr.nn.DecorrelatedBatchNorm: x must have shape (N, {count}, ...), got "
                    f"{describe(x)}; build the layer for as many channels"
                )
            )
