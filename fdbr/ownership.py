"""Who may write to what a transformation keeps and hands out."""

from typing import Any

import numpy as np

from fdbr.backend import keep, lock, owner, protect
from fdbr.core import Trace, Tracer

__all__ = ["publish", "release", "retain", "retain_from"]

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


def release(trace: Trace, value: Any) -> Any:
    """`publish` at the end of a run, for what a traced value of ``trace`` in its result holds."""
    return publish(trace, trace.admit(value))
