"""Arrays brought to mean 0 and variance 1 over some axes."""

import math
from typing import Any

import numpy as np

from fdbr.backend import Array
from fdbr.messages import describe
from fdbr.ops.axes import normalize_axes
from fdbr.ops.creation import asarray, floating
from fdbr.ops.dtypes import finfo, in_single
from fdbr.ops.elementwise.arithmetic import reciprocal, sqrt
from fdbr.ops.kinds import aligned, fit, opaque, shifted
from fdbr.ops.kinds.large import along_rows, by_rows, evaluated
from fdbr.ops.kinds.unbroadcast import accumulated, in_precision
from fdbr.ops.shape import reshape

__all__ = ["batch_norm", "group_norm", "instance_norm", "layer_norm", "rms_norm"]

Axes = int | tuple[int, ...]


# --- the two ways, with their statistics --------------------------------------------


def _mean(x: Any, axes: tuple[int, ...]) -> Any:
    if type(x) is np.ndarray and x.size:
        total = accumulated(x, axes, keepdims=True)
        total /= x.size // total.size
        return total
    return x.mean(axis=axes, keepdims=True)


def _count(shape: tuple[int, ...], axes: tuple[int, ...]) -> int:
    return math.prod([shape[axis] for axis in axes])


def _standard_pull(cts: Any, out: Any, axes: tuple[int, ...], eps: float) -> Any:
    """The cotangent of ``x`` by those of the output, the mean and the variance."""
    y, _, variance = out
    by_y, by_mean, by_variance = cts
    scale = sqrt(variance + eps)
    count = _count(y.shape, axes)
    total = None
    if by_y is not None:
        total = by_rows(_unscaled, axes, y, by_y, scale)
    if by_variance is not None:
        term = by_variance * (2 / count) * scale * y
        total = term if total is None else total + term
    if by_mean is not None:
        term = by_mean / count
        total = term + 0 * y if total is None else total + term
    return total


def _unscaled(axes: tuple[int, ...], y: Any, ct: Any, scale: Any) -> Any:
    mean = _mean(ct, axes)
    total = y * -_mean(ct * y, axes)
    total += ct
    total -= mean
    total *= 1 / scale
    return total


def _standard_push(t: Any, out: Any, axes: tuple[int, ...], eps: float) -> tuple[Any, ...]:
    y, _, variance = out
    scale = sqrt(variance + eps)
    mean = _mean(t, axes)
    away = t - mean
    shared = _mean(away * y, axes)
    return (away - y * shared) / scale, mean, 2 * scale * shared


@opaque(
    x=(_standard_pull, _standard_push),
    batch=shifted("axes"),
    compound=True,
    fresh=True,
    total=True,
)
@along_rows
def _standardize(xp: Any, x: Array, *, axes: tuple[int, ...], eps: float) -> Array:
    """``(x - mean) / sqrt(variance + eps)``, the mean and the variance, which keep their axes."""
    mean = _mean(x, axes)
    away = x - mean
    variance = _mean(away * away, axes)
    away *= 1 / xp.sqrt(variance + eps)
    return away, mean, variance


def _rms_pull(cts: Any, out: Any, axes: tuple[int, ...], eps: float) -> Any:
    y, square = out
    by_y, by_square = cts
    scale = sqrt(square + eps)
    total = None
    if by_y is not None:
        total = by_rows(_rescaled, axes, y, by_y, scale)
    if by_square is not None:
        term = by_square * (2 / _count(y.shape, axes)) * scale * y
        total = term if total is None else total + term
    return total


def _rescaled(axes: tuple[int, ...], y: Any, ct: Any, scale: Any) -> Any:
    total = y * -_mean(ct * y, axes)
    total += ct
    total *= 1 / scale
    return total


def _rms_push(t: Any, out: Any, axes: tuple[int, ...], eps: float) -> tuple[Any, ...]:
    y, square = out
    scale = sqrt(square + eps)
    shared = _mean(t * y, axes)
    return (t - y * shared) / scale, 2 * scale * shared


