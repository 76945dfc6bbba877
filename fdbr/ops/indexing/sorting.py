"""Sorting, argsort and top-k.

The permutation is locally constant, so the derivative of a sort is that of reading elements at the
indices of the argsort, which is linear.
"""

from typing import Any

from fdbr.core.array_modules import array_module, where_it_lies
from fdbr.core.routine import Routine
from fdbr.errors.checks import describe, integer
from fdbr.errors.public import public
from fdbr.ops.axes import normalize_axis
from fdbr.ops.declare import constant, indexed, shifted
from fdbr.ops.declare.batches import spread
from fdbr.ops.dtypes import is_traced
from fdbr.ops.shape.creation import asarray
from fdbr.ops.shape.manipulation import flip
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["argsort", "sort", "top_k"]

# --- reading along an axis ------------------------------------------------------------


def _batch_along(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    x, indices = (spread(v, flag, size) for v, flag in zip(values, batched, strict=True))
    return apply(x, indices, **{**params, "axis": params["axis"] + 1})


@indexed(
    lambda ct, shape, indices, params: _put_along(
        ct, *indices, length=shape[params["axis"]], axis=params["axis"]
    ),
    batch=_batch_along,
)
def _pick(xp: Any, x: ArrayLike, indices: Any, *, axis: int) -> Array:
    """Read the elements at distinct indices along an axis."""
    return xp.take_along_axis(x, indices, axis)


@indexed(
    lambda ct, shape, indices, params: _pick(ct, *indices, axis=params["axis"]),
    batch=_batch_along,
)
def _put_along(xp: Any, x: Array, indices: Any, *, length: int, axis: int) -> Array:
    """Write the elements at indices along an axis of zeros."""
    out = xp.zeros((*x.shape[:axis], length, *x.shape[axis + 1 :]), dtype=x.dtype)
    xp.put_along_axis(out, indices, x, axis)
    return out


@constant(batch=shifted("axis"))
def _argsort(xp: Any, x: Any, *, axis: int, stable: bool) -> Any:
    return xp.argsort(x, axis=axis, kind="stable" if stable else None)


# --- sorting ------------------------------------------------------------------------


@public("fdbr.ops")
@where_it_lies
def sort(
    x: ArrayLike, /, *, axis: int = -1, descending: bool = False, stable: bool = True
) -> Array:
    """The elements in order along an axis; NaN counts as the largest.

    The derivative of each element of the result is that of the element that was moved there.

    Parameters
    ----------
    x
        An array of one dimension or more.
    axis
        The axis to sort along.
    descending
        Whether the largest comes first.
    stable
        Whether equal elements keep their order; an unstable sort is faster.

    Raises
    ------
    ValueError
        If the axis does not exist.

    >>> import fdbr, numpy as np
    >>> from fdbr import ops
    >>> ops.sort(np.array([3.0, 1.0, 2.0]), descending=True)
    array([3., 2., 1.])
    >>> fdbr.grad(lambda x: ops.sort(x)[0])(np.array([3.0, 1.0, 2.0]))
    array([0., 1., 0.])
    """
    x = asarray(x)
    axis = normalize_axis(axis, x.ndim, "sort")
    if is_traced(x):
        return _pick(x, argsort(x, axis=axis, descending=descending, stable=stable), axis=axis)
    if descending:
        return flip(sort(flip(x, axis=axis), axis=axis, stable=stable), axis=axis)
    return sort_raw(x, axis, stable)


@Routine
def sort_raw(x: Any, axis: int, stable: bool) -> Any:
    """Sort an array that is not traced."""
    return array_module(x).sort(x, axis=axis, kind="stable" if stable else None)


@public("fdbr.ops")
@where_it_lies
def argsort(
    x: ArrayLike, /, *, axis: int = -1, descending: bool = False, stable: bool = True
) -> Array:
    """The indices that sort an array along an axis; see `sort`.

    Raises
    ------
    ValueError
        If the axis does not exist.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.argsort(np.array([3.0, 1.0, 2.0]))
    array([1, 2, 0])
    """
    x = asarray(x)
    axis = normalize_axis(axis, x.ndim, "argsort")
    if not descending:
        return _argsort(x, axis=axis, stable=stable)
    # Flipped before and after, so that equal elements keep their order.
    ascending = _argsort(flip(x, axis=axis), axis=axis, stable=stable)
    return x.shape[axis] - 1 - flip(ascending, axis=axis)


@constant(batch=shifted("axis"))
def _rank_indices(xp: Any, x: Any, *, ranks: tuple[int, ...], axis: int) -> Any:
    """Find the indices of the elements with given ranks along an axis."""
    order = xp.argsort(x, axis=axis, kind="stable")
    return xp.take(order, xp.asarray(ranks), axis=axis)


def ranked(x: Array, ranks: tuple[int, ...], axis: int) -> Any:
    """Return the elements with given ranks along an axis, faster than by sorting all.

    >>> import numpy as np
    >>> ranked(np.array([3.0, 1.0, 2.0]), (0, 2), 0)
    array([1., 3.])
    """
    return _pick(x, _rank_indices(x, ranks=ranks, axis=axis), axis=axis)


@public("fdbr.ops")
@where_it_lies
def top_k(x: Any, k: int, /, *, axis: int = -1) -> tuple[Any, Any]:
    """The ``k`` largest elements along an axis, in descending order, and their indices.

    Among equal elements the first counts as larger; NaN counts as the largest.

    Parameters
    ----------
    x
        An array of one dimension or more.
    k
        The number of elements, from 0 to the length of the axis.
    axis
        The axis to search along.

    Returns
    -------
    values, indices
        Arrays of the shape of ``x``, with length ``k`` on the axis; the indices are integers.

    Raises
    ------
    ValueError
        If the axis has fewer than ``k`` elements.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.top_k(np.array([3.0, 1.0, 4.0, 1.0]), 2)
    (array([4., 3.]), array([2, 0]))
    """
    x = asarray(x)
    axis = normalize_axis(axis, x.ndim, "top_k")
    k = integer("fdbr.ops.top_k", "k", k)
    if not 0 <= k <= x.shape[axis]:
        raise ValueError(
            f"fdbr.ops.top_k: k is {k}, but axis {axis} of {describe(x)} has {x.shape[axis]} "
            "elements; give at most as many"
        )
    indices = _top_indices(x, k=k, axis=axis)
    return _pick(x, indices, axis=axis), indices


@constant(batch=shifted("axis"))
def _top_indices(xp: Any, x: Array, *, k: int, axis: int) -> Array:
    x = xp.moveaxis(x, axis, -1)[..., ::-1]  # flipped, so that equal elements keep their order
    ascending = xp.argsort(x, kind="stable")
    return xp.moveaxis((x.shape[-1] - 1 - ascending[..., ::-1])[..., :k], -1, axis)
