"""`relu`, and exponentials normalized over axes: softmax, log-softmax, logsumexp."""

import math
from math import inf, nan
from typing import Any

from fdbr.core.array_modules import array_module
from fdbr.core.routine import Routine
from fdbr.errors.public import public
from fdbr.ops.axes import either_axis, normalize_axes
from fdbr.ops.declare import elementwise, opaque, shifted
from fdbr.ops.declare.rows import along_axes, exp_over
from fdbr.ops.declare.unbroadcast import accumulate
from fdbr.ops.dtypes import in_single
from fdbr.ops.elementwise.arithmetic import ceil, clipped
from fdbr.ops.elementwise.comparison import isfinite, where
from fdbr.ops.elementwise.complex_parts import imag
from fdbr.ops.elementwise.exponential import exp
from fdbr.ops.reductions.reduce import kept_shape
from fdbr.ops.shape.creation import floating
from fdbr.ops.shape.manipulation import reshape
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = [
    "log_softmax",
    "logsumexp",
    "relu",
    "softmax",
]


@elementwise(x=lambda out: out > 0, heavy="backward")
def relu(xp: Any, x: ArrayLike) -> Array:
    """The rectified linear unit ``max(x, 0)``; its derivative at 0 is taken as 0.

    >>> from fdbr import ops
    >>> ops.relu(-1.0), ops.relu(2.0)
    (0.0, 2.0)
    """
    return clipped(xp, x, 0, inf)


@Routine
def minus_max(x: Any, axes: tuple[int, ...], replacement: float) -> tuple[Any, Any]:
    """Return ``x - m`` and the maximum ``m``, replaced by a number where it is not finite."""
    xp = array_module(x)
    if not x.size and 0 in [x.shape[i] for i in axes]:
        return x + 0, xp.zeros(kept_shape(x.shape, axes), dtype=x.dtype)
    largest = x.max(axis=axes, keepdims=True)
    largest = xp.where(xp.isfinite(largest), largest, xp.full_like(largest, replacement))
    return x - largest, largest


def _softmax_vjp(axes: tuple[int, ...], out: Any, ct: Any) -> Any:
    return out * (ct - accumulate(ct * out, axes, keepdims=True))


@opaque(
    x=(
        lambda ct, out, axes: along_axes(out, _softmax_vjp, axes, ct),
        lambda t, out, axes: along_axes(out, _softmax_vjp, axes, t),
    ),
    batch=shifted("axes"),
    compound=True,
    fresh=True,
    total=True,
)
def _softmax(xp: Any, x: Any, *, axes: tuple[int, ...]) -> Any:
    if not x.size:
        return x.copy()
    shifted, _ = minus_max(x, axes, nan)
    weights = exp_over(shifted)
    weights *= 1 / accumulate(weights, axes, keepdims=True)
    return weights


@public("fdbr.ops")
@in_single
def softmax(
    x: ArrayLike, /, *, axis: int | tuple[int, ...] = -1, dim: int | tuple[int, ...] | None = None
) -> Array:
    """The normalized exponentials ``exp(x) / sum(exp(x))`` along an axis.

    If ``x`` contains NaN or +inf, or only -inf, all elements along the axis are NaN, as are their
    derivatives.

    Parameters
    ----------
    x
        Real numbers.
    axis, dim
        The axis, or several axes together; ``dim`` is PyTorch's name for it.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.softmax(np.array([0.0, 0.0]))
    array([0.5, 0.5])
    """
    x = floating(x)
    return _softmax(x, axes=normalize_axes(either_axis("softmax", axis, dim), x.ndim, "softmax"))


def _log_softmax_jvp(t: Any, out: Any, axes: tuple[int, ...]) -> Any:
    return t - (exp(out) * t).sum(axis=axes, keepdims=True)


def _log_softmax_vjp(ct: Any, out: Any, axes: tuple[int, ...]) -> Any:
    return along_axes(out, _log_softmax_vjp_of_rows, axes, ct)


def _log_softmax_vjp_of_rows(axes: tuple[int, ...], out: Any, ct: Any) -> Any:
    return ct - exp(out) * accumulate(ct, axes, keepdims=True)


