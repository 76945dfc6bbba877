"""Losses of multi-class classification."""

from typing import Any

import numpy as np

from fdbr.core.array_modules import where_it_lies
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.ops.axes import normalize_axis
from fdbr.ops.devices import beside
from fdbr.ops.dtypes import in_single
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.nn.activations.exponentials import log_softmax, relu
from fdbr.ops.nn.attention.embedding import embed
from fdbr.ops.nn.losses.checks import (
    check_choice,
    check_reduction,
    counted_mean,
    reduce_losses,
    safe_ratio,
    setting_of,
    weighted_mean,
)
from fdbr.ops.nn.losses.labels import check_labels, checked_labels, counted_labels, select_labels
from fdbr.ops.nn.losses.softmax_losses import hard_losses, soft_losses
from fdbr.ops.reductions.reduce import sum
from fdbr.ops.shape.creation import asarray
from fdbr.ops.shape.manipulation import expand_dims, moveaxis
from fdbr.pytrees.dtypes import dtype_kind
from fdbr.pytrees.typing import Array, ArrayLike, Reduction

__all__ = ["cross_entropy", "hinge", "nll_loss", "softmax_cross_entropy"]


@public("fdbr.ops")
@where_it_lies
@in_single
def softmax_cross_entropy(
    logits: ArrayLike,
    labels: ArrayLike,
    /,
    *,
    axis: int = -1,
    ignore_label: int | None = None,
    ignore_index: int | None = None,
    weight: ArrayLike | None = None,
    label_smoothing: float = 0.0,
    reduction: Reduction = "mean",
    normalize: bool | None = None,
) -> Array:
    """The cross entropy between the softmax of logits and labels.

    For an example with logits ``x`` and label ``t`` it is ``logsumexp(x) - x[t]``, for a
    distribution ``t`` over the classes ``sum(t * (logsumexp(x) - x))``.

    Parameters
    ----------
    logits
        Floating, with the classes along ``axis``: for example ``(batch, classes)``.
    labels
        Either integers in ``0 … classes - 1``, in the shape of ``logits`` without ``axis``;
        or probabilities, floating and in the shape of ``logits``.
    axis
        The axis of the classes.
    ignore_label, ignore_index
        An integer label whose examples count neither in the sum nor in the mean; ``ignore_index``
        is PyTorch's name for it.
    weight
        A weight for each class, shape ``(classes,)``.
    label_smoothing
        The fraction of each label, in [0, 1], that is distributed equally over all classes (Szegedy
        et al., *Rethinking the Inception architecture*, CVPR 2016).
    reduction
        ``"mean"`` over the examples that count (0 if there is none), ``"sum"``, or
        ``"none"`` for each example's own loss.
    normalize
        The divisor of the mean: by default the sum of the weights of the labels, as in PyTorch;
        with True the number of examples that count; with False the length of the first axis of the
        labels, as in Chainer.

    Returns
    -------
    array
        A scalar, or one loss for each example, in the dtype of ``logits``.

    Raises
    ------
    ValueError
        If the shapes do not fit, a label is out of range, or an argument is unknown.
    TypeError
        If the logits are not real floating, or the labels neither integers nor floating.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.softmax_cross_entropy(np.zeros((1, 2)), np.array([0]))
    np.float64(0.6931471805599453)
    """
    name = "softmax_cross_entropy"
    check_reduction(name, reduction)
    if ignore_index is not None:
        if ignore_label not in (None, ignore_index):
            raise ValueError(
                f"fdbr.ops.{name}: ignore_label {ignore_label} and ignore_index {ignore_index} "
                "name the same setting; give one of them"
            )
        ignore_label = ignore_index
    logits, labels = _scores(name, logits, labels, axis)
    if dtype_kind(labels.dtype) == "f":
        _refuse_ignored(name, "ignore_label", ignore_label)
        losses = _losses_of_distributions(name, logits, labels, weight, label_smoothing)
        return _weighted_reduction(losses, None, None, reduction, normalize)
    return _losses_of_labels(
        name, logits, labels, ignore_label, weight, label_smoothing, reduction, normalize
    )


