"""The path of the layer that was being called when an error was raised.

Calls that succeed cost nothing.  When fdbr raises an error, it walks up the stack: a frame whose
first argument is a callable frozen object is a call of a model or of one of its layers.  The path
of a layer is found by a search for it in the model.
"""

import inspect
import itertools
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

from fdbr.pytrees.classes import fields_of

__all__ = ["layer_path", "placed", "whereabouts"]

_MARK = "\n  in model "


def placed(text: str) -> str:
    """Add the path of the layer that is being called to a message, if there is one."""
    if _MARK in text:
        return text
    where = whereabouts()
    return f"{text}{_MARK}{where}" if where else text


def whereabouts() -> str:
    """Return the path of the innermost layer being called, as ``Net.blocks[2].conv (Conv)``."""
    parts = _under_way(sys._getframe(1))
    if not parts:
        return ""
    path = type(parts[0]).__name__ + _path(parts)
    return path if len(parts) == 1 else f"{path} ({type(parts[-1]).__name__})"


def layer_path() -> str:
    """Return the path of the innermost layer being called in its model, as ``blocks[2].conv``."""
    return _path(_under_way(sys._getframe(1))).removeprefix(".")


def _path(parts: list[Any]) -> str:
    """Return the path from the first layer to the last; each contains the next one."""
    path = ""
    for whole, part in itertools.pairwise(parts):
        steps = next(_steps(whole, part), None)
        path += f" > {type(part).__name__}" if steps is None else steps
    return path


def _under_way(frame: FrameType | None) -> list[Any]:
    """Return the frozen objects that are being called, the outermost first."""
    parts: list[Any] = []
    while frame is not None:
        code = frame.f_code
        if code.co_argcount:
            given = _first_argument(frame)
            # A method of it runs, rather than a function that takes a model.
            method = hasattr(type(given), code.co_name)
            if method and _is_layer(given) and not (parts and parts[-1] is given):
                parts.append(given)
        frame = frame.f_back
    return parts[::-1]


def _first_argument(frame: FrameType) -> Any:
    """Return the first argument of the call that runs in a frame."""
    names = frame.f_locals
    given = names.get(frame.f_code.co_varnames[0])
    if type(names) is dict and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        # The frame keeps this copy of its variables, and an error's traceback keeps the frame.
        names.clear()
    return given


def _is_layer(value: Any) -> bool:
    """Whether a value is a layer or a model: of a class of `fdbr.nn` or of the user."""
    kind = type(value)
    if fields_of(kind) is None or not callable(value):
        return False
    return not kind.__module__.startswith("fdbr.") or kind.__module__.startswith("fdbr.nn.")


def _steps(whole: Any, part: Any) -> Iterator[str]:
    """Yield the paths from a tree to a part of it."""
    for step, member in _members(whole):
        if member is part:
            yield step
        else:
            for rest in _steps(member, part):
                yield step + rest


def _members(value: Any) -> Iterator[tuple[str, Any]]:
    fields = fields_of(type(value))
    if fields is not None:
        for name in (*fields[0], *fields[1]):
            yield f".{name}", getattr(value, name, None)
    elif isinstance(value, tuple | list):
        for i, member in enumerate(value):
            yield f"[{i}]", member
    elif isinstance(value, dict):
        for key, member in value.items():
            yield f"[{key!r}]", member
