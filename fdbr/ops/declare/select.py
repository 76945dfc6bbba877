"""A choice between two arrays of NumPy's, element by element.

NumPy's `where` branches at every element, which costs ten times as much as the rest where the
condition is as good as random.  Large arrays are chosen from by a kernel, and of others the bits of
what is chosen are masked.
"""

from typing import Any

import numpy as np

from fdbr.backends.cpu import kernels
from fdbr.backends.cpu.codegen.math import arithmetic
from fdbr.backends.cpu.kernels import LEAST
from fdbr.ops.declare.large import divided

__all__ = ["choose"]

_FEW = 1 << 13  # elements, below which NumPy is as fast
_BITS = {4: np.dtype(np.int32), 8: np.dtype(np.int64)}


def choose(condition: Any, x: Any, y: Any) -> Any:
    """``np.where(condition, x, y)``, bit by bit the same."""
    if condition.size < _FEW or condition.dtype != bool:
        return np.where(condition, x, y)
    if condition.nbytes >= LEAST // 4:
        found = kernels.elementwise("where", arithmetic.where, (condition, x, y))
        if found is not None:
            return found
    dtype = np.result_type(x, y)
    if dtype.kind not in "fiu" or dtype.itemsize not in _BITS:
        return np.where(condition, x, y)
    bits = _BITS[dtype.itemsize]
    return _masked(
        np, condition, *(np.asarray(value).astype(dtype, copy=False).view(bits) for value in (x, y))
    ).view(dtype)


@divided
def _masked(xp: Any, condition: Any, x: Any, y: Any) -> Any:
    mask = condition.view(np.int8).astype(x.dtype)
    if not x.ndim and x == 0:
        mask -= 1  # all bits where the condition is false
        return mask & y
    np.negative(mask, out=mask)  # all bits where it is true
    if not y.ndim and y == 0:
        return mask & x
    apart = x ^ y
    if apart.shape == mask.shape:
        apart &= mask
        apart ^= y
        return apart
    return (apart & mask) ^ y
