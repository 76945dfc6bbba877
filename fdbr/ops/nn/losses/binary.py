"""Losses of binary predictions, element by element."""

import math
from typing import Any

import numpy as np

from fdbr.core.array_modules import where_it_lies
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.ops.declare import elementwise
from fdbr.ops.devices import beside
from fdbr.ops.dtypes import astype, in_single
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.elementwise.logistic import sigmoid
from fdbr.ops.nn.activations.nonlinearities import log_sigmoid, softplus
from fdbr.ops.nn.losses.checks import (
    any_known,
    check_reduction,
    check_signs,
    counted_mean,
    extremes,
    floats_of,
    reduce_losses,
    safe_ratio,
    same_shape,
    setting_of,
)
from fdbr.ops.nn.losses.labels import checked_labels
from fdbr.ops.reductions.reduce import mean, sum
from fdbr.ops.shape.creation import asarray
from fdbr.ops.shape.manipulation import broadcast_to
from fdbr.pytrees.typing import Array, ArrayLike, Reduction

__all__ = [
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "multilabel_soft_margin_loss",
    "sigmoid_cross_entropy",
    "sigmoid_focal_loss",
    "soft_margin_loss",
]

_LEAST = -100.0  # the least log probability, as in PyTorch


def _by_probability(x: Any, y: Any) -> Any:
    some, not_all = x > math.exp(_LEAST), x < 1
    of_true = where(some, y / where(some, x, 1), 0)
    return where(not_all, (1 - y) / where(not_all, 1 - x, 1), 0) - of_true


@elementwise(
    x=_by_probability,
    y=lambda x: _binary_losses(x, 1.0) - _binary_losses(x, 0.0),
    heavy=True,
    compound=True,
    floats=True,
)
def _binary_losses(xp: Any, x: ArrayLike, y: ArrayLike) -> Array:
    with np.errstate(divide="ignore"):
        of_true, of_false = xp.maximum(xp.log(x), _LEAST), xp.maximum(xp.log1p(-x), _LEAST)
    return -(y * of_true + (1 - y) * of_false)


def _weight_of(name: str, argument: str, weight: Any, x: Any) -> Any:
    """Check that weights broadcast to the shape of ``x``."""
    weight = setting_of(name, argument, weight, x)
    try:
        return broadcast_to(weight, x.shape)
    except ValueError:
        raise ValueError(
            f"fdbr.ops.{name}: {argument} {describe(weight)} does not broadcast to the shape of x "
            f"{describe(x)}"
        ) from None


@public("fdbr.ops")
@where_it_lies
@in_single
def binary_cross_entropy(
    x: ArrayLike, y: ArrayLike, /, *, weight: ArrayLike | None = None, reduction: Reduction = "mean"
) -> Array:
    """``-(y * log(x) + (1 - y) * log(1 - x))``, the cross entropy of probabilities.

    Logarithms are clipped to at least -100, as in PyTorch.  For logits,
    `binary_cross_entropy_with_logits` is more accurate.

    Parameters
    ----------
    x
        Probabilities in [0, 1], floating.
    y
        The true probabilities, or booleans, in the same shape.
    weight
        A weight for each element, which broadcasts to their shape.
    reduction
        ``"mean"`` over all elements, ``"sum"`` or ``"none"``.

    Raises
    ------
    ValueError
        If the shapes differ, a probability lies outside of [0, 1], or ``reduction`` is unknown.
    TypeError
        If ``x`` is not real floating.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.binary_cross_entropy(np.array([0.5, 0.0]), np.array([1.0, 1.0]), reduction="none")
    array([  0.69314718, 100.        ])
    """
    name = "binary_cross_entropy"
    check_reduction(name, reduction)
    x, y = same_shape(name, x=x, y=y)
    if any_known((x < 0) | (x > 1)):
        raise ValueError(
            f"fdbr.ops.{name}: x must hold probabilities in [0, 1], got {describe(x)}"
            f"{extremes(x)}; for logits use binary_cross_entropy_with_logits"
        )
    losses = _binary_losses(x, y)
    if weight is not None:
        losses = losses * _weight_of(name, "weight", weight, losses)
    return reduce_losses(losses, reduction)


