"""The BLAS library that NumPy uses, and its number of threads."""

import contextlib
import ctypes
import functools
import os
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

__all__ = ["alone", "library"]

_PREFIXES = ("scipy_openblas_{}64_", "openblas_{}64_", "openblas_{}")


class _State:
    """The number of callers that want single-threaded products now, and of threads before."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.inside = self.had = 0


_state = _State()


def _renew() -> None:
    """Restore the number of threads in a forked child, which has none of those callers."""
    global _state
    old, _state = _state, _State()
    settings = _settings() if old.inside else None
    if settings is not None and old.had > 1:
        settings[1](old.had)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


@functools.cache
def library() -> Any:
    """Return the library of NumPy's linear algebra; `None` if it is not found."""
    module = getattr(np.linalg, "_umath_linalg", None)
    try:
        return ctypes.CDLL(module.__file__)  # type: ignore[union-attr]
    except (AttributeError, TypeError, OSError):
        return None


@functools.cache
def _settings() -> tuple[Any, Any] | None:
    """Return the functions that get and set OpenBLAS's number of threads; `None` if unknown."""
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
    """Limit the library to one thread per call while the block lasts, for concurrent calls.

    OpenBLAS shares one pool of threads among all callers, and they wait for each other: two
    concurrent products take up to ten times as long as one after the other.  The context's value
    is whether the library was limited.  Products that another thread computes meanwhile take
    longer, and may differ in the last bits.
    """
    settings = _settings()
    if settings is None:
        yield False
        return
    read, write = settings
    state = _state
    with state.lock:
        if not state.inside:
            state.had = read()
            if state.had > 1:
                write(1)
        state.inside += 1
    try:
        yield True
    finally:
        with state.lock:
            state.inside -= 1
            if not state.inside and state.had > 1:
                write(state.had)
