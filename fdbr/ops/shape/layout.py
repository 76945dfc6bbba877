"""Triangles of matrices, repeated elements, grids, and differences of neighbours."""

import contextlib
from typing import Any, Literal

from fdbr.core.array_modules import array_module, where_it_lies
from fdbr.errors.checks import describe, index, integer
from fdbr.errors.public import public
from fdbr.ops.axes import normalize_axis
from fdbr.ops.declare import aligned, linear
from fdbr.ops.elementwise.arithmetic import subtract
from fdbr.ops.elementwise.comparison import not_equal
from fdbr.ops.indexing.reading import pick
from fdbr.ops.indexing.searching import searchsorted
from fdbr.ops.reductions.cumulative import cumulative_sum
from fdbr.ops.reductions.reduce import sum as _sum
from fdbr.ops.reductions.row_iteration import unbuffered_rows
from fdbr.ops.shape.creation import arrays, asarray
from fdbr.ops.shape.manipulation import broadcast_to, concat, expand_dims, reshape
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["diff", "meshgrid", "repeat", "tril", "triu"]


_LARGE = 1 << 14  # elements from which on the order of NumPy's iteration matters

# --- triangles ----------------------------------------------------------------------


@linear(x=lambda ct, k, upper: _triangle(ct, k=k, upper=upper), batch=aligned)
def _triangle(xp: Any, x: ArrayLike, *, k: int, upper: bool) -> Array:
    return (xp.triu if upper else xp.tril)(x, k)


@public("fdbr.ops")
def tril(x: ArrayLike, /, *, k: int = 0) -> Array:
    """The lower triangle of matrices: zeros above the ``k``-th diagonal of the last two axes.

    Raises
    ------
    ValueError
        If ``x`` has fewer than two dimensions.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.tril(np.ones((2, 2)))
    array([[1., 0.],
           [1., 1.]])
    """
    return _triangle(_matrices(x, "tril"), k=integer("fdbr.ops.tril", "k", k), upper=False)


@public("fdbr.ops")
def triu(x: ArrayLike, /, *, k: int = 0) -> Array:
    """The upper triangle of matrices: zeros below the ``k``-th diagonal; see `tril`.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.triu(np.ones((2, 2)))
    array([[1., 1.],
           [0., 1.]])
    """
    return _triangle(_matrices(x, "triu"), k=integer("fdbr.ops.triu", "k", k), upper=True)


def _matrices(x: Any, name: str) -> Any:
    x = asarray(x)
    if x.ndim < 2:
        raise ValueError(f"fdbr.ops.{name}: needs two dimensions, got {describe(x)}")
    return x


# --- repetition, grids, differences ---------------------------------------------------


@public("fdbr.ops")
@where_it_lies
def repeat(x: Any, repeats: Any, /, *, axis: int | None = None) -> Any:
    """The array with each element repeated along an axis, or along the flattened array.

    Parameters
    ----------
    x
        An array.
    repeats
        The number of repetitions: an integer, or an array with one integer for each element.
    axis
        The axis to repeat along; `None` flattens the array first.

    Raises
    ------
    ValueError
        If the axis or the number of repeats does not fit, or one is negative.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.repeat(np.array([1, 2]), 2)
    array([1, 1, 2, 2])
    >>> ops.repeat(np.array([1, 2]), np.array([3, 1]))
    array([1, 1, 1, 2])
    """
    x = asarray(x)
    x = reshape(x, -1) if axis is None else x
    axis = normalize_axis(0 if axis is None else axis, x.ndim, "repeat")
    each = getattr(repeats, "ndim", 1 if isinstance(repeats, list | tuple) else 0)
    if each and len(repeats) != 1:
        return _repeat_each(x, arrays(x, repeats)[1], axis)
    repeats = repeats[0] if each else repeats
    number = index(repeats) if isinstance(repeats, bool) else int(repeats)
    if number < 0:
        raise ValueError(f"fdbr.ops.repeat: repeats is {number}; it must not be negative")
    shape = [*x.shape[: axis + 1], number, *x.shape[axis + 1 :]]
    out = broadcast_to(expand_dims(x, axis=axis + 1), shape)
    shape[axis : axis + 2] = [x.shape[axis] * number]
    return reshape(out, shape)


