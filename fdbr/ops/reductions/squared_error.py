"""Sums of squared differences, for variances and squared errors.

The composition of subtraction, multiplication and sum gives the same, but passes over memory once
for each of them and of their derivatives.
"""

import math
from typing import Any

from fdbr.core.routine import Routine
from fdbr.ops.declare import elementwise, opaque, shifted
from fdbr.ops.declare.batches import spread
from fdbr.ops.declare.unbroadcast import accumulate
from fdbr.ops.elementwise.arithmetic import negative
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["squared_distance", "squares", "squares_about_mean"]


@elementwise(x=lambda scale: scale, y=lambda scale: -scale, scale=lambda x, y: x - y)
def _scaled_distance(xp: Any, x: Any, y: Any, scale: Any) -> Any:
    return (x - y) * scale


def _count(shape: tuple[int, ...], axes: tuple[int, ...]) -> int:
    return math.prod([shape[axis] for axis in axes])


# --- between two arrays -------------------------------------------------------------


def squares(axes: tuple[int, ...], x: Any, y: Any) -> Any:
    """Sum ``(x - y)**2`` over axes, kept with length 1."""
    deviation = x - y
    return accumulate(deviation * deviation, axes, keepdims=True)


def _distance_jvp(t: Any, x: Any, y: Any, axes: tuple[int, ...]) -> Any:
    return accumulate(_scaled_distance(x, y, 2 * t), axes, keepdims=True)


def _batch_pair(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    x, y = (spread(value, flag, size) for value, flag in zip(values, batched, strict=True))
    return apply(x, y, axes=tuple([axis + 1 for axis in params["axes"]]))


@opaque(
    first=lambda ct, x, y: _scaled_distance(x, y, 2 * ct),
    x=(lambda derivative: derivative, _distance_jvp),
    y=(
        lambda derivative: negative(derivative),
        lambda t, x, y, axes: -_distance_jvp(t, x, y, axes),
    ),
    batch=_batch_pair,
    compound=True,
    fresh=True,
    total=True,
)
def _squared_distance(xp: Any, x: ArrayLike, y: ArrayLike, *, axes: tuple[int, ...]) -> Array:
    return squares(axes, x, y)


@Routine
def squared_distance(x: Array, y: Array, axes: tuple[int, ...]) -> Any:
    """Sum ``(x - y)**2`` over axes, kept with length 1; arrays have one shape and dtype.

    Back ends say from which size on it takes less time than its parts (`Routine.least`).
    """
    return _squared_distance(x, y, axes=axes)


# --- from the mean ------------------------------------------------------------------


def _about_mean_vjp(cts: Any, x: Any, out: Any, axes: tuple[int, ...]) -> Any:
    ct_square, ct_mean = cts
    total = None
    if ct_square is not None:
        total = _scaled_distance(x, out[1], 2 * ct_square)
    if ct_mean is not None:
        term = ct_mean / _count(x.shape, axes)
        total = term + 0 * x if total is None else total + term
    return total


def _about_mean_jvp(t: Any, x: Any, out: Any, axes: tuple[int, ...]) -> tuple[Any, Any]:
    square = accumulate(_scaled_distance(x, out[1], 2 * t), axes, keepdims=True)
    return square, accumulate(t, axes, keepdims=True) / _count(x.shape, axes)


@opaque(x=(_about_mean_vjp, _about_mean_jvp), batch=shifted("axes"), compound="small")
def _about_mean(xp: Any, x: ArrayLike, *, axes: tuple[int, ...]) -> Any:
    mean = accumulate(x, axes, keepdims=True) / _count(x.shape, axes)
    return squares(axes, x, mean), mean


def squares_about_mean(x: Any, axes: tuple[int, ...]) -> Any:
    """Sum squared deviations from the mean over axes, kept with length 1."""
    return _about_mean(x, axes=axes)[0]
