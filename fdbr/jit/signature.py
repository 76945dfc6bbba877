"""Arguments taken apart, and their kinds: what a recording is looked up by."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import optree

from fdbr import tree
from fdbr.classes import NAMESPACE
from fdbr.core import Tracer

__all__ = ["Static", "is_moving", "nodes", "paths", "put_together", "sign", "taken_apart"]

_numbers = frozenset({int, float, complex})
_plain = frozenset({int, float, complex, np.ndarray})


def taken_apart(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], Any]:
    """The leaves of arguments, and their structure.

    Where all are positional, and arrays or numbers, their number is the structure: that is
    quickly told.
    """
    if not kwargs:
        for arg in args:
            if type(arg) not in _plain and not isinstance(arg, Tracer):
                break
        else:
            return list(args), len(args)
    return tree.flatten((args, kwargs))


def put_together(structure: Any, leaves: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of that structure and those leaves: the inverse of `taken_apart`."""
    return (tuple(leaves), {}) if type(structure) is int else tree.unflatten(structure, leaves)


def paths(structure: Any) -> list[str]:
    """How one reaches each leaf of arguments, for messages."""
    if type(structure) is int:
        return [f"[0][{i}]" for i in range(structure)]
    return tree.paths_of(structure)


def nodes(values: Any) -> Iterator[Any]:
    """The nodes of a tree."""
    if not optree.tree_is_leaf(values, namespace=NAMESPACE):
        yield values
        for child in optree.tree_flatten_one_level(values, namespace=NAMESPACE)[0]:
            yield from nodes(child)


class Static:
    """A leaf that is neither array nor number: it counts by its type and value."""

    __slots__ = ("_key", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        # Slices have had a hash since Python 3.12 only.
        self._key = (value.start, value.stop, value.step) if type(value) is slice else value

    def __hash__(self) -> int:
        return hash((type(self.value), self._key))

    def __eq__(self, other: object) -> bool:
        if type(other) is not Static or type(other.value) is not type(self.value):
            return False
        return other.value is self.value or bool(other._key == self._key)


def sign(structure: Any, leaves: Sequence[Any]) -> tuple[tuple[Any, ...], bool]:
    """The signature of arguments, and whether there are traced values among them."""
    signature: list[Any] = [structure]
    traced = False
    for leaf in leaves:
        kind = type(leaf)
        if kind is np.ndarray:
            signature += (leaf.shape, leaf.dtype)
        elif kind in _numbers:
            signature.append(kind)
        elif isinstance(leaf, Tracer):
            traced = True
        elif is_array(leaf):
            signature.append((kind, leaf.shape, leaf.dtype))
        else:
            signature.append(Static(leaf))
    return tuple(signature), traced


def is_array(leaf: Any) -> bool:
    """Whether a leaf is an array, or an array's scalar, of whatever module."""
    return hasattr(leaf, "dtype") and hasattr(leaf, "shape") and not isinstance(leaf, type)


def is_moving(leaf: Any) -> bool:
    """Whether a leaf may differ from call to call, as arrays and numbers may."""
    return type(leaf) in _numbers or isinstance(leaf, Tracer) or is_array(leaf)
