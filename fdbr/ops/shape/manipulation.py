"""Change the shape of arrays, permute axes, join and split arrays, reorder elements."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fdbr.core.array_modules import array_module
from fdbr.errors.checks import index, integer
from fdbr.errors.public import public
from fdbr.ops.axes import normalize_axes, normalize_axis
from fdbr.ops.declare import aligned, fit, joining, linear, prefixed, shape_of, shifted
from fdbr.ops.declare.batches import align, spread
from fdbr.ops.dtypes import astype, is_number, is_traced, result_type
from fdbr.ops.shape.creation import asarray
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = [
    "broadcast_arrays",
    "broadcast_to",
    "concat",
    "diagonal",
    "expand_dims",
    "flip",
    "matrix_transpose",
    "moveaxis",
    "permute_dims",
    "reshape",
    "roll",
    "squeeze",
    "stack",
    "swapaxes",
    "tile",
    "unstack",
]

_NUMBERS = (bool, int, float, complex)


def _batch_reshaped(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    to = params["to"]
    if -1 in to and size == 0:  # an empty batch does not determine the length -1
        known = math.prod(n for n in to if n != -1)
        count = math.prod(values[0].shape[1:])
        to = tuple(count // max(known, 1) if n == -1 else n for n in to)
    return apply(*values, to=(size, *to))


@linear(x=lambda ct, shape: reshape(ct, shape), batch=_batch_reshaped, view="contiguous")
def _reshape(xp: Any, x: ArrayLike, *, to: tuple[int, ...]) -> Array:
    return xp.reshape(x, to)


@public("fdbr.ops")
def reshape(x: ArrayLike, /, shape: int | Sequence[int], *, copy: bool | None = None) -> Array:
    """The array in another shape, with its elements in row-major order; one length may be -1.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.reshape(np.arange(4), (2, -1)).shape
    (2, 2)
    """
    if type(shape) is not tuple:
        shape = (index(shape),) if not isinstance(shape, Sequence) else tuple(shape)
    out = _reshape(x, to=shape)
    return out.copy() if copy else out


def _inverse(axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(range(len(axes)), key=axes.__getitem__))


def _batch_permuted(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    return apply(*values, axes=(0, *(axis + 1 for axis in params["axes"])))


@linear(x=lambda ct, axes: _permute(ct, axes=_inverse(axes)), batch=_batch_permuted, view="always")
def _permute(xp: Any, x: ArrayLike, *, axes: tuple[int, ...]) -> Array:
    return xp.transpose(x, axes)


@public("fdbr.ops")
def permute_dims(x: ArrayLike, /, axes: Sequence[int]) -> Array:
    """The array with its axes in another order.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.permute_dims(np.ones((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """
    normal = normalize_axes(tuple(axes), x.ndim, "permute_dims")
    if len(normal) != x.ndim:
        raise ValueError(
            f"fdbr.ops.permute_dims: axes {tuple(axes)} are not a permutation of {x.ndim} axes"
        )
    return _permute(x, axes=normal)


@linear(x=lambda ct: _matrix_transpose(ct), batch=aligned, view="always")
def _matrix_transpose(xp: Any, x: Any) -> Any:
    return x.swapaxes(-1, -2)


@public("fdbr.ops")
def matrix_transpose(x: ArrayLike, /) -> Array:
    """The array with its last two axes exchanged.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.matrix_transpose(np.ones((2, 3, 4))).shape
    (2, 4, 3)
    """
    if x.ndim < 2:
        raise ValueError(f"fdbr.ops.matrix_transpose: needs two dimensions, got shape {x.shape}")
    return _matrix_transpose(x)


@public("fdbr.ops")
def swapaxes(x: ArrayLike, axis1: int, axis2: int, /) -> Array:
    """The array with two axes exchanged.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.swapaxes(np.ones((2, 3, 4)), 0, 2).shape
    (4, 3, 2)
    """
    ndim = x.ndim
    axes = list(range(ndim))
    i, j = normalize_axis(axis1, ndim, "swapaxes"), normalize_axis(axis2, ndim, "swapaxes")
    axes[i], axes[j] = j, i
    return _permute(x, axes=tuple(axes))


@public("fdbr.ops")
def moveaxis(x: ArrayLike, source: ArrayLike, destination: ArrayLike, /) -> Array:
    """The array with some axes moved to other positions; the others keep their order.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.moveaxis(np.ones((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    ndim = x.ndim
    sources = normalize_axes(source, ndim, "moveaxis")
    destinations = normalize_axes(destination, ndim, "moveaxis")
    if len(sources) != len(destinations):
        raise ValueError(
            f"fdbr.ops.moveaxis: {len(sources)} source axes but {len(destinations)} destinations"
        )
    order = [axis for axis in range(ndim) if axis not in sources]
    if len(sources) == 1:
        order.insert(destinations[0], sources[0])
    else:
        for position, axis in sorted(zip(destinations, sources, strict=True)):
            order.insert(position, axis)
    return _permute(x, axes=tuple(order))


def _batch_broadcast(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    to = params["to"]
    return apply(*align(values, batched, len(to)), to=(size, *to))


_FEW = 1 << 12  # elements that a copy takes no longer than a view


@linear(
    x=lambda ct, shape, dtype: fit(ct, (shape, dtype)), batch=_batch_broadcast, view="read-only"
)
def _broadcast_to(xp: Any, x: ArrayLike, *, to: tuple[int, ...]) -> Array:
    # A view shares memory: a jitted function that has it as a constant compares it at every call.
    out = xp.broadcast_to(x, to)
    return out.copy() if math.prod(to) <= _FEW else out


@public("fdbr.ops")
def broadcast_to(x: Any, /, shape: Sequence[int]) -> Any:
    """The array repeated to a shape by NumPy's broadcasting.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.broadcast_to(np.array([1.0, 2.0]), (2, 2))
    array([[1., 2.],
           [1., 2.]])
    """
    to = tuple(shape)
    if type(x) is not np.ndarray and not (is_traced(x) and not is_number(x)):
        x = asarray(x)
    own = x.shape
    if own == to:
        return x if own else asarray(x)  # a traced scalar becomes an array
    last = to[max(len(to) - len(own), 0) :]
    if own != last and (
        len(own) > len(to) or any(a != 1 and a != b for a, b in zip(own, last, strict=False))
    ):
        raise ValueError(f"fdbr.ops.broadcast_to: shape {own} does not broadcast to {to}")
    return _broadcast_to(x, to=to)


def broadcast_shapes(name: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Broadcast shapes to a common one, or raise an error that names the function."""
    longest = max(shapes, key=len, default=())
    if all(shape == longest[len(longest) - len(shape) :] for shape in shapes):
        return longest  # the usual case
    out: list[int] = []
    for position in range(1, max(map(len, shapes), default=0) + 1):
        lengths = {shape[-position] for shape in shapes if len(shape) >= position} - {1}
        if len(lengths) > 1:
            raise ValueError(f"fdbr.ops.{name}: shapes {shapes} do not broadcast together")
        out.append(lengths.pop() if lengths else 1)
    return tuple(reversed(out))


@public("fdbr.ops")
def broadcast_arrays(*arrays: ArrayLike) -> list[Any]:
    """The arrays, each broadcast to their common shape.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> [a.shape for a in ops.broadcast_arrays(np.ones(3), np.ones((2, 1)))]
    [(2, 3), (2, 3)]
    """
    shape = broadcast_shapes("broadcast_arrays", *map(shape_of, arrays))
    return [broadcast_to(array, shape) for array in arrays]


@public("fdbr.ops")
def expand_dims(x: ArrayLike, /, axis: int | tuple[int, ...] = 0) -> Array:
    """The array with new axes of length 1 at the given positions in the result.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.expand_dims(np.ones(3), axis=-1).shape
    (3, 1)
    """
    if type(axis) is int:  # the usual case
        position, shape = normalize_axis(axis, x.ndim + 1, "expand_dims"), x.shape
        return _reshape(x, to=(*shape[:position], 1, *shape[position:]))
    count = len(axis) if isinstance(axis, tuple) else 1
    new = normalize_axes(axis, x.ndim + count, "expand_dims")
    lengths = iter(x.shape)
    return reshape(x, tuple(1 if i in new else next(lengths) for i in range(x.ndim + count)))


@public("fdbr.ops")
def squeeze(x: ArrayLike, /, axis: int | tuple[int, ...] | None = None) -> Array:
    """The array without the given axes of length 1, or without all such axes.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.squeeze(np.ones((1, 3, 1)), axis=0).shape
    (3, 1)
    """
    if axis is None:
        return _reshape(x, to=tuple([n for n in x.shape if n != 1]))
    removed, shape = normalize_axes(axis, x.ndim, "squeeze"), x.shape
    for i in removed:
        if shape[i] != 1:
            raise ValueError(f"fdbr.ops.squeeze: shape {shape} has no length 1 at axis {axis}")
    return _reshape(x, to=tuple([n for i, n in enumerate(shape) if i not in removed]))


@linear(x=lambda ct, axes: _flip(ct, axes=axes), batch=shifted("axes"), view="always")
def _flip(xp: Any, x: Any, *, axes: tuple[int, ...]) -> Any:
    reverse = slice(None, None, -1)
    return x[tuple([reverse if axis in axes else slice(None) for axis in range(x.ndim)])]


@public("fdbr.ops")
def flip(x: ArrayLike, /, *, axis: int | tuple[int, ...] | None = None) -> Array:
    """The array with its elements in reverse order along axes, by default along all.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.flip(np.arange(3))
    array([2, 1, 0])
    """
    return _flip(x, axes=normalize_axes(axis, x.ndim, "flip"))


@linear(
    x=lambda ct, shift, axis: _roll(ct, shift=tuple(-s for s in shift), axis=axis),
    batch=shifted("axis"),
)
def _roll(xp: Any, x: ArrayLike, *, shift: tuple[int, ...], axis: tuple[int, ...]) -> Array:
    return xp.roll(x, shift, axis)


@public("fdbr.ops")
def roll(
    x: ArrayLike, /, shift: int | tuple[int, ...], *, axis: int | tuple[int, ...] | None = None
) -> Array:
    """The array with elements shifted cyclically along axes.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.roll(np.arange(4), 1)
    array([3, 0, 1, 2])
    """
    if axis is None:
        return reshape(roll(reshape(x, -1), shift, axis=0), x.shape)
    axes = tuple(
        normalize_axis(a, x.ndim, "roll") for a in (axis if isinstance(axis, tuple) else (axis,))
    )
    shifts = shift if isinstance(shift, tuple) else (shift,) * len(axes)
    if len(shifts) != len(axes):
        raise ValueError(f"fdbr.ops.roll: {len(shifts)} shifts for {len(axes)} axes")
    shifts = tuple(integer("fdbr.ops.roll", "shift", n) for n in shifts)
    return _roll(x, shift=shifts, axis=axes)


def _batch_joined(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    parts = [
        spread(asarray(value), flag, size) for value, flag in zip(values, batched, strict=True)
    ]
    return apply(*parts, axis=params["axis"] + 1)


def _concat_indices(arrays: Any, params: dict[str, Any]) -> list[Any]:
    axis = params["axis"]
    ends = list(itertools.accumulate((array.shape[axis] for array in arrays), initial=0))
    return [_index_along(axis, slice(*both)) for both in itertools.pairwise(ends)]


def _stack_indices(arrays: Any, params: dict[str, Any]) -> list[Any]:
    return [_index_along(params["axis"], index) for index in range(len(arrays))]


def _index_along(axis: int, position: Any) -> Any:
    """Make the index that selects ``position`` along an axis."""
    return (*(slice(None),) * axis, position) if axis else position


def _parts(arrays: Sequence[Any]) -> list[Any]:
    """Convert the operands of a join to arrays; Python numbers are weakly typed."""
    if set(map(type, arrays)) == {np.ndarray}:
        return list(arrays)
    # Traced scalars are joined as they are: making arrays of them would be steps of their own.
    parts = [p if is_traced(p) or is_number(p) else asarray(p) for p in arrays]
    if not any(map(is_number, parts)):
        return parts
    xp, dtype = array_module(*parts), result_type(*parts)
    return [_in_dtype(xp, part, dtype) if is_number(part) else part for part in parts]


def _in_dtype(xp: Any, number: Any, dtype: Any) -> Any:
    return xp.asarray(number, dtype=dtype) if type(number) in _NUMBERS else astype(number, dtype)


@joining(_concat_indices, _batch_joined, fresh=True)
def _concat(xp: Any, *arrays: Any, axis: int) -> Array:
    return xp.concatenate(arrays, axis=axis)


@public("fdbr.ops")
def concat(arrays: Sequence[Any], /, *, axis: int | None = 0) -> Array:
    """Arrays joined along an axis; `None` flattens them first.

    Raises
    ------
    ValueError
        If there is no array, or the shapes differ in another axis.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.concat([np.ones(2), np.zeros(1)])
    array([1., 1., 0.])
    """
    parts = _parts(arrays)
    if not parts:
        raise ValueError("fdbr.ops.concat: no array to join")
    if axis is None:
        parts, axis = [reshape(part, -1) for part in parts], 0
    return _concat(*parts, axis=normalize_axis(axis, parts[0].ndim, "concat"))


@joining(_stack_indices, _batch_joined, fresh=True)
def _stack(xp: Any, *arrays: Any, axis: int) -> Array:
    return xp.stack(arrays, axis=axis)


@public("fdbr.ops")
def stack(arrays: Sequence[Any], /, *, axis: int = 0) -> Array:
    """Arrays of one shape joined along a new axis.

    Raises
    ------
    ValueError
        If there is no array, or the shapes differ.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.stack([np.ones(2), np.zeros(2)]).shape
    (2, 2)
    """
    parts = _parts(arrays)
    if not parts:
        raise ValueError("fdbr.ops.stack: no array to join")
    return _stack(*parts, axis=normalize_axis(axis, parts[0].ndim + 1, "stack"))


@public("fdbr.ops")
def unstack(x: Any, /, *, axis: int = 0) -> tuple[Any, ...]:
    """The slices of an array along an axis, each without that axis.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.unstack(np.arange(2))
    (np.int64(0), np.int64(1))
    """
    axis = normalize_axis(axis, x.ndim, "unstack")
    return tuple(x[(slice(None),) * axis + (i,)] for i in range(x.shape[axis]))


@public("fdbr.ops")
def tile(x: ArrayLike, repetitions: tuple[int, ...], /) -> Array:
    """The array repeated as a whole along its axes.

    If there are more repetitions than axes, new axes are inserted in front.  A single number
    repeats the array along the last axis.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.tile(np.arange(2), (2,))
    array([0, 1, 0, 1])
    """
    times = (repetitions,) if isinstance(repetitions, int | np.integer) else tuple(repetitions)
    ndim = max(x.ndim, len(times))
    lengths = (1,) * (ndim - x.ndim) + tuple(x.shape)
    times = (1,) * (ndim - len(times)) + times
    interleaved = tuple(n for pair in zip(times, lengths, strict=True) for n in pair)
    x = reshape(x, tuple(n for length in lengths for n in (1, length)))
    return reshape(
        broadcast_to(x, interleaved), tuple(t * n for t, n in zip(times, lengths, strict=True))
    )


@linear(
    x=lambda ct, shape, offset: _embed_diagonal(ct, shape=shape, offset=offset),
    batch=aligned,
    view="read-only",
)
def _diagonal(xp: Any, x: ArrayLike, *, offset: int) -> Array:
    return xp.diagonal(x, offset, -2, -1)


@linear(x=lambda ct, offset: _diagonal(ct, offset=offset), batch=prefixed("shape"))
def _embed_diagonal(xp: Any, x: ArrayLike, *, shape: tuple[int, ...], offset: int) -> Array:
    out = xp.zeros(shape, dtype=x.dtype)
    columns, count = shape[-1], x.shape[-1]
    if count:
        first = offset if offset > 0 else -offset * columns
        elements = out.reshape((*shape[:-2], shape[-2] * columns))
        elements[..., first : first + count * (columns + 1) : columns + 1] = x
    return out


@public("fdbr.ops")
def diagonal(x: ArrayLike, /, *, offset: int = 0) -> Array:
    """The diagonal of the matrices in the last two axes.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.diagonal(np.eye(2))
    array([1., 1.])
    """
    if x.ndim < 2:
        raise ValueError(f"fdbr.ops.diagonal: needs two dimensions, got shape {x.shape}")
    return _diagonal(x, offset=integer("fdbr.ops.diagonal", "offset", offset))
