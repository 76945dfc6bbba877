"""How much memory this process takes, as Linux tells it."""

import contextlib
import ctypes
import gc
import tracemalloc
from collections.abc import Callable
from pathlib import Path

__all__ = ["array_peak", "known", "most", "peak", "resident"]

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def known() -> bool:
    """Whether the system tells."""
    return _CLEAR.exists()


def resident() -> int:
    """Bytes in use, after what is free has been given back to the system."""
    gc.collect()
    with contextlib.suppress(AttributeError):  # the C library of GNU has it
        ctypes.CDLL(None).malloc_trim(0)
    return _bytes("VmRSS")


def most() -> int:
    """The most bytes in use since the process began, or since `peak`."""
    return _bytes("VmHWM")


def peak(call: Callable[[], object]) -> int:
    """The most bytes in use during a call."""
    _CLEAR.write_text("5")  # the peak begins anew, at what the process has now
    call()
    return most()


def array_peak(call: Callable[[], object]) -> int:
    """By how much NumPy's memory grows during a call at its peak, by tracemalloc."""
    tracemalloc.start()
    call()  # what it keeps is counted from now on, and so as something that was there before
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    call()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most - before


def _bytes(field: str) -> int:
    lines = _STATUS.read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))
