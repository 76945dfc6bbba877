"""A cache of the leaves and structures of frozen trees, by the identity of the tree.

A training step flattens its parameters several times, and then its gradients and updates.  A tree
that consists of frozen classes and tuples cannot change, so the cache keeps its leaves and its
structure until the tree is freed.
"""

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import optree

from fdbr.pytrees.classes import fields_of

__all__ = ["forget", "recall", "remember"]

_plain = frozenset({np.ndarray, np.float32, np.float64, int, float})
"""Types that are leaves and stay leaves, whatever classes are registered."""

_LIMIT = 1024


class _Known(weakref.ref):
    __slots__ = ("key", "leaves", "structure")

    key: int
    leaves: tuple[Any, ...]
    structure: optree.PyTreeSpec


_known: dict[int, _Known] = {}
_frozen_structures: dict[int, tuple[optree.PyTreeSpec, bool]] = {}
"""Structures by identity, and whether they consist of frozen classes and tuples alone."""


def recall(tree: Any) -> Any:
    """Return the cache entry of a tree, with its ``leaves`` and ``structure``; `None` if absent."""
    known = _known.get(id(tree))
    return known if known is not None and known() is tree else None


def remember(tree: Any, leaves: Sequence[Any], structure: optree.PyTreeSpec) -> None:
    """Cache the leaves and the structure of a tree, if the tree cannot change."""
    if fields_of(type(tree)) is None or not _plain.issuperset(map(type, leaves)):
        return
    if not _is_frozen(structure):
        return
    try:
        known = _Known(tree, _forget)
    except TypeError:  # the class has no __weakref__ slot
        return
    known.key = id(tree)
    known.leaves = tuple(leaves)
    known.structure = structure
    _known[known.key] = known


def forget(tree: Any) -> None:
    """Drop the cache entry of a tree."""
    _known.pop(id(tree), None)


def _forget(known: _Known, table: dict[int, _Known] = _known) -> None:
    if table.get(known.key) is known:
        del table[known.key]


def _is_frozen(structure: optree.PyTreeSpec) -> bool:
    found = _frozen_structures.get(id(structure))
    if found is None or found[0] is not structure:
        if len(_frozen_structures) >= _LIMIT:
            _frozen_structures.clear()
        found = _frozen_structures[id(structure)] = structure, _consists_of_frozen(structure)
    return found[1]


def _consists_of_frozen(structure: optree.PyTreeSpec) -> bool:
    kind: Any = structure.type  # `None` for a leaf
    if kind in (None, tuple, type(None)) or fields_of(kind) is not None:
        return all(map(_consists_of_frozen, structure.children()))
    return False
