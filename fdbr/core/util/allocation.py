"""Memory that is freed and asked for again."""

import contextlib
import ctypes
import os
from collections.abc import Callable

__all__ = ["give_back_freed_memory", "keep_freed_memory"]

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # of the GNU C library's mallopt
_MOST = 2047  # megabytes that it can be told to keep
_CHOSEN = "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"


def keep_freed_memory() -> None:
    """Have the process keep memory that it has freed, for what it asks for next.

    A step of training frees all it took, and takes it again in the next.  The allocator of the
    GNU C library gives large blocks back to the system at once, and the rest where it is more than
    twice the largest block; and to get it again costs a page fault for every 4 kB, in which the
    system clears it: half of the time of a step of VGG16.

    Of the memory at the end of what is in use as many megabytes are kept as ``FDBR_KEPT_MEMORY`` in
    the environment says, up to 2047, or a quarter of the machine's memory; what was freed between
    other arrays is used for new ones.  With 0, where the user has told the allocator what to do,
    and elsewhere, this does nothing.
    """
    if any(name in os.environ for name in _CHOSEN):
        return
    with contextlib.suppress(AttributeError, OSError, TypeError, ValueError):
        chosen = os.environ.get("FDBR_KEPT_MEMORY", "")
        quarter = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4
        kept = min(int(chosen) if chosen.isdecimal() else quarter >> 20, _MOST)
        change = ctypes.CDLL(None).mallopt
        if kept:
            change(_TRIM_THRESHOLD, kept << 20)
            change(_MMAP_MAX, 0)


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
