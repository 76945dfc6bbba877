"""The structures of trees as texts, by which ranks know whether theirs are the same."""

import functools
from collections.abc import Sequence
from typing import Any

from optree import PyTreeSpec

__all__ = ["LEAF", "shown_apart", "text_of"]

LEAF = "*"
"""The text of a tree that is one leaf."""

_SHORT = 160
"""Characters of a structure that a message shows of a longer one."""


def text_of(structure: PyTreeSpec) -> str:
    """The nodes of a tree, by their types and keys, which are the same in all processes.

    What is static in a node does not count: it may be the rank's own.

    >>> from fdbr import tree
    >>> text_of(tree.structure({"b": [1, None], "a": (2,)}))
    "{'a': (*,), 'b': [*, None]}"
    """
    if structure.is_leaf():
        return LEAF
    try:
        return _remembered(structure)
    except TypeError:  # a static field holds a value that cannot be hashed
        return _text(structure)


@functools.lru_cache(256)
def _remembered(structure: PyTreeSpec) -> str:
    return _text(structure)


def _text(structure: PyTreeSpec) -> str:
    kind: Any = structure.type
    if structure.is_leaf():
        return LEAF
    if kind is type(None):
        return "None"
    children = [_text(child) for child in structure.children()]
    if kind is tuple:
        return f"({', '.join(children)}{',' * (len(children) == 1)})"
    if kind is list:
        return f"[{', '.join(children)}]"
    keys = map(_key, structure.entries())
    if kind is dict:
        return "{" + ", ".join(f"{k}: {c}" for k, c in zip(keys, children, strict=True)) + "}"
    inside = ", ".join(f"{k}={c}" for k, c in zip(keys, children, strict=True))
    return f"{kind.__qualname__}({inside})"


def _key(key: Any) -> str:
    """A key: other objects than these show their addresses."""
    return repr(key) if isinstance(key, str | bytes | int | float | tuple) else type(key).__name__


def shown_apart(texts: Sequence[str]) -> list[str]:
    """The texts of different structures, where they are long about the place where they part."""
    if max(map(len, texts)) <= _SHORT:
        return list(texts)
    shortest = min(texts, key=len)
    same = next(
        (i for i in range(len(shortest)) if len({text[i] for text in texts}) > 1), len(shortest)
    )
    start = max(0, same - _SHORT // 2)
    return [
        f"{'…' * (start > 0)}{text[start : start + _SHORT]}{'…' * (len(text) > start + _SHORT)}"
        for text in texts
    ]
