"""Elementwise steps on large arrays, a block of elements at a time."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fdbr.compiler.ir.program import Kind

__all__ = ["ALONE", "in_blocks", "is_room", "unlocked"]

_BLOCK = 1 << 18  # elements


def _alone() -> int:
    array = np.empty(1)
    return sys.getrefcount(array)


ALONE = _alone()
"""The `sys.getrefcount` of an array that one local variable alone refers to."""

Steps = Callable[..., Sequence[Any]]
"""From operands to results, each of which depends on the elements at one place alone."""


def in_blocks(run: Steps, operands: Sequence[Any], targets: Sequence[Any]) -> None:
    """Write the results of steps to arrays, over operands maybe.

    No more than a block of each result is there beside them.

    Parameters
    ----------
    run
        The steps.
    operands
        Arrays of the targets' shape, and numbers.
    targets
        Arrays in order, of one shape.
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
    """Whether an array has memory of its own in which a value of a kind can be written."""
    return (
        type(array) is np.ndarray
        and array.shape == kind.shape
        and array.dtype == kind.dtype
        and array.base is None
        and array.flags.owndata
        and array.flags.c_contiguous
    )


class unlocked:
    """Have arrays be written to, whether they are locked or not, as long as a block lasts."""

    def __init__(self, arrays: Sequence[Any]) -> None:
        self._locked = [array for array in arrays if not array.flags.writeable]

    def __enter__(self) -> None:
        for array in self._locked:
            array.flags.writeable = True

    def __exit__(self, *_: object) -> None:
        for array in self._locked:
            array.flags.writeable = False
