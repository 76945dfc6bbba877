"""Who may write to what a transformation keeps and hands out."""

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
    """A value that stays what it is now, for use in a backward pass.

    Arrays that somebody else can write to are copied; what the library made stays itself.  A
    traced value goes on with the copy, so that what is retained often is copied once.
    """
    if isinstance(value, Tracer):
        if value._trace.borrowed:
            value.value = retain_from(value._trace, value.value)
        return value
    return keep(value)


def retain_from(trace: Trace, value: Any) -> Any:
    """`retain`, for what a traced value of ``trace`` holds: its intermediates are private."""
    if isinstance(value, Tracer):
        return retain(value)
    return keep(value) if id(owner(value)) in trace.borrowed else value


def publish(trace: Trace, value: Any) -> Any:
    """Hand a value to the user: read-only, and a copy where it is the user's own memory."""
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
    """A value for a user's function: of an array that may be written to, a read-only view."""
    if type(value) is np.ndarray and value.flags.writeable:
        value = value.view()
        value.setflags(write=False)
    return value


def release(trace: Trace, value: Any) -> Any:
    """`publish` at the end of a run, for what a traced value of ``trace`` in its result holds."""
    return publish(trace, trace.admit(value))


def apart(found: Sequence[Any], given: Iterable[Any] = (), beside: Any = None) -> list[Any]:
    """The results of a user's function, with copies of the arrays that it may write to later.

    Whoever can write to an array holds a reference to it.  An array that ``found`` alone refers to
    is nobody's; so is one that the function was ``given``, and hands on.  ``beside`` is a tree of
    what else the function returned, which refers to its leaves, too.
    """
    handed = {id(value) for value in given}
    more = Counter(map(id, structure.leaves(beside)))
    if type(beside) is np.ndarray:  # no tree refers to it, but this frame and the caller's
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
