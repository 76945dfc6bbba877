"""Operations that normalize arrays to mean 0 and variance 1, with weight and bias."""

import math
from typing import Any

import numpy as np

from fdbr.core.array_modules import array_module
from fdbr.core.routine import Routine
from fdbr.ops.declare import aligned, fit, opaque, shifted
from fdbr.ops.declare.batches import align, spread
from fdbr.ops.declare.rows import along_axes, mean_along
from fdbr.ops.declare.unbroadcast import accumulate, in_precision
from fdbr.ops.elementwise.arithmetic import sqrt
from fdbr.ops.shape.manipulation import reshape
from fdbr.pytrees.typing import ArrayLike

__all__ = [
    "affine_cotangents",
    "materialized",
    "rescale",
    "scaled_and_moved",
    "standardize",
    "standardize_affine",
    "varying_axes",
]


def _count(shape: tuple[int, ...], axes: tuple[int, ...]) -> int:
    return math.prod([shape[axis] for axis in axes])


def _standard_vjp(cts: Any, out: Any, axes: tuple[int, ...], eps: float) -> Any:
    """Compute the cotangent of ``x`` from those of the output, the mean and the variance."""
    y, _, variance = out
    by_y, by_mean, by_variance = cts
    scale = sqrt(variance + eps)
    count = _count(y.shape, axes)
    total = None
    if by_y is not None:
        total = along_axes(y, _unscaled, axes, by_y, scale)
    if by_variance is not None:
        term = by_variance * (2 / count) * scale * y
        total = term if total is None else total + term
    if by_mean is not None:
        term = by_mean / count
        total = term + 0 * y if total is None else total + term
    return total


def _unscaled(axes: tuple[int, ...], y: Any, ct: Any, scale: Any, weight: Any = None) -> Any:
    if weight is not None:
        ct = ct * weight
    mean = mean_along(ct, axes)
    total = y * -mean_along(ct * y, axes)
    total += ct
    total -= mean
    total *= 1 / scale
    return total


def _standard_jvp(t: Any, out: Any, axes: tuple[int, ...], eps: float) -> tuple[Any, ...]:
    y, _, variance = out
    scale = sqrt(variance + eps)
    mean = mean_along(t, axes)
    deviation = t - mean
    shared = mean_along(deviation * y, axes)
    return (deviation - y * shared) / scale, mean, 2 * scale * shared


@opaque(
    x=(_standard_vjp, _standard_jvp),
    batch=shifted("axes"),
    compound=True,
    fresh=True,
    total=True,
)
def standardize(xp: Any, x: ArrayLike, *, axes: tuple[int, ...], eps: float) -> Any:
    """``(x - mean) / sqrt(variance + eps)``, the mean and the variance, with axes kept."""
    mean = mean_along(x, axes)
    deviation = x - mean
    variance = mean_along(deviation * deviation, axes)
    deviation *= 1 / xp.sqrt(variance + eps)
    return deviation, mean, variance


def _rms_vjp(cts: Any, out: Any, axes: tuple[int, ...], eps: float) -> Any:
    y, square = out
    by_y, by_square = cts
    scale = sqrt(square + eps)
    total = None
    if by_y is not None:
        total = along_axes(y, _rescaled, axes, by_y, scale)
    if by_square is not None:
        term = by_square * (2 / _count(y.shape, axes)) * scale * y
        total = term if total is None else total + term
    return total


def _rescaled(axes: tuple[int, ...], y: Any, ct: Any, scale: Any) -> Any:
    total = y * -mean_along(ct * y, axes)
    total += ct
    total *= 1 / scale
    return total


def _rms_jvp(t: Any, out: Any, axes: tuple[int, ...], eps: float) -> tuple[Any, ...]:
    y, square = out
    scale = sqrt(square + eps)
    shared = mean_along(t * y, axes)
    return (t - y * shared) / scale, 2 * scale * shared


