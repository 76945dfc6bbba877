"""Donated arguments, whose memory results may reuse.

An array is overwritten only if it cannot be seen afterwards: exactly one frozen object, dict or
list in the argument refers to it, and there a placeholder replaces it.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import numpy as np

from fdbr.compiler.capture.paths import is_leaf, one_level
from fdbr.compiler.capture.signature import nodes
from fdbr.pytrees.classes import fields_of
from fdbr.pytrees.flatten_cache import forget

__all__ = ["Donated", "DonatedError", "Donation", "holds"]


class DonatedError(RuntimeError):
    """Raised when an array is used that was donated to a jitted function."""


class Donated:
    """The placeholder for a donated array: every use of it raises.

    Parameters
    ----------
    name
        The name of the function that the array was donated to.
    """

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # Python looks protocols up, and must find them missing
            raise AttributeError(name)
        return self._refuse()

    def __repr__(self) -> str:
        return f"<array donated to {self._name}>"

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise DonatedError(
            f"this array was donated to the jitted function {self._name} (donate_argnums), which "
            "may have overwritten it: use what the call returned, or copy the array before"
        )


_SIGNS = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()
for _name in (
    *(prefix + sign for sign in _SIGNS for prefix in ("", "r")),
    *"neg pos abs invert lt le gt ge eq ne array bool float int complex index len".split(),
    *"iter getitem contains copy deepcopy reduce".split(),
):
    setattr(Donated, f"__{_name}__", Donated._refuse)


def holds(node: Any, child: Any) -> bool:
    """Return whether a node holds an array in a slot that can be reassigned."""
    return type(child) is np.ndarray and (_is_mutable(node) or fields_of(type(node)) is not None)


def _is_mutable(node: Any) -> bool:
    """Return whether the slots of a node are assigned by key or index."""
    return type(node) in (dict, list)


@attrs.frozen(eq=False)
class Donation:
    """The arguments that the caller of a jitted function donates.

    Attributes
    ----------
    name
        The name of the function.
    argnums
        The positions of donated arguments.
    placeholder
        The placeholder for the arrays in them.
    """

    name: str
    argnums: tuple[int, ...]
    placeholder: Donated = attrs.field(init=False)

    @placeholder.default
    def _(self) -> Donated:
        return Donated(self.name)

    def check(self, args: Sequence[Any]) -> None:
        """Raise if a call has no argument at a donated position."""
        if self.argnums and max(self.argnums) >= len(args):
            raise TypeError(
                f"fdbr.jit: donate_argnums={self.argnums} but {self.name} was called with "
                f"{len(args)} positional argument{'s' * (len(args) != 1)}; donated arguments must "
                "be among these"
            )

    def positions(self, args: Sequence[Any]) -> list[int]:
        """Return the positions of donated arrays among the leaves of all arguments."""
        if not self.argnums:
            return []
        places = ((n, *place) for n, arg in enumerate(args) for place in _leaves((arg,)))
        return [
            position
            for position, (number, node, leaf) in enumerate(places)
            if number in self.argnums and holds(node, leaf)
        ]

    def take(self, args: Sequence[Any]) -> None:
        """Replace the donated arrays in the arguments by the placeholder."""
        for node in [node for number in self.argnums for node in nodes(args[number])]:
            forget(node)
            children, _, keys, _ = one_level(node)
            for key, child in zip(keys, children, strict=True):
                if not holds(node, child):
                    continue
                if _is_mutable(node):
                    node[key] = self.placeholder
                else:
                    object.__setattr__(node, key, self.placeholder)


def _leaves(node: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the leaves below a node in order, each with the node that holds it."""
    for child in one_level(node)[0]:
        if is_leaf(child):
            yield node, child
        else:
            yield from _leaves(child)
