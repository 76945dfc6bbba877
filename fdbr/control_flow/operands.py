"""Helpers for the operands and results of loops in programs, leaf by leaf."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fdbr import ops
from fdbr.control_flow.body_tracing import example
from fdbr.core.array_modules import owner
from fdbr.core.devices import is_host
from fdbr.ops.declare.unbroadcast import dtype_of, shape_of
from fdbr.pytrees.dtypes import is_short
from fdbr.transforms.custom_call import zero_like

__all__ = [
    "Stack",
    "cut",
    "examples",
    "for_each",
    "own_memory",
    "rounded",
    "scalar",
    "sum_start",
    "taker",
    "there",
    "zero",
]

Leaves = Sequence[Any]


def scalar(leaf: Any) -> Any:
    """Return a scalar for an array without axes, and other leaves as they are."""
    return leaf[()] if type(leaf) is np.ndarray and not leaf.ndim else leaf


def own_memory(leaves: Leaves, operands: Leaves) -> tuple[Any, ...]:
    """Return results in memory that operands, constants and other results do not share."""
    theirs = {id(owner(operand)) for operand in operands}
    own: list[Any] = []
    for leaf in leaves:
        if type(leaf) is np.ndarray and (not leaf.flags.writeable or id(owner(leaf)) in theirs):
            leaf = leaf.copy()
        theirs.add(id(owner(leaf)))
        own.append(leaf)
    return tuple(own)


class Stack:
    """Collects the results of iterations, in place where that is possible."""

    __slots__ = ("array", "parts")

    def __init__(self, xp: Any, first: Any, length: int) -> None:
        self.array: Any = None
        if is_host(xp):
            dtype = np.dtype(dtype_of(first)).newbyteorder("=")
            self.array = np.empty((length, *shape_of(first)), dtype)
        self.parts: list[Any] = [None] * (0 if is_host(xp) else length)

    def __setitem__(self, index: int, part: Any) -> None:
        (self.parts if self.array is None else self.array)[index] = part

    def whole(self, xp: Any) -> Any:
        """Return the stacked array."""
        return xp.stack(self.parts) if self.array is None else self.array


def zero(value: Any) -> Any:
    """Return zero like a leaf; for a Python number, of the dtype of its cotangents."""
    zero = zero_like(value)
    return np.dtype(type(value)).type(0) if type(zero) is float else zero


def sum_start(value: Any) -> Any:
    """Return zero for a sum of cotangents, which is accumulated in at least float32."""
    start = zero(value)
    return start.astype(np.float32) if is_short(start.dtype) else start


def rounded(total: Any, value: Any) -> Any:
    """Round a sum of cotangents to the dtype of the value."""
    dtype = dtype_of(zero(value))
    return total if dtype_of(total) == dtype else ops.astype(total, dtype)


def taker(leaves: Leaves) -> Callable[[int], list[Any]]:
    """Return a function that takes the next ``count`` of some leaves."""
    given = iter(leaves)
    return lambda count: [next(given) for _ in range(count)]


def there(leaves: Leaves) -> list[Any]:
    """Return the leaves that are not `None`."""
    return [leaf for leaf in leaves if leaf is not None]


def for_each(value: Any, size: int) -> Any:
    """Repeat for each example a value that all examples of a batch share."""
    value = ops.asarray(value)
    return ops.broadcast_to(value, (size, *value.shape))


def examples(leaves: Leaves) -> list[Any]:
    """Return plain example values with the avals of some leaves."""
    return [example(leaf) for leaf in leaves]


def cut(flags: Sequence[bool], counts: tuple[int, int]) -> list[Sequence[bool]]:
    """Split flags into three parts, the first two of given lengths."""
    first, second = counts[0], counts[0] + counts[1]
    return [flags[:first], flags[first:second], flags[second:]]