@opaque(x=(_rms_vjp, _rms_jvp), batch=shifted("axes"), compound=True, fresh=True, total=True)
def rescale(xp: Any, x: ArrayLike, *, axes: tuple[int, ...], eps: float) -> Any:
    """``x / sqrt(square + eps)``, and the mean square, with axes kept."""
    square = mean_along(x * x, axes)
    return x * (1 / xp.sqrt(square + eps)), square


# --- weight and bias ------------------------------------------------------------------


def _scaled_vjp(ct: Any, x: Any, weight: Any, bias: Any) -> Any:
    """Compute the cotangents of ``x``, the weight and the bias, in one pass over memory.

    If weight and bias are not broadcast along the same axes, as under `vmap`, sums are separate.
    """
    x, weight = in_precision(x, ct.dtype), in_precision(weight, ct.dtype)
    if x.shape != ct.shape or weight.shape != bias.shape:
        return ct * weight, ct * x, ct
    shape = (1,) * (ct.ndim - weight.ndim) + tuple(weight.shape)
    axes = tuple([i for i, (n, m) in enumerate(zip(ct.shape, shape, strict=True)) if n != m])
    return along_axes(ct, _scaled_parts, axes, x, reshape(weight, shape))


def _scaled_parts(axes: tuple[int, ...], ct: Any, x: Any, weight: Any) -> Any:
    return ct * weight, _total(ct * x, axes), _total(ct, axes)


def _total(x: Any, axes: tuple[int, ...]) -> Any:
    return accumulate(x, axes, keepdims=True) if axes else x


@opaque(
    first=_scaled_vjp,
    x=(lambda parts, like: fit(parts[0], like), lambda t, weight: t * weight),
    weight=(lambda parts, like: fit(parts[1], like), lambda t, x: t * x),
    bias=(lambda parts, like: fit(parts[2], like), lambda t: t),
    batch=aligned,
    elementwise=True,
    compound=True,
    shorthand=True,
)
def scaled_and_moved(xp: Any, x: Any, weight: Any, bias: Any) -> Any:
    """``x * weight + bias``."""
    return x * weight + bias


# --- normalization with weight and bias -----------------------------------------------


def varying_axes(value: Any, ndim: int) -> frozenset[int]:
    """The axes along which an array is not broadcast, when it has ``ndim`` axes."""
    before = ndim - value.ndim
    return frozenset([before + i for i, n in enumerate(value.shape) if n != 1])


def _affine_vjp(
    cts: Any, out: Any, weight: Any, bias: Any, axes: tuple[int, ...], eps: float
) -> tuple[Any, ...]:
    """Return a function for the cotangent of ``x``, and the cotangents of the weight and the bias.

    The last result gives their axes.
    """
    _, y, _, variance = out
    ct, *rest = cts
    if ct is None:
        return lambda: _standard_vjp(rest, out[1:], axes, eps), None, None, y
    if weight.shape == bias.shape and all(each is None for each in rest):
        found = affine_cotangents(ct, y, weight, sqrt(variance + eps), axes)
        if found is not None:
            return *found, y
    by_y, *sums = _scaled_vjp(ct, y, weight, bias)
    by_y = by_y if rest[0] is None else by_y + rest[0]
    return lambda: _standard_vjp((by_y, *rest[1:]), out[1:], axes, eps), *sums, y


@Routine
def affine_cotangents(
    ct: Any, y: Any, weight: Any, scale: Any, axes: tuple[int, ...], by_pass: bool = False
) -> tuple[Any, ...] | None:
    """Compute the same where only the output has a cotangent, in few passes over memory.

    Return `None` for shapes for which no form is better than the rules of the parts.  ``by_pass``
    says that passes over memory take the time, as with large arrays; otherwise only those forms are
    taken that a compiler fuses as well, so that compiled functions give the same bits.
    """
    y, weight = in_precision(y, ct.dtype), in_precision(weight, ct.dtype)
    varying = varying_axes(weight, y.ndim)
    inner = tuple([axis for axis in axes if axis not in varying])
    if len(inner) == len(axes) and (by_pass or weight.size == scale.size):  # as in batch norm
        by_x, *sums = along_axes(y, _affine_parts, axes, ct, weight / scale)
        return lambda: by_x, *sums
    large = by_pass and any(y.shape[axis] > 1 for axis in inner)
    if varying.issubset(axes) and not large:  # as in layer norm
        others = tuple([axis for axis in range(y.ndim) if axis not in varying])
        sums = along_axes(ct, _sums, others, y)
        weight = reshape(weight, (1,) * (y.ndim - weight.ndim) + tuple(weight.shape))
        return lambda: along_axes(y, _unscaled, axes, ct, scale, weight), *sums
    if large:  # as in group norm
        sums = along_axes(ct, _sums, inner, y)
        return lambda: _by_sums(y, ct, weight, scale, sums, axes, inner), *sums
    return None