@public("fdbr.ops")
@where_it_lies
@in_single
def binary_cross_entropy_with_logits(
    x: ArrayLike,
    y: ArrayLike,
    /,
    *,
    weight: ArrayLike | None = None,
    pos_weight: ArrayLike | None = None,
    reduction: Reduction = "mean",
) -> Array:
    """The cross entropy of `sigmoid`: ``softplus(x) - x * y``, without overflow.

    Parameters
    ----------
    x
        Logits, floating.
    y
        Probabilities or truth values, in the same shape.
    weight
        A weight for each element, which broadcasts to their shape.
    pos_weight
        A weight for positive examples, which broadcasts to their shape: for example one for each
        class.
    reduction
        ``"mean"`` over all elements, ``"sum"`` or ``"none"``.

    Raises
    ------
    ValueError
        If the shapes do not fit, or ``reduction`` is unknown.
    TypeError
        If ``x`` is not real floating.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.binary_cross_entropy_with_logits(np.array([0.0, 1000.0]), np.array([1.0, 1.0]))
    np.float64(0.34657359027997264)
    """
    name = "binary_cross_entropy_with_logits"
    check_reduction(name, reduction)
    x, y = same_shape(name, x=x, y=y)
    if pos_weight is None:
        losses = softplus(x) - x * y
    else:
        more = _weight_of(name, "pos_weight", pos_weight, x) - 1
        losses = (1 - y) * x + (1 + more * y) * softplus(-x)
    if weight is not None:
        losses = losses * _weight_of(name, "weight", weight, losses)
    return reduce_losses(losses, reduction)


@public("fdbr.ops")
@where_it_lies
@in_single
def sigmoid_cross_entropy(
    x: ArrayLike,
    labels: ArrayLike,
    /,
    *,
    ignore_label: int | None = -1,
    normalize: bool = True,
    reduction: Reduction = "mean",
) -> Array:
    """The cross entropy of `sigmoid` and labels 0 and 1, some of which may be ignored.

    Parameters
    ----------
    x
        Logits, floating, of any shape.
    labels
        Integers 0 or 1, or ``ignore_label``, in the shape of ``x``.
    ignore_label
        The label of elements to ignore; `None` if all count.
    normalize
        Whether the mean divides by the number of elements that count; otherwise by the length of
        the first axis, as in Chainer.
    reduction
        ``"mean"`` (0 if no element counts), ``"sum"`` or ``"none"``.

    Raises
    ------
    ValueError
        If the shapes differ, a label is none of these, or ``reduction`` is unknown.
    TypeError
        If ``x`` is not real floating, or the labels are not integers.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> x = np.array([[0.0, 3.0], [0.0, -1.0]])
    >>> ops.sigmoid_cross_entropy(x, np.array([[1, -1], [0, -1]]))
    np.float64(0.6931471805599453)
    """
    name = "sigmoid_cross_entropy"
    check_reduction(name, reduction)
    (x,), labels = floats_of(name, x=x), asarray(labels)
    if labels.dtype.kind not in "iub":
        raise TypeError(f"fdbr.ops.{name}: labels must be integers, not {describe(labels)}")
    if labels.shape != x.shape:
        raise ValueError(
            f"fdbr.ops.{name}: labels {describe(labels)} must have the shape of x {describe(x)}"
        )
    labels = astype(labels, int) if labels.dtype.kind == "b" else labels
    counted = None if ignore_label is None else labels != ignore_label
    labels = beside(checked_labels(name, labels, 2, counted), x)
    losses = softplus(x) - x * astype(labels, x.dtype)
    if counted is not None:
        counted = beside(counted, x)
        losses = where(counted, losses, 0)
    if reduction != "mean":
        return reduce_losses(losses, reduction)
    if not normalize:
        return safe_ratio(sum(losses), x.shape[0] if x.ndim else 1)
    return mean(losses) if counted is None else counted_mean(losses, counted)


