"""Products of two matrices beside convolutions.

The threads of the BLAS that NumPy uses go on running for a while after a product, in wait of the
next one, and take half of their processors from the threads of kernels.  A program whose work is
in convolutions does better without them.
"""

import functools
from array import array
from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr.compiler.backends.cpu import vectors
from fdbr.compiler.backends.cpu.background import address_of
from fdbr.compiler.backends.cpu.launching import launch_on, thread_count
from fdbr.compiler.ir import op
from fdbr.core import Primitive
from fdbr.ops.products import _matmul as matmul

__all__ = ["VALUES", "multiply"]

_MOST = 1 << 25  # multiplications from which on the BLAS is worth its threads
_WORTH = 1_000_000  # and from which on more threads than one pay
_STEP = 4  # products that take as long as what a tile does besides, for each step of the sum
_CACHED = 1 << 18  # bytes that stay in a processor's cache

_PRODUCT = """tile = product({code!r}, {high}, {wide})
def kernel(table, start, stop, thread):
    a, a_row, a_step = word(table, 2), word(table, 3), word(table, 4)
    b, b_row = word(table, 5), word(table, 6)
    out, out_row = word(table, 7), word(table, 8)
    rows, columns, depth = word(table, 9), word(table, 10), word(table, 11)
    part, units = word(table, 12), word(table, 1)
    across = (columns + {block} - 1) // {block}
    unit = take(table, 0)
    while unit < units:
        j = min(unit % across * {block}, columns - {block}) * {size}
        i = unit // across * part
        end = min(i + part, rows)
        while i < end:
            i = min(i, rows - {high})
            tile(a + i * a_row, a_row, a_step, b + j, b_row, out + i * out_row + j, out_row, depth)
            i += {high}
        unit = take(table, 0)
"""

_INNER = """tile = inner({code!r}, {high}, {wide})
def kernel(table, start, stop, thread):
    a, a_row = word(table, 2), word(table, 3)
    b, b_row = word(table, 4), word(table, 5)
    out, rows, columns = word(table, 6), word(table, 7), word(table, 8)
    depth, units = word(table, 9), word(table, 1)
    scratch = word(table, 10) + thread * {high} * {wide} * {size}
    found = pointer(scratch, {code}(0))
    across = (columns + {wide} - 1) // {wide}
    unit = take(table, 0)
    while unit < units:
        j = min(unit % across * {wide}, columns - {wide})
        i = min(unit // across * {high}, rows - {high})
        tile(a + i * a_row, a_row, b + j * b_row, b_row, scratch, depth)
        total = pointer(out + (i * columns + j) * {size}, {code}(0))
        for r in range({high}):
            for c in range({wide}):
                total[r * columns + c] = found[r * {wide} + c]
        unit = take(table, 0)
"""

_TEXTS = {"product": _PRODUCT, "inner": _INNER}


def multiply(a: Any, b: Any, out: Any = None) -> Any:
    """``a @ b``, written to ``out`` if that is given.

    >>> multiply(np.eye(2), np.ones((2, 3))).shape
    (2, 3)
    """
    if not _fit(a, b, out):
        return np.dot(a, b, out=out)
    (rows, depth), columns = a.shape, b.shape[1]
    out = np.empty((rows, columns), a.dtype) if out is None else out
    vector, size = vectors.lanes(a.dtype.str[1:]), a.itemsize
    if columns >= vector and b.strides[1] == size:
        _write_product(a, b, out)
    elif depth >= vector and a.strides[1] == b.strides[0] == size:
        _write_inner(a, b.T, out)
    elif rows >= vector and a.strides[0] == size:
        out[...] = multiply(b.T, a.T).T
    else:
        return np.dot(a, b, out=out)
    return out


def _fit(a: Any, b: Any, out: Any) -> bool:
    """Whether the kernels compute with such arrays."""
    return (
        a.ndim == b.ndim == 2
        and a.dtype == b.dtype
        and a.dtype.str in ("<f4", "<f8")
        and 0 < a.size * b.shape[1] <= _MOST
        and (out is None or out.flags.c_contiguous)
    )


def _write_product(a: Any, b: Any, out: Any) -> None:
    """Write ``a @ b``, where the elements of a row of ``b`` lie side by side."""
    (rows, depth), columns = a.shape, b.shape[1]
    code = out.dtype.str[1:]
    high, wide = _tile(rows, columns // vectors.lanes(code))
    # So many rows at a time that they stay in the cache while all columns come by.
    part = max(1, _CACHED // ((depth + 1) * out.itemsize * high)) * high
    units = -(-columns // (wide * vectors.lanes(code))) * -(-rows // part)
    table = [
        *(a.ctypes.data, *a.strides, b.ctypes.data, b.strides[0]),
        *(out.ctypes.data, out.strides[0], rows, columns, depth, part),
    ]
    threads = min(thread_count(), units)
    _launch(_kernel("product", code, high, wide), table, units, a.size * columns, threads)


def _write_inner(a: Any, b: Any, out: Any) -> None:
    """Write ``a @ b.T``, where the elements of rows of both lie side by side."""
    (rows, depth), columns = a.shape, len(b)
    code = out.dtype.str[1:]
    high, wide = map(min, vectors.inner_tile(), (rows, columns))
    units = -(-rows // high) * -(-columns // wide)
    threads = min(thread_count(), units)
    scratch = np.empty(threads * high * wide, out.dtype)
    table = [
        *(a.ctypes.data, a.strides[0], b.ctypes.data, b.strides[0]),
        *(out.ctypes.data, rows, columns, depth, scratch.ctypes.data),
    ]
    _launch(_kernel("inner", code, high, wide), table, units, a.size * columns, threads)


@functools.cache
def _kernel(kind: str, code: str, high: int, wide: int) -> int:
    """The address of a kernel with tiles of so many rows, and vectors or columns."""
    names = {
        "code": code,
        "high": high,
        "wide": wide,
        "size": np.dtype(code).itemsize,
        "block": wide * vectors.lanes(code),
    }
    return address_of(_TEXTS[kind].format(**names))


def _tile(rows: int, across: int) -> tuple[int, int]:
    """The tile that takes the least time, with what lies over the edges."""
    fitting = [tile for tile in vectors.product_tiles() if tile[0] <= rows and tile[1] <= across]
    if not fitting:
        high = min(rows, vectors.product_tiles()[0][0])
        return high, min(across, max(2, 16 // high), 8)

    def time(tile: tuple[int, int]) -> int:
        high, wide = tile
        return -(-rows // high) * -(-across // wide) * (high * wide + _STEP)

    return min(fitting, key=time)


def _launch(kernel: int, table: list[int], units: int, work: int, threads: int) -> None:
    """Run a kernel, of which each thread takes the next unit until there is none.

    So a thread whose processor is busy with something else keeps nobody waiting.
    """
    words = array("q", (0, units, *table))
    threads = threads if work >= _WORTH else 1
    launch_on(threads, kernel, words.buffer_info()[0], threads)


def _matmul(xp: Any, x: Any, y: Any, out: Any = None) -> Any:
    return multiply(x, y, out) if x.ndim == y.ndim == 2 else matmul.primitive.value(xp, x, y)


def _matmul_transposed(xp: Any, x: Any, weight: Any) -> Any:
    return multiply(x, weight.T)


def _affine(xp: Any, x: Any, weight: Any, bias: Any) -> Any:
    return multiply(x, weight.T) + bias


VALUES: dict[Primitive, Callable[..., Any]] = {
    op.MATMUL: _matmul,
    op.MATMUL_TRANSPOSED: _matmul_transposed,
    op.AFFINE: _affine,
}
