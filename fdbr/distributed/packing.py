"""Arrays in few flat buffers, one for each dtype, and back."""

import importlib
import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from fdbr.core.array_modules import array_module
from fdbr.pytrees.dtypes import dtype_kind

__all__ = ["Packing", "dtype_named", "from_wire", "is_compressed", "to_wire"]


class Packing:
    """The way in which arrays of certain shapes and dtypes lie in flat buffers.

    Parameters
    ----------
    xp
        The array module.
    kinds
        Shape and dtype of each array.
    rows
        0 for buffers of one dimension; else how many rows a buffer has: the first axes of the
        arrays are divided among them.
    """

    def __init__(
        self, xp: Any, kinds: Sequence[tuple[tuple[int, ...], Any]], rows: int = 0
    ) -> None:
        self.xp = xp
        self.kinds = kinds
        self.rows = rows
        self.groups: dict[Any, list[int]] = {}
        for i, (_, dtype) in enumerate(kinds):
            self.groups.setdefault(dtype, []).append(i)

    def packed(self, arrays: Sequence[Any]) -> list[Any]:
        """The buffers with the arrays in them: memory of their own."""
        buffers = []
        for members in self.groups.values():
            parts = [arrays[i].reshape(self._flat(i)) for i in members]
            axis = 1 if self.rows else 0
            alone = len(parts) == 1
            buffer = parts[0].copy() if alone else self.xp.concatenate(parts, axis=axis)
            buffers.append(self.xp.ascontiguousarray(buffer))
        return buffers

    def fill(
        self,
        buffer: Any,
        arrays: Sequence[Any],
        group: int,
        start: int = 0,
        stop: int = sys.maxsize,
        factor: float = 1.0,
    ) -> None:
        """Put the arrays of one group into its flat buffer, or what lies in a part of it.

        They are multiplied by a factor on the way.
        """
        begin = 0
        for i in list(self.groups.values())[group]:
            end = begin + self._size(i)
            if begin < stop and start < end:
                first, last = max(start, begin), min(stop, end)
                part = arrays[i].reshape(-1)[first - begin : last - begin]
                if factor == 1.0:
                    buffer[first:last] = part
                else:
                    self.xp.multiply(part, factor, out=buffer[first:last])
            begin = end

    def empty(self) -> list[Any]:
        """Such buffers with nothing in them."""
        made = []
        for dtype, members in self.groups.items():
            total = sum(self._size(i) for i in members)
            shape = (self.rows, total) if self.rows else (total,)
            made.append(self.xp.empty(shape, dtype))
        return made

    def unpacked(self, buffers: Sequence[Any]) -> list[Any]:
        """The arrays that lie in buffers, as views of them."""
        return self._arrays(buffers, ())

    def stacked(self, buffers: Sequence[Any]) -> list[Any]:
        """The arrays of buffers which have a row for each rank: stacked along a new first axis."""
        return self._arrays(buffers, buffers[0].shape[:1] if buffers else ())

    def _arrays(self, buffers: Sequence[Any], first: tuple[int, ...]) -> list[Any]:
        arrays: list[Any] = [None] * len(self.kinds)
        for buffer, members in zip(buffers, self.groups.values(), strict=True):
            start = 0
            for i in members:
                stop = start + self._size(i)
                arrays[i] = buffer[..., start:stop].reshape((*first, *self.kinds[i][0]))
                start = stop
        return arrays

    def _size(self, i: int) -> int:
        count = math.prod(self.kinds[i][0])
        return count // self.rows if self.rows else count

    def _flat(self, i: int) -> tuple[int, ...]:
        return (self.rows, self._size(i)) if self.rows else (-1,)


def dtype_named(name: str) -> Any:
    """The dtype that a `Record` calls so."""
    name = name.removeprefix("gpu:")
    try:
        return np.dtype(name)
    except TypeError:  # of a package that adds it to NumPy
        return np.dtype(getattr(importlib.import_module("ml_dtypes"), name))


def is_compressed(dtype: Any, wire: str) -> bool:
    """Whether such elements travel as others: floating ones that are wider than those."""
    return bool(wire) and dtype_kind(dtype) == "f" and np.dtype(dtype).itemsize > 2


def to_wire(buffer: Any, wire: str) -> Any:
    """Floating numbers, rounded to the nearest: in `float16`, or the bits of `bfloat16`."""
    xp = array_module(buffer)
    with np.errstate(over="ignore"):  # what is too large is infinite on the other side
        if wire == "float16":
            return buffer.astype(xp.float16)
        bits = buffer.astype(xp.float32).view(xp.uint32)
    rounded = (bits + (((bits >> 16) & 1) + 0x7FFF)) >> 16
    nan = (bits & 0x7FFFFFFF) > 0x7F800000
    return xp.where(nan, (bits >> 16) | 0x40, rounded).astype(xp.uint16)


def from_wire(buffer: Any, wire: str, dtype: Any) -> Any:
    """The numbers that `to_wire` has rounded, in a floating dtype."""
    xp = array_module(buffer)
    if wire == "bfloat16":
        buffer = (buffer.astype(xp.uint32) << 16).view(xp.float32)
    return buffer.astype(dtype)
