"""Ownership of arrays: which ones a transformation must copy, and which it returns read-only."""

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fdbr.core.array_modules import keep, lock, owner, protect
from fdbr.core.tracer import Trace, Tracer
from fdbr.pytrees import structure
from fdbr.pytrees.locking import record_locked

__all__ = ["apart", "publish", "release", "retain", "retain_from", "unwritable"]

_IMMUTABLE = frozenset({float, complex, np.float64, np.float32, np.bool_})


def retain(value: Any) -> Any:
    """Return a value that cannot change before the backward pass uses it.

    An array that the caller can write to is copied; arrays that the library made are not.  A traced
    value holds the copy from then on, so a value that is retained often is copied once.
    """
    if isinstance(value, Tracer):
        if value._trace.borrowed:
            value.value = retain_from(value._trace, value.value)
        return value
    return keep(value)


def retain_from(trace: Trace, value: Any) -> Any:
    """Apply `retain` to what a traced value of ``trace`` holds, whose intermediates are private."""
    if isinstance(value, Tracer):
        return retain(value)
    return keep(value) if id(owner(value)) in trace.borrowed else value


def publish(trace: Trace, value: Any) -> Any:
    """Return a value read-only to the user, and copied if it is the user's own memory."""
    kind = type(value)
    if kind is np.ndarray and value.base is None and not trace.borrowed:  # the usual case
        value.setflags(False)
        record_locked(value)
        return value
    if kind in _IMMUTABLE:
        return value
    if kind is tuple:
        return tuple(publish(trace, part) for part in value)
    if isinstance(value, Tracer):
        return value
    if trace.borrowed and id(owner(value)) in trace.borrowed:
        return protect(value)
    return lock(value)


def unwritable(value: Any) -> Any:
    """Return a read-only view of a writable array, as the argument of a user's function."""
    if type(value) is np.ndarray and value.flags.writeable:
        value = value.view()
        value.setflags(write=False)
    return value


def release(trace: Trace, value: Any) -> Any:
    """Apply `publish` to a result of the traced function; refuse one of another trace."""
    return publish(trace, trace.admit(value))


def apart(found: Sequence[Any], given: Iterable[Any] = (), beside: Any = None) -> list[Any]:
    """Return the results of a user's function, with copies of the arrays it could write to later.

    A function can write to an array later only if it keeps a reference, so an array that only
    ``found`` refers to needs no copy.  An array that the function was ``given`` and returns needs
    none either.  ``beside`` is a tree of the function's other results, which refers to its leaves
    too.
    """
    handed = {id(value) for value in given}
    more = Counter(map(id, structure.leaves(beside)))
    if type(beside) is np.ndarray:  # this frame and the caller's refer to it, but no tree
        more[id(beside)] += 1
    counts = _references(found)
    return [
        protect(value)
        if type(value) is np.ndarray
        and value.flags.writeable
        and (value.base is not None or count > _ALONE + more[id(value)])
        and id(value) not in handed
        else value
        for value, count in zip(found, counts, strict=True)
    ]


def _references(found: Sequence[Any]) -> list[int]:
    return [sys.getrefcount(value) for value in found]


_ALONE = _references([np.empty(0)])[0]
