"""Read rows of a table at indices, and add to them."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fdbr.core.array_modules import array_module
from fdbr.core.devices import is_host
from fdbr.core.lazy_cotangents import Deferred
from fdbr.errors.checks import describe
from fdbr.ops.declare import linear
from fdbr.ops.declare.batches import spread
from fdbr.ops.indexing.positions import read_at, sums_at
from fdbr.ops.shape.manipulation import moveaxis, reshape
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["add_rows", "rows_at"]


def _row_numbers(indices: Any, flag: bool, size: int, count: int) -> Any:
    """Offset row indices for the tables of a batch stacked into one table."""
    ones = (1,) * (indices.ndim - flag)
    starts = array_module(indices).arange(size).reshape((size, *ones)) * count
    return indices + starts


def _batch_rows(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    weight, indices = values
    if not batched[0]:
        return apply(weight, indices)
    if not batched[1]:  # all examples read the same rows
        return moveaxis(apply(moveaxis(weight, 0, 1), indices), indices.ndim, 0)
    count = weight.shape[1]
    tables = reshape(weight, (size * count, *weight.shape[2:]))
    return apply(tables, _row_numbers(indices, True, size, count))


def _batch_add(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    rows, indices = values
    count = params["count"]
    if not batched[1]:
        return moveaxis(apply(moveaxis(rows, 0, indices.ndim), indices, count=count), 1, 0)
    rows = spread(rows, batched[0], size)
    out = apply(rows, _row_numbers(indices, True, size, count), count=size * count)
    return reshape(out, (size, count, *out.shape[1:]))


def _rows_vjp(ct: Any, indices: Any, shape: tuple[int, ...]) -> Any:
    if type(ct) is not np.ndarray or type(indices) is not np.ndarray:
        return add_rows(ct, indices, count=shape[0])
    return Deferred(_sum_of_rows, (ct, indices, shape), ct.size, math.prod(shape))


def _sum_of_rows(terms: Sequence[tuple[Any, Any, tuple[int, ...]]]) -> Any:
    """Sum tables that are zero except in some rows."""
    ((rows, indices, shape), *others) = terms
    if others:
        rows = np.concatenate([rows.reshape((i.size, *shape[1:])) for rows, i, _ in terms])
        indices = np.concatenate([indices.reshape(-1).astype(int) for _, indices, _ in terms])
    return add_rows(rows, indices, count=shape[0])


@linear(weight=_rows_vjp, batch=_batch_rows)
def rows_at(xp: Any, weight: ArrayLike, indices: ArrayLike) -> Array:
    """Read the rows of a table at indices."""
    count = weight.shape[0]
    if is_host(xp) and indices.size and not (indices.min() >= 0 and indices.max() < count):
        raise ValueError(
            f"fdbr.ops.embed: indices from {indices.min()} to {indices.max()} for a table of "
            f"{count} rows, {describe(weight)}; they must lie in 0 … {count - 1}"
        )
    return read_at.on(xp)(xp, weight, indices)


@linear(rows=lambda ct, indices: rows_at(ct, indices), batch=_batch_add, fresh=True)
def add_rows(xp: Any, rows: ArrayLike, indices: ArrayLike, *, count: int) -> Array:
    """Add rows to a table of ``count`` zero rows, at their indices."""
    shape = rows.shape[indices.ndim :]
    rows = rows.reshape((indices.size, *shape))
    return sums_at.on(xp)(xp, (count, *shape), indices.reshape(-1), rows)
