"""Namespaces: mappings in which variables and attributes are looked up by name."""

import abc
import threading
import weakref
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from types import MemberDescriptorType
from typing import Any

from fdbr.core.array_modules import is_a

__all__ = [
    "MISSING",
    "REGISTRATIONS",
    "Slots",
    "Space",
    "computed_namespace",
    "dict_of",
    "slots_of",
]


class _Missing:
    def __repr__(self) -> str:
        return "nothing"


MISSING: Any = _Missing()
"""Marks a variable that is not bound."""


class Slots:
    """The attributes of an object that are stored in slots.

    It refers to the object weakly if the class allows weak references.
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
        """Set an attribute."""
        owner = self._value()
        if owner is not None:
            self._members[name].__set__(owner, value)

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of an attribute."""
        value = self._value()
        try:
            return default if value is None else self._members[name].__get__(value)
        except AttributeError:
            return default


def slots_of(value: Any) -> Slots | None:
    """Return the slots of an object; `None` if it has none."""
    members: dict[str, Any] = {}
    for cls in type(value).__mro__:
        # Members of C classes without `__slots__` return new objects at each read.
        for name, part in vars(cls).items() if "__slots__" in vars(cls) else ():
            if type(part) is MemberDescriptorType:
                members.setdefault(name, part)
    return Slots(value, members) if members else None


def dict_of(value: Any) -> dict[str, Any] | None:
    """Return the attribute dictionary of an object; `None` if it has none."""
    try:
        found = object.__getattribute__(value, "__dict__")
    except Exception:  # the user has defined a property named `__dict__`
        return None
    return found if is_a(found, dict) else None


class _Local:
    """The attributes of a `threading.local` in the current thread."""

    def __init__(self, value: threading.local) -> None:
        self._value = value

    def get(self, name: str, default: Any = None) -> Any:
        """Return an attribute of the instance; methods of its class are new objects each time."""
        return vars(self._value).get(name, default)


class _Context:
    """The value of a context variable."""

    def __init__(self, variable: "ContextVar[Any]") -> None:
        self._variable = variable

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value."""
        return self._variable.get(default)


class _Referent:
    """Whether the referent of a weak reference is alive."""

    def __init__(self, reference: "weakref.ref[Any]") -> None:
        self._reference = reference

    def get(self, name: str, default: Any = None) -> Any:
        """Return whether it is alive."""
        return self._reference() is not None


class _Registrations:
    """The registrations of abstract classes, as a token that changes with them."""

    def __init__(self) -> None:
        self._known: Any = None

    def get(self, name: str, default: Any = None) -> Any:
        """Return the token: the same object while registrations do not change."""
        token = abc.get_cache_token()
        if token != self._known:
            self._known = token
        return self._known


REGISTRATIONS = _Registrations()

Space = Mapping[str, Any] | Slots | _Local | _Context | _Referent | _Registrations


def computed_namespace(value: Any) -> tuple[Space, list[str]] | None:
    """Return the namespace and the names for an object that computes its value, or `None`.

    The names are empty if any attribute may be read.
    """
    if is_a(value, threading.local):
        return _Local(value), []
    if is_a(value, ContextVar):
        return _Context(value), [value.name]
    if is_a(value, weakref.ref):
        return _Referent(value), ["what is referred to"]
    return None