@opaque(x=(_rms_pull, _rms_push), batch=shifted("axes"), compound=True, fresh=True, total=True)
@along_rows
def _rescale(xp: Any, x: Array, *, axes: tuple[int, ...], eps: float) -> Array:
    """``x / sqrt(square + eps)`` and the mean square, which keeps its axes."""
    square = _mean(x * x, axes)
    return x * (1 / xp.sqrt(square + eps)), square


# --- for the user -------------------------------------------------------------------


@in_single
def layer_norm(
    x: Array,
    weight: Array = None,
    bias: Array = None,
    *,
    axis: Axes = -1,
    eps: float = 1e-5,
    normalized_shape: Any = None,
) -> Any:
    """Each example brought to mean 0 and variance 1: ``(x - mean) / sqrt(variance + eps)``.

    Ba, Kiros & Hinton, *Layer normalization*, arXiv:1607.06450.

    Parameters
    ----------
    x
        Real floating.
    weight, bias
        What the result is multiplied by, and what is added then: arrays with the lengths of the
        axes, in their order.
    axis
        The axes over which the mean and the variance (which divides by the count) are taken.
    eps
        What keeps the division from 0.
    normalized_shape
        PyTorch's way to give the axes: the lengths of the last ones.

    Raises
    ------
    TypeError
        If ``x`` is complex.
    ValueError
        If weight or bias do not have the lengths of the axes, or ``x`` does not end in
        ``normalized_shape``.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.layer_norm(np.array([1.0, 3.0]), eps=0.0)
    array([-1.,  1.])
    """
    x = _real("layer_norm", x)
    axes = _last_axes("layer_norm", x, axis, normalized_shape)
    out, _, _ = _standardize(x, axes=axes, eps=float(eps))
    return _scaled("layer_norm", out, weight, bias, tuple(sorted(axes)))


@in_single
def rms_norm(
    x: Array,
    weight: Array = None,
    *,
    axis: Axes = -1,
    eps: float | None = 1e-5,
    normalized_shape: Any = None,
) -> Any:
    """Each example divided by the root of its mean square: ``x / sqrt(mean(x**2) + eps)``.

    Zhang & Sennrich, *Root mean square layer normalization*, NeurIPS 2019.

    Parameters
    ----------
    x, weight, axis, normalized_shape
        As for `layer_norm`.
    eps
        What keeps the division from 0; with `None` the dtype's ``eps``, PyTorch's default.

    Raises
    ------
    TypeError, ValueError
        As for `layer_norm`.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.rms_norm(np.array([3.0, 4.0]), eps=0.0) * np.sqrt(12.5)
    array([3., 4.])
    """
    x = _real("rms_norm", x)
    axes = _last_axes("rms_norm", x, axis, normalized_shape)
    if eps is None:
        eps = float(finfo(x.dtype).eps)
    out, _ = _rescale(x, axes=axes, eps=float(eps))
    return _scaled("rms_norm", out, weight, None, tuple(sorted(axes)))


@in_single
def group_norm(
    x: Array,
    groups: int | None = None,
    weight: Array = None,
    bias: Array = None,
    *,
    eps: float = 1e-5,
    num_groups: int | None = None,
) -> Any:
    """Each group of channels of each example brought to mean 0 and variance 1.

    Wu & He, *Group normalization*, ECCV 2018.

    Parameters
    ----------
    x
        Real floating, shape ``(N, C, *spatial)``.
    groups
        Into how many parts the channels are divided; ``num_groups`` is another name for it.
    weight, bias
        What the result is multiplied by, and what is added then: shape ``(C,)``.
    eps
        What keeps the division from 0.

    Raises
    ------
    TypeError
        If ``x`` is complex.
    ValueError
        If the groups do not divide the channels, or weight or bias do not fit them.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.group_norm(np.array([[1.0, 3.0, 0.0, 8.0]]), 2, eps=0.0)
    array([[-1.,  1., -1.,  1.]])
    """
    groups = num_groups if groups is None else groups
    return _by_groups("group_norm", x, groups, weight, bias, eps)


