"""Elementwise steps on large arrays, computed block by block to save memory."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fdbr.compiler.ir.program import Kind

__all__ = ["ALONE", "in_blocks", "is_room", "unlocked"]

_BLOCK = 1 << 18  # elements; bounds the temporaries of an update to 2 MB each in float64


def _alone() -> int:
    array = np.empty(1)
    return sys.getrefcount(array)


ALONE = _alone()
"""CPython's `sys.getrefcount` of an array that only one local variable refers to."""

Steps = Callable[..., Sequence[Any]]
"""From operands to results whose elements depend on the operands' elements at the same index."""


def in_blocks(run: Steps, operands: Sequence[Any], targets: Sequence[Any]) -> None:
    """Write the results of elementwise steps to arrays, which may be operands.

    Only one block of each result exists besides the operands.

    Parameters
    ----------
    run
        The steps.
    operands
        Arrays of the targets' shape, and numbers.
    targets
        C-contiguous arrays of one shape.
    """
    shape = targets[0].shape
    flat = [np.ravel(x) if np.shape(x) == shape else None for x in operands]
    given = list(operands)
    rows = [target.reshape(-1) for target in targets]
    for start in range(0, targets[0].size, _BLOCK):
        part = slice(start, start + _BLOCK)
        for i, x in enumerate(flat):
            if x is not None:
                given[i] = x[part]
        for row, found in zip(rows, run(*given), strict=True):
            row[part] = found


def is_room(array: Any, kind: Kind) -> bool:
    """Return whether an array owns contiguous memory that fits a value of an aval."""
    return (
        type(array) is np.ndarray
        and array.shape == kind.shape
        and array.dtype == kind.dtype
        and array.base is None
        and array.flags.owndata
        and array.flags.c_contiguous
    )


class unlocked:
    """Make arrays writeable while a block lasts."""

    def __init__(self, arrays: Sequence[Any]) -> None:
        self._locked = [array for array in arrays if not array.flags.writeable]

    def __enter__(self) -> None:
        for array in self._locked:
            array.flags.writeable = True

    def __exit__(self, *_: object) -> None:
        for array in self._locked:
            array.flags.writeable = False
