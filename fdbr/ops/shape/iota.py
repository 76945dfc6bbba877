"""Long arrays made by counting, by kernels: in one pass, and on all threads."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr.backends.cpu import kernels
from fdbr.ops.declare import large

__all__ = ["counted"]

_COLUMNS = 1 << 10


def counted(function: Callable[..., Any], count: int, *numbers: float) -> Any:
    """``function(i, *numbers)`` for ``i = 0, 1, …, count - 1`` in float64, where that is large.

    Parameters
    ----------
    function
        A function of nodes, which has a hash.
    count
        How many there are.
    numbers
        What else it takes.

    Returns
    -------
    array or None
        `None` where it is not large, or no kernel can do it.
    """
    if 8 * count < large.LEAST or not count:
        return None
    rows = np.arange(0.0, count, _COLUMNS)[:, None]
    found = kernels.elementwise(
        (counted, function),
        lambda row, column, *rest: function(row + column, *rest),
        (rows, _columns(), *map(float, numbers)),
    )
    return None if found is None else found.reshape(-1)[:count]


@functools.cache
def _columns() -> Any:
    return np.arange(float(_COLUMNS))