@public("fdbr.ops")
@in_single
def sigmoid_focal_loss(
    x: ArrayLike,
    y: ArrayLike,
    /,
    *,
    alpha: float = 0.25,
    gamma: float = 2.0,
    reduction: Reduction = "none",
) -> Array:
    """The focal loss: the cross entropy of `sigmoid`, with less weight for well predicted examples.

    ``alpha_t * (1 - p_t)**gamma * cross_entropy``, where ``p_t`` is the predicted probability of
    the true label, and ``alpha_t`` is ``alpha`` for 1 and ``1 - alpha`` for 0: Lin et al., *Focal
    loss for dense object detection*, ICCV 2017.  The defaults are torchvision's.

    Parameters
    ----------
    x
        Logits, floating.
    y
        Truth values, 0 or 1, in the same shape.
    alpha
        The weight of label 1, in [0, 1]; a negative number means no such weights.
    gamma
        A number of at least 0; with 0 it is the cross entropy.
    reduction
        ``"none"``, ``"mean"`` or ``"sum"``.

    Raises
    ------
    ValueError
        If the shapes differ, ``alpha`` is above 1, ``gamma`` negative, or ``reduction`` unknown.
    TypeError
        If ``x`` is not real floating.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.sigmoid_focal_loss(np.array([0.0]), np.array([1.0]), alpha=-1)
    array([0.1732868])
    """
    name = "sigmoid_focal_loss"
    check_reduction(name, reduction)
    if not alpha <= 1 or not gamma >= 0:
        raise ValueError(
            f"fdbr.ops.{name}: alpha must be at most 1 and gamma at least 0, got {alpha} and "
            f"{gamma}"
        )
    x, y = same_shape(name, x=x, y=y)
    losses = softplus(x) - x * y
    if gamma:
        losses = losses * (sigmoid(x) * (1 - y) + sigmoid(-x) * y) ** float(gamma)
    if alpha >= 0:
        losses = losses * (alpha * y + (1 - alpha) * (1 - y))
    return reduce_losses(losses, reduction)


# --- several labels -----------------------------------------------------------------


@public("fdbr.ops")
@where_it_lies
@in_single
def soft_margin_loss(x: ArrayLike, y: ArrayLike, /, *, reduction: Reduction = "mean") -> Array:
    """``log(1 + exp(-y * x))`` for labels 1 and -1, without overflow.

    Parameters
    ----------
    x
        Scores, floating.
    y
        Labels 1 or -1, in the same shape.
    reduction
        ``"mean"``, ``"sum"`` or ``"none"``.

    Raises
    ------
    ValueError
        If the shapes differ, a label is neither, or ``reduction`` is unknown.
    TypeError
        If ``x`` is not real floating.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.soft_margin_loss(np.array([0.0, 1000.0]), np.array([1, -1]), reduction="none")
    array([6.93147181e-01, 1.00000000e+03])
    """
    check_reduction("soft_margin_loss", reduction)
    x, y = same_shape("soft_margin_loss", x=x, y=y)
    check_signs("soft_margin_loss", y)
    return reduce_losses(softplus(-y * x), reduction)


@public("fdbr.ops")
@in_single
def multilabel_soft_margin_loss(
    x: ArrayLike, y: ArrayLike, /, *, weight: ArrayLike | None = None, reduction: Reduction = "mean"
) -> Array:
    """The mean over classes of the cross entropy of `sigmoid`, for several labels per example.

    Parameters
    ----------
    x
        Logits, floating, shape ``(..., classes)``.
    y
        Truth values, 0 or 1, in the same shape.
    weight
        A weight for each class, or an array that broadcasts to the shape of ``x``.
    reduction
        ``"mean"`` or ``"sum"`` over examples, or ``"none"`` for a loss for each example.

    Raises
    ------
    ValueError
        If the shapes do not fit, or ``reduction`` is unknown.
    TypeError
        If ``x`` is not real floating.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.multilabel_soft_margin_loss(np.array([[0.0, 0.0]]), np.array([[1, 0]]))
    np.float64(0.6931471805599453)
    """
    name = "multilabel_soft_margin_loss"
    check_reduction(name, reduction)
    x, y = same_shape(name, x=x, y=y)
    if not x.ndim:
        raise ValueError(f"fdbr.ops.{name}: x {describe(x)} has no axis of classes")
    losses = -(y * log_sigmoid(x) + (1 - y) * log_sigmoid(-x))
    if weight is not None:
        losses = losses * _weight_of(name, "weight", weight, losses)
    return reduce_losses(mean(losses, axis=-1), reduction)
