"""Trees of frozen classes whose leaves are known, because they were flattened or made here before.

Every step of training flattens its parameters several times, and gradients and updates which it
made itself.  A tree of nothing but frozen classes and tuples cannot change, so its leaves and its
structure are kept for as long as it lives.
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
_judged: dict[int, tuple[optree.PyTreeSpec, bool]] = {}
"""Structures by their identities, and whether nothing in them can be assigned to."""


def recall(tree: Any) -> Any:
    """The remembered tree with these ``leaves``, a tuple, and ``structure``; or `None`."""
    known = _known.get(id(tree))
    return known if known is not None and known() is tree else None


def remember(tree: Any, leaves: Sequence[Any], structure: optree.PyTreeSpec) -> None:
    """Keep the leaves and the structure of a tree, if it is one that cannot change."""
    if fields_of(type(tree)) is None or not _plain.issuperset(map(type, leaves)):
        return
    if not _is_frozen(structure):
        return
    try:
        known = _Known(tree, _forget)
    except TypeError:  # a class without a place for weak references
        return
    known.key = id(tree)
    known.leaves = tuple(leaves)
    known.structure = structure
    _known[known.key] = known


def forget(tree: Any) -> None:
    """Know nothing of a tree any more."""
    _known.pop(id(tree), None)


def _forget(known: _Known, table: dict[int, _Known] = _known) -> None:
    if table.get(known.key) is known:
        del table[known.key]


def _is_frozen(structure: optree.PyTreeSpec) -> bool:
    found = _judged.get(id(structure))
    if found is None or found[0] is not structure:
        if len(_judged) >= _LIMIT:
            _judged.clear()
        found = _judged[id(structure)] = structure, _consists_of_frozen(structure)
    return found[1]


def _consists_of_frozen(structure: optree.PyTreeSpec) -> bool:
    kind: Any = structure.type  # that of a leaf is None
    if kind in (None, tuple, type(None)) or fields_of(kind) is not None:
        return all(map(_consists_of_frozen, structure.children()))
    return False
