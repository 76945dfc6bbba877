"""Trees in source: expressions that reach the parts of a tree.

What is done with the arguments of every call is made from source for their structure, for walking
over a tree takes longer than most of what is done there.
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
    """The names that source refers to, and what they stand for."""

    def name(self, value: Any) -> str:
        """A name for a value."""
        name = f"_{id(value):x}"
        self[name] = value
        return name

    def text(self, value: Any) -> str:
        """An expression for a value that equals it."""
        return repr(value) if type(value) in (int, str) else self.name(value)


def is_leaf(value: Any) -> bool:
    """Whether a value is a leaf of a tree; `None` is none."""
    return optree.tree_is_leaf(value, namespace=NAMESPACE)


def one_level(node: Any) -> Any:
    """The children of a node, what else it is made of, their entries, and what makes it again."""
    return optree.tree_flatten_one_level(node, namespace=NAMESPACE)


def children(node: Any, at: str, scope: Scope) -> list[tuple[str, Any]]:
    """The children of a node in order, each with an expression; ``at`` is that of the node."""
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
    """Expressions for what a tree's structure is beyond what `optree` compares.

    To it, dicts are the same in whatever order, and static values if they are equal, as 1, 1.0
    and ``True`` are.  A function may tell them apart.
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
    """A key that equals another value's only if both are the same in value and type."""
    kind = type(value)
    if issubclass(kind, float | complex | np.generic):
        return kind, repr(value)  # -0.0 is not 0.0, and NaN is NaN
    if issubclass(kind, tuple):
        return kind, tuple(map(exact, value))
    if issubclass(kind, frozenset):
        return kind, frozenset(map(exact, value))
    if kind is slice:  # slices have had a hash since Python 3.12 only
        return kind, exact((value.start, value.stop, value.step))
    return kind, held_weakly(value) or value


def held_weakly(value: Any) -> Any:
    """A weak reference to an object that equals none but itself; `None` for others.

    Nothing that is remembered of calls keeps such an object, as that of a jitted method.
    """
    kind = type(value)
    if kind.__eq__ is not object.__eq__ or kind.__hash__ is not object.__hash__:
        return None
    if issubclass(kind, type | FunctionType) or not kind.__weakrefoffset__:
        return None
    return weakref.ref(value)
