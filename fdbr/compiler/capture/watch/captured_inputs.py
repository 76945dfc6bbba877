"""Variables around a function whose numbers and arrays change from call to call.

Such a variable is an input of the program: while the function is captured a traced value stands in
its place, and each call reads it.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CellType
from typing import Any

import attrs
import numpy as np

from fdbr import tree
from fdbr.compiler.capture.signature import is_moving, is_special, sign, taken_apart
from fdbr.compiler.capture.watch.namespaces import MISSING, Slots
from fdbr.core.tracer import Tracer

__all__ = [
    "Key",
    "Place",
    "items_of",
    "key_of",
    "kind_of_value",
    "of_cell",
    "of_item",
    "of_space",
    "replaced",
]

_readers: dict[Any, Any] = {}
Key = tuple[int, Any]
"""The identity of what holds a variable, and its name."""


@attrs.frozen(eq=False)
class Place:
    """A variable, an attribute, or an item of a list or dict.

    Attributes
    ----------
    key
        What tells it from others.
    label
        What messages call it.
    get, put
        What reads it, and what binds it anew.
    """

    key: Key
    label: str
    get: Callable[[], Any]
    put: Callable[[Any], None]

    def leaves(self) -> list[Any]:
        """The numbers and arrays that it holds."""
        return [leaf for leaf in tree.leaves(self.get()) if is_moving(leaf)]

    def fits(self) -> bool:
        """Whether what it holds now can be an input."""
        return kind_of_value(self.get()) is not None


def kind_of_value(value: Any) -> Any:
    """The kind of what a variable holds, if it can be an input of a program; else `None`.

    That is a number or an array, or a nest of them, not traced and without operators of its own.
    """
    try:
        leaves, structure = taken_apart((value,), {}, _readers)
    except Exception:  # a node that cannot be taken apart
        return None
    if any(isinstance(leaf, Tracer) or is_special(leaf) for leaf in leaves):
        return None
    if not any(map(is_moving, leaves)) or any(_holds_objects(leaf) for leaf in leaves):
        return None
    kind = sign(structure, leaves)[0]
    try:
        hash(kind)
    except TypeError:
        return None
    return kind


def _holds_objects(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray) and leaf.dtype.hasobject


@contextlib.contextmanager
def replaced(places: Sequence[Place], traced: Sequence[Any]) -> Iterator[None]:
    """Have traced values in the places of numbers and arrays, as long as the block lasts."""
    given = iter(traced)
    old = [place.get() for place in places]
    new = []
    for value in old:
        leaves, structure = tree.flatten(value)
        filled = [next(given) if is_moving(leaf) else leaf for leaf in leaves]
        new.append(tree.unflatten(structure, filled))
    bound = []
    try:
        for place, value in zip(places, new, strict=True):
            place.put(value)
        yield
    finally:
        for place, value, ours in zip(places, old, new, strict=True):
            bound += [place.label] if place.get() is not ours else []
            place.put(value)
    if bound:
        raise RuntimeError(f"{bound[0]} was bound anew")


def of_cell(cell: CellType, label: str) -> Place:
    """The variable of a cell."""

    def get() -> Any:
        try:
            return cell.cell_contents
        except ValueError:  # nothing is bound to it any more
            return MISSING

    def put(value: Any) -> None:
        cell.cell_contents = value

    return Place((id(cell), None), label, get, put)


def of_item(container: Any, name: Any, label: str) -> Place:
    """An item of a list or dict."""
    if isinstance(container, list):
        return Place(
            (id(container), name),
            label,
            lambda: list.__getitem__(container, name) if name < len(container) else MISSING,
            lambda value: list.__setitem__(container, name, value),
        )
    return Place(
        (id(container), name),
        label,
        lambda: dict.get(container, name, MISSING),
        lambda value: dict.__setitem__(container, name, value),
    )


def key_of(space: Any, owner: type | None, name: str) -> Key:
    """The key of a variable in a space; ``owner`` is the class whose space it is, if it is one."""
    if isinstance(space, Slots):
        return space.identity, name
    return id(space if owner is None else owner), name


def of_space(space: Any, owner: type | None, name: str, label: str) -> Place | None:
    """A variable or attribute; `None` if it lies where it cannot be bound anew."""
    if type(space) is dict:
        return of_item(space, name, label)
    key = key_of(space, owner, name)
    if owner is not None:
        found: Mapping[str, Any] = space
        return Place(
            key,
            label,
            lambda: found.get(name, MISSING),
            lambda value: type.__setattr__(owner, name, value),
        )
    if isinstance(space, Slots):
        return Place(
            key,
            label,
            lambda: space.get(name, MISSING),
            lambda value: space.put(name, value),
        )
    return None


def items_of(container: Any, parts: Sequence[Any]) -> list[tuple[Any, Any]]:
    """The items of a list or dict whose parts are these, each with its name."""
    if isinstance(container, dict):
        count = len(parts) // 2
        return list(zip(parts[:count], parts[count:], strict=True))
    return list(enumerate(parts)) if isinstance(container, list) else []
