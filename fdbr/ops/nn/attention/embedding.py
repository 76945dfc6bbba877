"""Embedding: the rows of a table at integer indices."""

import numpy as np

from fdbr.core.array_modules import Array, array_module, where_it_lies
from fdbr.core.tracer import stop_gradient
from fdbr.errors.checks import describe, integer
from fdbr.errors.public import public
from fdbr.ops.devices import beside
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.indexing.positions import checked_index
from fdbr.ops.indexing.table_rows import rows_at
from fdbr.ops.shape.creation import asarray
from fdbr.ops.shape.manipulation import reshape

__all__ = ["embed"]


@public("fdbr.ops")
@where_it_lies
def embed(
    weight: Array,
    indices: Array,
    /,
    *,
    padding_idx: int | None = None,
    ignore_label: int | None = None,
) -> Array:
    """The rows of a table at integer indices: ``weight[indices]``, with a fast derivative.

    Parameters
    ----------
    weight
        The table, shape ``(count, *row)``.
    indices
        Integers in ``0 … count - 1``, of any shape.
    padding_idx
        A row without a derivative, as in PyTorch; a negative number counts from the end.
    ignore_label
        An integer, in range or not, that gives zeros, as in Chainer.

    Returns
    -------
    array
        Shape ``indices.shape + row``.

    Raises
    ------
    TypeError
        If the indices are not integers.
    ValueError
        If the table has no axis of rows, or an index or ``padding_idx`` is out of range.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.embed(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1, 1, 0]))
    array([[3., 4.],
           [3., 4.],
           [1., 2.]])
    """
    weight, indices = asarray(weight), asarray(indices)
    if weight.ndim < 1:
        raise ValueError(f"fdbr.ops.embed: weight must have an axis of rows: {describe(weight)}")
    if indices.dtype.kind not in "iu":
        raise TypeError(f"fdbr.ops.embed: indices must be integers, not {describe(indices)}")
    if ignore_label is not None:
        ignored = indices == integer("fdbr.ops.embed", "ignore_label", ignore_label)
        rows = embed(weight, where(ignored, 0, indices), padding_idx=padding_idx)
        return where(_broadcast_to_rows(ignored, weight), 0, rows)
    if array_module(weight) is not np:
        count = weight.shape[0]
        indices = checked_index(indices, least=0, count=count, name="embed", error=ValueError)
        indices = beside(indices, weight)
    if padding_idx is None:
        return rows_at(weight, indices)
    row = integer("fdbr.ops.embed", "padding_idx", padding_idx)
    count = weight.shape[0]
    if not -count <= row < count:
        raise ValueError(
            f"fdbr.ops.embed: padding_idx {row} is not a row of {describe(weight)}; for an integer "
            "outside the table that gives zeros, use ignore_label"
        )
    padding = _broadcast_to_rows(indices == row % count, weight)
    return where(padding, stop_gradient(weight[row]), rows_at(weight, indices))


def _broadcast_to_rows(flags: Array, weight: Array) -> Array:
    return reshape(flags, (*flags.shape, *(1,) * (weight.ndim - 1)))
