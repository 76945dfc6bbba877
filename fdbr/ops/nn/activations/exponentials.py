"""Activation functions, and the exponentials normalised over an axis."""

import math
from math import inf, nan
from typing import Any

import numpy as np

from fdbr.core.array_modules import array_module
from fdbr.ops.axes import either_axis, normalize_axes
from fdbr.ops.declare import elementwise, opaque, shifted
from fdbr.ops.declare.large import along_rows, by_rows
from fdbr.ops.declare.unbroadcast import accumulated
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

_LARGE = 1 << 12
_FEW = 1 << 6  # numbers that Python adds up sooner than NumPy
_max: Any = np.maximum.reduce


@elementwise(x=lambda out: out > 0, heavy="backward")
def relu(xp: Any, x: ArrayLike) -> Array:
    """The rectified linear unit ``max(x, 0)``; its derivative at 0 is taken as 0.

    >>> from fdbr import ops
    >>> ops.relu(-1.0), ops.relu(2.0)
    (0.0, 2.0)
    """
    if getattr(x, "size", _LARGE) < _LARGE and x.itemsize > 2:
        # NumPy is slower with a number.  Of zeros of both signs it gives the second, as `clipped`.
        return xp.maximum(xp.zeros(x.shape, dtype=x.dtype), x)
    return clipped(xp, x, 0, inf)


def _shifted(xp: Any, x: Any, axes: tuple[int, ...], infinite: float) -> tuple[Any, Any]:
    """``x - m`` and ``m``: the largest element, or a number in the place of an infinite one."""
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
        largest = xp.where(xp.isfinite(largest), largest, xp.full_like(largest, infinite))
    return x - largest, largest


def largest_of(x: Any, axes: tuple[int, ...]) -> Any:
    """The largest elements over axes, which stay."""
    if type(x) is np.ndarray:
        return _max(x, axes, None, None, True)
    return x.max(axis=axes, keepdims=True)


def exp_in_place(xp: Any, x: Any) -> Any:
    """The exponential of an array that is nobody else's, in its place."""
    return np.exp(x, out=x) if type(x) is np.ndarray else xp.exp(x)


def _weighted(axes: tuple[int, ...], out: Any, ct: Any) -> Any:
    return out * (ct - accumulated(ct * out, axes, keepdims=True))


@opaque(
    x=(
        lambda ct, out, axes: by_rows(_weighted, axes, out, ct),
        lambda t, out, axes: by_rows(_weighted, axes, out, t),
    ),
    batch=shifted("axes"),
    compound=True,
    fresh=True,
    total=True,
)
@along_rows
def _softmax(xp: Any, x: ArrayLike, *, axes: tuple[int, ...]) -> Array:
    if not x.size:
        return x.copy()
    away, _ = _shifted(xp, x, axes, nan)
    weights = exp_in_place(xp, away)
    weights *= 1 / accumulated(weights, axes, keepdims=True)
    return weights


@in_single
def softmax(
    x: ArrayLike, /, *, axis: int | tuple[int, ...] = -1, dim: int | tuple[int, ...] | None = None
) -> Array:
    """The normalised exponentials ``exp(x) / sum(exp(x))`` along an axis.

    Where ``x`` has NaN or +inf, or nothing but -inf, all elements along the axis are
    NaN, as are their derivatives.

    Parameters
    ----------
    x
        Real numbers.
    axis, dim
        The axis, or several of them as one; the second is PyTorch's name for it.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.softmax(np.array([0.0, 0.0]))
    array([0.5, 0.5])
    """
    x = floating(x)
    return _softmax(x, axes=normalize_axes(either_axis("softmax", axis, dim), x.ndim, "softmax"))


def _log_push(t: Any, out: Any, axes: tuple[int, ...]) -> Any:
    return t - (exp(out) * t).sum(axis=axes, keepdims=True)


def _log_pull(ct: Any, out: Any, axes: tuple[int, ...]) -> Any:
    return by_rows(_log_pulled, axes, out, ct)


