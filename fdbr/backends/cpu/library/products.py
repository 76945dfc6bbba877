"""Products of vectors and matrices beside those of the BLAS: outer, inner and cross products."""

import math
from typing import Any

import numpy as np

from fdbr.backends.cpu import kernels
from fdbr.backends.cpu.library.row_iteration import broadcast_product
from fdbr.backends.cpu.tuning import TUNING
from fdbr.core.primitive import implement
from fdbr.core.util.threads import divide, slices
from fdbr.ops import einsums, signal
from fdbr.ops.linalg import norms
from fdbr.ops.linalg import products as vectors
from fdbr.ops.products import _matmul

_NEXT, _LAST = np.array([1, 2, 0]), np.array([2, 0, 1])


@implement(_matmul.primitive, np)
def _multiplied(xp: Any, x: Any, y: Any) -> Any:
    if x.itemsize <= 2 or y.itemsize <= 2:
        return np.matmul(x, y)  # it accumulates 16-bit floats in float32, and `dot` does not
    if x.shape[-1] == 1 and x.ndim == y.ndim == 2:
        return broadcast_product(x, y)
    if x.ndim > 2 and x.shape[-1] == 1:
        return _outer_products(x[..., 0], y[..., 0, :])
    return x.dot(y) if x.ndim == y.ndim == 2 else np.matmul(x, y)


def _outer_products(x: Any, y: Any) -> Any:
    """Compute outer products of many vectors, five times faster than by `matmul`.

    Per-example gradients have this form.  Large ones are limited by writing to memory, which two
    threads do twice as fast.
    """
    count, size = len(x), x.size * y.shape[-1]
    if size < TUNING.outer_share or y.ndim != x.ndim or len(y) != count:
        return np.einsum("...i,...j->...ij", x, y)
    shape = np.broadcast_shapes(x.shape[:-1], y.shape[:-1])
    out = np.empty((*shape, x.shape[-1], y.shape[-1]), np.result_type(x, y))
    outer = (
        _padded_outer
        if out.dtype.char in "fd" and size // count < TUNING.outer_blas
        else _plain_outer
    )

    def work(piece: slice) -> None:
        outer(x[piece], y[piece], out[piece])

    divide(work, slices(out, TUNING.outer_share * out.itemsize))
    return out


def _plain_outer(x: Any, y: Any, out: Any) -> None:
    np.einsum("...i,...j->...ij", x, y, out=out)


def _padded_outer(x: Any, y: Any, out: Any) -> None:
    """Compute outer products by BLAS, which NumPy uses for matrices of two columns or more.

    The second column and row are zeros, so their product adds nothing.
    """
    columns = np.zeros((*x.shape, 2), out.dtype)
    columns[..., 0] = x
    rows = np.zeros((*y.shape[:-1], 2, y.shape[-1]), out.dtype)
    rows[..., 0, :] = y
    np.matmul(columns, rows, out=out)


# --- inner products and elementwise ones ----------------------------------------------


@implement(einsums.inner_of_rows, np)
def _inner_of_rows(x: Any, y: Any) -> Any:
    """Compute inner products by BLAS on one thread; of large arrays by a kernel."""
    if (
        type(y) is not np.ndarray
        or x.dtype != y.dtype
        or x.dtype.char not in "fd"
        or x.shape[-1] != y.shape[-1]
    ):
        return None
    if x.nbytes >= TUNING.kernel_bytes and x.shape == y.shape:
        # NumPy sums broadcast views (stride 0) term by term, which loses digits.
        x, y = np.ascontiguousarray(x), np.ascontiguousarray(y)
        found = kernels.reduced("inner", _products, (x.ndim - 1,), (x, y))
        if found is not None:
            return found.reshape(found.shape[:-1])[()]
    return np.vecdot(x, y)


def _products(x: Any, y: Any) -> Any:
    return (x * y).sum(axis=(1,), keepdims=True)


@implement(norms._euclidean.primitive, np)
def _euclidean(xp: Any, x: Any, *, axes: tuple[int, ...]) -> Any:
    if type(x) is np.ndarray and x.dtype.char in "fd":
        if len(axes) == x.ndim:
            flat = x.reshape(-1)
            return np.sqrt(flat.dot(flat))
        count = math.prod(x.shape[x.ndim - len(axes) :])
        if (
            axes == tuple(range(x.ndim - len(axes), x.ndim))
            and x.size >= TUNING.blas_sum
            and count >= TUNING.blas_sum_row
            and x.flags.c_contiguous
        ):
            rows = x.reshape(*x.shape[: x.ndim - len(axes)], count)
            return np.sqrt(np.vecdot(rows, rows))
    return norms._euclidean.primitive.value(xp, x, axes=axes)


@implement(vectors._cross.primitive, np)
def _cross(xp: Any, x: Any, y: Any) -> Any:
    if x.size + y.size >= TUNING.few_calls:
        return vectors._cross.primitive.value(xp, x, y)
    out = x.take(_NEXT, -1) * y.take(_LAST, -1)
    out -= x.take(_LAST, -1) * y.take(_NEXT, -1)
    return out


@implement(vectors._kron, np)
def _kron(a: Any, b: Any) -> Any:
    if type(b) is np.ndarray and a.ndim == b.ndim == 2 and a.size * b.size < TUNING.few_calls:
        blocks: Any = a[:, None, :, None] * b[:, None]
        return blocks.reshape(a.shape[0] * b.shape[0], a.shape[1] * b.shape[1])
    return vectors._kron.definition(a, b)


# --- convolutions of sequences --------------------------------------------------------


@implement(signal._convolve_full.primitive, np)
def _convolve_full(xp: Any, x: Any, y: Any) -> Any:
    if x.ndim == y.ndim == 1:
        return np.convolve(x, y, "full")
    return signal._convolve_full.primitive.value(xp, x, y)


@implement(signal._convolve_valid.primitive, np)
def _convolve_valid(xp: Any, x: Any, y: Any) -> Any:
    if x.ndim == y.ndim == 1:
        return np.convolve(x, y, "valid")
    return signal._convolve_valid.primitive.value(xp, x, y)
