"""Arguments that the caller gives up, so that results can be written over them.

An array is written over only if nobody can see it afterwards: nobody but one frozen object, dict
or list in the argument refers to it, and there something else is put in its place.
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


_LARGE = 1 << 26  # bytes


class DonatedError(RuntimeError):
    """Raised where an array is used that was given up to a jitted function."""


class Donated:
    """The mark in the place of a donated array: every use of it is an error.

    Parameters
    ----------
    name
        The name of the function that it was given up to.
    """

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # Python asks for these to know what it can do
            raise AttributeError(name)
        return self._refuse()

    def __repr__(self) -> str:
        return f"<array given up to {self._name}>"

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise DonatedError(
            f"this array was given up to the jitted function {self._name} (donate_argnums), which "
            "may have written over it: use what the call returned, or copy the array before"
        )


_SIGNS = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()
for _name in (
    *(prefix + sign for sign in _SIGNS for prefix in ("", "r")),
    *"neg pos abs invert lt le gt ge eq ne array bool float int complex index len".split(),
    *"iter getitem contains copy deepcopy reduce".split(),
):
    setattr(Donated, f"__{_name}__", Donated._refuse)


def holds(node: Any, child: Any) -> bool:
    """Whether a node holds an array in whose place something else can be put."""
    return type(child) is np.ndarray and (_is_open(node) or fields_of(type(node)) is not None)


def _is_open(node: Any) -> bool:
    """Whether what a node holds is assigned to by key or index."""
    return type(node) in (dict, list)


@attrs.frozen(eq=False)
class Donation:
    """The arguments that the caller of a jitted function donates.

    Attributes
    ----------
    name
        The name of the function.
    argnums
        The positions of arguments.
    instead
        What is put in the place of the arrays in them.
    """

    name: str
    argnums: tuple[int, ...]
    instead: Donated = attrs.field(init=False)

    @instead.default
    def _(self) -> Donated:
        return Donated(self.name)

    def check(self, args: Sequence[Any]) -> None:
        """Refuse a call in which nothing stands where something is given up."""
        if self.argnums and max(self.argnums) >= len(args):
            raise TypeError(
                f"fdbr.jit: donate_argnums={self.argnums} but {self.name} was called with "
                f"{len(args)} positional argument{'s' * (len(args) != 1)}; what is given up must "
                "be one of these"
            )

    def positions(self, args: Sequence[Any]) -> list[int]:
        """The numbers of the arrays that are given up, among the leaves of all arguments."""
        if not self.argnums:
            return []
        places = ((n, *place) for n, arg in enumerate(args) for place in _leaves((arg,)))
        return [
            position
            for position, (number, node, leaf) in enumerate(places)
            if number in self.argnums and holds(node, leaf)
        ]

    def is_large(self, args: Sequence[Any]) -> bool:
        """Whether so much is given up that a second copy of it is to be avoided at any call."""
        arrays = (leaf for n in self.argnums for _, leaf in _leaves((args[n],)))
        return sum(getattr(leaf, "nbytes", 0) for leaf in arrays) >= _LARGE

    def take(self, args: Sequence[Any]) -> None:
        """Put something else in the place of the arrays."""
        for node in [node for number in self.argnums for node in nodes(args[number])]:
            forget(node)
            children, _, keys, _ = one_level(node)
            for key, child in zip(keys, children, strict=True):
                if not holds(node, child):
                    continue
                if _is_open(node):
                    node[key] = self.instead
                else:
                    object.__setattr__(node, key, self.instead)


def _leaves(node: Any) -> Iterator[tuple[Any, Any]]:
    """The leaves below a node in order, each with the node it lies in."""
    for child in one_level(node)[0]:
        if is_leaf(child):
            yield node, child
        else:
            yield from _leaves(child)
