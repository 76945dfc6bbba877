"""Functions along some axes of large arrays: by kernels, or divided among threads."""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr.backends.cpu import kernels
from fdbr.backends.cpu.tuning import TUNING
from fdbr.core.array_modules import array_module
from fdbr.core.primitive import Primitive, implement
from fdbr.core.util.threads import divide, parts
from fdbr.ops.declare.rows import along_axes, exp_over, max_along, mean_along
from fdbr.ops.declare.unbroadcast import accumulate

__all__ = ["SMALL", "along_rows", "by_rows", "by_slices", "by_stages", "reduces_by_kernel"]

_FEW = 8  # terms of a result, from which on NumPy adds them in another order
SMALL = 1 << 7  # elements, below which to ask takes as long as to reduce
_NARROW = 64  # adjacent results, from which on NumPy's inner loop is long enough
_array = np.ndarray
_largest: Any = np.maximum.reduce  # what the method ``max`` calls, without its overhead


def along_rows(primitive: Primitive) -> Callable[..., Any]:
    """Return the implementation of an operation along ``axes`` of one operand."""
    value = primitive.value

    @functools.wraps(value)
    def of_any(xp: Any, x: Any, *, axes: tuple[int, ...], **params: Any) -> Any:
        if not reduces_by_kernel(x):
            return value(xp, x, axes=axes, **params)

        def of_rows(axes: tuple[int, ...], x: Any) -> Any:
            return value(array_module(x), x, axes=axes, **params)

        return by_rows(of_rows, axes, x, name=(value, tuple(params.items())))

    return of_any


def reduces_by_kernel(x: Any) -> bool:
    """Whether an array is large enough for a kernel that reduces rows in several steps."""
    return type(x) is _array and x.nbytes * TUNING.heavy_passes >= TUNING.kernel_bytes


def by_rows(function: Any, axes: tuple[int, ...], *operands: Any, name: Any = None) -> Any:
    """Call ``function(axes, *operands)``, which acts along some axes of arrays.

    Its results keep all axes of the operands; those it reduces have length 1.  Large arrays are
    computed by a kernel, or divided among threads.  Kernels are cached by ``name``, which a
    function needs that is made anew for each call.
    """
    x = operands[0]
    if not reduces_by_kernel(x) or any(type(v) is not _array for v in operands):
        return function(axes, *operands)
    found = kernels.reduced(name or function, functools.partial(function, (1,)), axes, operands)
    if found is not None:
        return found
    axis = next((i for i, n in enumerate(x.shape) if i not in axes and n > 1), None)
    if axis is None or x.nbytes < TUNING.divide_bytes:
        return function(axes, *operands)
    front = (slice(None),) * axis

    def part_of(operand: Any, piece: slice) -> Any:
        return operand if operand.shape[axis] == 1 else operand[(*front, piece)]

    first = function(axes, *(part_of(operand, slice(0, 1)) for operand in operands))
    is_tuple = type(first) is tuple
    length = x.shape[axis]
    outs = [
        np.empty((*part.shape[:axis], length, *part.shape[axis + 1 :]), part.dtype)
        for part in (first if is_tuple else (first,))
    ]

    def work(piece: slice) -> None:
        made = function(axes, *(part_of(operand, piece) for operand in operands))
        for out, part in zip(outs, made if is_tuple else (made,), strict=True):
            out[(*front, piece)] = part

    divide(work, parts(length, x.nbytes // TUNING.divide_share))
    return tuple(outs) if is_tuple else outs[0]


def by_slices(ufunc: np.ufunc, x: Any, axes: Any, keepdims: bool = False) -> Any:
    """Reduce along axes with few elements by operations on slices; `None` for other axes.

    NumPy begins a loop for each result, which takes up to 40 times as long.  Along one axis the
    results are NumPy's to the last bit.
    """
    shape, count = x.shape, 1
    axes = axes if type(axes) is tuple else (axes,)
    for axis in axes:
        if axis is None or not 1 < shape[axis] < _FEW:
            return None
        count *= shape[axis]
    if count == 1 or x.size < _NARROW * count or not x.flags.c_contiguous:
        return None
    axes = tuple([axis % x.ndim for axis in axes])
    if x.dtype.char not in "fd" or math.prod(shape[max(axes) + 1 :]) >= _NARROW:
        return None
    kept = tuple([1 if i in axes else n for i, n in enumerate(shape)])
    for axis in sorted(axes, reverse=True):
        front = (slice(None),) * axis
        first, *others = [x[(*front, i)] for i in range(x.shape[axis])]
        x = ufunc(first, others[0])
        for other in others[1:]:
            ufunc(x, other, out=x)
    return x.reshape(kept) if keepdims else x


def by_stages(function: Any, axes: tuple[int, ...], x: Any) -> Any:
    """Apply `by_rows` to one group of adjacent axes after another.

    This fits reductions whose result does not depend on the order of the axes.
    """
    for run in kernels.stages(x, axes):
        x = by_rows(function, run, x)
    return x


@implement(along_axes, np)
def _along_axes(
    x: Any, function: Any, axes: tuple[int, ...], *others: Any, name: Any = None
) -> Any:
    return by_rows(function, axes, x, *others, name=name)


# --- parts of functions along axes, on small arrays -------------------------------------


@implement(max_along, np)
def _max_along(x: Any, axes: tuple[int, ...]) -> Any:
    return _largest(x, axes, None, None, True)


@implement(mean_along, np)
def _mean_along(x: Any, axes: tuple[int, ...]) -> Any:
    if not x.size:
        return x.mean(axis=axes, keepdims=True)
    total = accumulate.host(x, axes, keepdims=True)
    total /= x.size // total.size
    return total


@implement(exp_over, np)
def _exp_over(x: Any) -> Any:
    return np.exp(x, out=x)
