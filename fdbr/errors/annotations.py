"""Checks of arguments that follow from the annotations of a signature."""

import inspect
import numbers
import typing
from collections.abc import Callable, Iterable
from types import NoneType, UnionType
from typing import Any

from fdbr.errors.checks import describe

__all__ = ["checks_of"]


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool) or hasattr(value, "dtype")


def _is_integer(value: Any) -> bool:
    return (hasattr(value, "__index__") and not isinstance(value, bool)) or hasattr(value, "dtype")


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) or hasattr(value, "dtype")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


_KNOWN: dict[Any, tuple[Callable[[Any], bool], str]] = {
    bool: (_is_flag, "must be True or False, not"),
    int: (_is_integer, "must be an integer, got"),
    float: (_is_number, "must be a number, not"),
    str: (_is_text, "must be a string, not"),
    Callable: (callable, "must be a function, not"),
}


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
            optional = kinds[0] is not p.annotation
            found[p.name] = _check(f"{name}: {p.name}", *_KNOWN[kind], optional)
    return found


def _check(what: str, fits: Callable[[Any], bool], message: str, optional: bool) -> Any:
    def check(value: Any) -> None:
        if not (fits(value) or (optional and value is None)):
            raise TypeError(f"{what} {message} {describe(value)}")

    return check
