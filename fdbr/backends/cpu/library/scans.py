"""Cumulative sums, products and linear recurrences of raw arrays.

NumPy's scans advance one element at a time, which takes ten times as long as adding rows.  Narrow
arrays are therefore cut into blocks, and each step is done for all blocks at once.
"""

import functools
import math
from typing import Any

import numpy as np

from fdbr.backends.cpu import kernels
from fdbr.backends.cpu.library.cumulative import CHAINS, accumulated
from fdbr.backends.cpu.library.rows import by_slices, reduces_by_kernel
from fdbr.backends.cpu.tuning import TUNING
from fdbr.core.primitive import implement
from fdbr.ops.reductions import cumulative
from fdbr.pytrees.dtypes import dtype_kind

__all__: list[str] = []

_LANES = 1023  # odd, so that periodic large elements are spread over lanes and do not overflow one
_BLOCK = 32  # factors of a block; the products of more leave the range of float32 more often
_TILE = 64  # rows transposed at a time, so that they stay in the caches


# --- sums ---------------------------------------------------------------------------


@implement(cumulative._cumsum.primitive, np)
def _cumsum(xp: Any, x: Any, *, axis: int, reverse: bool) -> Any:
    """Compute cumulative sums along an axis, from its start, or with ``reverse`` from its end."""
    if x.size >= TUNING.scan_elements and x.dtype.char in "fd":
        outer, n, inner = _sizes_around(x.shape, axis)
        size = next((n for n in range(32, 7, -1) if x.shape[axis] % n == 0), 0)
        if size and (inner == 1 or inner >= TUNING.scan_row):
            blocks = x.reshape(outer, n // size, size, inner)
            sums = _block_sums(blocks, reverse)
            if sums is not None:
                return sums.reshape(x.shape)
    if not reverse and x.size >= TUNING.scan_kernel:
        found = _accumulated("sum", x, axis)
        if found is not None:
            return found
    if reverse:
        reverse_key = (*(slice(None),) * axis, slice(None, None, -1))
        return _cumsum(xp, x[reverse_key], axis=axis, reverse=False)[reverse_key]
    return x.cumsum(axis) if type(x) is np.ndarray else np.cumsum(x, axis=axis)


def _block_sums(x: Any, reverse: bool) -> Any:
    """Compute cumulative sums along axes 1 and 2 together, as products with a triangle of ones.

    Return `None` if an element is not finite: the product would make its whole block NaN.
    """
    outer, count, size, inner = x.shape
    ones, triangle = _triangle(size, x.dtype, reverse)
    totals = (x[..., 0] @ ones if inner == 1 else np.matmul(ones, x)).reshape(outer, count, inner)
    if not np.isfinite(totals).all():
        return None
    offsets = _cumsum(np, totals, axis=1, reverse=reverse)
    x = x.copy()
    if reverse:
        x[:, :-1, -1] += offsets[:, 1:]
    else:
        x[:, 1:, 0] += offsets[:, :-1]
    if inner == 1:
        return x.reshape(outer * count, size) @ triangle
    return np.matmul(triangle.T, x)


@functools.lru_cache(maxsize=32)
def _triangle(size: int, dtype: Any, reverse: bool) -> tuple[Any, Any]:
    """Return ones, and the triangle of ones by which rows are multiplied for cumulative sums."""
    ones = np.ones((size, size), dtype)
    return ones[0], np.tril(ones) if reverse else np.triu(ones)


def _sizes_around(shape: tuple[int, ...], axis: int) -> tuple[int, int, int]:
    """Return the numbers of elements before, along and after an axis."""
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


def _accumulated(name: str, x: Any, axis: int, *factors: Any) -> Any:
    """Compute cumulative sums or products by a kernel; `None` where NumPy's rows are faster.

    A kernel reads a few adjacent columns at a time, which misses the caches in large arrays.
    """
    large = axis < x.ndim - 1 and x.nbytes >= TUNING.kernel_bytes
    return None if large else accumulated(name, x, axis, *factors)


# --- products and recurrences -------------------------------------------------------


@implement(cumulative._cumprod.primitive, np)
def _cumprod(xp: Any, x: Any, *, axis: int) -> Any:
    """Compute cumulative products along an axis."""
    n = x.shape[axis]
    if x.size >= TUNING.scan_elements and (found := _product_blocks(x, axis)) is not None:
        return found
    if x.size >= TUNING.scan_kernel and (found := _accumulated("prod", x, axis)) is not None:
        return found
    if dtype_kind(x.dtype) not in "fc" or x.size < max(TUNING.scan_elements, TUNING.scan_row * n):
        return x.cumprod(axis) if type(x) is np.ndarray else np.cumprod(x, axis=axis)
    return _columns(_products_of_rows(_rows(x, axis)), x.shape, axis)


def _product_blocks(x: Any, axis: int) -> Any:
    """Compute cumulative products of few long rows within blocks, and multiply by their carries.

    Return `None` if there are many rows, or if a product within a block is zero, subnormal or not
    finite, because the product from the start of the row may be none of these.
    """
    outer, n, inner = _sizes_around(x.shape, axis)
    if outer * inner >= CHAINS or x.dtype.char not in "fd":
        return None
    size = min(_BLOCK, n)
    count, rest = divmod(n, size)
    shape, x = x.shape, x.reshape(outer, n, inner)
    cut = (outer, count, size, inner)
    blocks = x[:, : n - rest].reshape(cut)
    within = accumulated("prod", blocks, 2)
    if within is None or not cumulative._is_regular(blocks, within):
        return None
    carries = np.ones((outer, count + 1, inner), x.dtype)
    carries[:, 1:] = accumulated("prod", within[:, :, -1], 1)
    out = np.empty_like(x, order="C")
    np.multiply(within, carries[:, :-1, None], out=out[:, : n - rest].reshape(cut))
    if rest:
        last = x[:, n - rest :].copy()
        last[:, 0] *= carries[:, -1]
        np.multiply.accumulate(last, 1, out=out[:, n - rest :])
    return out.reshape(shape)


def _products_of_rows(x: Any) -> Any:
    """Compute the cumulative products of the rows of a matrix."""
    out = np.empty_like(x)
    out[:1] = x[:1]
    for i in range(1, len(x)):
        np.multiply(out[i - 1], x[i], out=out[i])
    return out


@implement(cumulative._recurrence.primitive, np)
def _recurrence(xp: Any, b: Any, a: Any, *, axis: int, reverse: bool) -> Any:
    if reverse:
        a, b = np.flip(a, axis), np.flip(b, axis)
    out = None
    if b.size >= TUNING.scan_kernel and a.dtype == b.dtype and a.shape == b.shape:
        factors = np.array(a, order="C")
        factors[(slice(None),) * axis + (0,)] = 1  # the first is not used, and may be infinite
        out = _accumulated("recurrence", b, axis, factors)
    if out is None:
        out = _columns(_recurrence_of_rows(_rows(a, axis), _rows(b, axis)), b.shape, axis)
    return np.flip(out, axis) if reverse else out


def _recurrence_of_rows(a: Any, b: Any) -> Any:
    """Compute the recurrence over the rows of matrices."""
    n, width = b.shape
    if width < TUNING.scan_row and n > TUNING.scan_row:
        return _recurrence_by_blocks(a, b)
    out = np.array(b)
    product = np.empty_like(b[:1])[0] if n else None
    for i in range(1, n):
        np.multiply(a[i], out[i - 1], out=product)
        out[i] += product
    return out


def _recurrence_by_blocks(a: Any, b: Any) -> Any:
    """Compute the recurrence of long columns: within blocks, then over the ends of the blocks."""
    n, width = b.shape
    size = math.isqrt(n)
    count = n // size
    cut = (count, size, width)
    a_blocks, b_blocks = (
        np.ascontiguousarray(x[: count * size].reshape(cut).swapaxes(0, 1)) for x in (a, b)
    )
    rows = (size, count * width)
    within = _recurrence_of_rows(a_blocks.reshape(rows), b_blocks.reshape(rows))
    products = _products_of_rows(a_blocks.reshape(rows))
    carries = _recurrence_of_rows(
        products[-1].reshape(count, width), within[-1].reshape(count, width)
    )
    within[:, width:] += products[:, width:] * carries[:-1].reshape(-1)
    whole = within.reshape((size, count, width)).swapaxes(0, 1).reshape(count * size, width)
    rest = np.concatenate([whole[-1:], b[count * size :]])
    rest = _recurrence_of_rows(a[count * size - 1 :], rest)
    return np.concatenate([whole, rest[1:]])


def _rows(x: Any, axis: int) -> Any:
    """Reshape an array to a matrix whose rows are the positions along an axis."""
    n, rows = x.shape[axis], np.moveaxis(x, axis, 0)
    if axis == x.ndim - 1 == 1:
        return _transposed(x)
    return np.ascontiguousarray(rows).reshape(n, x.size // n if n else 0)


def _columns(rows: Any, shape: tuple[int, ...], axis: int) -> Any:
    """Undo `_rows`."""
    if axis == len(shape) - 1 == 1:
        return _transposed(rows)
    moved = (shape[axis], *shape[:axis], *shape[axis + 1 :])
    return np.ascontiguousarray(np.moveaxis(rows.reshape(moved), 0, axis))


def _transposed(x: Any) -> Any:
    """Copy the transpose of a matrix in row-major order."""
    out = np.empty(x.shape[::-1], x.dtype)
    for start in range(0, len(x), _TILE):
        out[:, start : start + _TILE] = x[start : start + _TILE].T
    return out


# --- products along axes --------------------------------------------------------------


@implement(cumulative._prod.primitive, np)
def _prod(xp: Any, x: Any, *, axes: tuple[int, ...]) -> Any:
    is_small = type(x) is np.ndarray and x.nbytes < TUNING.kernel_bytes
    if is_small and (found := by_slices(np.multiply, x, axes)) is not None:
        return found
    if x.size < TUNING.product_lanes:
        return np.multiply.reduce(x, axes) if type(x) is np.ndarray else x.prod(axis=axes)
    last = axes == tuple(range(x.ndim - len(axes), x.ndim))
    # NumPy has vectors along the first axes, and lanes a whole array; along rows it has neither.
    in_rows = last and len(axes) < x.ndim and reduces_by_kernel(x)
    if (in_rows or x.nbytes >= TUNING.kernel_bytes) and x.dtype.char in "fd":
        found = kernels.reduced("prod", _row_products, axes, (x,))
        # The lanes of a vector may leave the range where products of more lanes do not.
        if found is not None and _are_regular(found.reshape(-1)):
            return found.reshape([n for i, n in enumerate(x.shape) if i not in axes])[()]
    if last and axes and x.dtype.char in "fdFD":
        x = x.reshape((*x.shape[: axes[0]], -1))
        return np.multiply.reduce(_lanes(x) if x.shape[-1] >= TUNING.product_lanes else x, -1)
    return x.prod(axis=axes)


def _are_regular(products: Any) -> bool:
    """Whether no product is zero, infinite or NaN; large ones may count as infinite."""
    is_finite = math.isfinite(products.dot(products))  # in a quarter of the time of `isfinite`
    return is_finite and np.count_nonzero(products) == products.size


def _row_products(x: Any) -> Any:
    return x.prod(axis=(1,), keepdims=True)


def _lanes(x: Any) -> Any:
    """Multiply elements at a fixed distance along the last axis, giving fewer factors."""
    n = x.shape[-1]
    count = min(_LANES, math.isqrt(n) | 1)
    whole = n - n % count
    lanes = x[..., :whole].reshape((*x.shape[:-1], whole // count, count))
    lanes = np.multiply.reduce(lanes, -2)
    lanes[..., : n - whole] *= x[..., whole:]
    return lanes
