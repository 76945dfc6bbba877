"""Layer, RMS, group, instance and batch normalization."""

from typing import Any

from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.ops.axes import normalize_axes
from fdbr.ops.dtypes import finfo, in_single
from fdbr.ops.elementwise.arithmetic import reciprocal, sqrt
from fdbr.ops.nn.normalization.standardizing import (
    rescale,
    scaled_and_moved,
    standardize,
    standardize_affine,
)
from fdbr.ops.shape.creation import asarray, floating
from fdbr.ops.shape.manipulation import reshape
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["batch_norm", "group_norm", "instance_norm", "layer_norm", "rms_norm"]

Axes = int | tuple[int, ...]


# --- public functions -----------------------------------------------------------------


@public("fdbr.ops")
@in_single
def layer_norm(
    x: ArrayLike,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    *,
    axis: Axes = -1,
    eps: float = 1e-5,
    normalized_shape: ArrayLike | None = None,
) -> Array:
    """Normalize each example to mean 0 and variance 1: ``(x - mean) / sqrt(variance + eps)``.

    Ba, Kiros & Hinton, *Layer normalization*, arXiv:1607.06450.

    Parameters
    ----------
    x
        Real floating.
    weight, bias
        The factor and the offset of the result: arrays with the lengths of the axes, in their
        order.
    axis
        The axes of the mean and the variance, which divides by the number of elements.
    eps
        A positive number that avoids division by 0.
    normalized_shape
        The lengths of the last axes, PyTorch's form of ``axis``.

    Raises
    ------
    TypeError
        If ``x`` is complex, or ``weight`` is an integer or a sequence of integers, as PyTorch's
        second argument is.
    ValueError
        If weight or bias do not have the lengths of the axes, or ``x`` does not end in
        ``normalized_shape``.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.layer_norm(np.array([1.0, 3.0]), eps=0.0)
    array([-1.,  1.])
    """
    _check_weight("layer_norm", weight)
    x = _real("layer_norm", x)
    axes = _last_axes("layer_norm", x, axis, normalized_shape)
    return _standardize("layer_norm", x, weight, bias, tuple(sorted(axes)), axes, eps)[0]


@public("fdbr.ops")
@in_single
def rms_norm(
    x: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    axis: Axes = -1,
    eps: float | None = None,
    normalized_shape: ArrayLike | None = None,
) -> Array:
    """Divide each example by the root of its mean square: ``x / sqrt(mean(x**2) + eps)``.

    Zhang & Sennrich, *Root mean square layer normalization*, NeurIPS 2019.

    Parameters
    ----------
    x, weight, axis, normalized_shape
        As for `layer_norm`.
    eps
        Avoids division by 0; by default the ``eps`` of the dtype, as in PyTorch, and of float32
        for 16-bit floats.

    Raises
    ------
    TypeError, ValueError
        As for `layer_norm`.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.rms_norm(np.array([3.0, 4.0]), eps=0.0) * np.sqrt(12.5)
    array([3., 4.])
    """
    _check_weight("rms_norm", weight)
    x = _real("rms_norm", x)
    axes = _last_axes("rms_norm", x, axis, normalized_shape)
    if eps is None:
        eps = float(finfo(x.dtype).eps)
    out, _ = rescale(x, axes=axes, eps=float(eps))
    if weight is None:
        return out
    places = tuple(sorted(axes))
    return out * _broadcastable(
        _checked_shape("rms_norm", "weight", weight, x, places), x.ndim, places
    )


@public("fdbr.ops")
@in_single
def group_norm(
    x: ArrayLike,
    groups: int | None = None,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    *,
    eps: float = 1e-5,
    num_groups: int | None = None,
) -> Array:
    """Normalize each group of channels of each example to mean 0 and variance 1.

    Wu & He, *Group normalization*, ECCV 2018.

    Parameters
    ----------
    x
        Real floating, shape ``(N, C, *spatial)``.
    groups
        The number of groups of channels; ``num_groups`` is another name for it.
    weight, bias
        The factor and the offset of the result: shape ``(C,)``.
    eps
        A positive number that avoids division by 0.

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


@public("fdbr.ops")
@in_single
def instance_norm(
    x: ArrayLike,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    *,
    eps: float = 1e-5,
) -> Array:
    """Normalize each channel of each example to mean 0 and variance 1 over its spatial axes.

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


