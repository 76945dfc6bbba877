"""The library of linear algebra that NumPy uses, and how many threads it has."""

import contextlib
import ctypes
import functools
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

__all__ = ["alone", "library"]

_PREFIXES = ("scipy_openblas_{}64_", "openblas_{}64_", "openblas_{}")
_lock = threading.Lock()
_inside = [0, 0]  # how many want it to use one thread now, and how many it had


@functools.cache
def library() -> Any:
    """The library, as far as it shows its functions; `None` where it is not found."""
    module = getattr(np.linalg, "_umath_linalg", None)
    try:
        return ctypes.CDLL(module.__file__)  # type: ignore[union-attr]
    except (AttributeError, TypeError, OSError):
        return None


@functools.cache
def _settings() -> tuple[Any, Any] | None:
    """The functions that get and set how many threads OpenBLAS has."""
    found = library()
    for prefix in _PREFIXES:
        names = [prefix.format(name) for name in ("get_num_threads", "set_num_threads")]
        if found is not None and all(hasattr(found, name) for name in names):
            read, write = (getattr(found, name) for name in names)
            read.restype, write.restype, write.argtypes = ctypes.c_int, None, [ctypes.c_int]
            return read, write
    return None


@contextlib.contextmanager
def alone() -> Iterator[bool]:
    """Have the library use one thread a call, for calls that are made side by side.

    Its threads are shared by all callers, who wait for each other: two at once take up to ten times
    as long as one after the other.  It gives whether the library does so.  Products that another
    thread computes meanwhile take longer, and are the same but for the last bits.
    """
    settings = _settings()
    if settings is None:
        yield False
        return
    read, write = settings
    with _lock:
        if not _inside[0]:
            _inside[1] = read()
            if _inside[1] > 1:
                write(1)
        _inside[0] += 1
    try:
        yield True
    finally:
        with _lock:
            _inside[0] -= 1
            if not _inside[0] and _inside[1] > 1:
                write(_inside[1])
