"""Functions of `numpy.linalg` by kernels, for NumPy arrays.

Each returns its result, and whether all matrices have one; the others are filled with NaN.  It
returns `None` if no kernel is faster than NumPy's function, because of the number, the size or the
dtype of the matrices.
"""

import functools
import math
from array import array
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fdbr.backends.cpu.library.small_linalg import batched_lu, batched_qr, blocked_qr, lapack
from fdbr.backends.cpu.library.small_linalg.rows import memory_of
from fdbr.backends.cpu.library.small_linalg.stacks import FORMATS
from fdbr.backends.cpu.runtime.machine import optimized_address
from fdbr.backends.cpu.runtime.pool import data_address, launch, part_count
from fdbr.backends.cpu.tuning import TUNING

__all__ = [
    "cholesky",
    "det",
    "factors",
    "inv",
    "qr",
    "reduced",
    "slogdet",
    "solve",
    "substituted",
    "suits",
]

_SIDE = 32  # rows and columns of a matrix that fits into registers and cache as vectors
_TILE = _SIDE * _SIDE  # elements
_PANEL = 1 << 16  # elements of a matrix whose rows stay in the cache

Found = tuple[Any, bool] | None


def suits(x: Any, *others: Any) -> bool:
    """Return whether there is a kernel for some stacks of matrices."""
    return (
        type(x) is np.ndarray
        and x.ndim > 2
        and x.dtype in FORMATS
        and math.prod(x.shape[:-2]) >= TUNING.stack_kernel
        and all(
            0 < y.shape[-1] * y.shape[-2] <= _TILE and max(y.shape[-2:]) <= _TILE // 8
            for y in (x, *others)
        )
        and all(type(y) is np.ndarray and y.dtype == x.dtype for y in others)
        and x.shape[-1] <= _SIDE
    )


@functools.cache
def _address(write: Callable[..., str], dtype: Any, count: int) -> int:
    return optimized_address(write(dtype, count))


