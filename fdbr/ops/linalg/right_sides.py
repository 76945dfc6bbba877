"""Right sides of linear equations: vectors, matrices and stacks of them."""

import math
from typing import Any

from fdbr.errors.checks import describe
from fdbr.ops.declare.batches import align
from fdbr.ops.linalg.matrices import linalg_error, matrices
from fdbr.ops.shape.creation import floating
from fdbr.ops.shape.manipulation import broadcast_shapes, expand_dims, moveaxis, reshape

__all__ = ["batch_equation", "equation", "same_leading"]


def equation(name: str, a: Any, b: Any, solve: Any) -> Any:
    """Call ``solve(a, b)`` with matrices ``a`` and ``b``, or raise an error if they do not fit.

    One-dimensional right sides are vectors, all others are matrices: the Array API's rule.
    """
    b = floating(b)
    matrix = expand_dims(b, axis=-1) if b.ndim == 1 else matrices(name, b, "b")
    if matrix.shape[-2] != a.shape[-2]:
        raise linalg_error(
            name,
            f"a {describe(a)} and b {describe(b)} do not fit: b must have as many "
            f"{'elements' if b.ndim == 1 else 'rows (its last axis but one)'} as a has rows",
        )
    if a.ndim == 2 and matrix.ndim > 2:
        return _by_columns(solve, a, matrix)
    out = solve(a, matrix)
    return out[..., 0] if b.ndim == 1 else out


def _by_columns(solve: Any, a: Any, b: Any) -> Any:
    """Solve for one matrix and a stack of right sides, whose columns are solved at once."""
    columns = moveaxis(b, -2, 0)
    rows, *rest = columns.shape
    out = solve(a, reshape(columns, (rows, math.prod(rest))))
    return moveaxis(reshape(out, (out.shape[0], *rest)), 0, -2)


def batch_equation(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    """Apply a solver to a batch; a matrix that all examples share is factored once."""
    a, b = values
    if not batched[0] and a.ndim == 2:
        return _by_columns(lambda a, b: apply(a, b, **params), a, b)
    return apply(*align(values, batched, 2), **params)


def same_leading(xp: Any, name: str, a: Any, b: Any) -> tuple[Any, Any]:
    """Broadcast the axes before the last two, which not every array module does itself."""
    if a.shape[:-2] == b.shape[:-2]:
        return a, b
    stack = broadcast_shapes(f"linalg.{name}", a.shape[:-2], b.shape[:-2])
    return (
        xp.broadcast_to(a, (*stack, *a.shape[-2:])),
        xp.broadcast_to(b, (*stack, *b.shape[-2:])),
    )
