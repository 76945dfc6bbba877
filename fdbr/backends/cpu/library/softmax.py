"""Softmax, its logarithm and its losses for NumPy's arrays."""

import math
from typing import Any

import numpy as np

from fdbr.backends.cpu.library.rows import along_rows, by_rows, reduces_by_kernel
from fdbr.backends.cpu.tuning import TUNING
from fdbr.core.primitive import implement, registry
from fdbr.core.tracer import Tracer
from fdbr.core.util.threads import divide, slices
from fdbr.ops.declare.rows import exp_over, max_along
from fdbr.ops.declare.unbroadcast import accumulate
from fdbr.ops.nn.activations.exponentials import (
    minus_max,
    softmax_of_finite,
    softmax_of_rows,
)
from fdbr.ops.nn.losses.softmax_losses import hard_losses, label_losses
from fdbr.pytrees.dtypes import dtype_kind

__all__: list[str] = []

_largest: Any = np.maximum.reduce


def _of_small(name: str) -> Any:
    """Return a decorator that registers a function of arrays that are too small for a kernel."""
    primitive = registry[name]
    of_large = along_rows(primitive)

    def register(function: Any) -> Any:
        @implement(primitive, np)
        def of_any(xp: Any, x: Any, *, axes: tuple[int, ...]) -> Any:
            if type(x) is not np.ndarray or not (x.ndim and x.size):
                return primitive.value(np, x, axes=axes)
            if reduces_by_kernel(x):
                return of_large(np, x, axes=axes)
            return function(x, axes)

        return function

    return register


@_of_small("softmax")
def _softmax(x: Any, axes: tuple[int, ...]) -> Any:
    weights, _ = _minus_max(x, axes, math.nan)
    np.exp(weights, out=weights)
    weights *= 1 / accumulate.host(weights, axes, keepdims=True)
    return weights


@_of_small("log_softmax")
def _log_softmax(x: Any, axes: tuple[int, ...]) -> Any:
    shifted, _ = _minus_max(x, axes, math.nan)
    shifted -= np.log(accumulate.host(np.exp(shifted), axes, keepdims=True))
    return shifted


_logsumexp = registry["logsumexp"]


@implement(_logsumexp, np)
def _logsumexp_of_small(xp: Any, x: Any, *, axes: tuple[int, ...]) -> Any:
    if type(x) is not np.ndarray or not (x.ndim and x.size) or reduces_by_kernel(x):
        return _logsumexp.value(np, x, axes=axes)
    shifted, largest = _minus_max(x, axes, 0)
    total = accumulate.host(np.exp(shifted, out=shifted), axes, keepdims=True)
    if not total.all():  # some rows have only -inf
        return _logsumexp.value(np, x, axes=axes)
    out = largest + np.log(total)
    return out.reshape([n for i, n in enumerate(x.shape) if i not in axes])[()]


@implement(minus_max, np)
def _minus_max(x: Any, axes: tuple[int, ...], replacement: float) -> tuple[Any, Any]:
    if not x.size or dtype_kind(x.dtype) != "f":
        return minus_max.definition(x, axes, replacement)
    largest = _largest(x, axes, None, None, True)
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
    few, axes = (
        logits.shape[-1] < TUNING.few_classes and logits.size >= TUNING.few_calls,
        (logits.ndim - 1,),
    )
    if few or isinstance(labels, Tracer):
        return hard_losses.definition(logits, labels)
    if reduces_by_kernel(logits):
        largest, total = by_rows(_max_and_sum, axes, logits)
    else:
        largest = _largest(logits, axes, None, None, True)
        weights = logits - largest
        total = accumulate.host(np.exp(weights, out=weights), axes, keepdims=True)
    return label_losses(np, logits, labels, largest, total)
