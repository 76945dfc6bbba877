"""Rows of a table by their numbers."""

import numpy as np

from fdbr.backend import Array, array_module
from fdbr.messages import describe
from fdbr.ops.creation import asarray
from fdbr.ops.devices import beside
from fdbr.ops.indexing.places import within
from fdbr.ops.indexing.table_rows import rows_at

__all__ = ["embed"]


def embed(weight: Array, indices: Array, /) -> Array:
    """The rows of a table that integers name: ``weight[indices]``, with a fast derivative.

    Parameters
    ----------
    weight
        The table, shape ``(count, *row)``.
    indices
        Integers in ``0 … count - 1``, of any shape.

    Returns
    -------
    array
        Shape ``indices.shape + row``.

    Raises
    ------
    TypeError
        If the indices are not integers.
    ValueError
        If the table has no axis of rows, or an index is out of its range.

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
    if array_module(weight) is not np:
        count = weight.shape[0]
        indices = within(indices, least=0, count=count, name="embed", error=ValueError)
        indices = beside(indices, weight)
    return rows_at(weight, indices)
