"""The text of a model as a tree: its layers, arrays and numbers of parameters."""

from collections.abc import Iterator
from typing import Any

from fdbr import tree
from fdbr.errors.checks import describe, name_of
from fdbr.pytrees.classes import fields_of

__all__ = ["drawn"]


def drawn(model: Any) -> str:
    """Return the tree of a model, with a line for each layer and each array."""
    return "\n".join(_lines("", model, 0))


def _lines(name: str, value: Any, depth: int) -> Iterator[str]:
    head = "  " * depth + (f"{name}: " if name else "")
    fields = fields_of(type(value))
    if fields is None:
        if value is not None:
            yield head + (describe(value) if hasattr(value, "shape") else _setting(value))
        return
    data, fixed = fields
    settings = [f"{field}={_setting(getattr(value, field))}" for field in fixed]
    title = f"{type(value).__name__}({', '.join(settings)})" if settings else type(value).__name__
    yield head + title + _count(value)
    for field in data:
        for step, part in _apart(field, getattr(value, field)):
            yield from _lines(step, part, depth + 1)


def _apart(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield a field, or the members of its containers, with their names."""
    if isinstance(value, tuple | list):
        for i, part in enumerate(value):
            yield from _apart(f"{name}[{i}]", part)
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from _apart(f"{name}[{key!r}]", part)
    else:
        yield name, value


def _setting(value: Any) -> str:
    return name_of(value) if callable(value) else repr(value)


def _count(value: Any) -> str:
    """Describe how many numbers below a node are trained, and how many are in buffers."""
    trained = tree.size(tree.trainable(value))
    others = tree.size(value) - trained
    counts = [f"{trained:,} parameters"] * bool(trained) + [f"{others:,} in buffers"] * bool(others)
    return f"  [{', '.join(counts)}]" if counts else ""
