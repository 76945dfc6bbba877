"""Losses and accuracy."""

from typing import Any

import numpy as np

from fdbr.backend import Array, array_module, where_it_lies
from fdbr.core import Tracer
from fdbr.floats import dtype_kind
from fdbr.messages import describe
from fdbr.ops.axes import normalize_axis
from fdbr.ops.creation import asarray
from fdbr.ops.devices import beside
from fdbr.ops.dtypes import astype, float_dtype, in_single
from fdbr.ops.elementwise.arithmetic import maximum
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.elementwise.exponential import exp
from fdbr.ops.indexing.along import numbers_of_axis
from fdbr.ops.indexing.places import within
from fdbr.ops.indexing.reading import along_axis
from fdbr.ops.kinds import indexed, opaque
from fdbr.ops.kinds.batches import spread
from fdbr.ops.kinds.large import by_rows
from fdbr.ops.kinds.unbroadcast import accumulated
from fdbr.ops.networks.activation import exp_in_place, largest_of, log_softmax
from fdbr.ops.reductions import argmax, mean, sum
from fdbr.ops.shape import expand_dims, moveaxis, squeeze
from fdbr.ops.squares import is_long, squared_distance
from fdbr.threads import divide, slices

__all__ = ["accuracy", "mean_squared_error", "softmax_cross_entropy"]

_A_HANDFUL = 1 << 6  # labels, at which Python looks sooner than NumPy
_UNSIGNED = np.dtype(np.uint64)
_FEW = 64  # classes, below which NumPy reduces over them faster when they are not innermost

_MANY = 1 << 10  # elements, below which nothing is gained by it
_LONG = 1 << 22  # bytes of logits from which on examples are divided among threads
_SHARE = 1 << 19  # bytes of a piece


def _at_labels(xp: Any, labels: Any) -> tuple[Any, ...]:
    """The key of one element for each label, along the last axis."""
    if labels.ndim == 1:
        count = len(labels)
        return (numbers_of_axis(count, 0, 1) if xp is np else xp.arange(count)), labels
    ones = (1,) * labels.ndim
    grid = [
        xp.arange(n).reshape((*ones[:i], n, *ones[i + 1 :])) for i, n in enumerate(labels.shape)
    ]
    return (*grid, labels)


