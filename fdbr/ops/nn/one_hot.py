"""One-hot encoding of integers."""

from typing import Any

from fdbr.core.array_modules import array_module
from fdbr.core.routine import Routine
from fdbr.errors.checks import describe, integer
from fdbr.errors.public import public
from fdbr.ops.axes import normalize_axis
from fdbr.ops.dtypes import astype
from fdbr.ops.nn.losses.labels import checked_labels
from fdbr.ops.shape.creation import asarray
from fdbr.ops.shape.manipulation import expand_dims
from fdbr.pytrees.typing import Array, ArrayLike, DTypeLike

__all__ = [
    "one_hot",
]


@public("fdbr.ops")
def one_hot(
    indices: ArrayLike,
    /,
    num_classes: int,
    *,
    axis: int = -1,
    dtype: DTypeLike = float,
    ignore_label: int | None = None,
) -> Array:
    """The one-hot encoding of indices: 1 at each index and 0 elsewhere, along a new axis.

    The result has no derivative.

    Parameters
    ----------
    indices
        Integers in ``0 … num_classes - 1``, of any shape.
    num_classes
        The length of the new axis.
    axis
        The position of the new axis in the result.
    dtype
        The dtype of the result.
    ignore_label
        An integer that gives only zeros, such as -1 for *no class*.

    Raises
    ------
    TypeError
        If the indices or ``num_classes`` are not integers.
    ValueError
        If an index is out of range, ``num_classes`` is negative, or the axis does not exist.

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
    position = normalize_axis(axis, indices.ndim + 1, "one_hot")
    is_counted = None if ignore_label is None else indices != ignore_label
    indices = checked_labels("one_hot", indices, count, is_counted, what="indices")
    return ones_at(indices, is_counted, count, position, dtype)


@Routine
def ones_at(indices: Any, is_counted: Any, count: int, position: int, dtype: Any) -> Any:
    """Compute 1 at each index that is counted and 0 elsewhere, along a new axis."""
    classes = array_module(indices).arange(count)
    classes = classes.reshape((-1, *(1,) * (indices.ndim - position)))
    ones = expand_dims(indices, axis=position) == classes
    return astype(
        ones if is_counted is None else ones & expand_dims(is_counted, axis=position), dtype
    )
