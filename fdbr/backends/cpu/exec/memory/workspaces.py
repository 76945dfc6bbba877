"""Workspaces for the temporaries of programs: one pool for all programs and threads.

A run takes a block that is large enough, and returns it.  Idle blocks are kept up to a bound in
bytes, and one block serves programs of different sizes.  Nothing here blocks, because a signal
handler may run a program at any point.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fdbr.backends.cpu.exec.memory.buffer_assignment import Plan
from fdbr.backends.cpu.exec.sequence_tables import Tables, Template
from fdbr.core.util.allocation import give_back_freed_memory

__all__ = ["Block", "give", "kept_bytes", "taker"]

_BOUND = 1 << 28  # bytes that are kept besides the last used block
_LARGE = 1 << 26  # bytes of a new block for which freed memory is returned to the system first
_MOST = 16  # blocks that are kept
_SHOWN = 8  # programs whose arrays of a block are kept
_ALIGNED = 64

_numbers = itertools.count()
_idle: list["Block"] = []
"""The idle blocks; the last used one is at the end."""


class Block:
    """A piece of memory.

    Attributes
    ----------
    memory
        Its bytes.
    arrays, tables
        The arrays in it of the program that uses it, and the tables of its sequences, which
        contain their addresses.
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
        """Set the arrays at some indices of a plan, and the tables of sequences."""
        found = self._shown.get(number)
        if found is None:
            if len(self._shown) >= _SHOWN:
                del self._shown[next(iter(self._shown))]
            address = self.memory.ctypes.data
            tables = [template.at(address) for template in templates]
            found = self._shown[number] = plan.arrays(self.memory, places), tables
        self.arrays, self.tables = found


def taker(plan: Plan, places: Sequence[int], templates: Sequence[Template]) -> Callable[[], Block]:
    """Return a function that takes a block, with some arrays of a plan and tables of sequences."""
    number, size = next(_numbers), plan.size

    def take() -> Block:
        block = _taken(size)
        block.show(number, plan, places, templates)
        return block

    return take


def _taken(size: int) -> Block:
    """Take the smallest block that is large enough; replace the largest if there is none."""
    while _idle:
        large = [block for block in _idle if block.memory.size >= size]
        found = min(large, key=_size) if large else max(_idle, key=_size, default=None)
        try:
            _idle.remove(found)  # type: ignore[arg-type]
        except ValueError:  # another thread has taken it
            continue
        if large and found is not None:
            return found
        del found  # frees its memory before the new block is allocated
        break
    return Block(size)


def give(block: Block) -> None:
    """Return a block to the pool."""
    _idle.append(block)
    if len(_idle) > 1:
        while len(_idle) > _MOST or kept_bytes() > _BOUND + block.memory.size:
            try:
                _idle.pop(0)
            except IndexError:  # another thread was faster
                break


def kept_bytes() -> int:
    """Return the number of bytes in idle blocks."""
    return sum([block.memory.size for block in _idle])


def _size(block: Block) -> int:
    return int(block.memory.size)
