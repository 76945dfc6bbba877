"""Rules that keep less than a number for each parameter."""

import functools
from typing import Any

from fdbr import ops
from fdbr.core.util.pickling import public_factory
from fdbr.errors.public import public
from fdbr.train.optim.arithmetic import averaged, square
from fdbr.train.optim.base import Optimizer, chain
from fdbr.train.optim.leafwise import leafwise, zeros
from fdbr.train.optim.numbers import (
    LearningRate,
    check_decays,
    check_positive,
)
from fdbr.train.optim.scale import scale, scale_by_learning_rate
from fdbr.train.optim.transforms.accumulating import ema
from fdbr.train.optim.transforms.adding import add_decayed_weights
from fdbr.train.optim.transforms.clipping import clip_by_block_rms
from fdbr.train.optim.transforms.normalizing import scale_by_param_block_rms
from fdbr.tree import frozen

__all__ = [
    "FactoredState",
    "ScaleBySM3State",
    "adafactor",
    "scale_by_factored_rms",
    "scale_by_sm3",
    "sm3",
]


@public("fdbr.train.optim")
@frozen
class FactoredState:
    """The state of `scale_by_factored_rms`.

    Attributes
    ----------
    count
        The number of updates made.
    v_row, v_col
        The mean squares of rows and of columns, of what is factored.
    v
        The mean squares of what is not; what is not there is an array of one zero.
    """

    count: int
    v_row: Any
    v_col: Any
    v: Any


@public("fdbr.train.optim")
@frozen
class ScaleBySM3State:
    """The state of `scale_by_sm3`.

    Attributes
    ----------
    mu
        For each parameter a list of arrays, one for each of its axes.
    nu
        The running mean of the updates.
    """

    mu: Any
    nu: Any


def _largest(shape: Any, factored: bool, least: int) -> tuple[int, int] | None:
    """The axes of the second greatest and of the greatest length, if both are long enough."""
    if not factored or len(shape) < 2:
        return None
    order = sorted(range(len(shape)), key=lambda axis: shape[axis])
    return (order[-2], order[-1]) if shape[order[-2]] >= least else None


@public_factory("fdbr.train.optim")
def scale_by_factored_rms(
    factored: bool = True,
    decay_rate: float = 0.8,
    step_offset: int = 0,
    min_dim_size_to_factor: int = 128,
    epsilon: float = 1e-30,
) -> Optimizer:
    """Divide gradients by the root of mean squares, of rows and columns (Shazeer & Stern 2018).

    Formula, with ``decay = 1 - (t - step_offset)**-decay_rate``: ``v = decay * v + (1 - decay) *
    (gradient**2 + epsilon)`` and ``update = gradient / sqrt(v)``.  Of a matrix, only the means of
    ``v`` along both axes are kept, ``v_row`` and ``v_col``, and ``v_row * v_col / mean(v_row)``
    stands for ``v``.

    Parameters
    ----------
    factored
        Whether matrices are.
    decay_rate
        How fast the decay goes to 1.
    step_offset
        The number of updates from which ``t`` is counted, in finetuning.
    min_dim_size_to_factor
        The least length of the second longest axis of what is factored.
    epsilon
        A number > 0.

    >>> transformation = scale_by_factored_rms()
    >>> round(float(transformation.update(3.0, transformation.init(0.0))[0]), 6)
    1.0
    """
    check_positive("scale_by_factored_rms", or_zero=True, epsilon=epsilon)

    def init(p: Any) -> Any:
        axes = _largest(getattr(p, "shape", ()), factored, min_dim_size_to_factor)
        zero = ops.reshape(ops.sum(zeros(p)) * 0, (1,))
        if axes is None:
            return zero, zero, zeros(p)
        return ops.sum(zeros(p), axis=axes[1]), ops.sum(zeros(p), axis=axes[0]), zero

    def update(g: Any, own: Any, p: Any, decay: Any) -> Any:
        row, col, v = own
        axes = _largest(getattr(g, "shape", ()), factored, min_dim_size_to_factor)
        squared = square(g) + epsilon
        if axes is None:
            v = averaged(v, squared, decay)
            return g / ops.sqrt(v), (row, col, v)
        second, first = axes
        row = averaged(row, ops.mean(squared, axis=first), decay)
        col = averaged(col, ops.mean(squared, axis=second), decay)
        mean = ops.mean(row, axis=second - (second > first), keepdims=True)
        of_rows = ops.expand_dims(1 / ops.sqrt(row / mean), axis=first)
        return g * of_rows * ops.expand_dims(1 / ops.sqrt(col), axis=second), (row, col, v)

    return leafwise(
        "scale_by_factored_rms",
        update,
        init,
        state=FactoredState,
        numbers=lambda t: 1.0 - (t - step_offset) ** (-decay_rate),
        fits="any",
    )


