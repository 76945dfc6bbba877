"""Memory that is freed and asked for again."""

import ctypes
from collections.abc import Callable

import numpy as np

__all__ = ["give_back_freed_memory", "keep_freed_memory"]

_LARGEST = (32 << 20) - (1 << 16)  # bytes; what is larger does not count


def keep_freed_memory() -> None:
    """Have the process keep up to 64 MB that it has freed.

    A step of training frees all it took, and takes it again in the next.  The allocator of the
    GNU C library gives freed memory back to the system where it is more than twice the largest
    block ever freed, of at most 32 MB; and to get it again costs a page fault for every 4 kB: a
    quarter of the time of a convolutional network's step.  A block that is freed here, before
    anything was written to it, takes no memory and no time, and lets the allocator keep 64 MB
    from the beginning.

    Elsewhere, and where ``MALLOC_TRIM_THRESHOLD_`` is set, this does nothing.
    """
    np.empty(_LARGEST, np.uint8)


def give_back_freed_memory() -> None:
    """Give freed memory back to the system, before much is asked for that stays.

    Of freed blocks between others the allocator of the GNU C library gives nothing back by itself,
    and large blocks are not made of them.  Elsewhere this does nothing.
    """
    _trim(0)


def _trimmer() -> Callable[[int], object]:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return lambda kept: 0


_trim = _trimmer()