def _log_pulled(axes: tuple[int, ...], out: Any, ct: Any) -> Any:
    return ct - exp(out) * accumulated(ct, axes, keepdims=True)


@opaque(x=(_log_pull, _log_push), batch=shifted("axes"), compound=True, fresh=True, total=True)
@along_rows
def _log_softmax(xp: Any, x: ArrayLike, *, axes: tuple[int, ...]) -> Array:
    if not x.size:
        return x.copy()
    away, _ = _shifted(xp, x, axes, nan)
    away -= xp.log(accumulated(xp.exp(away), axes, keepdims=True))
    return away


@in_single
def log_softmax(
    x: ArrayLike, /, *, axis: int | tuple[int, ...] = -1, dim: int | tuple[int, ...] | None = None
) -> Array:
    """The logarithm of `softmax`, without overflow or loss of small values.

    Parameters
    ----------
    x
        Real numbers.
    axis, dim
        The axis, or several of them as one; the second is PyTorch's name for it.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.log_softmax(np.array([0.0, 0.0]))
    array([-0.69314718, -0.69314718])
    """
    x = floating(x)
    return _log_softmax(
        x, axes=normalize_axes(either_axis("log_softmax", axis, dim), x.ndim, "log_softmax")
    )


def _shares(x: Any, out: Any, axes: tuple[int, ...]) -> Any:
    """The softmax, of which a result's derivative is made; 0 where the result is -inf."""
    out = reshape(where(out == -inf, 0, out), kept_shape(x.shape, axes))
    if type(out) is np.ndarray and np.isfinite(out).all():
        return by_rows(_plain_shares, axes, x, out)
    same = x == out  # among others where both are infinite, and x - out would be NaN
    shares = exp(where(same, 0, x) - where(same, 0, out))
    total = accumulated(shares, axes, keepdims=True)  # 1, but for the rounding of out
    return shares * (1 / where(total == 0, 1, total))


def _plain_shares(axes: tuple[int, ...], x: Any, out: Any) -> Any:
    shares = exp_in_place(array_module(x), x - out)
    total = accumulated(shares, axes, keepdims=True)
    shares *= 1 / where(total == 0, 1, total)
    return shares


def _sum_pull(ct: Any, x: Any, out: Any, axes: tuple[int, ...]) -> Any:
    return reshape(ct, kept_shape(x.shape, axes)) * _shares(x, out, axes)


def _sum_push(t: Any, x: Any, out: Any, axes: tuple[int, ...]) -> Any:
    return accumulated(t * _shares(x, out, axes), axes)


@opaque(x=(_sum_pull, _sum_push), batch=shifted("axes"), compound=True, fresh=True, total=True)
def _logsumexp(xp: Any, x: ArrayLike, *, axes: tuple[int, ...]) -> Array:
    out = by_rows(_log_of_sums, axes, x)
    return out.reshape([n for i, n in enumerate(x.shape) if i not in axes])[()]


def _log_of_sums(axes: tuple[int, ...], x: Any) -> Any:
    xp = array_module(x)
    away, largest = _shifted(xp, x, axes, 0)
    total = accumulated(exp_in_place(xp, away), axes, keepdims=True)
    empty = total == 0  # there is nothing but -inf
    out = largest + xp.log(xp.where(empty, xp.ones_like(total), total))
    return xp.where(empty, xp.full_like(out, -inf), out)


@in_single
def logsumexp(
    x: ArrayLike, /, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False
) -> Array:
    """The logarithm of a sum of exponentials over axes, without overflow.

    Of no elements it is -inf.  Of complex numbers it is the principal value, whose imaginary part
    lies above -pi and not above pi.

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
        turns = ceil(where(isfinite(angle), angle, 0.0) / (2 * math.pi) - 0.5)
        out = out - 1j * (2 * math.pi * turns)
    return reshape(out, kept_shape(x.shape, axes)) if keepdims else out
