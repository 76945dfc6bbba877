"""Apply a function to 0, 1, 2, … by a kernel, in one pass and on all threads."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr.backends.cpu import kernels
from fdbr.backends.cpu.tuning import TUNING
from fdbr.core.primitive import implement
from fdbr.ops.shape.creation import linspace_of_numbers
from fdbr.ops.shape.iota import apply_to_iota

_COLUMNS = 1 << 10  # i is the sum of a row and a column of this length, which broadcast


@implement(apply_to_iota, np)
def applied_to_iota(xp: Any, function: Callable[..., Any], count: int, *numbers: float) -> Any:
    """Compute `apply_to_iota`; large arrays by a kernel.

    >>> applied_to_iota(np, lambda xp, i, step: i * step, 3, 0.5)
    array([0. , 0.5, 1. ])
    """
    if 8 * count >= TUNING.kernel_bytes and count:
        rows = np.arange(0.0, count, _COLUMNS)[:, None]
        found = kernels.elementwise(
            (apply_to_iota, function),
            lambda row, column, *rest: function(kernels.functions, row + column, *rest),
            (rows, _columns(), *map(float, numbers)),
        )
        if found is not None:
            return found.reshape(-1)[:count]
    return function(xp, np.arange(count, dtype=float), *numbers)


@functools.cache
def _columns() -> Any:
    return np.arange(float(_COLUMNS))


@implement(linspace_of_numbers, np)
def _linspace(xp: Any, start: float, stop: float, num: int, endpoint: bool) -> Any:
    """Compute `numpy.linspace` with its rounding, and with less overhead."""
    step = (stop - start) / ((num - 1 if endpoint else num) or 1)
    if num < 2 or not step:
        return np.linspace(start, stop, num, endpoint=endpoint)
    if 8 * num >= TUNING.kernel_bytes:
        found = applied_to_iota(xp, _affine, num, step, start)
    else:
        found = np.arange(num, dtype=float)
        found *= step
        found += start
    if endpoint:
        found[-1] = stop
    return found


def _affine(xp: Any, i: Any, step: Any, start: Any) -> Any:
    return i * step + start
