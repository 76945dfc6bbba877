"""Namespaces, in which variables and attributes are looked up by name, as in a mapping."""

import abc
import threading
import weakref
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from types import MemberDescriptorType
from typing import Any

from fdbr.core.array_modules import is_a

__all__ = ["MISSING", "REGISTRATIONS", "Slots", "Space", "asked", "dict_of", "slots_of"]


class _Missing:
    def __repr__(self) -> str:
        return "nothing"


MISSING: Any = _Missing()
"""The mark of a variable that is not bound."""


class Slots:
    """The attributes of an object that do not lie in its dictionary.

    It does not keep the object, if there are weak references to such objects.
    """

    def __init__(self, value: Any, members: Mapping[str, Any]) -> None:
        self._members = members
        try:
            self._value = weakref.ref(value)
        except TypeError:
            self._value = lambda: value  # type: ignore[assignment]

        self.identity = id(value)

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def put(self, name: str, value: Any) -> None:
        """Bind an attribute anew."""
        owner = self._value()
        if owner is not None:
            self._members[name].__set__(owner, value)

    def get(self, name: str, default: Any = None) -> Any:
        """The value of an attribute."""
        value = self._value()
        try:
            return default if value is None else self._members[name].__get__(value)
        except AttributeError:
            return default


def slots_of(value: Any) -> Slots | None:
    """The slots of an object; `None` if it has none."""
    members: dict[str, Any] = {}
    for cls in type(value).__mro__:
        # Classes in C show numbers of theirs in this way, as new objects each time.
        for name, part in vars(cls).items() if "__slots__" in vars(cls) else ():
            if type(part) is MemberDescriptorType:
                members.setdefault(name, part)
    return Slots(value, members) if members else None


def dict_of(value: Any) -> dict[str, Any] | None:
    """The attributes of an object itself; `None` if it has none, whatever its class answers."""
    try:
        found = object.__getattribute__(value, "__dict__")
    except Exception:  # a property of that name, which is the user's
        return None
    return found if is_a(found, dict) else None


class _Local:
    """The attributes that a thread sees of what each has its own of."""

    def __init__(self, value: threading.local) -> None:
        self._value = value

    def get(self, name: str, default: Any = None) -> Any:
        """The value of an attribute; not that of its class, whose methods are bound anew."""
        return vars(self._value).get(name, default)


class _Context:
    """The value of a context variable."""

    def __init__(self, variable: "ContextVar[Any]") -> None:
        self._variable = variable

    def get(self, name: str, default: Any = None) -> Any:
        """That value."""
        return self._variable.get(default)


class _Referent:
    """Whether what a weak reference refers to is there."""

    def __init__(self, reference: "weakref.ref[Any]") -> None:
        self._reference = reference

    def get(self, name: str, default: Any = None) -> Any:
        """That."""
        return self._reference() is not None


class _Registrations:
    """The registrations of abstract classes, in a number that changes with them."""

    def __init__(self) -> None:
        self._known: Any = None

    def get(self, name: str, default: Any = None) -> Any:
        """That number: the same object, as long as it is the same."""
        token = abc.get_cache_token()
        if token != self._known:
            self._known = token
        return self._known


REGISTRATIONS = _Registrations()

Space = Mapping[str, Any] | Slots | _Local | _Context | _Referent | _Registrations


def asked(value: Any) -> tuple[Space, list[str]] | None:
    """For an object that is asked for a value that it does not hold: how, and by what names.

    There are no names where any may be asked for.
    """
    if is_a(value, threading.local):
        return _Local(value), []
    if is_a(value, ContextVar):
        return _Context(value), [value.name]
    if is_a(value, weakref.ref):
        return _Referent(value), ["what is referred to"]
    return None