def _affine_parts(axes: tuple[int, ...], y: Any, ct: Any, factor: Any) -> Any:
    by_weight, shared = _sum_and_mean(ct * y, axes)
    by_bias, mean = _sum_and_mean(ct, axes)
    return (ct - mean - y * shared) * factor, by_weight, by_bias


def _sums(axes: tuple[int, ...], ct: Any, y: Any) -> Any:
    return _total(ct * y, axes), _total(ct, axes)


def _by_sums(
    y: Any, ct: Any, weight: Any, scale: Any, sums: Any, axes: tuple[int, ...], inner: Any
) -> Any:
    """Compute the cotangent of ``x`` from sums along the axes where the weight is constant."""
    shape = sums[0].shape
    outer = tuple([axis for axis in axes if axis not in inner])
    factor = weight / scale
    moved = [
        materialized(-_total(weight * each, outer) / (_count(y.shape, axes) * scale), shape)
        for each in sums
    ]
    return along_axes(y, _shifted_cotangent, inner, ct, materialized(factor, shape), *moved)


def _shifted_cotangent(
    axes: tuple[int, ...], y: Any, ct: Any, factor: Any, by_y: Any, shift: Any
) -> Any:
    return ct * factor + y * by_y + shift


def _sum_and_mean(x: Any, axes: tuple[int, ...]) -> tuple[Any, Any]:
    total = _total(x, axes)
    if not hasattr(x, "shape"):  # a node of the expression graph
        return total, x.mean(axis=axes, keepdims=True)
    return total, total / _count(x.shape, axes)


def _affine_jvp(t: Any, out: Any, weight: Any, axes: tuple[int, ...], eps: float) -> Any:
    push, *others = _standard_jvp(t, out[1:], axes, eps)
    return push * weight, push, *others


def _affine_batch(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    x, *others = values
    values = align([spread(x, batched[0], size), *others], [True, *batched[1:]])
    return apply(*values, **params | {"axes": tuple([axis + 1 for axis in params["axes"]])})


def _fit_optional(ct: Any, like: Any) -> Any:
    return None if ct is None else fit(ct, like)


@opaque(
    first=_affine_vjp,
    x=(lambda parts, like: _fit_optional(parts[0](), like), _affine_jvp),
    weight=(
        lambda parts, like: _fit_optional(parts[1], like),
        lambda t, out: (t * out[1], None, None, None),
    ),
    bias=(
        lambda parts, like: _fit_optional(parts[2], like),
        lambda t: (t, None, None, None),
    ),
    batch=_affine_batch,
    shorthand=True,
    fresh=True,
    total=True,
)
def standardize_affine(
    xp: Any, x: ArrayLike, weight: ArrayLike, bias: ArrayLike, *, axes: tuple[int, ...], eps: float
) -> Any:
    """``y * weight + bias``, and the ``y``, mean and variance of `standardize`."""
    y, mean, variance = standardize(x, axes=axes, eps=eps)
    return scaled_and_moved(y, weight, bias), y, mean, variance


def materialized(value: Any, shape: tuple[int, ...]) -> Any:
    """Copy a small array into the shape that it broadcasts to, in C order."""
    if value.size == math.prod(shape):
        return value.reshape(shape)
    if type(value) is np.ndarray:
        out = np.empty(shape, value.dtype)
        out[...] = value  # a quarter of the time of a broadcast view and its copy
        return out
    xp = array_module(value)
    return xp.ascontiguousarray(xp.broadcast_to(value, shape))
