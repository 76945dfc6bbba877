"""Products of two matrices beside convolutions.

The threads of the BLAS that NumPy uses go on running for a while after a product, in wait of the
next one, and take half of their processors from the threads of kernels.  A program whose work is
in convolutions does better without them: a product is a correlation without places.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr.compiler.backends.cpu import vectors
from fdbr.compiler.backends.cpu.conv_kernels import (
    Layout,
    Weights,
    offsets,
    run_correlation,
    run_inner,
)
from fdbr.compiler.ir import op
from fdbr.core import Primitive
from fdbr.ops.products import _matmul as matmul

__all__ = ["VALUES", "multiply"]

_NONE = np.zeros(1, np.int64)
_MOST = 1 << 25  # multiplications from which on the BLAS is worth its threads


def multiply(a: Any, b: Any, out: Any = None) -> Any:
    """``a @ b``, written to ``out`` if that is given.

    >>> multiply(np.eye(2), np.ones((2, 3))).shape
    (2, 3)
    """
    if not _fit(a, b, out):
        return np.dot(a, b, out=out)
    rows, columns = len(a), b.shape[1]
    out = np.empty((rows, columns), a.dtype) if out is None else out
    vector, size = vectors.lanes(a.dtype.str[1:]), a.itemsize
    if columns >= vector and b.strides[1] == size:
        taps = offsets(b.shape[0], b.strides[0])
        weights = Weights(offsets(a.shape[1], a.strides[1]), a.strides[0], 0)
        bias = np.zeros(rows, a.dtype)
        run_correlation(b, Layout(taps, _NONE, 0), a, weights, out, _NONE, columns, bias, 1)
    elif a.shape[1] >= vector and a.strides[1] == b.strides[0] == size:
        taps = offsets(columns, b.strides[1])
        run_inner(b, Layout(taps, _NONE, 0), a, _NONE, a.shape[1], out, 1)
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