def _run(
    write: Callable[..., str],
    numbers: Sequence[int],
    arrays: Sequence[Any],
    work: int,
    panels: Sequence[tuple[int, int]] = (),
) -> bool:
    """Run a kernel on stacks with one axis; return whether all matrices have a result.

    Parameters
    ----------
    write
        The generator of the kernel's source, from the dtype and the number of lanes.
    numbers
        The numbers in its table.
    arrays
        Operands and outputs, of shapes ``(count, rows, columns)``, ``(count, columns)`` or
        ``(count,)``.
    work
        The estimated number of multiplications for a matrix.
    panels
        For a kernel of one matrix after the other, the shapes of its panels.
    """
    first = arrays[0]
    count, lanes = len(first), 64 // first.itemsize
    table = array("q", [count, *numbers, 0])
    for x in arrays:
        table.extend((data_address(x), *x.strides, *(0,) * (3 - x.ndim)))
    units = count if panels else -(-count // lanes)
    parts = part_count(min(units * work // TUNING.stack_part, units))
    if panels:
        memory = np.empty((parts, memory_of(lanes, *panels) * 64), np.uint8)
        table.extend((data_address(memory), memory.shape[1], 0, 0))
    launch(_address(write, first.dtype, lanes), table.buffer_info()[0], units, 1, parts)
    return not table[1 + len(numbers)]


def _flat(x: Any) -> Any:
    """Return a stack with one axis for its matrices."""
    return x if x.ndim == 3 else x.reshape(math.prod(x.shape[:-2]), *x.shape[-2:])


def _whole(write: Callable[..., str], numbers: Sequence[int], work: int, *given: Any) -> Found:
    """Return the result of a kernel that has the shape of the last operand."""
    out = np.empty(given[-1].shape, given[0].dtype)
    right = _run(write, numbers, [_flat(x) for x in (*given, out)], work)
    return out, right


def solve(a: Any, b: Any) -> Found:
    """Return the solutions of ``a @ x = b``, where both have the same leading axes."""
    if not suits(a, b):
        return None
    n, k = b.shape[-2:]
    return _whole(batched_lu.solutions, (n, k), n * n * (n + k), a, b)


def inv(x: Any) -> Found:
    """Return the inverses of matrices."""
    if not suits(x):
        return None
    n = x.shape[-1]
    return _whole(batched_lu.inverses, (n, n), 2 * n**3, x)


def cholesky(x: Any) -> Found:
    """Return the lower factors of positive definite matrices."""
    if not suits(x):
        return None
    n = x.shape[-1]
    return _whole(batched_qr.roots, (n, n), n**3, x)


def substituted(a: Any, b: Any, lower: bool, unit: bool) -> Found:
    """Return the solutions of ``a @ x = b`` for triangles, which are all lower or all upper."""
    small = suits(a, b)
    if not small and not (_is_known(a) and _is_known(b) and a.dtype == b.dtype):
        return None
    n, k = b.shape[-2:]
    if a.dtype not in FORMATS or n > TUNING.stack_triangle or n * k > 4 * _PANEL:
        return lapack.substituted(a, b, lower, unit)
    out = np.empty(b.shape, a.dtype)
    arrays = [_flat(x) for x in (a, b, out)]
    if not lower:  # with rows and columns reversed an upper triangle is a lower one
        arrays = [arrays[0][:, ::-1, ::-1], *(x[:, ::-1] for x in arrays[1:])]
    numbers, work = (n, k, int(unit)), n * n * k
    if small:
        return out, _run(batched_qr.substitutions, numbers, arrays, work)
    return out, _run(blocked_qr.substitutions, numbers, arrays, work // 16, [(n, k)])


def det(x: Any) -> Found:
    """Return the determinants of matrices."""
    if not suits(x):
        return None
    n = x.shape[-1]
    out = np.empty(x.shape[:-2], x.dtype)
    _run(batched_lu.determinants, (n, n), [_flat(x), out.reshape(-1)], n**3)
    return out, True


def slogdet(x: Any) -> Found:
    """Return the signs of determinants, and the logarithms of their absolute values."""
    if not suits(x):
        return None
    n = x.shape[-1]
    outs = np.empty(x.shape[:-2], x.dtype), np.empty(x.shape[:-2], x.dtype)
    _run(batched_lu.logarithms, (n, n), [_flat(x), *(out.reshape(-1) for out in outs)], n**3)
    return outs, True


def qr(x: Any, complete: bool) -> Found:
    """Return the factors of matrices that have no more columns than rows."""
    return (factors(x, complete), True) if _is_known(x) else None


def factors(x: Any, complete: bool) -> tuple[Any, Any]:
    """Return `qr` of matrices in a dtype of LAPACK, of which there is at least one."""
    m, n = x.shape[-2:]
    columns = m if complete else n
    if x.dtype not in FORMATS or m * columns > _PANEL:
        return lapack.factors(x, complete)
    q = np.empty((*x.shape[:-1], columns), x.dtype)
    r = np.empty((*x.shape[:-2], columns, n), x.dtype)
    arrays, work = [_flat(y) for y in (x, q, r)], 4 * m * n * columns
    if suits(x) and m * m <= _TILE:
        _run(batched_qr.reflections, (m, n, n, columns), arrays, work)
    else:
        panels = [(m, n), (m, columns), (n, m), (1, n)]
        _run(blocked_qr.reflections, (m, n, columns), arrays, work // 16, panels)
    return q, r


def reduced(a: Any, b: Any) -> tuple[Any, Any]:
    """Return ``r`` and ``q^H @ b`` for `factors` of ``a``."""
    m, n = a.shape[-2:]
    k = b.shape[-1]
    if a.dtype not in FORMATS or m * max(n, k) > _PANEL or suits(a, b):
        q, r = factors(a, False)
        return r, q.swapaxes(-1, -2).conj() @ b
    r = np.empty((*a.shape[:-2], n, n), a.dtype)
    out = np.empty((*b.shape[:-2], n, k), a.dtype)
    arrays, panels = [_flat(x) for x in (a, b, r, out)], [(m, n), (m, k), (n, m)]
    _run(blocked_qr.reduced_sides, (m, n, k), arrays, m * n * (n + k) // 8, panels)
    return r, out


def _is_known(x: Any) -> bool:
    """Return whether matrices are NumPy arrays of a dtype of LAPACK, and not empty."""
    return type(x) is np.ndarray and x.dtype in lapack.PREFIXES and x.size > 0