def _repeat_each(x: Any, repeats: Any, axis: int) -> Any:
    if repeats.shape != (x.shape[axis],):
        raise ValueError(
            f"fdbr.ops.repeat: repeats {describe(repeats)} must have one integer for each of "
            f"{x.shape[axis]} elements along axis {axis} of {describe(x)}"
        )
    if bool((repeats < 0).any()):
        raise ValueError("fdbr.ops.repeat: repeats must not be negative")
    positions = array_module(repeats).arange(int(_sum(repeats)))
    source = searchsorted(cumulative_sum(repeats), positions, side="right")
    return pick(x, (slice(None),) * axis + (source,))


@public("fdbr.ops")
def meshgrid(*arrays: ArrayLike, indexing: Literal["xy", "ij"] = "xy") -> list[Any]:
    """Coordinate arrays of a grid: each array is repeated along the axes of the others.

    Parameters
    ----------
    arrays
        Arrays of one dimension (or none) and one dtype.
    indexing
        ``"ij"``: axis ``i`` of the grid belongs to array ``i``.  ``"xy"``: the first two axes are
        swapped.

    Raises
    ------
    ValueError
        If an array has more than one dimension, or ``indexing`` is neither of these.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> x, y = ops.meshgrid(np.array([1.0, 2.0]), np.array([3.0, 4.0, 5.0]))
    >>> x.shape
    (3, 2)
    """
    if indexing not in ("xy", "ij"):
        raise ValueError(f"fdbr.ops.meshgrid: indexing is {indexing!r}, not 'xy' or 'ij'")
    parts = [asarray(array) for array in arrays]
    to: Any = [1] * len(parts)
    is_swapped = indexing == "xy" and len(parts) > 1
    for i, part in enumerate(parts):
        if part.shape:
            to[1 - i if is_swapped and i < 2 else i], *more = part.shape
            if more:
                shapes = [part.shape for part in parts]
                raise ValueError(
                    f"fdbr.ops.meshgrid: arrays of one dimension are needed, not {shapes}"
                )
    to = tuple(to)
    grid = []
    for i, part in enumerate(parts):
        axis = 1 - i if is_swapped and i < 2 else i
        behind = len(to) - 1 - axis
        if behind:
            part = reshape(part, (to[axis], *(1,) * behind))
        grid.append(broadcast_to(part, to))
    return grid


@public("fdbr.ops")
@where_it_lies
def diff(
    x: Any,
    /,
    *,
    axis: int = -1,
    n: int = 1,
    prepend: Any = None,
    append: Any = None,
) -> Any:
    """The differences of neighbours along an axis, taken ``n`` times.

    For booleans it is whether neighbours differ.

    Parameters
    ----------
    x
        An array of one dimension or more.
    axis
        The axis of the differences.
    n
        The number of times that differences are taken.
    prepend, append
        Arrays to join to ``x`` before and after it, first.

    Raises
    ------
    ValueError
        If the axis does not exist, or ``n`` is negative.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.diff(np.array([1.0, 2.0, 4.0]))
    array([1., 2.])
    """
    x = asarray(x)
    axis = normalize_axis(axis, x.ndim, "diff")
    if integer("fdbr.ops.diff", "n", n) < 0:
        raise ValueError(f"fdbr.ops.diff: n is {n}; it must not be negative")
    parts = [_border(part, x, axis) for part in (prepend, x, append) if part is not None]
    x = concat(parts, axis=axis) if n and len(parts) > 1 else x
    before = (slice(None),) * axis
    for _ in range(min(n, x.shape[axis])):  # an axis of n elements is empty after n steps
        later, earlier = x[(*before, slice(1, None))], x[(*before, slice(None, -1))]
        difference = not_equal if x.dtype.kind == "b" else subtract
        with unbuffered_rows(x.shape[-1]) if x.size >= _LARGE else contextlib.nullcontext():
            x = difference(later, earlier)
    return x


def _border(part: Any, x: Any, axis: int) -> Any:
    part = arrays(x, part)[1]
    if part.ndim:
        return part
    return broadcast_to(part, tuple(1 if i == axis else m for i, m in enumerate(x.shape)))
