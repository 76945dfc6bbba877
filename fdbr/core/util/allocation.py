"""Memory that the allocator keeps for the next allocations when it is freed."""

import contextlib
import ctypes
import os
from collections.abc import Callable

__all__ = ["give_back_freed_memory", "keep_freed_memory"]

_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8  # of the GNU C library's mallopt
_MOST = 2047  # megabytes: mallopt takes a C int of bytes
_CHOSEN = "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"


def keep_freed_memory() -> None:
    """Have the allocator keep freed memory for the next allocations.

    A training step frees what it has allocated, and the next step allocates the same again.  The
    allocator of the GNU C library returns large blocks to the system at once.  To get them again
    costs a page fault for every 4 kB, in which the system clears the page: half of the time of a
    step of VGG16.

    All threads share one arena, so what a thread has freed serves the others, also after it has
    ended.  With an arena for each thread, 8 ended threads kept hundreds of megabytes that no other
    thread could use.

    The environment variable ``FDBR_KEPT_MEMORY`` sets how many free megabytes the allocator keeps
    at the end of the heap, up to 2047; the default is a quarter of the machine's memory.  This
    function does nothing if the variable is 0, if the user has configured the allocator by its own
    environment variables, or if the C library is another one.
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
            if "MALLOC_ARENA_MAX" not in os.environ:
                change(_ARENA_MAX, 1)


def give_back_freed_memory() -> None:
    """Return freed memory to the system, before a large allocation that will stay.

    The allocator of the GNU C library does not return free blocks between used ones by itself, and
    cannot join them to a large block.  With another C library this function does nothing.
    """
    _trim(0)


def _trimmer() -> Callable[[int], object]:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return lambda kept: 0


_trim = _trimmer()
