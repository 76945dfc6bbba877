"""Memory for what programs compute on the way: one pool for all programs and threads.

A run takes a block that is large enough and gives it back.  Blocks that nobody uses are kept, but
not more bytes of them than a bound, and one block serves programs of different sizes.  Nothing
here waits: a signal handler may run a program at any point of it.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fdbr.backends.cpu.exec.memory.buffer_assignment import Plan
from fdbr.backends.cpu.exec.sequence_tables import Tables, Template
from fdbr.core.util.allocation import give_back_freed_memory

__all__ = ["Block", "give", "kept_bytes", "taker"]

_BOUND = 1 << 28  # bytes that are kept beside the block that was used last
_LARGE = 1 << 26  # bytes of a block, before which it pays to look for what is free
_MOST = 16  # blocks that are kept
_SHOWN = 8  # programs whose arrays in a block are kept
_ALIGNED = 64

_numbers = itertools.count()
_idle: list["Block"] = []
"""The blocks that nobody uses; the one used last is the last one."""


class Block:
    """A piece of memory.

    Attributes
    ----------
    memory
        Its bytes.
    arrays, tables
        What lies in it, as the program has it that uses it; and what its sequences of kernels know
        of where that is.
    """

    __slots__ = ("_shown", "arrays", "memory", "tables")

    def __init__(self, size: int) -> None:
        if size >= _LARGE:
            give_back_freed_memory()
        whole = np.empty(size + _ALIGNED, np.uint8)
        start = -whole.ctypes.data % _ALIGNED
        self.memory = whole[start : start + size]
        self.arrays: list[Any] = []
        self.tables: list[Tables] = []
        self._shown: dict[int, tuple[list[Any], list[Tables]]] = {}

    def show(
        self, number: int, plan: Plan, places: Sequence[int], templates: Sequence[Template]
    ) -> None:
        """Have the arrays at some places of a plan, and the tables of sequences."""
        found = self._shown.get(number)
        if found is None:
            if len(self._shown) >= _SHOWN:
                del self._shown[next(iter(self._shown))]
            address = self.memory.ctypes.data
            tables = [template.at(address) for template in templates]
            found = self._shown[number] = plan.arrays(self.memory, places), tables
        self.arrays, self.tables = found


def taker(plan: Plan, places: Sequence[int], templates: Sequence[Template]) -> Callable[[], Block]:
    """A function that gives a block, with some arrays of a plan in it, and tables of sequences."""
    number, size = next(_numbers), plan.size

    def take() -> Block:
        block = _taken(size)
        block.show(number, plan, places, templates)
        return block

    return take


def _taken(size: int) -> Block:
    """The smallest block that is large enough, or else a new one in the place of the largest."""
    while _idle:
        large = [block for block in _idle if block.memory.size >= size]
        found = min(large, key=_size) if large else max(_idle, key=_size, default=None)
        try:
            _idle.remove(found)  # type: ignore[arg-type]
        except ValueError:  # another thread has taken it
            continue
        if large and found is not None:
            return found
        del found  # before there is another one
        break
    return Block(size)


def give(block: Block) -> None:
    """Take a block back."""
    _idle.append(block)
    if len(_idle) > 1:
        while len(_idle) > _MOST or kept_bytes() > _BOUND + block.memory.size:
            try:
                _idle.pop(0)
            except IndexError:  # another thread was faster
                break


def kept_bytes() -> int:
    """The number of bytes that are kept, and that nobody uses at present."""
    return sum([block.memory.size for block in _idle])


def _size(block: Block) -> int:
    return int(block.memory.size)