@public("fdbr.ops")
@where_it_lies
@in_single
def cross_entropy(
    logits: ArrayLike,
    labels: ArrayLike,
    /,
    *,
    weight: ArrayLike | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    axis: int | None = None,
) -> Array:
    """`softmax_cross_entropy` with PyTorch's name, layout and defaults.

    The classes are on the second axis, or the only one, and the label -100 is ignored.

    Parameters
    ----------
    logits
        Floating, shape ``(classes,)`` or ``(batch, classes, *rest)``.
    labels
        Integers in ``0 … classes - 1``, shape ``()`` or ``(batch, *rest)``; or probabilities,
        floating and in the shape of ``logits``.
    weight
        A weight for each class, shape ``(classes,)``.
    ignore_index
        An integer label whose examples count neither in the sum nor in the mean.
    reduction
        ``"mean"`` (by the weights of the labels; 0 if none counts), ``"sum"`` or ``"none"``.
    label_smoothing
        The fraction of each label, in [0, 1], that is distributed equally over all classes.
    axis
        The axis of the classes, if it is a different one.

    Raises
    ------
    ValueError
        If the shapes do not fit, a label is out of range, an argument is unknown, or an
        ``ignore_index`` of at least 0 is given for probabilities.
    TypeError
        If the logits are not real floating, or the labels neither integers nor floating.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.cross_entropy(np.zeros((2, 3, 4)), np.zeros((2, 4), int), reduction="none").shape
    (2, 4)
    """
    name = "cross_entropy"
    check_reduction(name, reduction)
    logits, labels = _scores(name, logits, labels, axis)
    if dtype_kind(labels.dtype) == "f":
        _refuse_ignored(name, "ignore_index", ignore_index if ignore_index >= 0 else None)
        return reduce_losses(
            _losses_of_distributions(name, logits, labels, weight, label_smoothing), reduction
        )
    return _losses_of_labels(
        name, logits, labels, ignore_index, weight, label_smoothing, reduction, None
    )


@public("fdbr.ops")
@where_it_lies
@in_single
def nll_loss(
    log_probs: ArrayLike,
    labels: ArrayLike,
    /,
    *,
    weight: ArrayLike | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    axis: int | None = None,
) -> Array:
    """The negative logarithm of the probability of each label: ``-log_probs[label]``.

    Applied to `log_softmax`, it is `cross_entropy`.

    Parameters
    ----------
    log_probs
        Floating, shape ``(classes,)`` or ``(batch, classes, *rest)``.
    labels
        Integers in ``0 … classes - 1``, shape ``()`` or ``(batch, *rest)``.
    weight
        A weight for each class, shape ``(classes,)``.
    ignore_index
        A label whose examples count neither in the sum nor in the mean.
    reduction
        ``"mean"`` (by the weights of the labels; 0 if none counts), ``"sum"`` or ``"none"``.
    axis
        The axis of the classes, if it is not the second (or only) one.

    Raises
    ------
    ValueError
        If the shapes do not fit, a label is out of range, or an argument is unknown.
    TypeError
        If ``log_probs`` is not real floating, or the labels are not integers.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.nll_loss(np.log([[0.25, 0.75], [0.5, 0.5]]), np.array([0, -100]))
    np.float64(1.3862943611198906)
    """
    name = "nll_loss"
    check_reduction(name, reduction)
    log_probs, labels = _scores(name, log_probs, labels, axis, "log_probs")
    check_labels(name, labels, log_probs, "log_probs")
    labels, counted = counted_labels(name, labels, log_probs.shape[-1], ignore_index)
    labels = beside(labels, log_probs)
    counted = None if counted is None else beside(counted, log_probs)
    return _weighted_reduction(
        -select_labels(log_probs, labels),
        _weights_of(_class_weight(name, weight, log_probs), labels, counted),
        counted,
        reduction,
        None,
    )


@public("fdbr.ops")
@where_it_lies
@in_single
def hinge(
    x: ArrayLike, labels: ArrayLike, /, *, norm: str = "L1", reduction: Reduction = "mean"
) -> Array:
    """The hinge loss of each class against all others.

    ``max(0, 1 - s * x)**p``, where ``s`` is 1 for the label's class and -1 for the others, and
    ``p`` is 1 or 2, summed over classes.

    Parameters
    ----------
    x
        Scores, floating, shape ``(..., classes)``.
    labels
        Integers in ``0 … classes - 1``, shape ``(...)``.
    norm
        ``"L1"`` or ``"L2"``, the power.
    reduction
        ``"mean"``, the sum divided by the number of examples, as in Chainer; ``"sum"``; or
        ``"none"`` for the losses of all classes, in the shape of ``x``.

    Raises
    ------
    ValueError
        If the shapes do not fit, a label is out of range, or an argument is unknown.
    TypeError
        If ``x`` is not real floating, or the labels are not integers.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.hinge(np.array([[-2.0, 3.0, 0.5], [5.0, 2.0, -0.5]]), np.array([1, 0]))
    np.float64(2.5)
    """
    check_reduction("hinge", reduction)
    check_choice("hinge", "norm", norm, ("L1", "L2"))
    x, labels = _scores("hinge", x, labels, -1, "x")
    check_labels("hinge", labels, x, "x")
    labels = beside(checked_labels("hinge", labels, x.shape[-1], hint=""), x)
    classes = beside(np.arange(x.shape[-1]), x)
    losses = relu(1 + where(expand_dims(labels, axis=-1) == classes, -x, x))
    if norm == "L2":
        losses = losses * losses
    if reduction == "mean":
        return safe_ratio(sum(losses), labels.size)
    return reduce_losses(losses, reduction)


# --- helper functions -----------------------------------------------------------------