@in_single
def instance_norm(x: Array, weight: Array = None, bias: Array = None, *, eps: float = 1e-5) -> Any:
    """Each channel of each example brought to mean 0 and variance 1 over its spatial axes.

    It is `group_norm` with as many groups as channels: Ulyanov, Vedaldi & Lempitsky,
    arXiv:1607.08022.

    Parameters
    ----------
    x, weight, bias, eps
        As for `group_norm`.

    Raises
    ------
    TypeError, ValueError
        As for `group_norm`.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.instance_norm(np.array([[[1.0, 3.0], [0.0, 8.0]]]), eps=0.0)
    array([[[-1.,  1.],
            [-1.,  1.]]])
    """
    channels = x.shape[1] if getattr(x, "ndim", 0) > 1 else 1
    return _by_groups("instance_norm", x, channels, weight, bias, eps)


@in_single
def batch_norm(
    x: Array,
    weight: Array = None,
    bias: Array = None,
    *,
    mean: Array = None,
    variance: Any = None,
    axis: Axes = 1,
    eps: float = 1e-5,
) -> tuple[Any, Any, Any]:
    """Each channel brought to mean 0 and variance 1 over all other axes.

    Ioffe & Szegedy, *Batch normalization*, ICML 2015.

    Parameters
    ----------
    x
        Real floating, with the channels along ``axis``: shape ``(N, C, *spatial)``.
    weight, bias
        What the result is multiplied by, and what is added then: shape ``(C,)``.
    mean, variance
        Known statistics, shape ``(C,)``, as in inference; by default those of ``x``.
    axis
        The axis of the channels; or several, along which each place has its own statistics, and
        which take the place of ``(C,)`` in the shapes.  (Chainer's ``axis`` is that of the
        others, over which statistics are taken.)
    eps
        What keeps the division from 0.

    Returns
    -------
    out
        The normalised array, times weight, plus bias.
    mean, variance
        The statistics by which it was made, shape ``(C,)``.  The variance divides by the count
        ``n``; times ``n / (n - 1)`` it is the unbiased one that running averages are made of.

    Raises
    ------
    TypeError
        If ``x`` is complex.
    ValueError
        If something does not have shape ``(C,)``, or one only of the statistics is given.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.batch_norm(np.array([[1.0], [3.0]]), eps=0.0)
    (array([[-1.], [ 1.]]), array([2.]), array([1.]))
    """
    x = _real("batch_norm", x)
    places = tuple(sorted(normalize_axes(axis, x.ndim, "batch_norm")))
    if (mean is None) != (variance is None):
        raise ValueError("fdbr.ops.batch_norm: give both mean and variance, or neither")
    if mean is None:
        axes = tuple(i for i in range(x.ndim) if i not in places)
        out, mean, variance = _standardize(x, axes=axes, eps=float(eps))
        lengths = tuple([x.shape[place] for place in places])
        mean, variance = reshape(mean, lengths), reshape(variance, lengths)
        return _scaled("batch_norm", out, weight, bias, places), mean, variance
    mean = _fitting("batch_norm", "mean", mean, x, places)
    variance = _fitting("batch_norm", "variance", variance, x, places)
    scale = reciprocal(sqrt(variance + float(eps)))
    if weight is not None:
        scale = scale * _fitting("batch_norm", "weight", weight, x, places)
    shift = -mean * scale
    if bias is not None:
        shift = shift + _fitting("batch_norm", "bias", bias, x, places)
    scale, shift = _aligned(scale, x.ndim, places), _aligned(shift, x.ndim, places)
    return _scaled_and_moved(x, scale, shift), mean, variance


# --- arguments and results ----------------------------------------------------------


def _real(function: str, x: Any) -> Any:
    x = floating(x)
    if x.dtype.kind == "c":
        raise TypeError(f"fdbr.ops.{function}: x must be real, not {describe(x)}")
    return x


def _last_axes(function: str, x: Any, axis: Any, lengths: Any) -> tuple[int, ...]:
    """The axes that are given; or the last ones, whose lengths are."""
    if lengths is None:
        return normalize_axes(axis, x.ndim, function)
    wanted = tuple(lengths) if isinstance(lengths, tuple | list) else (lengths,)
    if not wanted or x.shape[-len(wanted) :] != wanted:
        raise ValueError(
            f"fdbr.ops.{function}: x {describe(x)} must end in normalized_shape {wanted}"
        )
    return tuple(range(x.ndim - len(wanted), x.ndim))


