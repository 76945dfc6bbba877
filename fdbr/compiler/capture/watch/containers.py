"""Containers that functions can read, and their items."""

import collections
from collections.abc import Collection
from types import MappingProxyType
from typing import Any

import numpy as np

from fdbr.compiler.capture.watch.captured_inputs import Key, items_of
from fdbr.compiler.capture.watch.namespaces import MISSING
from fdbr.core.array_modules import is_a
from fdbr.core.tracer import Tracer

__all__ = ["CONTAINERS", "UNCHANGING", "is_end", "parts_of"]

CONTAINERS = (dict, list, set, collections.deque, MappingProxyType)
"""The classes of mutable containers."""

UNCHANGING = (tuple, frozenset)
"""The classes of immutable containers, whose items may be mutable."""

_ENDS = frozenset({bool, int, float, complex, str, bytes, type(None)})


def is_end(value: Any) -> bool:
    """Return whether a value contains nothing to watch; subclasses may have attributes."""
    kind = type(value)
    return kind in _ENDS or (is_a(value, Tracer | np.generic | np.dtype) and kind is not np.void)


def parts_of(container: Any, inputs: Collection[Key] = ()) -> list[Any]:
    """Return the items of a container by its builtin class's methods, not by overridden ones.

    Items that are inputs of the program are replaced by `MISSING`.
    """
    found = _parts(container)
    if inputs:
        for position, (name, _) in enumerate(items_of(container, found)):
            if (id(container), name) in inputs:
                found[position + (len(found) // 2 if is_a(container, dict) else 0)] = MISSING
    return found


def _parts(container: Any) -> list[Any]:
    if is_a(container, collections.OrderedDict):
        order = collections.OrderedDict
        return [*order.keys(container), *order.values(container)]
    if is_a(container, dict):
        return [*dict.keys(container), *dict.values(container)]
    if is_a(container, list):
        return list(list.__iter__(container))
    if is_a(container, set):
        return list(set.__iter__(container))
    if is_a(container, collections.deque):
        return list(collections.deque.__iter__(container))
    if is_a(container, MappingProxyType):
        return [*container, *container.values()]
    if is_a(container, np.ndarray):
        found: list[Any] = container.ravel().tolist()  # of objects
        return found
    return list(container)
