"""Common memory order of arrays, for kernels that process elements in any order."""

from typing import Any

import numpy as np

__all__ = ["in_one_order"]


def in_one_order(*arrays: Any) -> tuple[Any, ...]:
    """Return arrays of one shape with the same memory order, without gaps.

    They are returned unchanged if they have one, like the results of convolutions, whose channels
    are last in memory.
    >>> a = np.zeros((2, 3)).T
    >>> b, c = in_one_order(a, a + 1)
    >>> b is a, c.flags.c_contiguous
    (True, False)
    """
    steps = _steps(arrays[0])
    if all(_steps(a) == steps for a in arrays[1:]) and _is_dense(arrays[0]):
        return arrays
    return tuple(map(np.ascontiguousarray, arrays))


def _steps(array: Any) -> list[int]:
    size = array.itemsize
    return [s // size for s, n in zip(array.strides, array.shape, strict=True) if n != 1]


def _is_dense(array: Any) -> bool:
    if array.flags.c_contiguous:
        return True
    axes = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
    return bool(array.transpose(axes).flags.c_contiguous)