def _scores(name: str, x: Any, labels: Any, axis: int | None, what: str = "logits") -> Any:
    """Return scores with the classes on the last axis, and labels, as arrays."""
    x, labels = asarray(x), asarray(labels)
    if dtype_kind(x.dtype) != "f" or x.ndim == 0:
        raise TypeError(
            f"fdbr.ops.{name}: {what} must be real floating with an axis of classes, not "
            f"{describe(x)}"
        )
    axis = min(1, x.ndim - 1) if axis is None else normalize_axis(axis, x.ndim, name)
    if axis == x.ndim - 1:
        return x, labels
    if labels.ndim == x.ndim and dtype_kind(labels.dtype) == "f":
        labels = moveaxis(labels, axis, -1)
    wanted = (*x.shape[:axis], *x.shape[axis + 1 :])
    if labels.dtype.kind in "iu" and labels.shape != wanted:
        raise ValueError(
            f"fdbr.ops.{name}: labels {describe(labels)} do not fit {what} {describe(x)} with the "
            f"classes along axis {axis}; they need the shape {wanted}"
            + (", or axis=-1 if the classes are last" if labels.shape == x.shape[:-1] else "")
        )
    return moveaxis(x, axis, -1), labels


def _class_weight(name: str, weight: Any, x: Any) -> Any:
    """Check the weights of classes and return them as an array, or `None`."""
    if weight is None:
        return None
    weight = setting_of(name, "weight", weight, x)
    if weight.shape != x.shape[-1:]:
        raise ValueError(
            f"fdbr.ops.{name}: weight {describe(weight)} must hold a number for each of the "
            f"{x.shape[-1]} classes"
        )
    return weight


def _weights_of(weight: Any, labels: Any, counted: Any) -> Any:
    """Return the weight of each label's class, 0 if ignored; `None` without weights."""
    if weight is None:
        return None
    weights = embed(weight, labels)
    return weights if counted is None else where(counted, weights, 0)


def _smoothing(name: str, label_smoothing: float) -> float:
    if not 0 <= label_smoothing <= 1:
        raise ValueError(
            f"fdbr.ops.{name}: label_smoothing must lie in [0, 1], got {label_smoothing}"
        )
    return float(label_smoothing)


def _refuse_ignored(name: str, setting: str, value: int | None) -> None:
    """Raise for an ignored label given with probabilities, as PyTorch does."""
    if value is not None:
        raise ValueError(
            f"fdbr.ops.{name}: {setting}={value} applies to integer labels, and these are "
            'probabilities; give integers, or multiply losses of reduction="none" by a mask'
        )


def _losses_of_distributions(
    name: str, logits: Any, labels: Any, weight: Any, label_smoothing: float
) -> Any:
    """Compute each example's loss for probabilities."""
    if labels.shape != logits.shape:
        raise ValueError(
            f"fdbr.ops.{name}: labels {describe(labels)} are floating: these are probabilities of "
            f"the classes, which need the shape of the logits {describe(logits)}; numbers of "
            "classes must be integers, labels.astype(int)"
        )
    smoothing = _smoothing(name, label_smoothing)
    weight = _class_weight(name, weight, logits)
    if smoothing:
        labels = labels * (1 - smoothing) + smoothing / logits.shape[-1]
    return soft_losses(logits, labels if weight is None else labels * weight)


def _losses_of_labels(
    name: str,
    logits: Any,
    labels: Any,
    ignored: int | None,
    weight: Any,
    label_smoothing: float,
    reduction: str,
    normalize: bool | None,
) -> Any:
    """Compute the losses for labels, and their sum or mean."""
    check_labels(name, labels, logits)
    smoothing = _smoothing(name, label_smoothing)
    weight = _class_weight(name, weight, logits)
    labels, counted = counted_labels(name, labels, logits.shape[-1], ignored)
    counted = None if counted is None else beside(counted, logits)
    weights = None if weight is None else _weights_of(weight, beside(labels, logits), counted)
    if not smoothing:
        return _weighted_reduction(
            hard_losses(logits, labels), weights, counted, reduction, normalize
        )
    logs = log_softmax(logits)
    losses = -select_labels(logs, beside(labels, logits))
    rest = -sum(logs if weight is None else logs * weight, axis=-1)
    if weights is not None:
        losses = losses * weights
    losses = (1 - smoothing) * losses + (smoothing / logits.shape[-1]) * rest
    return _weighted_reduction(losses, weights, counted, reduction, normalize, apply=False)


def _weighted_reduction(
    losses: Any,
    weights: Any,
    counted: Any,
    reduction: str,
    normalize: bool | None,
    apply: bool = True,
) -> Any:
    """Multiply losses by weights of examples, and compute the sum or mean over those that count."""
    if weights is not None and apply:
        losses = losses * weights
    if counted is not None:
        losses = where(counted, losses, 0)
    if reduction != "mean" or (normalize is None and weights is counted is None):
        return reduce_losses(losses, reduction)
    if normalize is None and weights is not None:
        return weighted_mean(losses, weights)
    if normalize is False:
        return safe_ratio(sum(losses), losses.shape[0] if losses.ndim else 1)
    return reduce_losses(losses, "mean") if counted is None else counted_mean(losses, counted)
