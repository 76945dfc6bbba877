"""The library of linear algebra that NumPy uses, and how many threads it has."""

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
    """The number of those who want it to use one thread now, and how many it had."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.inside = self.had = 0


_state = _State()


def _renew() -> None:
    """In a process that was forked there are none of those who wanted it."""
    global _state
    old, _state = _state, _State()
    settings = _settings() if old.inside else None
    if settings is not None and old.had > 1:
        settings[1](old.had)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


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
