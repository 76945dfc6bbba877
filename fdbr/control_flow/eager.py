"""Loops run by Python, outside of a jitted function."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fdbr import ops, tree
from fdbr.control_flow.carry import check_carry, kept, settled
from fdbr.core.array_modules import array_module, is_array, lock
from fdbr.core.tracer import Tracer, plain
from fdbr.errors.checks import describe, number_types
from fdbr.ops.declare.unbroadcast import shape_of
from fdbr.transforms.checkpoint import checkpoint

__all__ = [
    "Counter",
    "Numbered",
    "Rows",
    "Iteration",
    "joined",
    "pair",
    "scan_iterations",
    "segments",
]

Iteration = Callable[[Any, Any], tuple[Any, Any]]


class Rows:
    """The rows of a tree of arrays along their first axis, one for each iteration.

    Attributes
    ----------
    leaves, structure
        The arrays, and their tree structure.
    length
        The number of iterations.
    """

    __slots__ = ("leaves", "length", "size", "structure")

    base = numbers = None  # `Counter` has integers here

    def __init__(self, leaves: Sequence[Any], structure: Any, length: int, size: int = 1) -> None:
        self.leaves, self.structure, self.length = leaves, structure, length
        self.size = size  # rows of a part

    def __getitem__(self, index: int) -> Any:
        return self.row([leaf[index] for leaf in self.leaves])

    def row(self, leaves: Sequence[Any]) -> Any:
        """Return the row with some leaves."""
        return tree.unflatten(self.structure, leaves)

    def parts(self, size: int) -> "Rows":
        """Group the rows into parts of ``size`` rows; the length must be divisible by it."""
        count = self.length // size
        leaves = [ops.reshape(leaf, (count, size, *leaf.shape[1:])) for leaf in self.leaves]
        return Rows(leaves, self.structure, count, size)

    def inside(self, part: Any) -> "Rows":
        """Return the rows of a part."""
        return Rows(tree.leaves(part), self.structure, self.size)

    def part(self, start: int, stop: int) -> "Rows":
        """Return the rows from one index to before another."""
        leaves = [leaf[start:stop] for leaf in self.leaves]
        return Rows(leaves, self.structure, stop - start)

    def zeros(self) -> Any:
        """Return a row of zeros."""
        leaves = [_zeros(leaf, leaf.shape[1:]) for leaf in self.leaves]
        return tree.unflatten(self.structure, leaves)


class Counter:
    """Integers instead of rows: each iteration gets a Python integer.

    Attributes
    ----------
    base, numbers
        The integer of an iteration is the sum of the base and its number.
    length
        The number of iterations.
    """

    __slots__ = ("base", "length", "numbers", "size", "step")

    leaves: Sequence[Any] = ()  # `Rows` has arrays here

    def __init__(self, numbers: range, base: Any = 0, size: int = 1, step: int = 1) -> None:
        self.numbers, self.base, self.length = numbers, base, len(numbers)
        self.size, self.step = size, step  # length of a part, and step between its integers

    def __getitem__(self, index: int) -> Any:
        return self.base + self.numbers[index]

    def part(self, start: int, stop: int) -> "Counter":
        """Return the integers from one iteration to before another."""
        return Counter(self.numbers[start:stop], self.base)

    def zeros(self) -> Any:
        """Return an integer."""
        return self.base

    def parts(self, size: int) -> "Counter":
        """Return the first integers of parts of ``size`` iterations."""
        return Counter(self.numbers[::size], self.base, size, self.numbers.step)

    def inside(self, first: Any) -> "Counter":
        """Return the integers of a part."""
        return Counter(range(0, self.size * self.step, self.step), first)


class Numbered:
    """Rows or integers, each with the index of its iteration."""

    __slots__ = ("length", "rows")

    def __init__(self, rows: Any) -> None:
        self.rows, self.length = rows, rows.length

    def __getitem__(self, index: int) -> Any:
        return index, self.rows[index]

    def zeros(self) -> Any:
        return 0, self.rows.zeros()


def pair(function: str, out: Any) -> tuple[Any, Any]:
    """Return the result of an iteration; raise if it is not a pair."""
    if not isinstance(out, tuple) or len(out) != 2:
        raise TypeError(
            f"fdbr.{function}: f must return a pair (carry, y), not {describe(out)}; if there "
            "is no y, return (carry, None)"
        )
    return out


def scan_iterations(
    function: str, f: Iteration, carry: Any, rows: Any, reverse: bool
) -> tuple[Any, Any]:
    """Return the last carry, and the results of iterations, stacked along a new first axis."""
    order = range(rows.length)

    def without_row(carry: Any) -> tuple[Any, Any]:
        return pair(function, f(carry, rows.zeros()))

    if not rows.length:
        with np.errstate(all="ignore"):  # it is run only to find out shapes and dtypes
            carry, out = settled(without_row, carry, runs=False)
        return carry, tree.map(lambda leaf: _zeros(leaf, (0, *shape_of(leaf))), out[1])
    columns: list[list[Any]] = []
    structure: Any = None
    for iteration in reversed(order) if reverse else order:
        row = rows[iteration]
        if structure is None:
            carry, out = settled(lambda carry: pair(function, f(carry, row)), carry)  # noqa: B023
        else:
            out = pair(function, f(carry, row))
        check_carry(function, "f", carry, out[0])
        carry, y = out
        leaves, found = tree.flatten(y)
        if structure is None:
            structure = found
            columns = [[] for _ in leaves]
        elif found != structure:
            raise TypeError(
                f"fdbr.{function}: f must return a y of one structure in every iteration, but got "
                f"{structure} and then {found}"
            )
        for column, leaf in zip(columns, leaves, strict=True):
            column.append(leaf)
    carry = tree.map(kept, carry)
    paths = tree.paths_of(structure)
    stacked = [
        _stacked(function, column[::-1] if reverse else column, path)
        for column, path in zip(columns, paths, strict=True)
    ]
    return carry, tree.unflatten(structure, stacked)


def _zeros(like: Any, shape: Any) -> Any:
    """Return zeros of the dtype of a leaf, on its device."""
    value = plain(like)
    dtype = getattr(like, "dtype", None) or np.dtype(type(value))
    return lock(array_module(value).zeros(tuple(shape), dtype=dtype))


def _stacked(function: str, column: list[Any], path: str) -> Any:
    shapes = dict.fromkeys(shape_of(leaf) for leaf in column)
    if len(shapes) > 1:
        raise ValueError(
            f"fdbr.{function}: f must return a y of one shape in every iteration, but got shapes "
            f"{', '.join(map(str, shapes))}{path and ' at ' + path}"
        )
    for leaf in column:
        if not isinstance(leaf, Tracer) and not is_array(leaf) and type(leaf) not in number_types:
            raise TypeError(
                f"fdbr.{function}: f must return arrays or numbers in y, to be stacked, not "
                f"{describe(leaf)}{path and ' at ' + path}"
            )
    out = ops.stack(column)
    return out if isinstance(out, Tracer) else lock(out)


def segments(
    function: str, f: Iteration, carry: Any, rows: Any, reverse: bool, size: int
) -> tuple[Any, Any]:
    """Run `scan_iterations` storing only the carries between segments, and recompute the rest."""
    starts = range(0, rows.length, size)
    run = checkpoint(functools.partial(_segment, function, f, reverse))
    parts = []
    if rows.length:  # Python numbers take their dtypes once, before the first segment
        first = rows[rows.length - 1 if reverse else 0]
        carry, _ = settled(lambda carry: pair(function, f(carry, first)), carry)
    for start in reversed(starts) if reverse else starts:
        part = rows.part(start, min(start + size, rows.length))
        carry, ys = run(carry, part)
        parts.append(ys)
    if not parts:
        return scan_iterations(function, f, carry, rows, reverse)
    return carry, joined(parts[::-1] if reverse else parts)


def _segment(function: str, f: Iteration, reverse: bool, carry: Any, rows: Any) -> tuple[Any, Any]:
    return scan_iterations(function, f, carry, rows, reverse)


def joined(parts: Sequence[Any]) -> Any:
    """Concatenate trees of stacked results."""

    def one(*leaves: Any) -> Any:
        out = leaves[0] if len(leaves) == 1 else ops.concat(leaves)
        return out if isinstance(out, Tracer) else lock(out)

    return tree.map(one, *parts)
