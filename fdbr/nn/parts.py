"""The parts of models, and models in which some are replaced."""

from collections.abc import Callable
from typing import Any

from fdbr import tree
from fdbr.pytrees.classes import fields_of

__all__ = ["changed", "inside"]


def changed(value: Any, change: Callable[[str, Any], Any], path: str = "") -> Any:
    """Replace the parts of a tree for which ``change`` returns a value, outermost first."""
    new = change(path, value)
    if new is not None:
        return new
    fields = fields_of(type(value))
    if fields is not None:
        parts = {name: getattr(value, name) for name in fields[0]}
        found = {name: changed(part, change, inside(path, name)) for name, part in parts.items()}
        moved = {name: part for name, part in found.items() if part is not parts[name]}
        return tree.replace(value, **moved) if moved else value
    if isinstance(value, tuple | list):
        members = [changed(part, change, f"{path}[{i}]") for i, part in enumerate(value)]
        if all(one is other for one, other in zip(members, value, strict=True)):
            return value
        return type(value)(*members) if hasattr(value, "_fields") else type(value)(members)
    if isinstance(value, dict):
        return {k: changed(part, change, f"{path}[{k!r}]") for k, part in value.items()}
    return value


def inside(path: str, name: str) -> str:
    """Return the path of a field of the object at a path."""
    return f"{path}.{name}" if path else name
