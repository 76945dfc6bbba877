"""Static fields of frozen classes as texts, by which two trees are told apart."""

import enum
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import numpy as np

from fdbr.pytrees.classes import fields_of

__all__ = ["static_fields"]


def static_fields(tree: Any) -> dict[str, str]:
    """The static fields below a tree: from their paths, as `tree.paths` writes them, to texts.

    Those whose value has no text that says what it is are left out.
    """
    found = {path.removeprefix("."): _text(value) for path, value in _below(tree, "")}
    return {path: text for path, text in found.items() if text is not None}


def _below(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    fields = fields_of(type(node))
    if fields is not None:
        data, fixed = fields
        yield from ((f"{path}.{name}", getattr(node, name)) for name in fixed)
        children = [(f"{path}.{name}", getattr(node, name)) for name in data]
    elif isinstance(node, Mapping):
        children = [(f"{path}[{key!r}]", value) for key, value in node.items()]
    elif isinstance(node, tuple) and hasattr(node, "_fields"):
        children = [(f"{path}.{name}", getattr(node, name)) for name in node._fields]
    elif isinstance(node, list | tuple):
        children = [(f"{path}[{i}]", value) for i, value in enumerate(node)]
    else:
        return
    for name, child in children:
        yield from _below(child, name)


def _text(value: Any) -> str | None:
    """A text that is the same for the same value in each process; `None` if there is none."""
    if value is None or isinstance(value, bool | int | float | complex | str | bytes | range):
        return repr(value)
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, np.dtype | np.generic):
        return str(value)
    if isinstance(value, tuple | list):
        return _joined(value, "({})" if isinstance(value, tuple) else "[{}]")
    if isinstance(value, frozenset | set):
        texts = [_text(part) for part in value]
        return None if None in texts else f"{{{', '.join(sorted(map(str, texts)))}}}"
    if isinstance(value, slice):
        return _joined((value.start, value.stop, value.step), "slice({})")
    if isinstance(value, functools.partial):
        return _joined((value.func, value.args, tuple(value.keywords.items())), "partial({})")
    if attrs.has(type(value)):
        own = [getattr(value, field.name) for field in attrs.fields(type(value))]
        return _joined(own, f"{type(value).__name__}({{}})")
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    return name if isinstance(name, str) else None


def _joined(parts: Any, form: str) -> str | None:
    texts = [_text(part) for part in parts]
    return None if None in texts else form.format(", ".join(map(str, texts)))
