"""Captured variables, and those among them that are inputs of a program.

A captured variable with numbers or arrays that change from call to call becomes an input: a traced
value replaces it during capture, and each call reads its current value.
"""

import contextlib
import weakref
from collections.abc import Iterator, Mapping, Sequence
from types import CellType, MemberDescriptorType
from typing import Any

import attrs
import numpy as np

from fdbr import tree
from fdbr.compiler.capture.signature import flatten_arguments, is_moving, is_special, sign
from fdbr.core.array_modules import is_a
from fdbr.core.tracer import Tracer

__all__ = ["MISSING", "Attributes", "CapturedInput", "Key", "replaced", "signature_of_value"]

MISSING: Any = type("Missing", (), {"__repr__": lambda self: "nothing"})()
"""Marks a variable that is not bound."""

Key = tuple[int, Any]
"""The identity of the object that holds a variable, and the variable's name."""

Path = tuple[Any, str, Any] | None
"""How an object was reached: the path of its holder, a format, and its name in the holder."""

_readers: dict[Any, Any] = {}


class Attributes:
    """The attributes of an object that are in no dictionary: its slots, and those of C classes.

    It refers to the object weakly if the class allows weak references.
    """

    __slots__ = ("identity", "members", "owner")

    def __init__(self, value: Any, members: Mapping[str, Any]) -> None:
        self.members = members
        self.identity = id(value)
        try:
            self.owner: Any = weakref.ref(value)
        except TypeError:
            self.owner = lambda: value

    def get(self, name: str, default: Any = None) -> Any:
        """Return an attribute, which no method of the user computes."""
        value = self.owner()
        try:
            if name == "__dict__":
                return dict_of(value)
            return default if value is None else self.members[name].__get__(value)
        except AttributeError:
            return default


def slots_of(value: Any) -> dict[str, Any]:
    """Return the descriptors of the slots of an object, by their names."""
    members: dict[str, Any] = {}
    for cls in type.mro(type(value)):
        # Members of C classes without `__slots__` return new objects at each read.
        for name, part in vars(cls).items() if "__slots__" in vars(cls) else ():
            if type(part) is MemberDescriptorType:
                members.setdefault(name, part)
    return members


def dict_of(value: Any) -> dict[str, Any] | None:
    """Return the attribute dictionary of an object; `None` if it has none."""
    try:
        found = object.__getattribute__(value, "__dict__")
    except Exception:  # the user has defined a property named `__dict__`
        return None
    return found if is_a(found, dict) else None


@attrs.frozen(eq=False)
class CapturedInput:
    """A name or index in a cell, dict, list, class, or `Attributes`, and how it was reached."""

    holder: Any
    name: Any
    path: Path

    @property
    def key(self) -> Key:
        return getattr(self.holder, "identity", id(self.holder)), self.name

    @property
    def label(self) -> str:
        return text_of(self.path)

    def get(self) -> Any:
        """Return its value; `MISSING` if it is not bound."""
        holder, name = self.holder, self.name
        kind = type(holder)
        if kind is dict:  # the most frequent holders come first
            return holder.get(name, MISSING)
        if kind is CellType:
            try:
                return holder.cell_contents
            except ValueError:  # the cell is empty
                return MISSING
        if issubclass(kind, type):
            return vars(holder).get(name, MISSING)
        if issubclass(kind, dict):
            return dict.get(holder, name, MISSING)
        if issubclass(kind, list):
            return list.__getitem__(holder, name) if name < len(holder) else MISSING
        return holder.get(name, MISSING)

    def put(self, value: Any) -> None:
        """Set its value."""
        holder, name = self.holder, self.name
        if type(holder) is CellType:
            holder.cell_contents = value
        elif is_a(holder, type):
            type.__setattr__(holder, name, value)
        elif type(holder) is Attributes:
            holder.members[name].__set__(holder.owner(), value)
        else:
            (dict if is_a(holder, dict) else list).__setitem__(holder, name, value)

    def leaves(self) -> list[Any]:
        """Return the numbers and arrays that it holds."""
        return [leaf for leaf in tree.leaves(self.get()) if is_moving(leaf)]

    def fits(self) -> bool:
        """Return whether its current value can be an input."""
        holder = self.holder
        if type(holder) is Attributes:
            settable = type(holder.members.get(self.name)) is MemberDescriptorType
        else:
            settable = is_a(holder, CellType | type | dict | list)
        return settable and signature_of_value(self.get()) is not None


def text_of(path: Path) -> str:
    """Return a path as an expression, for messages."""
    parts = []
    while path is not None:
        path, form, name = path
        parts.append(form.format(name))
    return "".join(reversed(parts)).removeprefix(".")


def signature_of_value(value: Any) -> Any:
    """Return the signature of a value that can be an input of a program; else `None`.

    It must be a number, an array or a tree of them, untraced and without redefined operators.
    """
    try:
        leaves, structure = flatten_arguments((value,), {}, _readers)
    except Exception:  # a custom node failed to flatten
        return None
    if any(is_a(leaf, Tracer) or is_special(leaf) or _has_objects(leaf) for leaf in leaves):
        return None
    kind = sign(structure, leaves)[0] if any(map(is_moving, leaves)) else None
    try:
        hash(kind)
    except TypeError:
        return None
    return kind


def _has_objects(leaf: Any) -> bool:
    return is_a(leaf, np.ndarray) and leaf.dtype.hasobject


@contextlib.contextmanager
def replaced(variables: Sequence[CapturedInput], traced: Sequence[Any]) -> Iterator[None]:
    """Replace numbers and arrays in captured variables by traced values while the block lasts."""
    given = iter(traced)
    old = [variable.get() for variable in variables]
    new = []
    for value in old:
        leaves, structure = tree.flatten(value)
        filled = [next(given) if is_moving(leaf) else leaf for leaf in leaves]
        new.append(tree.unflatten(structure, filled))
    bound = []
    try:
        for variable, value in zip(variables, new, strict=True):
            variable.put(value)
        yield
    finally:
        for variable, value, ours in zip(variables, old, new, strict=True):
            bound += [variable.label] if variable.get() is not ours else []
            variable.put(value)
    if bound:
        raise RuntimeError(f"{bound[0]} was rebound")
