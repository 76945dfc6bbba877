"""Creation, joins and rolls of arrays, large ones by copies on all threads."""

from typing import Any

import numpy as np

from fdbr.backends.cpu.library.copy import filled, joined
from fdbr.backends.cpu.tuning import TUNING
from fdbr.core.primitive import implement
from fdbr.errors.checks import number_types
from fdbr.ops.shape import creation
from fdbr.ops.shape.manipulation import _concat, _roll, _stack


@implement(creation.filled, np)
def _filled(xp: Any, shape: Any, value: Any, dtype: Any) -> Any:
    out = np.empty(shape, dtype)
    if out.nbytes >= TUNING.kernel_bytes:
        return filled(out, value)
    out[...] = value
    return out


@implement(creation._full_like.primitive, np)
def _full_like(xp: Any, x: Any, *, value: Any, dtype: Any) -> Any:
    if type(x) is np.ndarray:
        if x.flags.c_contiguous and type(value) is int and value == 0:
            return np.zeros(x.shape, dtype or x.dtype)  # calloc gets zeroed pages from the system
        if type(value) in number_types:
            return filled(np.empty_like(x, dtype), value)
    return np.full_like(x, value, dtype=dtype)


@implement(_concat.primitive, np)
def concatenated(xp: Any, *arrays: Any, axis: int) -> Any:
    """Compute the value of `concat`."""
    found = joined(arrays, axis)
    return np.concatenate(arrays, axis=axis) if found is None else found


@implement(_stack.primitive, np)
def _stacked(xp: Any, *arrays: Any, axis: int) -> Any:
    first = arrays[0]
    shape, dtype = first.shape, first.dtype
    if axis == len(shape) or any(part.shape != shape or part.dtype != dtype for part in arrays):
        return np.stack(arrays, axis=axis)
    # Concatenation along the existing axis gives the same elements, and is faster.
    whole = (*shape[:axis], len(arrays), *shape[axis:])
    found = joined(arrays, axis)
    if found is not None:
        return found.reshape(whole)
    out = np.empty(whole, dtype.newbyteorder("="))
    np.concatenate(
        arrays,
        axis,
        out=out.reshape((*shape[:axis], len(arrays) * shape[axis], *shape[axis + 1 :])),
    )
    return out


@implement(_roll.primitive, np)
def _rolled(xp: Any, x: Any, *, shift: tuple[int, ...], axis: tuple[int, ...]) -> Any:
    if not x.size or (len(axis) > 1 and x.size > TUNING.extra_pass):
        return np.roll(x, shift, axis)
    for n, dim in zip(shift, axis, strict=True):
        position = -n % x.shape[dim]
        before = (slice(None),) * dim
        x = concatenated(
            xp, x[(*before, slice(position, None))], x[(*before, slice(position))], axis=dim
        )
    return x if axis else x.copy()
