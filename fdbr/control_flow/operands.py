"""The operands and results of loops in programs, leaf by leaf."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fdbr import ops
from fdbr.control_flow.body_tracing import example
from fdbr.core.array_modules import owner
from fdbr.ops.declare.unbroadcast import dtype_of, shape_of
from fdbr.transforms.custom_call import zero_like

__all__ = [
    "Stack",
    "cut",
    "examples",
    "for_each",
    "own_memory",
    "scalar",
    "taker",
    "there",
    "zero",
]

Leaves = Sequence[Any]


def scalar(leaf: Any) -> Any:
    """A scalar in the place of an array without dimensions."""
    return leaf[()] if type(leaf) is np.ndarray and not leaf.ndim else leaf


def own_memory(leaves: Leaves, operands: Leaves) -> tuple[Any, ...]:
    """Results in memory that neither operands nor constants have, nor other results."""
    theirs = {id(owner(operand)) for operand in operands}
    own: list[Any] = []
    for leaf in leaves:
        if type(leaf) is np.ndarray and (not leaf.flags.writeable or id(owner(leaf)) in theirs):
            leaf = leaf.copy()
        theirs.add(id(owner(leaf)))
        own.append(leaf)
    return tuple(own)


class Stack:
    """Collect the results of turns, in place where that is possible."""

    __slots__ = ("array", "parts")

    def __init__(self, xp: Any, first: Any, length: int) -> None:
        self.array: Any = None
        if xp is np:
            dtype = np.dtype(dtype_of(first)).newbyteorder("=")
            self.array = np.empty((length, *shape_of(first)), dtype)
        self.parts: list[Any] = [None] * (0 if xp is np else length)

    def __setitem__(self, index: int, part: Any) -> None:
        (self.parts if self.array is None else self.array)[index] = part

    def whole(self, xp: Any) -> Any:
        """All of it."""
        return xp.stack(self.parts) if self.array is None else self.array


def zero(value: Any) -> Any:
    """Zero like a leaf; what stands for a number of Python is as strong as its cotangents are."""
    zero = zero_like(value)
    return np.dtype(type(value)).type(0) if type(zero) is float else zero


def taker(leaves: Leaves) -> Callable[[int], list[Any]]:
    """A function that takes so many of some leaves, those that come next."""
    given = iter(leaves)
    return lambda count: [next(given) for _ in range(count)]


def there(leaves: Leaves) -> list[Any]:
    """The leaves that are not `None`."""
    return [leaf for leaf in leaves if leaf is not None]


def for_each(value: Any, size: int) -> Any:
    """Repeat for each example what all examples of a batch share."""
    value = ops.asarray(value)
    return ops.broadcast_to(value, (size, *value.shape))


def examples(leaves: Leaves) -> list[Any]:
    """Plain values of the kinds of some leaves."""
    return [example(leaf) for leaf in leaves]


def cut(flags: Sequence[bool], counts: tuple[int, int]) -> list[Sequence[bool]]:
    """Flags in three parts, of which the first two have so many."""
    first, second = counts[0], counts[0] + counts[1]
    return [flags[:first], flags[first:second], flags[second:]]