@public("fdbr.ops")
@in_single
def batch_norm(
    x: ArrayLike,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    *,
    mean: ArrayLike | None = None,
    variance: ArrayLike | None = None,
    axis: Axes = 1,
    eps: float = 1e-5,
) -> tuple[Any, Any, Any]:
    """Normalize each channel to mean 0 and variance 1 over all other axes.

    Ioffe & Szegedy, *Batch normalization*, ICML 2015.

    Parameters
    ----------
    x
        Real floating, with the channels along ``axis``: shape ``(N, C, *spatial)``.
    weight, bias
        The factor and the offset of the result: shape ``(C,)``.
    mean, variance
        Known statistics, shape ``(C,)``, as in inference; by default those of ``x``.
    axis
        The axis of the channels; or several axes, each position of which has its own statistics,
        and whose lengths replace ``(C,)`` in the shapes.  (Chainer's ``axis`` gives the other axes,
        over which statistics are computed.)
    eps
        A positive number that avoids division by 0.

    Returns
    -------
    out
        The normalized array, times weight, plus bias.
    mean, variance
        The statistics used, shape ``(C,)``.  The variance divides by the number ``n`` of elements;
        times ``n / (n - 1)`` it is the unbiased estimate for running averages.

    Raises
    ------
    TypeError
        If ``x`` is complex.
    ValueError
        If an argument does not have shape ``(C,)``, or only one of the statistics is given.

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
        out, *found = _standardize("batch_norm", x, weight, bias, places, axes, eps)
        lengths = tuple([x.shape[place] for place in places])
        mean, variance = [reshape(each, lengths) for each in found]
        return out, mean, variance
    mean = _checked_shape("batch_norm", "mean", mean, x, places)
    variance = _checked_shape("batch_norm", "variance", variance, x, places)
    scale = reciprocal(sqrt(variance + float(eps)))
    if weight is not None:
        scale = scale * _checked_shape("batch_norm", "weight", weight, x, places)
    shift = -(mean * scale)  # the negative of an integer may wrap
    if bias is not None:
        shift = shift + _checked_shape("batch_norm", "bias", bias, x, places)
    scale, shift = _broadcastable(scale, x.ndim, places), _broadcastable(shift, x.ndim, places)
    return scaled_and_moved(x, scale, shift), mean, variance


# --- arguments and results ----------------------------------------------------------


def _real(function: str, x: Any) -> Any:
    x = floating(x)
    if x.dtype.kind == "c":
        raise TypeError(f"fdbr.ops.{function}: x must be real, not {describe(x)}")
    return x


def _check_weight(function: str, weight: Any) -> None:
    """Refuse lengths of axes as the weight: the second argument of PyTorch's function.

    Lengths (5, 2) have the shape of a weight for a last axis of length 2.
    """
    lengths = weight if isinstance(weight, tuple | list) else [weight]
    if lengths and all(type(length) is int for length in lengths):
        raise TypeError(
            f"fdbr.ops.{function}: weight is {weight!r}, which reads as PyTorch's "
            "normalized_shape; the second argument is the weight here. Give "
            f"normalized_shape={weight!r}, or an array as the weight"
        )


def _last_axes(function: str, x: Any, axis: Any, lengths: Any) -> tuple[int, ...]:
    """Return the axes given by number, or the last axes given by their lengths."""
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
    to = (*channels, *(1,) * (x.ndim - 2))
    if weight is not None:
        weight = reshape(_checked_shape(function, "weight", weight, x, (1,)), to)
    if bias is not None:
        bias = reshape(_checked_shape(function, "bias", bias, x, (1,)), to)
    out = _standardized(parts, weight, bias, tuple(range(2, parts.ndim)), eps)[0]
    return reshape(out, x.shape)


def _checked_shape(function: str, name: str, value: Any, x: Any, axes: tuple[int, ...]) -> Any:
    value = asarray(value)
    lengths = tuple([x.shape[axis] for axis in axes])
    if value.shape != lengths:
        raise ValueError(
            f"fdbr.ops.{function}: {name} {describe(value)} does not fit x {describe(x)}; it must "
            f"have shape {lengths}"
        )
    return value


def _broadcastable(value: Any, ndim: int, axes: tuple[int, ...]) -> Any:
    """Reshape an array with the lengths of some axes so that it broadcasts with ``ndim`` axes."""
    if len(axes) == 1:  # the usual case
        after = ndim - axes[0] - 1
        return reshape(value, (-1, *(1,) * after)) if after else value
    if not axes or (axes[-1] == ndim - 1 and axes[0] == ndim - len(axes)):  # the last
        return value
    lengths = [1] * ndim
    for axis, length in zip(axes, value.shape, strict=True):
        lengths[axis] = length
    return reshape(value, tuple(lengths))


def _standardize(
    function: str,
    x: Any,
    weight: Any,
    bias: Any,
    places: tuple[int, ...],
    axes: tuple[int, ...],
    eps: float,
) -> tuple[Any, Any, Any]:
    """Normalize along ``axes``, scale and shift; return the result, the mean and the variance."""
    if weight is not None:
        weight = _checked_shape(function, "weight", weight, x, places)
        weight = _broadcastable(weight, x.ndim, places)
    if bias is not None:
        bias = _broadcastable(_checked_shape(function, "bias", bias, x, places), x.ndim, places)
    return _standardized(x, weight, bias, axes, eps)


def _standardized(
    x: Any, weight: Any, bias: Any, axes: tuple[int, ...], eps: float
) -> tuple[Any, Any, Any]:
    """Do the same with a weight and a bias that broadcast with ``x``."""
    if weight is not None and bias is not None:
        out, _, mean, variance = standardize_affine(x, weight, bias, axes=axes, eps=float(eps))
        return out, mean, variance
    out, mean, variance = standardize(x, axes=axes, eps=float(eps))
    if weight is not None:
        out = out * weight
    return out if bias is None else out + bias, mean, variance
