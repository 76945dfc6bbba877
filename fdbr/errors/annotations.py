"""Checks of arguments that follow from the annotations of a signature."""

import inspect
import numbers
import typing
from collections.abc import Callable, Iterable
from types import NoneType, UnionType
from typing import Any

from fdbr.errors.checks import describe

__all__ = ["checks_of"]


_KNOWN: dict[Any, tuple[Callable[[Any], bool], str]] = {
    bool: (lambda value: isinstance(value, bool), "must be True or False, not"),
    int: (
        lambda value: hasattr(value, "__index__") and not isinstance(value, bool),
        "must be an integer, got",
    ),
    float: (lambda value: isinstance(value, numbers.Real), "must be a number, not"),
    str: (lambda value: isinstance(value, str), "must be a string, not"),
    Callable: (callable, "must be a function, not"),
}
_ARRAYS = (bool, int, float)  # for which arrays may be given


def checks_of(parameters: Iterable[inspect.Parameter], name: str) -> dict[str, Any]:
    """Return a function that checks the argument for each parameter of one known type.

    The types are `bool`, `int`, `float`, `str` and functions, each with or without `None`.
    """
    found = {}
    for p in parameters:
        kinds: Any = [p.annotation]
        if typing.get_origin(p.annotation) in (UnionType, typing.Union):
            kinds = [kind for kind in typing.get_args(p.annotation) if kind is not NoneType]
        kind = typing.get_origin(kinds[0]) or kinds[0]
        if len(kinds) == 1 and kind in _KNOWN and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            fits, message = _KNOWN[kind]
            optional = kinds[0] is not p.annotation
            found[p.name] = _check(f"{name}: {p.name} {message}", fits, kind in _ARRAYS, optional)
    return found


def _check(message: str, fits: Callable[[Any], bool], arrays: bool, optional: bool) -> Any:
    def check(value: Any) -> None:
        if fits(value) or (arrays and hasattr(value, "dtype")) or (optional and value is None):
            return
        raise TypeError(f"{message} {describe(value)}")

    return check
