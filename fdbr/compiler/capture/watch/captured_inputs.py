"""Captured variables whose numbers and arrays change from call to call.

Such a variable is an input of the program: a traced value replaces it during capture, and each call
reads its current value.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CellType
from typing import Any

import attrs
import numpy as np

from fdbr import tree
from fdbr.compiler.capture.signature import flatten_arguments, is_moving, is_special, sign
from fdbr.compiler.capture.watch.namespaces import MISSING, Slots
from fdbr.core.tracer import Tracer

__all__ = [
    "Key",
    "CapturedInput",
    "items_of",
    "key_of",
    "signature_of_value",
    "of_cell",
    "of_item",
    "of_space",
    "replaced",
]

_readers: dict[Any, Any] = {}
Key = tuple[int, Any]
"""The identity of the object that holds a variable, and the variable's name."""


@attrs.frozen(eq=False)
class CapturedInput:
    """A variable, an attribute, or an item of a list or dict.

    Attributes
    ----------
    key
        The identity of the variable.
    label
        Its name in messages.
    get, put
        Functions that read and set it.
    """

    key: Key
    label: str
    get: Callable[[], Any]
    put: Callable[[Any], None]

    def leaves(self) -> list[Any]:
        """Return the numbers and arrays that it holds."""
        return [leaf for leaf in tree.leaves(self.get()) if is_moving(leaf)]

    def fits(self) -> bool:
        """Return whether its current value can be an input."""
        return signature_of_value(self.get()) is not None


def signature_of_value(value: Any) -> Any:
    """Return the signature of a value that can be an input of a program; else `None`.

    It must be a number, an array or a tree of them, untraced and without redefined operators.
    """
    try:
        leaves, structure = flatten_arguments((value,), {}, _readers)
    except Exception:  # a custom node failed to flatten
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


def of_cell(cell: CellType, label: str) -> CapturedInput:
    """Return the variable of a closure cell."""

    def get() -> Any:
        try:
            return cell.cell_contents
        except ValueError:  # the cell is empty
            return MISSING

    def put(value: Any) -> None:
        cell.cell_contents = value

    return CapturedInput((id(cell), None), label, get, put)


def of_item(container: Any, name: Any, label: str) -> CapturedInput:
    """Return an item of a list or dict as a variable."""
    if isinstance(container, list):
        return CapturedInput(
            (id(container), name),
            label,
            lambda: list.__getitem__(container, name) if name < len(container) else MISSING,
            lambda value: list.__setitem__(container, name, value),
        )
    return CapturedInput(
        (id(container), name),
        label,
        lambda: dict.get(container, name, MISSING),
        lambda value: dict.__setitem__(container, name, value),
    )


def key_of(space: Any, owner: type | None, name: str) -> Key:
    """Return the key of a variable in a namespace, which may be the one of class ``owner``."""
    if isinstance(space, Slots):
        return space.identity, name
    return id(space if owner is None else owner), name


def of_space(space: Any, owner: type | None, name: str, label: str) -> CapturedInput | None:
    """Return a variable or attribute; `None` if it cannot be set."""
    if type(space) is dict:
        return of_item(space, name, label)
    key = key_of(space, owner, name)
    if owner is not None:
        found: Mapping[str, Any] = space
        return CapturedInput(
            key,
            label,
            lambda: found.get(name, MISSING),
            lambda value: type.__setattr__(owner, name, value),
        )
    if isinstance(space, Slots):
        return CapturedInput(
            key,
            label,
            lambda: space.get(name, MISSING),
            lambda value: space.put(name, value),
        )
    return None


def items_of(container: Any, parts: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Return the items of a list or dict with these parts, each with its key or index."""
    if isinstance(container, dict):
        count = len(parts) // 2
        return list(zip(parts[:count], parts[count:], strict=True))
    return list(enumerate(parts)) if isinstance(container, list) else []
