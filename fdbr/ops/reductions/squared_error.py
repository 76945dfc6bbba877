"""Sums of squared distances of large arrays: what variances and squared errors are made of.

Composed of subtraction, multiplication and sum they are the same, with a pass over memory for each
of these and of their derivatives.
"""

import math
from typing import Any

from fdbr.backends.cpu import kernels
from fdbr.ops.declare import elementwise, opaque, shifted
from fdbr.ops.declare.batches import spread
from fdbr.ops.declare.large import by_rows
from fdbr.ops.declare.unbroadcast import accumulated
from fdbr.ops.elementwise.arithmetic import negative
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["is_long", "squared_distance", "squares_about_mean"]


def is_long(x: Any) -> bool:
    """Whether the passes over an array of real floating numbers tell."""
    return x.dtype.char in "fd" and x.nbytes >= kernels.LEAST


@elementwise(x=lambda scale: scale, y=lambda scale: -scale, scale=lambda x, y: x - y)
def _scaled_distance(xp: Any, x: ArrayLike, y: ArrayLike, scale: ArrayLike) -> Array:
    return (x - y) * scale


def _count(shape: tuple[int, ...], axes: tuple[int, ...]) -> int:
    return math.prod([shape[axis] for axis in axes])


# --- between two arrays -------------------------------------------------------------


def _squares(axes: tuple[int, ...], x: Any, y: Any) -> Any:
    away = x - y
    return accumulated(away * away, axes, keepdims=True)


def _distance_push(t: Any, x: Any, y: Any, axes: tuple[int, ...]) -> Any:
    return accumulated(_scaled_distance(x, y, 2 * t), axes, keepdims=True)


def _batch_pair(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    x, y = (spread(value, flag, size) for value, flag in zip(values, batched, strict=True))
    return apply(x, y, axes=tuple([axis + 1 for axis in params["axes"]]))


@opaque(
    first=lambda ct, x, y: _scaled_distance(x, y, 2 * ct),
    x=(lambda slope: slope, _distance_push),
    y=(lambda slope: negative(slope), lambda t, x, y, axes: -_distance_push(t, x, y, axes)),
    batch=_batch_pair,
)
def _squared_distance(xp: Any, x: ArrayLike, y: ArrayLike, *, axes: tuple[int, ...]) -> Array:
    return by_rows(_squares, axes, x, y)


def squared_distance(x: Array, y: Array, axes: tuple[int, ...]) -> Any:
    """The sum of ``(x - y)**2`` over axes, which stay; of arrays of one shape and dtype."""
    return _squared_distance(x, y, axes=axes)


# --- from the mean ------------------------------------------------------------------


def _about_mean_pull(cts: Any, x: Any, out: Any, axes: tuple[int, ...]) -> Any:
    by_square, by_mean = cts
    total = None
    if by_square is not None:
        total = _scaled_distance(x, out[1], 2 * by_square)
    if by_mean is not None:
        term = by_mean / _count(x.shape, axes)
        total = term + 0 * x if total is None else total + term
    return total


def _about_mean_push(t: Any, x: Any, out: Any, axes: tuple[int, ...]) -> tuple[Any, Any]:
    square = accumulated(_scaled_distance(x, out[1], 2 * t), axes, keepdims=True)
    return square, accumulated(t, axes, keepdims=True) / _count(x.shape, axes)


@opaque(x=(_about_mean_pull, _about_mean_push), batch=shifted("axes"))
def _about_mean(xp: Any, x: ArrayLike, *, axes: tuple[int, ...]) -> Any:
    mean = accumulated(x, axes, keepdims=True) / _count(x.shape, axes)
    return by_rows(_squares, axes, x, mean), mean


def squares_about_mean(x: Any, axes: tuple[int, ...]) -> Any:
    """The sum of squared distances from the mean over axes, which stay."""
    return _about_mean(x, axes=axes)[0]
