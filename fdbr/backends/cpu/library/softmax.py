"""Softmax, its logarithm and its losses for NumPy's arrays."""

import math
from typing import Any

import numpy as np

from fdbr.backends.cpu.library.rows import along_rows, by_rows
from fdbr.backends.cpu.tuning import TUNING
from fdbr.core.primitive import implement, registry
from fdbr.core.tracer import Tracer
from fdbr.core.util.threads import divide, slices
from fdbr.ops.declare.rows import exp_over, max_along
from fdbr.ops.declare.unbroadcast import accumulate
from fdbr.ops.nn.activations.exponentials import (
    log_of_sum,
    minus_max,
    softmax_of_finite,
    softmax_of_rows,
)
from fdbr.ops.nn.losses.softmax_losses import hard_losses, label_losses
from fdbr.pytrees.dtypes import dtype_kind

__all__: list[str] = []


for _name in ("softmax", "log_softmax"):
    implement(registry[_name], np)(along_rows(registry[_name]))


@implement(minus_max, np)
def _minus_max(x: Any, axes: tuple[int, ...], replacement: float) -> tuple[Any, Any]:
    if not x.size or dtype_kind(x.dtype) != "f":
        return minus_max.definition(x, axes, replacement)  # type: ignore[no-any-return]
    largest = max_along.host(x, axes)
    if largest.size <= TUNING.few_numbers:
        finite = math.isfinite(sum(largest.reshape(-1).tolist()))
    else:
        finite = np.logical_and.reduce(np.isfinite(largest), None)
    if not finite:
        largest = np.where(np.isfinite(largest), largest, np.full_like(largest, replacement))
    return x - largest, largest


@implement(softmax_of_finite, np)
def _softmax_of_finite(x: Any, out: Any, axes: tuple[int, ...]) -> Any:
    if type(out) is np.ndarray and np.isfinite(out).all():
        return by_rows(softmax_of_rows, axes, x, out)
    return softmax_of_finite.definition(x, out, axes)


@implement(log_of_sum, np)
def _log_of_sum(total: Any, largest: Any) -> Any:
    if total.size and np.minimum.reduce(total, None) > 0:  # the usual case
        return largest + np.log(total)
    return log_of_sum.definition(total, largest)


# --- losses -----------------------------------------------------------------------------


_cross_entropy = registry["cross_entropy"]


def _losses(x: Any, labels: Any) -> Any:
    if x.shape[-1] < TUNING.few_classes and x.size >= TUNING.few_calls:
        x = np.asfortranarray(x)
    return _cross_entropy.value(np, x, labels)


@implement(_cross_entropy, np)
def _cross_entropy_in_parts(xp: Any, x: Any, labels: Any) -> Any:
    if x.nbytes < TUNING.logits_bytes or x.shape[-1] >= TUNING.few_classes:
        return _losses(x, labels)
    loss = np.empty(x.shape[:-1], x.dtype)
    shares = np.empty(x.shape, x.dtype, order="F")

    def work(piece: slice) -> None:
        loss[piece], shares[piece] = _losses(x[piece], labels[piece])

    divide(work, slices(x, TUNING.logits_share))
    return loss, shares


def _max_and_sum(axes: tuple[int, ...], x: Any) -> tuple[Any, Any]:
    """Return the largest logit, and the sum of exponentials."""
    largest = max_along(x, axes)
    return largest, accumulate(exp_over(x - largest), axes, keepdims=True)


@implement(hard_losses, np)
def _hard_losses(logits: Any, labels: Any) -> Any:
    """Compute the losses without the softmax, which only derivatives need."""
    few = logits.shape[-1] < TUNING.few_classes and logits.size >= TUNING.few_calls
    if few or isinstance(labels, Tracer):
        return hard_losses.definition(logits, labels)
    largest, total = by_rows(_max_and_sum, (logits.ndim - 1,), logits)
    return label_losses(np, logits, labels, largest, total)
