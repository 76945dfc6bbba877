"""Arrays that the library has locked, and so knows to be constant."""

import weakref
from typing import Any

import numpy as np

__all__ = ["SMALL", "is_locked", "kept_copies", "lock", "locked_arrays", "owner", "record_locked"]

locked_arrays: dict[int, weakref.ref[Any]] = {}
"""The arrays that the library has locked, by identity.

A read-only array can still change: its owner may have made a writable view before, or may unlock it
again.  Arrays that the library made have no such views.  References to freed arrays stay until
`record_locked` drops them, because a weak-reference callback for each array would cost more than
the array's creation.  An entry that is lost to a race costs one copy.
"""

SMALL = 1 << 14
"""Bytes up to which an incoming array is copied: a copy takes as long as a record of it."""

_most_locked = 1 << 12
"""The length of `locked_arrays` at which entries of freed arrays are dropped."""


def record_locked(array: Any) -> None:
    """Record that the library has locked an array that it has just allocated."""
    global _most_locked
    locked_arrays[id(array)] = weakref.ref(array)
    if len(locked_arrays) > _most_locked:
        for key, reference in list(locked_arrays.items()):
            if reference() is None:
                locked_arrays.pop(key, None)
        _most_locked = max(1 << 12, 2 * len(locked_arrays))


kept_copies: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""Private copies of arrays whose type has no writeable flag, such as CuPy's."""


def lock(array: Any) -> Any:
    """Make an array that the library has just made read-only, and return it.

    CuPy arrays and scalars have no such flag and are returned unchanged.

    >>> import numpy as np
    >>> lock(np.zeros(2))[0] = 1.0
    Traceback (most recent call last):
        ...
    ValueError: assignment destination is read-only
    """
    # Types are compared, because `isinstance` holds for traced values too.
    if type(array) is np.ndarray or issubclass(type(array), np.ndarray):
        array.setflags(False)
        if array.base is not None:
            lock(array.base)
        else:
            record_locked(array)
    elif kept_copies:
        kept_copies.pop(id(array), None)  # the user gets it now
    return array


def owner(array: Any) -> Any:
    """Return the object that owns an array's memory: the end of its chain of bases."""
    while (base := getattr(array, "base", None)) is not None:
        array = base
    return array


_UNCHANGING = (np.generic, bytes)


def is_locked(array: Any) -> bool:
    """Whether an array's memory stays constant unless the caller unlocks it again."""
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
        return True  # an unknown type is assumed to be mutable