def _batch_examples(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    # A batch is one more axis of examples.
    return apply(*(spread(asarray(v), b, size) for v, b in zip(values, batched, strict=True)))


def _chosen(x: Any, labels: Any) -> Any:
    return squeeze(along_axis(x, expand_dims(labels, axis=-1), x.ndim - 1), axis=-1)


@indexed(
    lambda ct, shape, indices, params: ct,
    lambda ct, shape, indices, params: -_chosen(ct, *indices),
    batch=_batch_examples,
)
def _subtract_at_labels(xp: Any, x: Array, values: Array, labels: Array) -> Array:
    return take_at_labels(xp, x.copy(), values, labels)


def take_at_labels(xp: Any, x: Any, values: Any, labels: Any) -> Any:
    """Subtract values at labels in the memory of ``x``, which must be nobody else's."""
    x[_at_labels(xp, labels)] -= values
    return x


def _cross_entropy_pull(cts: Any, out: Any, labels: Any) -> Any:
    """``(softmax(x) - onehot(labels)) * ct``, and what came through the softmax itself."""
    loss_ct, share_ct = cts
    shares = out[1]
    total = None
    if loss_ct is not None:
        total = _subtract_at_labels(shares * loss_ct[..., None], loss_ct, labels)
    if share_ct is not None:
        through = shares * (share_ct - (share_ct * shares).sum(axis=-1, keepdims=True))
        total = through if total is None else total + through
    return total


def _cross_entropy_push(t: Any, out: Any, labels: Any) -> tuple[Any, Any]:
    moved = out[1] * t
    total = moved.sum(axis=-1, keepdims=True)
    return squeeze(total, axis=-1) - _chosen(t, labels), moved - out[1] * total


@opaque(
    x=(_cross_entropy_pull, _cross_entropy_push), batch=_batch_examples, compound=True, fresh=True
)
def _cross_entropy(xp: Any, x: Array, labels: Array) -> Array:
    """Each example's loss, and the softmax, which the derivative needs."""
    if type(x) is not np.ndarray or x.nbytes < _LONG or x.shape[-1] >= _FEW:
        return _losses(xp, x, labels)
    loss = np.empty(x.shape[:-1], x.dtype)
    shares = np.empty(x.shape, x.dtype, order="F")

    def work(piece: slice) -> None:
        loss[piece], shares[piece] = _losses(xp, x[piece], labels[piece])

    divide(work, slices(x, _SHARE))
    return loss, shares


def _losses(xp: Any, x: Any, labels: Any) -> Any:
    if x.shape[-1] < _FEW and type(x) is np.ndarray and x.size >= _MANY:
        x = np.asfortranarray(x)
    shares, largest, total = by_rows(_shares, (x.ndim - 1,), x)
    loss = xp.log(total[..., 0]) - (x[_at_labels(xp, labels)] - largest[..., 0])
    return loss, shares


def _shares(axes: tuple[int, ...], x: Any) -> tuple[Any, Any, Any]:
    """The softmax, and what it is made by: the largest logit, and the sum."""
    largest = largest_of(x, axes)
    weights = exp_in_place(array_module(x), x - largest)
    total = accumulated(weights, axes, keepdims=True)
    weights *= 1 / total
    return weights, largest, total


def _sums(axes: tuple[int, ...], x: Any) -> tuple[Any, Any]:
    """The largest logit, and the sum of the exponentials that the softmax is made by."""
    largest = largest_of(x, axes)
    weights = exp_in_place(array_module(x), x - largest)
    return largest, accumulated(weights, axes, keepdims=True)


def _losses_alone(x: Any, labels: Any) -> Any:
    """Each example's loss, where nobody asks for the derivative."""
    largest, total = by_rows(_sums, (x.ndim - 1,), x)
    return np.log(total[..., 0]) - (x[_at_labels(np, labels)] - largest[..., 0])


@where_it_lies
@in_single
def softmax_cross_entropy(
    logits: Array,
    labels: Array,
    /,
    *,
    axis: int = -1,
    ignore_label: int | None = None,
    reduction: str = "mean",
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
    ignore_label
        An integer label whose examples count neither in the sum nor in the mean.
    reduction
        ``"mean"`` over the examples that count (0 if there is none), ``"sum"``, or
        ``"none"`` for each example's own loss.

    Returns
    -------
    array
        A scalar, or one loss an example, in the dtype of ``logits``.

    Raises
    ------
    ValueError
        If the shapes do not fit, a label is out of range, or ``reduction`` is unknown.
    TypeError
        If the logits are not real floating, or the labels neither integers nor floating.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.softmax_cross_entropy(np.zeros((1, 2)), np.array([0]))
    np.float64(0.6931471805599453)
    """
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(
            f"fdbr.ops.softmax_cross_entropy: reduction {reduction!r} is none of 'mean', 'sum', "
            "'none'"
        )
    logits, labels = asarray(logits), asarray(labels)
    if dtype_kind(logits.dtype) != "f" or logits.ndim == 0:
        raise TypeError(
            "fdbr.ops.softmax_cross_entropy: logits must be real floating with an axis of classes, "
            f"not {describe(logits)}"
        )
    axis = normalize_axis(axis, logits.ndim, "softmax_cross_entropy")
    if axis != logits.ndim - 1:
        logits = moveaxis(logits, axis, -1)
        labels = moveaxis(labels, axis, -1) if dtype_kind(labels.dtype) == "f" else labels
    if dtype_kind(labels.dtype) == "f":
        return _reduced(_soft_losses(logits, labels), None, reduction)
    counted = None if ignore_label is None else labels != ignore_label
    losses = _hard_losses(logits, labels, counted)
    return _reduced(losses, counted if counted is None else beside(counted, logits), reduction)


def _soft_losses(logits: Any, labels: Any) -> Any:
    if labels.shape != logits.shape:
        raise ValueError(
            f"fdbr.ops.softmax_cross_entropy: probabilities {describe(labels)} must have the shape "
            f"of the logits {describe(logits)}"
        )
    if labels.dtype == logits.dtype and is_long(logits):
        return _soft_cross_entropy(logits, labels)[0][..., 0]
    return -sum(labels * log_softmax(logits), axis=-1)


def _soft_values(axes: tuple[int, ...], x: Any, p: Any) -> tuple[Any, Any]:
    away = x - x.max(axis=axes, keepdims=True)
    xp = array_module(away)
    away = away - xp.log(accumulated(xp.exp(away), axes, keepdims=True))
    return away, -accumulated(p * away, axes, keepdims=True)


def _soft_slope(axes: tuple[int, ...], logs: Any, p: Any, ct: Any) -> Any:
    return ct * (exp(logs) * accumulated(p, axes, keepdims=True) - p)


def _soft_pull(cts: Any, p: Any, out: Any) -> Any:
    by_loss, by_logs = cts
    logs = out[1]
    axes = (logs.ndim - 1,)
    total = None if by_loss is None else by_rows(_soft_slope, axes, logs, p, by_loss)
    if by_logs is not None:
        term = by_logs - exp(logs) * accumulated(by_logs, axes, keepdims=True)
        total = term if total is None else total + term
    return total


def _soft_push(t: Any, p: Any, out: Any) -> tuple[Any, Any]:
    axes = (t.ndim - 1,)
    moved = t - accumulated(exp(out[1]) * t, axes, keepdims=True)
    return -accumulated(p * moved, axes, keepdims=True), moved


def _soft_weight_push(t: Any, out: Any) -> tuple[Any, Any]:
    return -accumulated(t * out[1], (t.ndim - 1,), keepdims=True), 0 * t


def _batch_soft(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    return apply(*(spread(v, flag, size) for v, flag in zip(values, batched, strict=True)))


@opaque(
    x=(_soft_pull, _soft_push),
    p=(
        lambda cts, out: None if cts[0] is None else -cts[0] * out[1],
        _soft_weight_push,
    ),
    batch=_batch_soft,
)
def _soft_cross_entropy(xp: Any, x: Array, p: Array) -> Array:
    """``-sum(p * log_softmax(x))`` along the last axis, which stays, and the logarithms."""
    logs, losses = by_rows(_soft_values, (x.ndim - 1,), x, p)
    return losses, logs


def _hard_losses(logits: Any, labels: Any, counted: Any) -> Any:
    classes = logits.shape[-1]
    if labels.dtype.kind not in "iu":
        raise TypeError(
            "fdbr.ops.softmax_cross_entropy: labels must be integers, or probabilities in the "
            f"shape of the logits, not {describe(labels)}"
        )
    if labels.shape != logits.shape[:-1]:
        raise ValueError(
            f"fdbr.ops.softmax_cross_entropy: labels {describe(labels)} do not fit logits "
            f"{describe(logits)}; they need the shape {logits.shape[:-1]}"
        )
    if counted is not None:
        labels = where(counted, labels, 0)
    if array_module(labels) is not np:
        labels = within(
            labels, least=0, count=classes, name="softmax_cross_entropy", error=ValueError
        )
    elif not _are_classes(labels, classes):
        raise ValueError(
            f"fdbr.ops.softmax_cross_entropy: labels from {labels.min()} to {labels.max()} for "
            f"{classes} classes; they must lie in 0 … {classes - 1}"
            + (" (ignore_label names one that is left out)" if counted is None else "")
        )
    few = logits.size < _MANY
    if type(logits) is np.ndarray and (classes >= _FEW or few) and not isinstance(labels, Tracer):
        losses = _losses_alone(logits, labels)
    else:
        losses = _cross_entropy(logits, beside(labels, logits))[0]
    return losses if counted is None else where(beside(counted, logits), losses, 0)


def _are_classes(labels: Any, classes: int) -> bool:
    """Whether all labels are numbers of classes."""
    if type(labels) is np.ndarray and 0 < labels.size <= _A_HANDFUL:
        each = labels.reshape(-1).tolist()
        return min(each) >= 0 and max(each) < classes
    # Negative labels are large as unsigned numbers, so that one look at them is enough.
    return not labels.size or bool(labels.astype(_UNSIGNED).max() < classes)


def _reduced(losses: Any, counted: Any, reduction: str) -> Any:
    if reduction == "none":
        return losses
    if reduction == "mean" and counted is None:
        return mean(losses)
    total = sum(losses)
    return total if reduction == "sum" else _per(total, counted)


def _per(total: Any, counted: Any) -> Any:
    """A total by how many examples count, 1 if none does; nobody waits for their number."""
    wide = np.result_type(total.dtype, np.float32)  # float16 ends at 65,504
    count = maximum(sum(counted, dtype=wide), 1)
    if total.dtype == wide:
        return total / count
    return astype(astype(total, wide) / count, total.dtype)


@in_single
def mean_squared_error(x: Array, y: Array, /) -> Any:
    """The mean of ``(x - y)**2`` over all elements.

    Parameters
    ----------
    x, y
        Arrays of one shape.

    Raises
    ------
    ValueError
        If the shapes differ: broadcasting here is nearly always a mistake.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.mean_squared_error(np.array([1.0, 2.0]), np.array([1.0, 4.0]))
    np.float64(2.0)
    """
    x, y = asarray(x), asarray(y)
    if x.shape != y.shape:
        raise ValueError(
            f"fdbr.ops.mean_squared_error: x {describe(x)} and y {describe(y)} differ in shape; "
            "reshape or broadcast one of them first"
        )
    if x.dtype == y.dtype and is_long(x):
        return squared_distance(x, y, tuple(range(x.ndim))).reshape(()) / x.size
    away = x - y
    return mean(away * away)


@where_it_lies
@in_single
def accuracy(logits: Array, labels: Array, /, *, ignore_label: int | None = None) -> Array:
    """The share of examples whose largest logit is the label's; its derivative is 0.

    Parameters
    ----------
    logits
        Shape ``(..., classes)``.
    labels
        Integers, shape ``(...)``.
    ignore_label
        A label whose examples do not count.

    Returns
    -------
    array
        A scalar in the floating dtype of ``logits``.

    Raises
    ------
    ValueError
        If the shapes do not fit.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.accuracy(np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([1, 1]))
    np.float64(0.5)
    """
    logits, labels = asarray(logits), asarray(labels)
    if labels.shape != logits.shape[:-1] or labels.dtype.kind not in "iu":
        raise ValueError(
            f"fdbr.ops.accuracy: labels {describe(labels)} do not fit logits {describe(logits)}; "
            f"they must be integers of shape {logits.shape[:-1]}"
        )
    labels = beside(labels, logits)
    right = astype(argmax(logits, axis=-1) == labels, float_dtype(logits))
    if ignore_label is None:
        return mean(right)
    counted = labels != ignore_label
    return _per(sum(where(counted, right, 0)), counted)
