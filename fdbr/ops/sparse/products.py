"""Products of a sparse and a dense matrix, and the product of two dense ones at some places.

The first is linear in the elements and in the dense matrix; its transposes are the second, at
the places of the pattern, and the product with the turned pattern.  The second's are the first.
"""

import math
from typing import Any

from fdbr.ops.declare import fit, multilinear
from fdbr.ops.declare.batches import spread
from fdbr.ops.shape.manipulation import moveaxis, reshape
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["multiply_sparse", "products_at"]


def _batch_of_products(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    """Of dense matrices: their columns side by side; of sparse ones: all of them in one."""
    (data, x), pattern = values, params["pattern"]
    height = pattern.outer_shape[0]
    if not batched[0]:
        columns = x.shape[2:]
        side_by_side = reshape(moveaxis(x, 0, 1), (x.shape[1], size * math.prod(columns)))
        out = apply(data, side_by_side, pattern=pattern)
        return moveaxis(reshape(out, (height, size, *columns)), 1, 0)
    x = spread(x, batched[1], size)
    stacked = reshape(x, (size * x.shape[1], *x.shape[2:]))
    out = apply(data, stacked, pattern=pattern.repeated(size))
    return reshape(out, (size, height, *x.shape[2:]))


def _batch_at_places(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    pattern = params["pattern"].repeated(size)
    a, b = (spread(v, flag, size) for v, flag in zip(values, batched, strict=True))
    a, b = (reshape(v, (size * v.shape[1], *v.shape[2:])) for v in (a, b))
    return apply(a, b, pattern=pattern)


@multilinear(
    data=lambda ct, x, like, pattern: fit(products_at(ct, x, pattern=pattern), like),
    x=lambda ct, data, like, pattern: fit(multiply_sparse(data, ct, pattern=pattern.T), like),
    batch=_batch_of_products,
)
def multiply_sparse(xp: Any, data: ArrayLike, x: ArrayLike, *, pattern: Any) -> Array:
    """The sparse matrix of a pattern and its elements, times a vector or a matrix."""
    return pattern.matrix(data) @ x


@multilinear(
    a=lambda ct, b, like, pattern: fit(multiply_sparse(ct, b, pattern=pattern), like),
    b=lambda ct, a, like, pattern: fit(multiply_sparse(ct, a, pattern=pattern.T), like),
    batch=_batch_at_places,
)
def products_at(xp: Any, a: ArrayLike, b: ArrayLike, *, pattern: Any) -> Array:
    """``a @ b.T``, of vectors their outer product, at the places of a pattern alone."""
    rows, columns, there = pattern.places()
    out = a[rows] * b[columns]
    if out.ndim > 1:
        out = out.sum(axis=1)
    return xp.where(there, out, 0).astype(out.dtype).reshape(pattern.data_shape)
