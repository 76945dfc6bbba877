"""Flattening, mapping and rebuilding of trees; `fdbr.tree` is the public face."""

import functools
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import attrs
import numpy as np
import optree

from fdbr.pytrees.classes import NAMESPACE, in_buffer, own
from fdbr.pytrees.dtypes import dtype_kind
from fdbr.pytrees.flatten_cache import recall, remember
from fdbr.pytrees.short_repr import shortened

__all__ = [
    "Structure",
    "broadcast_prefix",
    "combine",
    "flatten",
    "flatten_up_to",
    "is_inexact",
    "leaf_types",
    "leaves",
    "map",
    "outside_buffers",
    "partition",
    "paths",
    "paths_of",
    "replace",
    "rows_of",
    "settle",
    "settling",
    "size",
    "structure",
    "trainable",
    "unflatten",
]

T = TypeVar("T")
Structure = optree.PyTreeSpec

_map = map

leaf_types: set[type] = {np.ndarray, np.float32, np.float64, float, int}
"""Types that are leaves and stay leaves, whatever classes are registered."""

settling: dict[str, Callable[[Any], None]] = {}
"""Functions that register a library's classes as nodes, by the name of the library."""


def settle() -> None:
    """Register the classes of the libraries that have been imported by now."""
    for name in settling:  # runs in every transformation, so it must be cheap
        if name in sys.modules:
            break
    else:
        return
    for name in [name for name in settling if name in sys.modules]:
        settling.pop(name)(sys.modules[name])


def flatten(tree: Any) -> tuple[list[Any], Structure]:
    """The leaves of a tree, in order, and its structure.

    >>> flatten({"a": 1, "b": (2, None)})[0]
    [1, 2]
    """
    if type(tree) is tuple and leaf_types.issuperset(_map(type, tree)):  # a usual case
        return list(tree), _tuple_of(len(tree))
    known = recall(tree)
    if known is not None:
        return list(known.leaves), known.structure
    if settling:
        settle()
    try:
        leaves, structure = optree.tree_flatten(tree, namespace=NAMESPACE)
    except RecursionError as error:
        raise ValueError(
            "fdbr.tree.flatten: the tree is nested too deep, or holds itself"
        ) from error
    remember(tree, leaves, structure)
    return leaves, structure


@functools.lru_cache(maxsize=64)
def _tuple_of(count: int) -> Structure:
    """The structure of a tuple of leaves."""
    of_leaves: Any = (0,) * count
    return optree.tree_structure(of_leaves, namespace=NAMESPACE)


def flatten_up_to(structure: Structure, tree: Any) -> list[Any]:
    """Flatten a tree as far as a structure goes; subtrees below its leaves stay whole.

    >>> flatten_up_to(structure((1, 2)), ([3, 4], None))
    [[3, 4], None]
    """
    known = recall(tree)
    if known is not None and known.structure is structure:
        return list(known.leaves)
    return structure.flatten_up_to(tree)


def unflatten(structure: Structure, leaves: Any) -> Any:
    """The tree of that structure and those leaves: the inverse of `flatten`.

    >>> values, shape = flatten([1, (2, 3)])
    >>> unflatten(shape, [v + 1 for v in values])
    [2, (3, 4)]
    """
    tree = optree.tree_unflatten(structure, leaves)
    remember(tree, leaves, structure)
    return tree


def leaves(tree: Any) -> list[Any]:
    """The leaves of a tree, in order.

    >>> leaves({"b": 2, "a": 1})
    [1, 2]
    """
    if settling:
        settle()
    return optree.tree_leaves(tree, namespace=NAMESPACE)


def structure(tree: Any) -> Structure:
    """The structure of a tree: what is left when its leaves are taken away.

    >>> structure((1, 2)) == structure((3, 4))
    True
    """
    if settling:
        settle()
    return optree.tree_structure(tree, namespace=NAMESPACE)


def paths(tree: Any) -> list[str]:
    """The path to each leaf, written as Python would.

    >>> paths({"layers": [1, 2]})
    ["['layers'][0]", "['layers'][1]"]
    """
    return paths_of(structure(tree))


