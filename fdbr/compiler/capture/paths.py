"""Generation of expressions that reach the parts of a tree.

The arguments of every call are read by code generated for their tree structure, because a generic
walk over the tree would take longer than the rest of the call.
"""

import collections
import weakref
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import numpy as np
import optree

from fdbr.pytrees.classes import NAMESPACE, fields_of

__all__ = ["Scope", "children", "details", "exact", "held_weakly", "is_leaf", "one_level"]

_INDEXED = (tuple, list, dict, collections.OrderedDict, collections.defaultdict)


class Scope(dict[str, Any]):
    """The global names of generated source, with their values."""

    def name(self, value: Any) -> str:
        """Return a name for a value."""
        name = f"_{id(value):x}"
        self[name] = value
        return name

    def text(self, value: Any) -> str:
        """Return an expression that equals a value."""
        return repr(value) if type(value) in (int, str) else self.name(value)


def is_leaf(value: Any) -> bool:
    """Return whether a value is a leaf of a tree; `None` is a node without children."""
    return optree.tree_is_leaf(value, namespace=NAMESPACE)


def one_level(node: Any) -> Any:
    """Return a node's children, its auxiliary data, its entries, and the function to rebuild it."""
    return optree.tree_flatten_one_level(node, namespace=NAMESPACE)


def children(node: Any, at: str, scope: Scope) -> list[tuple[str, Any]]:
    """Return the children of a node, each with an expression; ``at`` is the node's expression."""
    found, _, entries, _ = one_level(node)
    kind = type(node)
    if (fields := fields_of(kind)) is not None:
        paths = [f"{at}.{name}" for name in fields[0]]
    elif kind in _INDEXED or (issubclass(kind, tuple) and hasattr(kind, "_fields")):
        paths = [f"{at}[{scope.text(entry)}]" for entry in entries]
    else:
        scope["one_level"] = one_level
        paths = [f"one_level({at})[0][{i}]" for i in range(len(found))]
    return list(zip(paths, found, strict=True))


def details(node: Any, at: str, scope: Scope) -> Iterator[str]:
    """Yield expressions for the properties of a tree that optree does not compare.

    optree ignores the order of dicts, and the types of equal static values such as 1, 1.0 and
    ``True``.  A function can tell them apart.
    """
    if node is None or is_leaf(node):
        return
    kind = type(node)
    scope["exact"] = exact
    if (fields := fields_of(kind)) is not None:
        yield from (f"exact({at}.{name})" for name in fields[1])
    elif issubclass(kind, dict):
        yield f"exact(tuple({at}))"
    elif kind not in _INDEXED:
        scope["one_level"] = one_level
        yield f"exact(one_level({at})[1])"
    for path, child in children(node, at, scope):
        yield from details(child, path, scope)


def exact(value: Any) -> Any:
    """Return a key that equals another value's only if both have the same value and type."""
    kind = type(value)
    if issubclass(kind, float | complex | np.generic):
        return kind, repr(value)  # distinguishes -0.0 from 0.0, and equates NaN with NaN
    if issubclass(kind, tuple):
        return kind, tuple(map(exact, value))
    if issubclass(kind, frozenset):
        return kind, frozenset(map(exact, value))
    if kind is slice:  # slices are hashable only since Python 3.12
        return kind, exact((value.start, value.stop, value.step))
    return kind, held_weakly(value) or value


def held_weakly(value: Any) -> Any:
    """Return a weak reference to an object that equals only itself; `None` for other values.

    Caches must not keep such an object alive, for example the instance of a jitted method.
    """
    kind = type(value)
    if kind.__eq__ is not object.__eq__ or kind.__hash__ is not object.__hash__:
        return None
    if issubclass(kind, type | FunctionType) or not kind.__weakrefoffset__:
        return None
    return weakref.ref(value)
