"""Activation functions, and the exponentials normalised over an axis."""

from typing import Any

from fdbr.ops.arithmetic import sign
from fdbr.ops.comparison import isfinite, where
from fdbr.ops.creation import asarray
from fdbr.ops.dtypes import astype, float_dtype
from fdbr.ops.exponential import exp
from fdbr.ops.kinds import elementwise, opaque
from fdbr.ops.reductions import kept_shape
from fdbr.ops.shape import normalize_axes, reshape

__all__ = ["log_softmax", "logsumexp", "relu", "sigmoid", "softmax"]


@elementwise(x=lambda out: sign(out))
def relu(xp: Any, x: Any) -> Any:
    """The rectified linear unit ``max(x, 0)``; its derivative at 0 is taken as 0.

    >>> from fdbr import ops
    >>> ops.relu(-1.0), ops.relu(2.0)
    (0.0, 2.0)
    """
    return xp.maximum(x, 0)


@elementwise(x=lambda out: out * (1 - out))
def sigmoid(xp: Any, x: Any) -> Any:
    """The logistic function ``1 / (1 + exp(-x))``, without overflow.

    It is computed as ``(1 + tanh(x / 2)) / 2``, which is the same.

    >>> from fdbr import ops
    >>> ops.sigmoid(0.0)
    0.5
    """
    return 0.5 * xp.tanh(0.5 * x) + 0.5


def floating(x: Any) -> Any:
    """An array of floating numbers."""
    x = asarray(x)
    return x if x.dtype.kind in "fc" else astype(x, float_dtype(x))


def _shifted_exp(xp: Any, x: Any, axes: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """``exp(x - m)``, its sum, and ``m``: the largest element, or 0 where that is infinite."""
    if any(x.shape[i] == 0 for i in axes):
        raise ValueError(f"no element along axis {axes} of shape {x.shape}")
    largest = x.max(axis=axes, keepdims=True)
    largest = xp.where(xp.isfinite(largest), largest, xp.zeros_like(largest))
    weights = xp.exp(x - largest)
    return weights, weights.sum(axis=axes, keepdims=True), largest


def _weighted(out: Any, ct: Any, axes: tuple[int, ...]) -> Any:
    return out * (ct - (ct * out).sum(axis=axes, keepdims=True))


@opaque(x=lambda ct, out, axes: _weighted(out, ct, axes))
def _softmax(xp: Any, x: Any, *, axes: tuple[int, ...]) -> Any:
    weights, total, _ = _shifted_exp(xp, x, axes)
    weights /= total
    return weights


def softmax(x: Any, /, *, axis: int | tuple[int, ...] = -1) -> Any:
    """The normalised exponentials ``exp(x) / sum(exp(x))`` along an axis.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.softmax(np.array([0.0, 0.0]))
    array([0.5, 0.5])
    """
    x = floating(x)
    return _softmax(x, axes=normalize_axes(axis, x.ndim, "softmax"))


def _log_pull(ct: Any, out: Any, axes: tuple[int, ...]) -> Any:
    return ct - exp(out) * ct.sum(axis=axes, keepdims=True)


@opaque(x=lambda ct, out, axes: _log_pull(ct, out, axes))
def _log_softmax(xp: Any, x: Any, *, axes: tuple[int, ...]) -> Any:
    _, total, largest = _shifted_exp(xp, x, axes)
    return x - (largest + xp.log(total))


def log_softmax(x: Any, /, *, axis: int | tuple[int, ...] = -1) -> Any:
    """The logarithm of `softmax`, without overflow or loss of small values.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.log_softmax(np.array([0.0, 0.0]))
    array([-0.69314718, -0.69314718])
    """
    x = floating(x)
    return _log_softmax(x, axes=normalize_axes(axis, x.ndim, "log_softmax"))


def _sum_pull(ct: Any, x: Any, out: Any, axes: tuple[int, ...]) -> Any:
    shape = kept_shape(x.shape, axes)
    # Where the result is infinite, x - out would be NaN; the shares are 0 there.
    out = reshape(where(isfinite(out), out, 0), shape)
    return reshape(ct, shape) * exp(x - out)


@opaque(x=lambda ct, x, out, axes: _sum_pull(ct, x, out, axes))
def _logsumexp(xp: Any, x: Any, *, axes: tuple[int, ...]) -> Any:
    _, total, largest = _shifted_exp(xp, x, axes)
    return (xp.log(total) + largest).reshape([n for i, n in enumerate(x.shape) if i not in axes])


def logsumexp(x: Any, /, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Any:
    """The logarithm of a sum of exponentials over axes, without overflow.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.logsumexp(np.array([1000.0, 1000.0]))
    np.float64(1000.6931471805599)
    """
    x = floating(x)
    axes = normalize_axes(axis, x.ndim, "logsumexp")
    out = _logsumexp(x, axes=axes)
    return reshape(out, kept_shape(x.shape, axes)) if keepdims else out
