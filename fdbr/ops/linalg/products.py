"""Products of vectors and matrices: cross, outer, Kronecker and chained matrix products."""

import functools
import string
from collections.abc import Sequence
from typing import Any

from fdbr.core.routine import Routine
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.ops.axes import normalize_axis
from fdbr.ops.declare import fit, leading, multilinear
from fdbr.ops.declare.unbroadcast import as_factors
from fdbr.ops.einsums import _contract
from fdbr.ops.linalg.matrices import linalg_error
from fdbr.ops.products import matmul
from fdbr.ops.products import outer as flattened_outer
from fdbr.ops.reductions.reduce import sum
from fdbr.ops.shape.creation import asarray
from fdbr.ops.shape.manipulation import diagonal, moveaxis, reshape
from fdbr.pytrees.typing import Array, ArrayLike, DTypeLike

__all__ = ["chain", "cross", "kron", "multi_dot", "outer", "trace"]

_MANY = 16  # factors up to which the optimal order of a chain is computed, in cubic time


@multilinear(
    x=lambda ct, y, like: fit(_cross(y, ct), like),
    y=lambda ct, x, like: fit(_cross(ct, x), like),
    batch=leading(1),
)
def _cross(xp: Any, x: Any, y: Any) -> Any:
    a, b, c, d, e, f = x[..., 0], x[..., 1], x[..., 2], y[..., 0], y[..., 1], y[..., 2]
    first = b * f - c * e
    out = xp.empty((*first.shape, 3), dtype=first.dtype)
    out[..., 0] = first
    out[..., 1] = c * d - a * f
    out[..., 2] = a * e - b * d
    return out


@public("fdbr.ops.linalg")
def cross(x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1) -> Array:
    """The cross product of vectors with three elements along an axis.

    Parameters
    ----------
    x1, x2
        Arrays with three elements along the axis; other axes broadcast.
    axis
        The axis; it must be negative if the arrays differ in the number of dimensions.

    Raises
    ------
    ValueError
        If the axis does not have length 3.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.linalg.cross(np.array([1.0, 0.0, 0.0]), np.array([0.0, 1.0, 0.0]))
    array([0., 0., 1.])
    """
    x, y = asarray(x1), asarray(x2)
    if x.ndim != y.ndim and axis >= 0:
        raise ValueError(
            f"fdbr.ops.linalg.cross: axis={axis} of x1 {describe(x)} and x2 {describe(y)} is not "
            "the same axis of both; count it from the end, as a negative number"
        )
    rank = min(x.ndim, y.ndim)
    position = normalize_axis(axis, rank, "linalg.cross") - rank
    if x.shape[position] != 3 or y.shape[position] != 3:
        raise ValueError(
            f"fdbr.ops.linalg.cross: x1 {describe(x)} and x2 {describe(y)} must be 3 long along "
            f"axis {axis}"
        )
    if position == -1:
        return _cross(x, y)
    return moveaxis(_cross(moveaxis(x, position, -1), moveaxis(y, position, -1)), -1, position)


