"""Integers as vectors of zeros with a one."""

from typing import Any

import numpy as np

from fdbr.core.array_modules import array_module
from fdbr.errors.checks import describe, integer
from fdbr.ops.axes import normalize_axis
from fdbr.ops.dtypes import astype
from fdbr.ops.nn.losses.labels import checked_labels
from fdbr.ops.shape.creation import asarray
from fdbr.ops.shape.manipulation import expand_dims
from fdbr.pytrees.typing import Array, ArrayLike, DTypeLike

__all__ = ["one_hot"]

_MANY = 1 << 12  # elements from which on few of them are looked at


def one_hot(
    indices: ArrayLike,
    /,
    num_classes: int,
    *,
    axis: int = -1,
    dtype: DTypeLike = float,
    ignore_label: int | None = None,
) -> Array:
    """1 at each index and 0 elsewhere, along a new axis.

    The result is a constant: integers have no derivative.

    Parameters
    ----------
    indices
        Integers in ``0 … num_classes - 1``, of any shape.
    num_classes
        The length of the new axis.
    axis
        Where the new axis is in the result.
    dtype
        The dtype of the result.
    ignore_label
        An integer that gives zeros alone, so that -1, say, can stand for *none*.

    Raises
    ------
    TypeError
        If the indices or ``num_classes`` are not integers.
    ValueError
        If an index is out of range, ``num_classes`` is negative, or there is no such axis.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.one_hot(np.array([0, 2]), 3)
    array([[1., 0., 0.],
           [0., 0., 1.]])
    """
    indices = asarray(indices)
    if indices.dtype.kind not in "iu":
        raise TypeError(f"fdbr.ops.one_hot: indices must be integers, not {describe(indices)}")
    count = integer("fdbr.ops.one_hot", "num_classes", num_classes, least=0)
    place = normalize_axis(axis, indices.ndim + 1, "one_hot")
    counted = None if ignore_label is None else indices != ignore_label
    indices = checked_labels("one_hot", indices, count, counted, what="indices")
    if type(indices) is np.ndarray and place == indices.ndim and indices.size * count >= _MANY:
        return _marked(indices, counted, count, dtype)
    numbers = array_module(indices).arange(count)
    numbers = numbers.reshape((-1, *(1,) * (indices.ndim - place)))
    ones = expand_dims(indices, axis=place) == numbers
    return astype(ones if counted is None else ones & expand_dims(counted, axis=place), dtype)


def _marked(indices: Any, counted: Any, count: int, dtype: Any) -> Any:
    """Zeros, with 1 at each index that counts."""
    one = astype(np.ones(1), dtype)
    out = np.zeros((*indices.shape, count), one.dtype)
    rows = np.arange(indices.size) if counted is None else counted.reshape(-1).nonzero()[0]
    out.reshape(-1, count)[rows, indices.reshape(-1)[rows]] = one[0]
    return out
