"""Running sums, products and recurrences of plain arrays.

NumPy goes from element to element, which takes ten times as long as to add rows.  So what is
narrow is cut into blocks that lie beside each other, and each step is done for all of them.
"""

import functools
import math
from typing import Any

import numpy as np

from fdbr.backends.cpu.kernels import LEAST
from fdbr.backends.cpu.library.cumulative import products_of_rows
from fdbr.pytrees.dtypes import dtype_kind

__all__ = ["recurrence", "running_product", "running_sum"]

_MANY = 1 << 14  # elements from which on NumPy's own way is slower
_WIDE = 64  # elements from which on a row takes little longer than a number
_LONG = 64  # numbers from which on they are cut into blocks
_TILE = 64  # rows that are turned at a time, so that they stay in the caches


# --- sums ---------------------------------------------------------------------------


def running_sum(xp: Any, x: Any, axis: int, reverse: bool) -> Any:
    """The sums of all elements up to each along an axis, or from each on."""
    if xp is np and x.size >= _MANY and x.dtype.char in "fd":
        outer, n, inner = _sides(x.shape, axis)
        size = next((n for n in range(32, 7, -1) if x.shape[axis] % n == 0), 0)
        if size and (inner == 1 or inner >= _WIDE):
            blocks = x.reshape(outer, n // size, size, inner)
            sums = _summed_blocks(blocks, reverse)
            if sums is not None:
                return sums.reshape(x.shape)
    if reverse:
        turned = (*(slice(None),) * axis, slice(None, None, -1))
        return running_sum(xp, x[turned], axis, False)[turned]
    return x.cumsum(axis) if type(x) is np.ndarray else xp.cumsum(x, axis=axis)


def _summed_blocks(x: Any, reverse: bool) -> Any:
    """The running sums along the second and third axis together: products with a triangle.

    What is not finite would make NaN of all of its block; then there is none.
    """
    outer, count, size, inner = x.shape
    ones, triangle = _triangle(size, x.dtype, reverse)
    totals = (x[..., 0] @ ones if inner == 1 else np.matmul(ones, x)).reshape(outer, count, inner)
    if not np.isfinite(totals).all():
        return None
    before = running_sum(np, totals, 1, reverse)
    x = x.copy()
    if reverse:
        x[:, :-1, -1] += before[:, 1:]
    else:
        x[:, 1:, 0] += before[:, :-1]
    if inner == 1:
        return x.reshape(outer * count, size) @ triangle
    return np.matmul(triangle.T, x)


@functools.lru_cache(maxsize=32)
def _triangle(size: int, dtype: Any, reverse: bool) -> tuple[Any, Any]:
    """Ones, and those with which rows of so many elements are multiplied to their sums."""
    ones = np.ones((size, size), dtype)
    return ones[0], np.tril(ones) if reverse else np.triu(ones)


def _sides(shape: tuple[int, ...], axis: int) -> tuple[int, int, int]:
    """The numbers of elements before, along and behind an axis."""
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


# --- products and recurrences -------------------------------------------------------


def running_product(xp: Any, x: Any, axis: int) -> Any:
    """The products of all elements up to each along an axis."""
    n = x.shape[axis]
    if xp is not np or dtype_kind(x.dtype) not in "fc" or x.size < max(_MANY, _WIDE * n):
        return xp.cumprod(x, axis=axis)
    if axis == x.ndim - 1 and x.nbytes >= LEAST and (found := products_of_rows(x)) is not None:
        return found
    return _columns(_multiplied(_rows(x, axis)), x.shape, axis)


def _multiplied(x: Any) -> Any:
    """The running products of the rows of a matrix."""
    out = np.empty_like(x)
    out[:1] = x[:1]
    for i in range(1, len(x)):
        np.multiply(out[i - 1], x[i], out=out[i])
    return out


def recurrence(xp: Any, a: Any, b: Any, axis: int, reverse: bool) -> Any:
    """``s[i] = a[i] * s[i - 1] + b[i]`` along an axis; from its end, with ``i + 1``, in reverse.

    There is nothing before the first, and its ``a`` does not count.
    """
    if reverse:
        a, b = xp.flip(a, axis), xp.flip(b, axis)
    if xp is np:
        out = _columns(_recurring(_rows(a, axis), _rows(b, axis)), b.shape, axis)
    else:
        out = _doubled(xp, a, b, axis)
    return xp.flip(out, axis) if reverse else out


def _recurring(a: Any, b: Any) -> Any:
    """The recurrence of the rows of matrices."""
    n, width = b.shape
    if width < _WIDE and n > _LONG:
        return _recurring_blocks(a, b)
    out = np.array(b)
    product = np.empty_like(b[:1])[0] if n else None
    for i in range(1, n):
        np.multiply(a[i], out[i - 1], out=product)
        out[i] += product
    return out


def _recurring_blocks(a: Any, b: Any) -> Any:
    """The recurrence of long columns: of each block alone, and then of what they leave behind."""
    n, width = b.shape
    size = math.isqrt(n)
    count = n // size
    cut = (count, size, width)
    a_blocks, b_blocks = (
        np.ascontiguousarray(x[: count * size].reshape(cut).swapaxes(0, 1)) for x in (a, b)
    )
    rows = (size, count * width)
    own = _recurring(a_blocks.reshape(rows), b_blocks.reshape(rows))
    gains = _multiplied(a_blocks.reshape(rows))
    left = _recurring(gains[-1].reshape(count, width), own[-1].reshape(count, width))
    own[:, width:] += gains[:, width:] * left[:-1].reshape(-1)
    whole = own.reshape((size, count, width)).swapaxes(0, 1).reshape(count * size, width)
    rest = np.concatenate([whole[-1:], b[count * size :]])
    rest = _recurring(a[count * size - 1 :], rest)
    return np.concatenate([whole, rest[1:]])


def _doubled(xp: Any, a: Any, b: Any, axis: int) -> Any:
    """The recurrence by Hillis and Steele's scan, which takes few steps of many elements."""
    before = (slice(None),) * axis
    shift = 1
    while shift < b.shape[axis]:
        later, earlier = (*before, slice(shift, None)), (*before, slice(None, -shift))
        gains = a[later]
        b = xp.concatenate([b[(*before, slice(shift))], b[later] + gains * b[earlier]], axis=axis)
        a = xp.concatenate([a[(*before, slice(shift))], gains * a[earlier]], axis=axis)
        shift *= 2
    return b


def _rows(x: Any, axis: int) -> Any:
    """An array as a matrix whose rows are the places on an axis."""
    n, rows = x.shape[axis], np.moveaxis(x, axis, 0)
    if axis == x.ndim - 1 == 1:
        return _turned(x)
    return np.ascontiguousarray(rows).reshape(n, x.size // n if n else 0)


def _columns(rows: Any, shape: tuple[int, ...], axis: int) -> Any:
    """The array of which `_rows` made a matrix."""
    if axis == len(shape) - 1 == 1:
        return _turned(rows)
    moved = (shape[axis], *shape[:axis], *shape[axis + 1 :])
    return np.ascontiguousarray(np.moveaxis(rows.reshape(moved), 0, axis))


def _turned(x: Any) -> Any:
    """A copy of the transpose of a matrix, row by row in memory."""
    out = np.empty(x.shape[::-1], x.dtype)
    for start in range(0, len(x), _TILE):
        out[:, start : start + _TILE] = x[start : start + _TILE].T
    return out
