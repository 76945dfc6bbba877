"""Extrema, counts and positions of extrema of NumPy's arrays.

Large arrays are reduced by kernels, or divided among threads.  For small ones the methods of
NumPy's functions are called directly, which saves the overhead of the latter.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr.backends.cpu.library.rows import SMALL, by_rows, by_slices, by_stages, reduces_by_kernel
from fdbr.backends.cpu.tuning import TUNING
from fdbr.core.primitive import Primitive, implement
from fdbr.ops.declare.unbroadcast import accumulate
from fdbr.ops.reductions import reduce, squared_error

_add: Any = np.add.reduce


# --- extrema --------------------------------------------------------------------------


def _extreme(primitive: Primitive, ufunc: np.ufunc, function: Callable[..., Any]) -> None:
    @implement(primitive, np)
    def value(xp: Any, x: Any, *, axes: tuple[int, ...]) -> Any:
        if type(x) is not np.ndarray:
            return primitive.value(xp, x, axes=axes)
        if x.nbytes < TUNING.kernel_bytes:
            found = None if x.size < SMALL else by_slices(ufunc, x, axes)
            return ufunc.reduce(x, axes) if found is None else found
        return by_stages(function, axes, x).reshape(reduce._rest(x.shape, axes))[()]


def _largest(axes: tuple[int, ...], x: Any) -> Any:
    return x.max(axis=axes, keepdims=True)


def _smallest(axes: tuple[int, ...], x: Any) -> Any:
    return x.min(axis=axes, keepdims=True)


_extreme(reduce._max.primitive, np.maximum, _largest)
_extreme(reduce._min.primitive, np.minimum, _smallest)


# --- squared differences --------------------------------------------------------------


@implement(squared_error._squared_distance.primitive, np)
def _squared_distance(xp: Any, x: Any, y: Any, *, axes: tuple[int, ...]) -> Any:
    return by_rows(squared_error.squares, axes, x, y)


implement(squared_error.squared_distance, np, least=TUNING.kernel_bytes)(
    squared_error.squared_distance.definition
)


@implement(squared_error._about_mean.primitive, np)
def _about_mean(xp: Any, x: Any, *, axes: tuple[int, ...]) -> Any:
    mean = accumulate(x, axes, keepdims=True) / reduce._count(x.shape, axes)
    return by_rows(squared_error.squares, axes, x, mean), mean


@implement(reduce.variance, np)
def _variance(x: Any, axes: tuple[int, ...], divisor: float, keepdims: bool) -> Any:
    if not x.ndim or x.dtype.char not in "fd":
        return None
    mean = accumulate.host(x, axes, True) / reduce._count(x.shape, axes)
    if x.size >= TUNING.blas_sum and reduces_by_kernel(x):  # few passes, unlike softmax's
        squares = by_rows(squared_error.squares, axes, x, mean)
        if not keepdims:
            squares = squares.reshape(reduce._rest(x.shape, axes))[()]
        return squares / divisor
    deviation = x - mean
    deviation *= deviation
    return accumulate.host(deviation, axes, keepdims) / divisor


# --- positions of extrema -------------------------------------------------------------


def _search(primitive: Primitive, search: Any) -> None:
    def of_rows(axes: tuple[int, ...], x: Any) -> Any:
        return search(x, axes[0], keepdims=True)

    @implement(primitive, np)
    def value(xp: Any, x: Any, *, axis: int | None, keepdims: bool) -> Any:
        if type(x) is not np.ndarray:
            return primitive.value(xp, x, axis=axis, keepdims=keepdims)
        if axis is None or x.nbytes < TUNING.divide_bytes:
            return search(x, axis, keepdims=keepdims)
        out = by_rows(of_rows, (axis,), x, name=search)
        return out if keepdims else out.squeeze(axis)


_search(reduce._argmax.primitive, np.ndarray.argmax)
_search(reduce._argmin.primitive, np.ndarray.argmin)


# --- truth ----------------------------------------------------------------------------


def _folded(primitive: Primitive, fold: Any) -> None:
    @implement(primitive, np)
    def value(xp: Any, x: Any, *, axes: tuple[int, ...], keepdims: bool) -> Any:
        if type(x) is not np.ndarray:
            return primitive.value(xp, x, axes=axes, keepdims=keepdims)
        return fold(x, axes, None, None, keepdims)


_folded(reduce._all.primitive, np.logical_and.reduce)
_folded(reduce._any.primitive, np.logical_or.reduce)


@implement(reduce._count_nonzero.primitive, np)
def _count_nonzero(xp: Any, x: Any, *, axes: tuple[int, ...], keepdims: bool) -> Any:
    if type(x) is not np.ndarray:
        return reduce._count_nonzero.primitive.value(xp, x, axes=axes, keepdims=keepdims)
    if len(axes) == x.ndim and not keepdims:
        return np.intp(np.count_nonzero(x))
    return _add(x != 0, axes, None, None, keepdims)
