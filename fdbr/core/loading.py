"""Implementations of operations, which are loaded when the first operation is applied to arrays.

A back end announces the module that registers its implementations.  Until then,
operations on NumPy's arrays have placeholders, which load the module.  Its implementations are
installed together when the module is complete, so no thread runs a half-defined implementation.
"""

import atexit
import concurrent.futures.thread  # noqa: F401  # see `_complete`
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr.errors.names import import_late

__all__ = ["announce", "at_exit", "finish", "first_use", "load", "load_compiler", "when_loaded"]

np.zeros(1).sum()  # NumPy imports a module at the first sum, and none can be imported at exit

_announced: dict[Any, str] = {}  # by array module, until the implementations are installed
_compilers: dict[Any, str] = {}
_begun: set[Any] = set()
_waiting: dict[Any, list[Callable[[], None]]] = {}
_placeholders: list["_Placeholder"] = []
_lock = threading.Lock()  # is never held while something is imported


at_exit: list[Callable[[], None]] = []
"""Actions at exit of modules that load late, perhaps at exit, when `atexit` takes no handlers."""


@atexit.register
def _leave() -> None:
    for action in at_exit:
        action()


class _Placeholder:
    """The implementation of an operation, or a routine, until the real ones are loaded."""

    __slots__ = ("definition", "target")

    def __init__(self, target: Any, definition: Callable[..., Any]) -> None:
        self.target = target
        self.definition = definition

    def __call__(self, *args: Any, **params: Any) -> Any:
        load(np)
        found = self.target.host
        if found is self:  # an operation of a module that is being loaded
            found = self.definition
        return found(*args, **params)


def announce(module: Any, operations: str, compiler: str = "") -> None:
    """State which modules register the implementations, and the compiler, of an array module."""
    _announced[module] = operations
    if compiler:
        _compilers[module] = compiler


def first_use(target: Any, definition: Callable[..., Any]) -> Callable[..., Any]:
    """Return what applies an operation to NumPy's arrays before an implementation is registered."""
    if np not in _announced:
        return definition
    placeholder = _Placeholder(target, definition)
    _placeholders.append(placeholder)
    return placeholder


def when_loaded(module: Any, action: Callable[[], None]) -> None:
    """Register an implementation: as soon as all of the module's are loaded."""
    with _lock:
        if module in _announced:
            _waiting.setdefault(module, []).append(action)
            return
    action()


def load(module: Any) -> None:
    """Load the implementations for arrays of a module, unless they are loaded."""
    name = _announced.get(module)
    if name is not None and not sys.is_finalizing():  # nothing can be imported at the very end
        _begun.add(module)
        import_late(name)


def load_compiler(module: Any) -> None:
    """Load the compiler of programs on arrays of a module."""
    if module in _compilers and not sys.is_finalizing():
        import_late(_compilers[module])


def finish(module: Any) -> None:
    """Install the implementations; the announced module calls this at its end."""
    with _lock:
        _announced.pop(module, None)
        actions = _waiting.pop(module, [])
    for action in actions:
        action()
    if module is np:
        for placeholder in _placeholders:
            if placeholder.target.host is placeholder:
                placeholder.target.host = placeholder.definition
        _placeholders.clear()


def _complete() -> None:
    """Before a fork, which stops other threads halfway, wait until they have loaded everything.

    The threads need the locks that `logging` and `concurrent.futures` hold during a fork.  Python
    calls the hook that was registered last first, so these modules are imported before.
    """
    for module in list(_begun):
        load(module)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_complete)
