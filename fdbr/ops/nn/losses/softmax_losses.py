"""The cross entropy of the softmax of logits, with value and derivative as one operation."""

from typing import Any

from fdbr.core.array_modules import array_module
from fdbr.core.routine import Routine
from fdbr.ops.declare import indexed, opaque
from fdbr.ops.declare.batches import spread
from fdbr.ops.declare.rows import along_axes, exp_over, max_along
from fdbr.ops.declare.unbroadcast import accumulate
from fdbr.ops.devices import beside
from fdbr.ops.elementwise.exponential import exp
from fdbr.ops.nn.activations.exponentials import log_softmax
from fdbr.ops.nn.losses.labels import label_key, select_labels
from fdbr.ops.reductions.reduce import sum
from fdbr.ops.shape.creation import asarray
from fdbr.ops.shape.manipulation import squeeze
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["hard_losses", "label_losses", "soft_losses", "take_at_labels"]

# --- with labels --------------------------------------------------------------------


def _batch_examples(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    # The batch is merged into the axis of examples.
    return apply(*(spread(asarray(v), b, size) for v, b in zip(values, batched, strict=True)))


@indexed(
    lambda ct, shape, indices, params: ct,
    lambda ct, shape, indices, params: -select_labels(ct, *indices),
    batch=_batch_examples,
)
def _subtract_at_labels(xp: Any, x: ArrayLike, values: ArrayLike, labels: ArrayLike) -> Array:
    return take_at_labels(xp, x.copy(), values, labels)


def take_at_labels(xp: Any, x: Any, values: Any, labels: Any) -> Any:
    """Subtract values at labels from ``x`` in place; the caller must have the only reference."""
    x[label_key(xp, labels)] -= values
    return x


def _cross_entropy_vjp(cts: Any, out: Any, labels: Any) -> Any:
    """Compute ``(softmax(x) - onehot(labels)) * ct``, plus the term through the saved softmax."""
    loss_ct, share_ct = cts
    shares = out[1]
    total = None
    if loss_ct is not None:
        total = _subtract_at_labels(shares * loss_ct[..., None], loss_ct, labels)
    if share_ct is not None:
        through = shares * (share_ct - (share_ct * shares).sum(axis=-1, keepdims=True))
        total = through if total is None else total + through
    return total


def _cross_entropy_jvp(t: Any, out: Any, labels: Any) -> tuple[Any, Any]:
    d_logs = out[1] * t
    total = d_logs.sum(axis=-1, keepdims=True)
    return squeeze(total, axis=-1) - select_labels(t, labels), d_logs - out[1] * total


@opaque(
    x=(_cross_entropy_vjp, _cross_entropy_jvp), batch=_batch_examples, compound=True, fresh=True
)
def _cross_entropy(xp: Any, x: ArrayLike, labels: ArrayLike) -> Any:
    """Compute each example's loss, and the softmax, which the derivative needs."""
    shares, largest, total = along_axes(x, _softmax_parts, (x.ndim - 1,))
    return label_losses(xp, x, labels, largest, total), shares


def label_losses(xp: Any, x: Any, labels: Any, largest: Any, total: Any) -> Any:
    """Compute the losses from the largest logit and the sum of exponentials of each example."""
    return xp.log(total[..., 0]) - (x[label_key(xp, labels)] - largest[..., 0])


def _softmax_parts(axes: tuple[int, ...], x: Any) -> tuple[Any, Any, Any]:
    """Return the softmax, the largest logit, and the sum of exponentials."""
    largest = max_along(x, axes)
    weights = exp_over(x - largest)
    total = accumulate(weights, axes, keepdims=True)
    weights *= 1 / total
    return weights, largest, total


@Routine
def hard_losses(logits: Any, labels: Any) -> Any:
    """Compute ``logsumexp(x) - x[t]`` for logits along the last axis, and labels in range."""
    return _cross_entropy(logits, beside(labels, logits))[0]


# --- with distributions -------------------------------------------------------------


def _soft_values(axes: tuple[int, ...], x: Any, p: Any) -> tuple[Any, Any]:
    shifted = x - x.max(axis=axes, keepdims=True)
    xp = array_module(shifted)
    shifted = shifted - xp.log(accumulate(xp.exp(shifted), axes, keepdims=True))
    return shifted, -accumulate(p * shifted, axes, keepdims=True)


def _soft_vjp_of_rows(axes: tuple[int, ...], logs: Any, p: Any, ct: Any) -> Any:
    return ct * (exp(logs) * accumulate(p, axes, keepdims=True) - p)


def _soft_vjp(cts: Any, p: Any, out: Any) -> Any:
    by_loss, by_logs = cts
    logs = out[1]
    axes = (logs.ndim - 1,)
    total = None if by_loss is None else along_axes(logs, _soft_vjp_of_rows, axes, p, by_loss)
    if by_logs is not None:
        term = by_logs - exp(logs) * accumulate(by_logs, axes, keepdims=True)
        total = term if total is None else total + term
    return total


def _soft_jvp(t: Any, p: Any, out: Any) -> tuple[Any, Any]:
    axes = (t.ndim - 1,)
    d_logs = t - accumulate(exp(out[1]) * t, axes, keepdims=True)
    return -accumulate(p * d_logs, axes, keepdims=True), d_logs


def _soft_weight_jvp(t: Any, out: Any) -> tuple[Any, Any]:
    return -accumulate(t * out[1], (t.ndim - 1,), keepdims=True), 0 * t


def _batch_soft(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    return apply(*(spread(v, flag, size) for v, flag in zip(values, batched, strict=True)))


@opaque(
    x=(_soft_vjp, _soft_jvp),
    p=(
        lambda cts, out: None if cts[0] is None else -cts[0] * out[1],
        _soft_weight_jvp,
    ),
    batch=_batch_soft,
    compound=True,
    fresh=True,
    total=True,
)
def _soft_cross_entropy(xp: Any, x: ArrayLike, p: ArrayLike) -> Any:
    """Compute ``-sum(p * log_softmax(x))`` along the last axis, kept, and the logarithms."""
    logs, losses = along_axes(x, _soft_values, (x.ndim - 1,), p)
    return losses, logs


def soft_losses(logits: Any, labels: Any) -> Any:
    """Compute ``-sum(p * log_softmax(x))`` along the last axis of arrays of one shape."""
    if labels.dtype == logits.dtype:
        return _soft_cross_entropy(logits, labels)[0][..., 0]
    return -sum(labels * log_softmax(logits), axis=-1)