def paths_of(structure: Structure) -> list[str]:
    """The paths of a structure's leaves; the path of a bare leaf is ``''``."""
    return [accessor.codify("").removeprefix(".") for accessor in structure.accessors()]


def map(f: Callable[..., Any], tree: Any, *rest: Any) -> Any:
    """Apply ``f`` to the corresponding leaves of one or more trees.

    The first tree gives the structure.  Where it holds `None`, the result holds `None`
    and ``f`` is not called, whatever the other trees hold there; where another tree
    holds `None` (or a subtree) at a leaf of the first, ``f`` is given that.

    Raises
    ------
    ValueError
        If another tree does not have the structure of the first; the message names
        the first path at which they differ.

    >>> map(lambda p, g: p if g is None else p - g, [3, 4], [1, None])
    [2, 4]
    """
    rows, shape = rows_of("map", tree, rest)
    return optree.tree_unflatten(shape, [None if row[0] is None else f(*row) for row in rows])


def rows_of(name: str, tree: Any, rest: Sequence[Any]) -> tuple[Any, Structure]:
    """Return the corresponding leaves of trees and the first's structure; `None` is a leaf."""
    if settling:
        settle()
    leaves, shape = optree.tree_flatten(tree, none_is_leaf=True, namespace=NAMESPACE)
    others = [_flatten_up_to(shape, t, f"{name}: tree {i}") for i, t in enumerate(rest, 2)]
    return zip(leaves, *others), shape  # noqa: B905 (flatten_up_to gives equal lengths)


def _flatten_up_to(shape: Structure, other: Any, which: str) -> list[Any]:
    try:
        return shape.flatten_up_to(other)
    except ValueError as error:
        theirs = optree.tree_structure(other, none_is_leaf=True, namespace=NAMESPACE)
        difference = _difference(shape, theirs, shape.accessors(), 0)
        raise ValueError(f"fdbr.tree.{which} does not fit tree 1: {difference}") from error


def _difference(ours: Structure, theirs: Structure, accessors: list[Any], depth: int) -> str:
    """Describe the first path at which two structures differ; ``''`` if they are equal."""
    if ours.is_leaf():
        return ""
    if ours.one_level() != theirs.one_level():
        path = accessors[0][:depth].codify("").removeprefix(".") if accessors else ""
        texts = shortened(_node_text(ours)), shortened(_node_text(theirs))
        return f"at {path or 'its root'} that has {texts[0]}, and this {texts[1]}"
    first = 0
    for mine, other in zip(ours.children(), theirs.children(), strict=True):
        end = first + mine.num_leaves
        if found := _difference(mine, other, accessors[first:end], depth + 1):
            return found
        first = end
    return ""


def _node_text(structure: Structure) -> str:
    """One node, with a star for each child."""
    if structure.is_leaf():
        return "a leaf"
    text = str(structure.one_level()).removeprefix("PyTreeSpec(").removesuffix(")")
    return text.removesuffix(f", namespace={NAMESPACE!r}").removesuffix(", NoneIsLeaf")


def partition(tree: Any, predicate: Callable[[Any], bool]) -> tuple[Any, Any]:
    """Split a tree in two of its own shape: the leaves that fulfil, and the others.

    Each leaf stands in one of them, `None` in the other; `combine` undoes it.

    >>> partition([1, 2.0], lambda leaf: isinstance(leaf, int))
    ([1, None], [None, 2.0])
    """
    values, shape = flatten(tree)
    chosen = [bool(predicate(value)) for value in values]
    yes = [v if c else None for v, c in zip(values, chosen, strict=True)]
    no = [None if c else v for v, c in zip(values, chosen, strict=True)]
    return unflatten(shape, yes), unflatten(shape, no)


def combine(tree: Any, /, *rest: Any) -> Any:
    """Put trees of one shape together: the first that is not `None` at each leaf.

    Raises
    ------
    ValueError
        If a tree does not have the structure of the first; the message names the first path
        at which they differ.

    >>> combine([1, None], [None, 2.0])
    [1, 2.0]
    """
    rows, shape = rows_of("combine", tree, rest)
    return optree.tree_unflatten(
        shape, [next((value for value in row if value is not None), None) for row in rows]
    )