def _by_groups(function: str, x: Any, groups: Any, weight: Any, bias: Any, eps: float) -> Any:
    x = _real(function, x)
    if x.ndim < 2 or not isinstance(groups, int) or groups < 1 or x.shape[1] % groups:
        raise ValueError(
            f"fdbr.ops.{function}: x {describe(x)} must have shape (N, C, …), with the {groups!r} "
            "groups dividing the channels C"
        )
    channels = (groups, x.shape[1] // groups)
    parts = reshape(x, (x.shape[0], *channels, *x.shape[2:]))
    out, _, _ = _standardize(parts, axes=tuple(range(2, parts.ndim)), eps=float(eps))
    if weight is not None:
        weight = reshape(_fitting(function, "weight", weight, x, (1,)), channels)
    if bias is not None:
        bias = reshape(_fitting(function, "bias", bias, x, (1,)), channels)
    return reshape(_scaled(function, out, weight, bias, (1, 2)), x.shape)


def _fitting(function: str, name: str, value: Any, x: Any, axes: tuple[int, ...]) -> Any:
    value = asarray(value)
    lengths = tuple([x.shape[axis] for axis in axes])
    if value.shape != lengths:
        raise ValueError(
            f"fdbr.ops.{function}: {name} {describe(value)} does not fit x {describe(x)}; it must "
            f"have shape {lengths}"
        )
    return value


def _aligned(value: Any, ndim: int, axes: tuple[int, ...]) -> Any:
    """An array with the lengths of some axes, in the order of axes, among as many as ``ndim``."""
    if len(axes) == 1:  # the usual case
        after = ndim - axes[0] - 1
        return reshape(value, (-1, *(1,) * after)) if after else value
    if not axes or (axes[-1] == ndim - 1 and axes[0] == ndim - len(axes)):  # the last
        return value
    lengths = [1] * ndim
    for axis, length in zip(axes, value.shape, strict=True):
        lengths[axis] = length
    return reshape(value, tuple(lengths))


def _scaled_pull(ct: Any, x: Any, weight: Any, bias: Any) -> Any:
    """The cotangents of ``x``, the weight and the bias, in one pass over memory.

    Where these are not repeated along the same axes, as under `vmap`, they are added up after it.
    """
    x, weight = in_precision(x, ct.dtype), in_precision(weight, ct.dtype)
    if x.shape != ct.shape or weight.shape != bias.shape:
        return ct * weight, ct * x, ct
    shape = (1,) * (ct.ndim - weight.ndim) + tuple(weight.shape)
    axes = tuple([i for i, (n, m) in enumerate(zip(ct.shape, shape, strict=True)) if n != m])
    return by_rows(_scaled_parts, axes, ct, x, reshape(weight, shape))


def _scaled_parts(axes: tuple[int, ...], ct: Any, x: Any, weight: Any) -> Any:
    return ct * weight, _total(ct * x, axes), _total(ct, axes)


def _total(x: Any, axes: tuple[int, ...]) -> Any:
    return accumulated(x, axes, keepdims=True) if axes else x


def _by_kernels(value: Any) -> Any:
    return evaluated(value, heavy=False, several=True)


@opaque(
    first=_scaled_pull,
    x=(lambda parts, like: fit(parts[0], like), lambda t, weight: t * weight),
    weight=(lambda parts, like: fit(parts[1], like), lambda t, x: t * x),
    bias=(lambda parts, like: fit(parts[2], like), lambda t: t),
    batch=aligned,
    elementwise=True,
    compound=True,
)
@_by_kernels
def _scaled_and_moved(xp: Any, x: Array, weight: Array, bias: Array) -> Array:
    """``x * weight + bias``."""
    return x * weight + bias


def _scaled(function: str, out: Any, weight: Any, bias: Any, axes: tuple[int, ...]) -> Any:
    if weight is not None:
        weight = _aligned(_fitting(function, "weight", weight, out, axes), out.ndim, axes)
    if bias is not None:
        bias = _aligned(_fitting(function, "bias", bias, out, axes), out.ndim, axes)
    if weight is not None and bias is not None:
        return _scaled_and_moved(out, weight, bias)
    out = out if weight is None else out * weight
    return out if bias is None else out + bias
