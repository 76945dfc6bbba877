"""Functions composed of a few operations: splitting, weighted means, interpolation, strides."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from fdbr.errors.checks import describe, index, integer
from fdbr.errors.public import public
from fdbr.ops.axes import normalize_axes, normalize_axis
from fdbr.ops.declare import fit
from fdbr.ops.devices import beside
from fdbr.ops.dtypes import in_single, is_number, rounded_like
from fdbr.ops.elementwise.arithmetic import sqrt
from fdbr.ops.indexing.reading import take
from fdbr.ops.reductions.reduce import mean
from fdbr.ops.reductions.reduce import sum as _sum
from fdbr.ops.shape.creation import arrays, asarray, floating
from fdbr.ops.shape.manipulation import permute_dims, reshape
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["as_strided", "average", "lerp", "rsqrt", "split", "sum_to"]


@public("fdbr.ops")
def split(x: Any, indices_or_sections: int | Sequence[int], /, axis: int = 0) -> list[Any]:
    """The parts of an array along an axis, as `numpy.split`.

    Parameters
    ----------
    x
        An array.
    indices_or_sections
        The number of parts of equal length, or the indices at which a new part begins.
    axis
        The axis that is divided.

    Raises
    ------
    ValueError
        If the axis cannot be divided into that many equal parts, or does not exist.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.split(np.arange(4), 2)
    [array([0, 1]), array([2, 3])]
    >>> ops.split(np.arange(4), [1])
    [array([0]), array([1, 2, 3])]
    """
    x = asarray(x)
    position = normalize_axis(axis, x.ndim, "split")
    length = x.shape[position]
    if isinstance(indices_or_sections, list | tuple | np.ndarray):
        inner = [index(i) for i in indices_or_sections]
    else:
        count = integer("fdbr.ops.split", "indices_or_sections", indices_or_sections, least=1)
        if length % count:
            raise ValueError(
                f"fdbr.ops.split: axis {axis} of x {describe(x)} does not divide into {count} "
                "parts of equal length; give the indices at which they begin"
            )
        inner = list(range(length // count, length, max(length // count, 1)))
        inner = inner if length else [0] * (count - 1)
    before = (slice(None),) * position
    bounds = [0, *inner, length]
    return [x[(*before, slice(start, stop))] for start, stop in pairwise(bounds)]


@public("fdbr.ops")
@in_single
def average(
    x: ArrayLike,
    /,
    axis: int | tuple[int, ...] | None = None,
    weights: ArrayLike | None = None,
    *,
    keepdims: bool = False,
) -> Array:
    """The mean over axes, optionally weighted, as `numpy.average`.

    ``sum(weights * x) / sum(weights)``.

    Parameters
    ----------
    x
        An array.
    axis
        An axis or several; all of them by default.
    weights
        Numbers of the shape of ``x``, or of its lengths along the axes, in the order of ``axis``;
        all equal by default.
    keepdims
        Whether to keep the axes with length 1.

    Raises
    ------
    ValueError
        If the weights have another shape.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.average(np.array([1.0, 5.0]), weights=np.array([3.0, 1.0]))
    np.float64(2.0)
    """
    x = floating(x)
    axes = normalize_axes(axis, x.ndim, "average")
    if weights is None:
        return mean(x, axis=axes, keepdims=keepdims)
    x, weights = arrays(x, weights)
    if weights.shape != x.shape:
        if weights.shape != tuple(x.shape[i] for i in axes):
            raise ValueError(
                f"fdbr.ops.average: weights {describe(weights)} must have the shape of x "
                f"{describe(x)}, or its lengths along axes {axes}"
            )
        order = sorted(range(len(axes)), key=axes.__getitem__)
        shape = [n if i in axes else 1 for i, n in enumerate(x.shape)]
        weights = reshape(permute_dims(weights, order), shape)
    total = _sum(weights, axis=axes, keepdims=keepdims)
    return _sum(x * weights, axis=axes, keepdims=keepdims) / total


@public("fdbr.ops")
def lerp(start: ArrayLike, end: ArrayLike, weight: ArrayLike, /) -> Array:
    """Interpolate linearly: ``start + weight * (end - start)``, where all three broadcast.

    Chainer's ``linear_interpolate(p, x, y)`` is ``lerp(y, x, p)``.

    >>> from fdbr import ops
    >>> ops.lerp(10.0, 20.0, 0.25)
    np.float64(12.5)
    """
    start, end, weight = (x if is_number(x) else floating(x) for x in (start, end, weight))
    if all(map(is_number, (start, end, weight))):
        start = floating(start)
    given = [x for x in (start, end, weight) if not is_number(x)]
    return rounded_like(start + weight * (end - start), *given)


@public("fdbr.ops")
def rsqrt(x: ArrayLike, /) -> Array:
    """The reciprocal square root ``1 / sqrt(x)``.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.rsqrt(np.array([4.0]))
    array([0.5])
    """
    return 1 / sqrt(floating(x))


@public("fdbr.ops")
def sum_to(x: Any, /, shape: int | Sequence[int]) -> Any:
    """Sum an array to a shape that broadcasts to its own: the transpose of `broadcast_to`.

    Parameters
    ----------
    x
        An array.
    shape
        A shape that broadcasts to that of ``x``.

    Raises
    ------
    ValueError
        If ``shape`` does not broadcast to that of ``x``.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.sum_to(np.ones((2, 3)), (2, 1))
    array([[3.],
           [3.]])
    """
    x = asarray(x)
    given = shape if isinstance(shape, list | tuple) else (shape,)
    to = tuple(integer("fdbr.ops.sum_to", "shape", n, least=0) for n in given)
    try:
        fits = np.broadcast_shapes(to, x.shape) == x.shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"fdbr.ops.sum_to: shape {to} does not broadcast to that of {describe(x)}")
    return x if to == x.shape else fit(x, (to, x.dtype))


@public("fdbr.ops")
def as_strided(
    x: ArrayLike,
    shape: Sequence[int],
    strides: Sequence[int],
    storage_offset: int = 0,
) -> Array:
    """Gather elements at regular steps, as PyTorch's `as_strided` of a row-major array.

    ``out[i, j, ...] = reshape(x, -1)[storage_offset + i * strides[0] + j * strides[1] + ...]``.
    Strides count elements, and may repeat elements; the result is a copy, not a view.

    Parameters
    ----------
    x
        An array.
    shape
        The shape of the result.
    strides
        A step for each axis.
    storage_offset
        The index of the first element.

    Raises
    ------
    ValueError
        If ``shape`` and ``strides`` differ in length, or an index is out of bounds.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.as_strided(np.arange(4), (3, 2), (1, 1))
    array([[0, 1],
           [1, 2],
           [2, 3]])
    """
    name = "fdbr.ops.as_strided"
    x = asarray(x)
    lengths = tuple(integer(name, "shape", n, least=0) for n in shape)
    steps = tuple(integer(name, "strides", n) for n in strides)
    first = integer(name, "storage_offset", storage_offset, least=0)
    if len(lengths) != len(steps):
        raise ValueError(f"{name}: shape {lengths} needs a stride for each axis, got {steps}")
    ends = [step * (n - 1) for step, n in zip(steps, lengths, strict=True)]
    low, high = (first + sum(pick(end, 0) for end in ends) for pick in (min, max))
    if 0 not in lengths and (low < 0 or high >= x.size):
        raise ValueError(
            f"{name}: shape {lengths} and strides {steps} lead to elements {low} to {high} of x "
            f"{describe(x)}, which has {x.size}"
        )
    if type(x) is np.ndarray:
        memory, sizes = x.reshape(-1)[first:], [n * x.itemsize for n in steps]
        return np.lib.stride_tricks.as_strided(memory, lengths, sizes).copy()
    indices = np.full(lengths, first)
    for axis, (step, n) in enumerate(zip(steps, lengths, strict=True)):
        tail = (1,) * (len(lengths) - axis - 1)
        indices = indices + (step * np.arange(n)).reshape(n, *tail)
    flat = reshape(x, -1)
    return reshape(take(flat, beside(indices.reshape(-1), flat), axis=0), lengths)