def trainable(tree: Any) -> Any:
    """The tree with `None` for every leaf that transformations do not differentiate.

    Those are leaves of a dtype that is not floating (or complex), leaves that are no
    arrays or numbers, and leaves in a `buffer` field.

    >>> trainable({"steps": 3, "w": 0.5})
    {'steps': None, 'w': 0.5}
    """
    values, shape = flatten(tree)
    keep = _map(operator.and_, _map(is_inexact, values), outside_buffers(shape))
    return unflatten(shape, [v if k else None for v, k in zip(values, keep, strict=True)])


def is_inexact(leaf: Any) -> bool:
    """Whether a leaf is a floating or complex array or number."""
    try:
        dtype = leaf.dtype
        return dtype.kind in "fc" or dtype_kind(dtype) == "f"
    except (AttributeError, TypeError):  # TypeError if ``dtype`` is another thing
        return isinstance(leaf, float | complex)


def outside_buffers(structure: Structure) -> tuple[bool, ...]:
    """For each leaf of a structure, whether it lies outside every `buffer` field."""
    try:
        return _outside_buffers(structure)
    except TypeError:  # a static field holds a value that cannot be hashed
        return _outside_buffers.__wrapped__(structure)


@functools.lru_cache(maxsize=1024)
def _outside_buffers(structure: Structure) -> tuple[bool, ...]:
    return tuple(not any(_map(in_buffer, accessor)) for accessor in structure.accessors())


def replace(tree: T, changes: Mapping[str, Any] | None = None, /, **fields: Any) -> T:
    """A copy of a tree with some parts changed.

    Parameters
    ----------
    tree
        A frozen object for ``fields``; any tree for ``changes``.
    changes
        New leaves by path, as `paths` writes them.
    fields
        New values of the object's fields.

    Raises
    ------
    KeyError
        If a path or a field does not exist; the message lists those that do.

    >>> replace([1, [2, 3]], {"[1][0]": 20})
    [1, [20, 3]]
    """
    if fields:
        tree = _replace_fields(tree, fields)
    if not changes:
        return tree
    values, shape = flatten(tree)
    where = {path: position for position, path in enumerate(paths_of(shape))}
    for path, value in changes.items():
        if path not in where:
            raise KeyError(f"fdbr.tree.replace: no leaf at {path!r}; there are {sorted(where)}")
        values[where[path]] = value
    return unflatten(shape, values)


def _replace_fields(obj: Any, fields: dict[str, Any]) -> Any:
    kind = type(obj)
    if not attrs.has(kind):
        raise TypeError(
            f"fdbr.tree.replace: fields {sorted(fields)} of a {kind.__name__}, which is no frozen "
            "class; give a mapping of paths instead"
        )
    known = [f.name for f in attrs.fields(kind)]
    if unknown := sorted(set(fields) - set(known)):
        raise KeyError(f"fdbr.tree.replace: {kind.__name__} has no field {unknown}; it has {known}")
    made = kind.__new__(kind)
    for name in known:
        value = own(fields[name]) if name in fields else getattr(obj, name)
        object.__setattr__(made, name, value)
    return made


def broadcast_prefix(prefix: Any, tree: Any) -> list[Any]:
    """A value for each leaf of a tree, from a tree of values that is a prefix of it.

    `None` is a value here.

    >>> broadcast_prefix((0, None), (1, [2, 3]))
    [0, None, None]
    """
    options: Any = {"none_is_leaf": True, "namespace": NAMESPACE}
    spread = optree.broadcast_prefix(prefix, tree, **options)
    ends = optree.tree_leaves(tree, **options)
    return [value for value, leaf in zip(spread, ends, strict=True) if leaf is not None]


def size(tree: Any) -> int:
    """The number of elements in all leaves together; a number counts one.

    >>> import numpy as np
    >>> size({"w": np.zeros((3, 4)), "b": np.zeros(3), "scale": 1.0})
    16
    """
    return sum(int(getattr(leaf, "size", 1)) for leaf in leaves(tree))