@public_factory("fdbr.train.optim")
def adafactor(
    learning_rate: LearningRate | None = None,
    min_dim_size_to_factor: int = 128,
    decay_rate: float = 0.8,
    decay_offset: int = 0,
    multiply_by_parameter_scale: bool = True,
    clipping_threshold: float | None = 1.0,
    momentum: float | None = None,
    dtype_momentum: Any = "float32",
    weight_decay_rate: Any = None,
    eps: float = 1e-30,
    factored: bool = True,
    weight_decay_mask: Any = None,
) -> Optimizer:
    """Adafactor (Shazeer & Stern, *Adaptive learning rates with sublinear memory cost*, 2018).

    It is `scale_by_factored_rms`, `clip_by_block_rms`, the learning rate,
    `scale_by_param_block_rms`, a running mean (`ema`), weight decay and the change of sign.

    Parameters
    ----------
    learning_rate
        A number ≥ 0, or a schedule; by default 1, of the size of the parameters.
    min_dim_size_to_factor, decay_rate, decay_offset, eps, factored
        As those of `scale_by_factored_rms`.
    multiply_by_parameter_scale
        Whether the learning rate is relative to the size of each parameter.
    clipping_threshold
        The greatest root of the mean square of an update, or `None`.
    momentum, dtype_momentum
        The decay of a mean of updates and its dtype; by default there is none.
    weight_decay_rate, weight_decay_mask
        As those of `add_decayed_weights`; the decay is not multiplied by the learning rate.

    >>> optimizer = adafactor(0.1)
    >>> round(float(optimizer.update(3.0, optimizer.init(2.0), 2.0)[0]), 6)
    -0.2
    """
    parts = [scale_by_factored_rms(factored, decay_rate, decay_offset, min_dim_size_to_factor, eps)]
    if clipping_threshold is not None:
        parts.append(clip_by_block_rms(clipping_threshold))
    if learning_rate is not None:
        parts.append(scale_by_learning_rate(learning_rate, flip_sign=False))
    if multiply_by_parameter_scale:
        parts.append(scale_by_param_block_rms())
    if momentum is not None:
        parts.append(ema(momentum, debias=False, accumulator_dtype=dtype_momentum))
    if weight_decay_rate is not None:
        parts.append(add_decayed_weights(weight_decay_rate, mask=weight_decay_mask))
    return chain(*parts, scale(-1.0))


@public_factory("fdbr.train.optim")
def scale_by_sm3(b1: float = 0.9, b2: float = 1.0, eps: float = 1e-8) -> Optimizer:
    """Divide gradients by the root of sums of squares, kept for rows and columns (Anil 2019).

    Formula, of a matrix with ``mu`` a list of one vector for each axis::

        total = min(mu[0][:, None], mu[1][None, :]) + gradient**2
        mu = [max(total, axis=1), max(total, axis=0)]
        nu = b1 * nu + (1 - b1) * gradient / sqrt(total + eps)

    and likewise of other arrays; the update is ``nu``.  With ``b2`` below 1, the sums decay.

    >>> transformation = scale_by_sm3(b1=0.0)
    >>> round(float(transformation.update(3.0, transformation.init(0.0))[0]), 6)
    1.0
    """
    check_decays("scale_by_sm3", b1=b1)
    check_positive("scale_by_sm3", or_zero=True, eps=eps)
    weight = 1.0 if b2 == 1.0 else 1.0 - b2

    def init(p: Any) -> Any:
        axes = range(getattr(p, "ndim", 0))
        sums = [ops.sum(zeros(p), axis=tuple(a for a in axes if a != axis)) for axis in axes]
        return sums or [ops.sum(zeros(p))], zeros(p)

    def update(g: Any, own: Any, p: Any, t: Any) -> Any:
        if not getattr(g, "size", 1):
            return g, own  # of nothing there is no greatest
        axes = range(getattr(g, "ndim", 0))
        others = [tuple(a for a in axes if a != axis) for axis in axes] or [()]
        spread = [
            ops.expand_dims(v, axis=a) if a else v for v, a in zip(own[0], others, strict=True)
        ]
        total = weight * square(g) + b2 * functools.reduce(ops.minimum, spread)
        some = total > 0
        change = ops.where(some, g / ops.sqrt(ops.where(some, total + eps, 1.0)), 0.0)
        nu = averaged(own[1], change, b1)
        return nu, ([ops.max(total, axis=a) if a else total for a in others], nu)

    return leafwise("scale_by_sm3", update, init, state=ScaleBySM3State, fits="any")


@public_factory("fdbr.train.optim")
def sm3(learning_rate: LearningRate, momentum: float = 0.9) -> Optimizer:
    """SM3 (Anil et al., *Memory-efficient adaptive optimization*, NeurIPS 2019).

    It is `scale_by_sm3` with ``b1=momentum``, then the learning rate.

    >>> optimizer = sm3(0.1, 0.0)
    >>> round(float(optimizer.update(3.0, optimizer.init(0.0))[0]), 6)
    -0.1
    """
    return chain(scale_by_sm3(momentum), scale_by_learning_rate(learning_rate))
