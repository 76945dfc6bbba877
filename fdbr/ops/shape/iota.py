"""Apply a function to 0, 1, 2, … by a kernel, in one pass and on all threads."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr.backends.cpu import kernels
from fdbr.ops.declare import large

__all__ = ["apply_to_iota"]

_COLUMNS = 1 << 10  # i is the sum of a row and a column of this length, which broadcast


def apply_to_iota(function: Callable[..., Any], count: int, *numbers: float) -> Any:
    """Compute ``function(i, *numbers)`` for ``i = 0, 1, …, count - 1`` in float64 by a kernel.

    Parameters
    ----------
    function
        A hashable function of nodes of the expression graph.
    count
        The number of elements.
    numbers
        Further arguments of the function.

    Returns
    -------
    array or None
        `None` if the array is small, or no kernel can compute the function.
    """
    if 8 * count < large.LEAST or not count:
        return None
    rows = np.arange(0.0, count, _COLUMNS)[:, None]
    found = kernels.elementwise(
        (apply_to_iota, function),
        lambda row, column, *rest: function(row + column, *rest),
        (rows, _columns(), *map(float, numbers)),
    )
    return None if found is None else found.reshape(-1)[:count]


@functools.cache
def _columns() -> Any:
    return np.arange(float(_COLUMNS))
