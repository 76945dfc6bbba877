"""`relu`, and exponentials normalized over axes: softmax, log-softmax, logsumexp."""

import math
from math import inf, nan
from typing import Any

import numpy as np

from fdbr.core.array_modules import array_module
from fdbr.errors.public import public
from fdbr.ops.axes import either_axis, normalize_axes
from fdbr.ops.declare import elementwise, opaque, shifted
from fdbr.ops.declare.large import along_rows, by_rows
from fdbr.ops.declare.unbroadcast import accumulate
from fdbr.ops.dtypes import in_single
from fdbr.ops.elementwise.arithmetic import ceil, clipped
from fdbr.ops.elementwise.comparison import isfinite, where
from fdbr.ops.elementwise.complex_parts import imag
from fdbr.ops.elementwise.exponential import exp
from fdbr.ops.reductions.reduce import kept_shape
from fdbr.ops.shape.creation import floating
from fdbr.ops.shape.manipulation import reshape
from fdbr.pytrees.dtypes import dtype_kind
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["log_softmax", "logsumexp", "relu", "softmax"]

_LARGE = 1 << 12  # elements below which `maximum` with an array of zeros is faster than clipping
_FEW = 1 << 6  # numbers that Python sums faster than NumPy
_max: Any = np.maximum.reduce
_min: Any = np.minimum.reduce


@elementwise(x=lambda out: out > 0, heavy="backward")
def relu(xp: Any, x: ArrayLike) -> Array:
    """The rectified linear unit ``max(x, 0)``; its derivative at 0 is taken as 0.

    >>> from fdbr import ops
    >>> ops.relu(-1.0), ops.relu(2.0)
    (0.0, 2.0)
    """
    if getattr(x, "size", _LARGE) < _LARGE and x.itemsize > 2:
        # `maximum` with a number is slower.  Of zeros of both signs it returns the second operand,
        # as `clipped` does.
        return xp.maximum(xp.zeros(x.shape, dtype=x.dtype), x)
    return clipped(xp, x, 0, inf)


def _minus_max(xp: Any, x: Any, axes: tuple[int, ...], replacement: float) -> tuple[Any, Any]:
    """Return ``x - m`` and the maximum ``m``, replaced by a number where it is not finite."""
    if not x.size and 0 in [x.shape[i] for i in axes]:
        return x + 0, xp.zeros(kept_shape(x.shape, axes), dtype=x.dtype)
    if type(x) is np.ndarray and dtype_kind(x.dtype) == "f":
        largest = _max(x, axes, None, None, True)
        if largest.size <= _FEW:
            finite = math.isfinite(sum(largest.reshape(-1).tolist()))
        else:
            finite = np.logical_and.reduce(np.isfinite(largest), None)
    else:
        largest, finite = x.max(axis=axes, keepdims=True), False
    if not finite:
        largest = xp.where(xp.isfinite(largest), largest, xp.full_like(largest, replacement))
    return x - largest, largest


def max_along(x: Any, axes: tuple[int, ...]) -> Any:
    """Return the maximum over axes, kept with length 1."""
    if type(x) is np.ndarray:
        return _max(x, axes, None, None, True)
    return x.max(axis=axes, keepdims=True)


def exp_in_place(xp: Any, x: Any) -> Any:
    """Overwrite an array with its exponential; the caller must have the only reference."""
    return np.exp(x, out=x) if type(x) is np.ndarray else xp.exp(x)


def _softmax_vjp(axes: tuple[int, ...], out: Any, ct: Any) -> Any:
    return out * (ct - accumulate(ct * out, axes, keepdims=True))


@opaque(
    x=(
        lambda ct, out, axes: by_rows(_softmax_vjp, axes, out, ct),
        lambda t, out, axes: by_rows(_softmax_vjp, axes, out, t),
    ),
    batch=shifted("axes"),
    compound=True,
    fresh=True,
    total=True,
)
@along_rows
def _softmax(xp: Any, x: Any, *, axes: tuple[int, ...]) -> Any:
    if not x.size:
        return x.copy()
    shifted, _ = _minus_max(xp, x, axes, nan)
    weights = exp_in_place(xp, shifted)
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
    return by_rows(_log_softmax_vjp_of_rows, axes, out, ct)


def _log_softmax_vjp_of_rows(axes: tuple[int, ...], out: Any, ct: Any) -> Any:
    return ct - exp(out) * accumulate(ct, axes, keepdims=True)


@opaque(
    x=(_log_softmax_vjp, _log_softmax_jvp),
    batch=shifted("axes"),
    compound=True,
    fresh=True,
    total=True,
)
@along_rows
def _log_softmax(xp: Any, x: Any, *, axes: tuple[int, ...]) -> Any:
    if not x.size:
        return x.copy()
    shifted, _ = _minus_max(xp, x, axes, nan)
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
    out = reshape(where(out == -inf, 0, out), kept_shape(x.shape, axes))
    if type(out) is np.ndarray and np.isfinite(out).all():
        return by_rows(_softmax_of_rows, axes, x, out)
    same = x == out  # includes equal infinities, whose difference would be NaN
    weights = exp(where(same, 0, x) - where(same, 0, out))
    total = accumulate(weights, axes, keepdims=True)  # 1 up to the rounding of out
    return weights * (1 / where(total == 0, 1, total))


def _softmax_of_rows(axes: tuple[int, ...], x: Any, out: Any) -> Any:
    weights = exp_in_place(array_module(x), x - out)
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
    out = by_rows(_logsumexp_of_rows, axes, x)
    return out.reshape([n for i, n in enumerate(x.shape) if i not in axes])[()]


def _logsumexp_of_rows(axes: tuple[int, ...], x: Any) -> Any:
    xp = array_module(x)
    shifted, largest = _minus_max(xp, x, axes, 0)
    total = accumulate(exp_in_place(xp, shifted), axes, keepdims=True)
    if type(total) is np.ndarray and total.size and _min(total, None) > 0:  # the usual case
        return largest + np.log(total)
    empty = total == 0  # all elements are -inf
    out = largest + xp.log(xp.where(empty, xp.ones_like(total), total))
    return xp.where(empty, xp.full_like(out, -inf), out)


@public("fdbr.ops")
@in_single
def logsumexp(
    x: ArrayLike, /, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False
) -> Array:
    """The logarithm of a sum of exponentials over axes, without overflow.

    For no elements it is -inf.  For complex numbers it is the principal value, with imaginary part
    in (-pi, pi].

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
