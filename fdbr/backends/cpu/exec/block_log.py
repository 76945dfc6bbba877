"""The log of a run through basic blocks, which the backward pass reads."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fdbr.compiler.ir.program import Kind, Program

__all__ = ["BOTTOM", "WORD", "Log", "copied_out", "padded"]

WORD = 8
BOTTOM = 0  # the first number in a log; blocks have their number plus 1
_FIRST = 1 << 13  # bytes of a new log


class Log:
    """The log of a run: the values that its blocks have read, in memory that grows."""

    __slots__ = ("used", "words")

    def __init__(self) -> None:
        self.words = np.empty(_FIRST // WORD, np.int64)
        self.words[0] = BOTTOM
        self.used = WORD

    def grow(self) -> None:
        """Double the memory."""
        words = np.empty(2 * len(self.words), np.int64)
        words[: self.used // WORD] = self.words[: self.used // WORD]
        self.words = words

    def last(self) -> int:
        """Return the number of the last block."""
        return int(self.words[self.used // WORD - 1]) - 1

    def entries(self, programs: Sequence[Program]) -> Iterator[tuple[int, list[Any]]]:
        """Yield the blocks of the run in reverse order, with the values that they have read."""
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
    """Return a copy of elements in reused memory, as a value of an aval."""
    if kind.is_array:
        return array.copy()
    return array.item() if kind.is_number else array[()]


def padded(kind: Kind) -> int:
    """Return the bytes that a value takes in a log."""
    return -(-kind.nbytes // WORD) * WORD
