"""Values in states by their names."""

from collections.abc import Iterator
from typing import Any

import optree

from fdbr.errors.public import public
from fdbr.pytrees.classes import NAMESPACE

__all__ = ["named_parts", "tree_get", "tree_set"]

_MISSING: Any = object()
_DEEPEST = 100


@public("fdbr.train.optim")
def tree_get(state: Any, key: str, default: Any = _MISSING) -> Any:
    """The value of a field or a key of a dict, somewhere in a state.

    Parameters
    ----------
    state
        A tree, such as the state of an optimizer.
    key
        The name of a field of a frozen class or named tuple, or a key of a dict.
    default
        What is returned if there is none; without it that is an error.

    Returns
    -------
    object

    Raises
    ------
    KeyError
        If there is no such field, or more than one.
    ValueError
        If the state is nested too deep.

    >>> from fdbr.train import optim
    >>> state = optim.adam(0.1).init({"w": 0.0})
    >>> optim.tree_get(state, "mu"), optim.tree_get(state, "learning_rate", None)
    ({'w': 0.0}, None)
    """
    found = [value for name, value in named_parts(state) if name == key]
    if not found and default is not _MISSING:
        return default
    if len(found) != 1:
        names = sorted({str(name) for name, _ in named_parts(state)})
        raise KeyError(
            f"fdbr.train.optim.tree_get: {len(found)} fields are named {key!r}; there are {names}"
        )
    return found[0]


@public("fdbr.train.optim")
def tree_set(state: Any, /, **values: Any) -> Any:
    """A state in which fields, or keys of dicts, have other values, wherever they stand.

    Parameters
    ----------
    state
        A tree, such as the state of an optimizer.
    values
        The new values, by the names of fields and keys.

    Returns
    -------
    tree
        Of the same structure.

    Raises
    ------
    KeyError
        If there is no such field.
    ValueError
        If the state is nested too deep.

    >>> from fdbr.train import optim
    >>> state = optim.inject_hyperparams(optim.sgd)(0.5).init(1.0)
    >>> optim.tree_get(optim.tree_set(state, learning_rate=0.25), "learning_rate")
    0.25
    """
    names = {name for name, _ in named_parts(state)}
    for key in values:
        if key not in names:
            raise KeyError(
                f"fdbr.train.optim.tree_set: no field is named {key!r}; there are "
                f"{sorted(map(str, names))}"
            )
    return _changed(state, values)


def _changed(node: Any, values: dict[str, Any]) -> Any:
    if _is_leaf(node):
        return node
    children, meta, entries, unflatten = optree.tree_flatten_one_level(
        node, none_is_leaf=True, namespace=NAMESPACE
    )
    return unflatten(
        meta,
        tuple(
            values[entry] if isinstance(entry, str) and entry in values else _changed(child, values)
            for entry, child in zip(_names(node, entries), children, strict=True)
        ),
    )


def named_parts(node: Any) -> Iterator[tuple[Any, Any]]:
    """The names of fields and keys in a tree, and what they hold, from the outside in."""
    waiting = [(node, 0)]
    while waiting:
        node, depth = waiting.pop()
        if _is_leaf(node):
            continue
        if depth > _DEEPEST:
            raise ValueError("the state is nested too deep, or holds itself")
        children, _, entries, _ = optree.tree_flatten_one_level(
            node, none_is_leaf=True, namespace=NAMESPACE
        )
        for name, child in zip(_names(node, entries), children, strict=True):
            if isinstance(name, str):
                yield name, child
            waiting.append((child, depth + 1))


def _names(node: Any, entries: Any) -> Any:
    return getattr(node, "_fields", entries)


def _is_leaf(node: Any) -> bool:
    return node is None or optree.tree_is_leaf(node, none_is_leaf=True, namespace=NAMESPACE)
