"""Triangles of matrices: one part of each row is copied, and the other filled with zeros."""

import functools
from array import array
from typing import Any

import numpy as np

from fdbr.backends.cpu.codegen.eager_kernels import elementwise
from fdbr.backends.cpu.codegen.kernel_builder import Kernel
from fdbr.backends.cpu.codegen.math.arithmetic import where
from fdbr.backends.cpu.runtime.machine import address_of
from fdbr.backends.cpu.runtime.pool import data_address, launch, part_count
from fdbr.backends.cpu.tuning import TUNING
from fdbr.core.primitive import implement
from fdbr.ops.shape.layout import _triangle

__all__ = ["triangle", "triangle_of"]

_STRIP = 64  # rows of a strip

_TABLE = ("to", "from", "step", "bytes", "size", "rows", "first", "upper")


@functools.cache
def _kernel() -> str:
    """Return the kernel of triangles.

    Its table has the target, the source, the distance of rows in the source, the bytes of a row and
    of an element, the rows of a matrix, how many elements of its first row belong to the left part,
    and whether the right part is copied.
    """
    kernel = Kernel(_TABLE, {"to": "u1", "from": "u1"})
    to, source, step, count, size, rows, first, upper = kernel.word.values()
    is_upper = upper.differs(0)
    with kernel.each(kernel.start, kernel.stop) as row:
        left = kernel.apply("smax", (row % rows + first) * size, kernel.index(0))
        left = kernel.apply("smin", left, count)
        right, to_left, from_left = count - left, to + row * count, source + row * step
        to_right, from_right = to_left + left, from_left + left
        with kernel.when(is_upper):
            kernel.clear(to_left, left)
            kernel.copy(to_right, from_right, right)
        with kernel.when(~is_upper):
            kernel.copy(to_left, from_left, left)
            kernel.clear(to_right, right)
    return kernel.text()


@implement(_triangle.primitive, np)
def triangle_of(xp: Any, x: Any, *, k: int, upper: bool) -> Any:
    """Compute the value of `triu` and `tril`."""
    found = triangle(x, k, upper)
    if found is not None:
        return found
    rows, columns = x.shape[-2:]
    if rows * columns >= TUNING.strip_elements:
        return _triangle_by_strips(x, k, upper)
    return np.where(_kept(rows, columns, k, upper), x, np.zeros(1, x.dtype))


def _triangle_by_strips(x: Any, k: int, upper: bool) -> Any:
    """Compute a triangle by copying and zeroing rows; only blocks on the diagonal are masked."""
    rows, columns = x.shape[-2:]
    out = np.empty(x.shape, x.dtype)
    for start in range(0, rows, _STRIP):
        stop = min(start + _STRIP, rows)
        # Columns before `low` are below the diagonal in every row of the strip.
        low, high = (min(max(i, 0), columns) for i in (start + k, stop + k))
        of_x, to = x[..., start:stop, :], out[..., start:stop, :]
        block = (np.triu if upper else np.tril)(of_x[..., low:high], start + k - low)
        to[..., low:high] = block
        to[..., :low] = 0 if upper else of_x[..., :low]
        to[..., high:] = of_x[..., high:] if upper else 0
    return out


def triangle(x: Any, k: int, upper: bool) -> Any:
    """Return the triangles of large matrices above or below their ``k``-th diagonal, inclusive.

    The result is `None` if there is no kernel for it.

    >>> import numpy as np
    >>> triangle(np.ones((600, 600)), 1, upper=True).sum()
    np.float64(179700.0)
    """
    if x.nbytes < TUNING.kernel_bytes or x.dtype.hasobject or not x.dtype.isnative:
        return None
    if _follows(x.swapaxes(-1, -2)) and not _follows(x):
        found = triangle(x.swapaxes(-1, -2), -k, not upper)
        return None if found is None else found.swapaxes(-1, -2)
    rows, columns = x.shape[-2:]
    size = x.itemsize
    if columns * size < TUNING.copy_row:
        return elementwise("triangle", _chosen, (_kept(rows, columns, k, upper), x))
    if not _follows(x):
        x = np.ascontiguousarray(x)
    out = np.empty(x.shape, x.dtype)
    step = next((x.strides[i] for i in range(x.ndim - 2, -1, -1) if x.shape[i] > 1), 0)
    first = min(max(k, -rows), columns) + (not upper)
    data = [data_address(v) for v in (out, x)]
    table = array("q", [*data, step, columns * size, size, rows, first, upper])
    count = x.size // columns
    parts = part_count(min(x.nbytes // TUNING.copy_share, count))
    launch(address_of(_kernel()), table.buffer_info()[0], count, 1, parts)
    return out


def _follows(x: Any) -> bool:
    """Return whether the rows of matrices are contiguous, and equally far apart."""
    step = None
    for axis in range(x.ndim - 2, -1, -1):
        if x.shape[axis] != 1:
            if step is not None and x.strides[axis] != step:
                return False
            step = x.strides[axis] * x.shape[axis]
    return bool(x.strides[-1] == x.itemsize or x.shape[-1] == 1)


@functools.lru_cache(maxsize=16)
def _kept(rows: int, columns: int, k: int, upper: bool) -> Any:
    """Return the mask of a small triangle, which takes NumPy longer than to apply it."""
    k = min(max(k, -rows), columns)
    return ~np.tri(rows, columns, k - 1, bool) if upper else np.tri(rows, columns, k, bool)


def _chosen(kept: Any, x: Any) -> Any:
    return where(kept, x, 0)