@opaque(
    x=(_log_softmax_vjp, _log_softmax_jvp),
    batch=shifted("axes"),
    compound=True,
    fresh=True,
    total=True,
)
def _log_softmax(xp: Any, x: Any, *, axes: tuple[int, ...]) -> Any:
    if not x.size:
        return x.copy()
    shifted, _ = minus_max(x, axes, nan)
    shifted -= xp.log(accumulate(xp.exp(shifted), axes, keepdims=True))
    return shifted


@public("fdbr.ops")
@in_single
def log_softmax(
    x: ArrayLike, /, *, axis: int | tuple[int, ...] = -1, dim: int | tuple[int, ...] | None = None
) -> Array:
    """The logarithm of `softmax`, without overflow or underflow.

    Parameters
    ----------
    x
        Real numbers.
    axis, dim
        The axis, or several axes together; ``dim`` is PyTorch's name for it.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.log_softmax(np.array([0.0, 0.0]))
    array([-0.69314718, -0.69314718])
    """
    x = floating(x)
    return _log_softmax(
        x, axes=normalize_axes(either_axis("log_softmax", axis, dim), x.ndim, "log_softmax")
    )


def _softmax_of(x: Any, out: Any, axes: tuple[int, ...]) -> Any:
    """The softmax, the derivative of `logsumexp`; 0 where the result is -inf."""
    return softmax_of_finite(
        x, reshape(where(out == -inf, 0, out), kept_shape(x.shape, axes)), axes
    )


@Routine
def softmax_of_finite(x: Any, out: Any, axes: tuple[int, ...]) -> Any:
    """The softmax for results of `logsumexp` that are not -inf."""
    same = x == out  # includes equal infinities, whose difference would be NaN
    weights = exp(where(same, 0, x) - where(same, 0, out))
    total = accumulate(weights, axes, keepdims=True)  # 1 up to the rounding of out
    return weights * (1 / where(total == 0, 1, total))


def softmax_of_rows(axes: tuple[int, ...], x: Any, out: Any) -> Any:
    """The same along rows, for finite results."""
    weights = exp_over(x - out)
    total = accumulate(weights, axes, keepdims=True)
    weights *= 1 / where(total == 0, 1, total)
    return weights


def _logsumexp_vjp(ct: Any, x: Any, out: Any, axes: tuple[int, ...]) -> Any:
    return reshape(ct, kept_shape(x.shape, axes)) * _softmax_of(x, out, axes)


def _logsumexp_jvp(t: Any, x: Any, out: Any, axes: tuple[int, ...]) -> Any:
    return accumulate(t * _softmax_of(x, out, axes), axes)


@opaque(
    x=(_logsumexp_vjp, _logsumexp_jvp), batch=shifted("axes"), compound=True, fresh=True, total=True
)
def _logsumexp(xp: Any, x: ArrayLike, *, axes: tuple[int, ...]) -> Array:
    out = along_axes(x, _logsumexp_of_rows, axes)
    return out.reshape([n for i, n in enumerate(x.shape) if i not in axes])[()]


def _logsumexp_of_rows(axes: tuple[int, ...], x: Any) -> Any:
    shifted, largest = minus_max(x, axes, 0)
    total, xp = accumulate(exp_over(shifted), axes, keepdims=True), array_module(x)
    empty = total == 0  # all elements are -inf
    out = largest + xp.log(xp.where(empty, xp.ones_like(total), total))
    return xp.where(empty, xp.full_like(out, -inf), out)


@public("fdbr.ops")
@in_single
def logsumexp(
    x: ArrayLike, /, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False
) -> Array:
    """The logarithm of a sum of exponentials over axes, without overflow.

    For no elements it is -inf.  Derivatives are 0 where all elements are -inf, and several elements
    that are inf have equal shares.  The same holds for `logaddexp`.

    For complex numbers it is the principal value, with imaginary part in (-pi, pi].

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.logsumexp(np.array([1000.0, 1000.0]))
    np.float64(1000.6931471805599)
    """
    x = floating(x)
    axes = normalize_axes(axis, x.ndim, "logsumexp")
    out = _logsumexp(x, axes=axes)
    if out.dtype.kind == "c":
        angle = imag(out)
        periods = ceil(where(isfinite(angle), angle, 0.0) / (2 * math.pi) - 0.5)
        out = out - 1j * (2 * math.pi * periods)
    return reshape(out, kept_shape(x.shape, axes)) if keepdims else out
