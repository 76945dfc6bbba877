"""The right sides of linear equations: vectors, matrices and stacks of them."""

import math
from typing import Any

from fdbr.errors.checks import describe
from fdbr.ops.declare.batches import align
from fdbr.ops.linalg.matrices import failure, matrices
from fdbr.ops.shape.creation import floating
from fdbr.ops.shape.manipulation import broadcast_shapes, expand_dims, moveaxis, reshape

__all__ = ["batch_equation", "equation", "same_leading"]


def equation(name: str, a: Any, b: Any, solve: Any) -> Any:
    """``solve(a, b)`` for matrices ``a`` and ``b``, or an error if they do not fit.

    One-dimensional right sides are vectors, all others are matrices: the Array API's rule.
    """
    b = floating(b)
    whole = expand_dims(b, axis=-1) if b.ndim == 1 else matrices(name, b, "b")
    if whole.shape[-2] != a.shape[-2]:
        raise failure(
            name,
            f"a {describe(a)} and b {describe(b)} do not fit: b must have as many "
            f"{'elements' if b.ndim == 1 else 'rows (its last axis but one)'} as a has rows",
        )
    if a.ndim == 2 and whole.ndim > 2:
        return _by_columns(solve, a, whole)
    out = solve(a, whole)
    return out[..., 0] if b.ndim == 1 else out


def _by_columns(solve: Any, a: Any, b: Any) -> Any:
    """The solutions for one matrix and stacks of right sides: all their columns at once."""
    columns = moveaxis(b, -2, 0)
    rows, *rest = columns.shape
    out = solve(a, reshape(columns, (rows, math.prod(rest))))
    return moveaxis(reshape(out, (out.shape[0], *rest)), 0, -2)


def batch_equation(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    """The batching rule of a solver; a matrix that all examples share is factored once."""
    a, b = values
    if not batched[0] and a.ndim == 2:
        return _by_columns(lambda a, b: apply(a, b, **params), a, b)
    return apply(*align(values, batched, 2), **params)


def same_leading(xp: Any, name: str, a: Any, b: Any) -> tuple[Any, Any]:
    """Arrays with the axes before the last two broadcast, which not every module does itself."""
    if a.shape[:-2] == b.shape[:-2]:
        return a, b
    stack = broadcast_shapes(f"linalg.{name}", a.shape[:-2], b.shape[:-2])
    return (
        xp.broadcast_to(a, (*stack, *a.shape[-2:])),
        xp.broadcast_to(b, (*stack, *b.shape[-2:])),
    )
