"""Copies of NumPy's arrays, on all threads if they are large."""

from typing import Any

import numpy as np

from fdbr.backends.cpu.library.copy import copied_into
from fdbr.backends.cpu.tuning import TUNING
from fdbr.core.array_modules import copied, lock, locked_copy
from fdbr.core.primitive import implement

__all__: list[str] = []


@implement(copied, np)
def _copied(array: Any) -> Any:
    if array.nbytes < TUNING.kernel_bytes:
        return array.copy(order="K")  # another memory order would take ten times as long
    out = np.empty_like(array)
    copied_into(out, array)
    return out


@implement(locked_copy, np)
def _locked_copy(array: Any) -> Any:
    """Copy an array, read-only; elements that a large broadcast array repeats are copied once."""
    if array.nbytes >= TUNING.kernel_bytes and 0 in array.strides:
        once = array[tuple([slice(None if step else 1) for step in array.strides])]
        return lock(np.broadcast_to(once.copy(order="K"), array.shape))
    return lock(_copied(array))
