"""The log of a run through basic blocks, by which the way back goes over them."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fdbr.compiler.ir.program import Kind, Program

__all__ = ["BOTTOM", "WORD", "Log", "copied_out", "padded"]

WORD = 8
BOTTOM = 0  # the number at the beginning of a log: blocks have theirs, and 1
_FIRST = 1 << 13  # bytes


class Log:
    """The log of a run: what its blocks have read, in memory that grows."""

    __slots__ = ("used", "words")

    def __init__(self) -> None:
        self.words = np.empty(_FIRST // WORD, np.int64)
        self.words[0] = BOTTOM
        self.used = WORD

    def grow(self) -> None:
        """Have twice as much memory."""
        words = np.empty(2 * len(self.words), np.int64)
        words[: self.used // WORD] = self.words[: self.used // WORD]
        self.words = words

    def last(self) -> int:
        """The number of the last block."""
        return int(self.words[self.used // WORD - 1]) - 1

    def entries(self, programs: Sequence[Program]) -> Iterator[tuple[int, list[Any]]]:
        """The numbers of the blocks of the run, the last one first, and what each has read."""
        end = self.used
        memory = self.words.view(np.uint8)
        while (number := int(self.words[end // WORD - 1])) != BOTTOM:
            end -= WORD
            values = []
            for variable in reversed(programs[number - 1].inputs):
                kind = variable.kind
                end -= padded(kind)
                array = memory[end : end + kind.nbytes].view(kind.dtype).reshape(kind.shape)
                values.append(copied_out(array, kind))
            yield number - 1, values[::-1]


def copied_out(array: Any, kind: Kind) -> Any:
    """A value of a kind for the elements that lie in memory which others will use."""
    if kind.is_array:
        return array.copy()
    return array.item() if kind.is_number else array[()]


def padded(kind: Kind) -> int:
    """The bytes that a value takes in a log."""
    return -(-kind.nbytes // WORD) * WORD
