"""Which arrays nobody can write to: those that the library has locked."""

import weakref
from typing import Any

import numpy as np

__all__ = ["SMALL", "is_locked", "kept_copies", "lock", "locked_arrays", "owner", "record_locked"]

locked_arrays: dict[int, weakref.ref[Any]] = {}
"""The arrays that the library has locked, by identity.

That an array is read-only does not say that it stays as it is: its owner can have made a writable
view before, or can unlock it again.  What the library made has no such views.  References to arrays
that are gone stay until `record_locked` drops them: a callback for each would cost more than the
array's own creation.  An entry that is lost to a race costs a copy, and no more.
"""

SMALL = 1 << 14
"""Bytes up to which an array is copied where it comes in, which takes as long as a record of it."""

_most_locked = 1 << 12
"""How many entries `locked_arrays` may have before those of arrays that are gone are dropped."""


def record_locked(array: Any) -> None:
    """Record that the library has locked an array that it has just made, with its own memory."""
    global _most_locked
    locked_arrays[id(array)] = weakref.ref(array)
    if len(locked_arrays) > _most_locked:
        for key, reference in list(locked_arrays.items()):
            if reference() is None:
                locked_arrays.pop(key, None)
        _most_locked = max(1 << 12, 2 * len(locked_arrays))


kept_copies: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""Private copies of arrays that have no flag to say who may write to them."""


def lock(array: Any) -> Any:
    """Make an array that the library has just made read-only, and return it.

    What has no such flag (CuPy arrays, scalars) is returned as it is.

    >>> import numpy as np
    >>> lock(np.zeros(2))[0] = 1.0
    Traceback (most recent call last):
        ...
    ValueError: assignment destination is read-only
    """
    # By type, here and below, because a traced value says that it is an array.
    if type(array) is np.ndarray or issubclass(type(array), np.ndarray):
        array.setflags(False)
        if array.base is not None:
            lock(array.base)
        else:
            record_locked(array)
    elif kept_copies:
        kept_copies.pop(id(array), None)  # it is handed out
    return array


def owner(array: Any) -> Any:
    """The object whose memory an array shows: itself, or the end of its chain of bases."""
    while (base := getattr(array, "base", None)) is not None:
        array = base
    return array


_UNCHANGING = (np.generic, bytes)


def is_locked(array: Any) -> bool:
    """Whether an array's memory can change only if the caller undoes a lock of the library's."""
    while issubclass(type(array), np.ndarray):
        if array.flags.writeable:
            return False
        if array.base is None:
            reference = locked_arrays.get(id(array))
            return reference is not None and reference() is array
        array = array.base
    if array is None or issubclass(type(array), _UNCHANGING):
        return True
    if isinstance(array, memoryview):
        return is_locked(array.obj)
    return kept_copies.get(id(array)) is array or not _is_mutable(array)


def _is_mutable(value: Any) -> bool:
    try:
        return not memoryview(value).readonly
    except TypeError:
        return True  # of what does not say, the worst is assumed
