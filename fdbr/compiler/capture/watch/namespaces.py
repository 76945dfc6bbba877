"""Namespaces: mappings in which variables and attributes are looked up by name."""

import abc
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
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
    "named",
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


class Computed:
    """A namespace whose values a function computes of a name and a default."""

    def __init__(self, get: Callable[[str, Any], Any]) -> None:
        self._get = get

    def get(self, name: str, default: Any = None) -> Any:
        """Return a value."""
        return self._get(name, default)


_tokens: dict[Any, Any] = {}


def _registrations(name: str, default: Any) -> Any:
    """Return a token: the same object while the registrations of abstract classes are the same."""
    token = abc.get_cache_token()
    return _tokens.setdefault(token, token)


REGISTRATIONS = Computed(_registrations)

Space = Mapping[str, Any] | Slots | Computed


def computed_namespace(value: Any) -> tuple[Space, list[str]] | None:
    """Return the namespace and the names for an object that computes its value, or `None`.

    The names are empty if any attribute may be read.
    """
    if is_a(value, threading.local):  # methods of its class are new objects each time
        return Computed(lambda name, default: vars(value).get(name, default)), []
    if is_a(value, ContextVar):
        return Computed(lambda _, default: value.get(default)), [value.name]
    if is_a(value, weakref.ref):
        return Computed(lambda *_: value() is not None), ["what is referred to"]
    return None


def named(value: Any) -> Space:
    """Return the attributes of a function or class that are in no dictionary, as its name."""
    return Computed(lambda name, default: getattr(value, name, default))
