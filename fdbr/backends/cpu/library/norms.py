"""Normalizations of NumPy's arrays, in one or two passes over memory."""

import functools
from typing import Any

import numpy as np

from fdbr.backends.cpu.library.elementwise import with_kernels
from fdbr.backends.cpu.library.rows import along_rows, by_rows, reduces_by_kernel
from fdbr.core.primitive import implement
from fdbr.ops.declare.rows import mean_along
from fdbr.ops.nn.normalization import standardizing
from fdbr.ops.nn.normalization.standardizing import (
    affine_cotangents,
    materialized,
    scaled_and_moved,
    standardize,
    standardize_affine,
    varying_axes,
)

__all__: list[str] = []

_rescale = standardizing.rescale.primitive
implement(_rescale, np)(along_rows(_rescale))
implement(scaled_and_moved.primitive, np)(with_kernels(scaled_and_moved.primitive))
_standardize_large = along_rows(standardize.primitive)


@implement(standardize.primitive, np)
def _standardize(xp: Any, x: Any, *, axes: tuple[int, ...], eps: float) -> Any:
    if type(x) is not np.ndarray or not x.size or reduces_by_kernel(x):
        return _standardize_large(np, x, axes=axes, eps=eps)
    return _standard(x, axes, eps)


def _standard(x: Any, axes: tuple[int, ...], eps: float) -> tuple[Any, Any, Any]:
    """Standardize an array that is too small for a kernel, with few calls."""
    mean = mean_along.host(x, axes)
    deviation = x - mean
    variance = mean_along.host(deviation * deviation, axes)
    deviation /= np.sqrt(variance + eps)
    return deviation, mean, variance


def _affine(eps: float, axes: tuple[int, ...], x: Any, weight: Any, bias: Any) -> Any:
    y, mean, variance = standardize.primitive.value(np, x, axes=axes, eps=eps)
    return y * weight + bias, y, mean, variance


@implement(standardize_affine.primitive, np)
def _standardize_affine(
    xp: Any, x: Any, weight: Any, bias: Any, *, axes: tuple[int, ...], eps: float
) -> Any:
    """Compute large arrays in one kernel, where weight and bias vary along the axes or not."""
    if not type(x) is type(weight) is type(bias) is np.ndarray:
        return standardize_affine.primitive.value(xp, x, weight, bias, axes=axes, eps=eps)
    if not reduces_by_kernel(x):
        y, mean, variance = _standard(x, axes, eps)
        return y * weight + bias, y, mean, variance
    varying = varying_axes(weight, x.ndim)
    kept = varying.isdisjoint(axes)
    if weight.shape != bias.shape or not (kept or varying.issubset(axes)):
        return standardize_affine.primitive.value(xp, x, weight, bias, axes=axes, eps=eps)
    shape = tuple([n if (i not in axes) is kept else 1 for i, n in enumerate(x.shape)])
    weight, bias = materialized(weight, shape), materialized(bias, shape)
    function = functools.partial(_affine, eps)
    return by_rows(function, axes, x, weight, bias, name=(_affine, eps))


@implement(affine_cotangents, np)
def _affine_cotangents(ct: Any, y: Any, weight: Any, scale: Any, axes: tuple[int, ...]) -> Any:
    large = reduces_by_kernel(ct) and type(y) is type(weight) is np.ndarray
    return affine_cotangents.definition(ct, y, weight, scale, axes, by_pass=large)