@public("fdbr.ops.linalg")
def outer(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """The outer product of two vectors: all products of an element of each.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.linalg.outer(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    array([[3., 4.],
           [6., 8.]])
    """
    x, y = asarray(x1), asarray(x2)
    if x.ndim != 1 or y.ndim != 1:
        raise ValueError(
            f"fdbr.ops.linalg.outer: x1 {describe(x)} and x2 {describe(y)} must be vectors; "
            "fdbr.ops.outer flattens its arguments"
        )
    return flattened_outer(x, y)


@public("fdbr.ops.linalg")
def trace(x: ArrayLike, /, *, offset: int = 0, dtype: DTypeLike | None = None) -> Array:
    """The sum of the diagonal of the matrices in the last two axes.

    Parameters
    ----------
    x
        Shape ``(..., m, n)``.
    offset
        The diagonal to sum: positive numbers are above the main diagonal.
    dtype
        The dtype of the sum.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.linalg.trace(np.eye(3))
    np.float64(3.0)
    """
    return sum(diagonal(asarray(x), offset=offset), axis=-1, dtype=dtype)


@public("fdbr.ops.linalg")
def kron(a: Any, b: Any, /) -> Any:
    """The Kronecker product: every element of ``a`` times all of ``b``, as blocks.

    The array with fewer dimensions gets new ones in front, as in `numpy.kron`.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.linalg.kron(np.array([1.0, 10.0]), np.array([1.0, 2.0]))
    array([ 1.,  2., 10., 20.])
    """
    a, b = asarray(a), asarray(b)
    return _kron(a, b)


@Routine
def _kron(a: Any, b: Any) -> Any:
    rank = max(a.ndim, b.ndim)
    shape_a = (*(1,) * (rank - a.ndim), *a.shape)
    shape_b = (*(1,) * (rank - b.ndim), *b.shape)
    first, second = string.ascii_lowercase[:rank], string.ascii_uppercase[:rank]
    to = "".join(map("".join, zip(first, second, strict=True)))
    blocks = _contract(reshape(a, shape_a), reshape(b, shape_b), of_x=first, of_y=second, to=to)
    return reshape(blocks, tuple(m * n for m, n in zip(shape_a, shape_b, strict=True)))


# --- chains -------------------------------------------------------------------------


def chain(*factors: Any) -> Any:
    """Multiply (stacks of) matrices in the order that takes the fewest multiplications.

    For many matrices, the order is found in linear time and takes at most a quarter more.
    """
    sizes = [factors[0].shape[-2], *[factor.shape[-1] for factor in factors]]
    if len(factors) == 3:
        (x, y, z), (m, k, n, p) = factors, sizes
        if m * n * (k + p) <= k * p * (m + n):
            return matmul(matmul(x, y), z)
        return matmul(x, matmul(y, z))
    if len(factors) > _MANY:
        return _long_product(factors, sizes)
    return _product(factors, _splits(sizes), 0, len(factors) - 1)


def _long_product(factors: Sequence[Any], sizes: list[int]) -> Any:
    """Multiply many factors, in a near-optimal order that is found in linear time.

    See Chin, "An O(n) algorithm for determining a near-optimal computation order of matrix chain
    products" (1978): locally large dimensions are contracted first, and the remaining factors are
    multiplied starting at the smallest dimension.
    """
    least = min(range(len(sizes)), key=sizes.__getitem__)
    small = sizes[least]
    kept_dims = [0]  # indices into sizes of the dimensions not yet contracted
    parts: list[Any] = []  # parts[i] is the product between kept_dims[i] and kept_dims[i + 1]
    for position, factor in enumerate(factors, 1):
        while len(kept_dims) > 1 and kept_dims[-1] != least:
            outer, large, new = sizes[kept_dims[-2]], sizes[kept_dims[-1]], sizes[position]
            if large * small * (outer + new) <= outer * new * (large + small):
                break
            factor = matmul(parts.pop(), factor)
            kept_dims.pop()
        kept_dims.append(position)
        parts.append(factor)
    middle = kept_dims.index(least)
    before, after = parts[:middle], parts[middle:]
    products = []
    if before:
        products.append(functools.reduce(lambda product, x: matmul(x, product), reversed(before)))
    if after:
        products.append(functools.reduce(matmul, after))
    return functools.reduce(matmul, products)


def _splits(sizes: list[int]) -> dict[tuple[int, int], int]:
    """Compute by dynamic programming where to split each part of a chain.

    See Cormen et al., "Introduction to algorithms", on matrix-chain multiplication.
    """
    count = len(sizes) - 1
    cost = {(i, i): 0 for i in range(count)}
    splits = {}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            cost[i, j], splits[i, j] = min(
                (cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k)
                for k in range(i, j)
            )
    return splits


def _product(factors: Sequence[Any], splits: dict[tuple[int, int], int], i: int, j: int) -> Any:
    if i == j:
        return factors[i]
    k = splits[i, j]
    return matmul(_product(factors, splits, i, k), _product(factors, splits, k + 1, j))


@public("fdbr.ops.linalg")
def multi_dot(arrays: Sequence[Any], /) -> Array:
    """The matrix product of several arrays, in the order that takes the fewest multiplications.

    For more than sixteen arrays, the order is found faster and takes at most a quarter more.

    Parameters
    ----------
    arrays
        Two or more matrices; the first may be a row and the last a column vector, whose axis
        does not appear in the result.  Further leading axes broadcast.

    Raises
    ------
    ValueError
        If there are fewer than two arrays, or their shapes do not fit.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.linalg.multi_dot([np.ones((2, 3)), np.ones((3, 4)), np.ones(4)])
    array([12., 12.])
    """
    factors = as_factors([asarray(x) for x in arrays])
    if len(factors) < 2:
        raise ValueError("fdbr.ops.linalg.multi_dot: needs at least two arrays")
    row, column = factors[0].ndim == 1, factors[-1].ndim == 1
    if row:
        factors[0] = factors[0][None, :]
    if column:
        factors[-1] = factors[-1][:, None]
    for number, factor in enumerate(factors):
        if factor.ndim < 2 or (number and factor.shape[-2] != factors[number - 1].shape[-1]):
            raise linalg_error(
                "multi_dot",
                f"arrays {', '.join(map(describe, factors))} do not fit: each must be a matrix "
                "with as many rows as the one before has columns",
            )
    out = chain(*factors)
    out = out[..., 0, :] if row else out
    return out[..., 0] if column else out
