"""The tables of sequences, which say to machine code what to do.

They are an array of words (64 bits each), one for each piece of memory that a
program works in, so that runs on several threads have their own:

- the *head*: the record to begin with, how many records and patches there are, whether others may
  have Python meanwhile, where patches and records are; where a log goes on, and where its memory
  ends; and how many jumps there may be before Python has a turn, in which it hears signals;
- *patches*, for each place in an argument: the argument's number, where the address of its
  elements is to be written, and how many bytes behind the first element it is;
- *places*, which to a kernel look like array objects: the address of elements, and of strides;
- *tables* of places, one for each kernel;
- *records*: what is done.  A kernel is the address of the word with the address of its code, its
  table, its rows, and the place of a byte that is set to 0 before and must be 0 afterwards (or 0).
  A check is 0, the place of a value, its size in bytes, and the bits that it must have.
  `AIM` sets a place to where another one is, so many bytes further on; `ADVANCE` moves it on by
  some bytes.  `BEGIN` writes a number of turns to a word, and `REPEAT` counts them down there: it
  goes back to a record as long as there are turns left.
- Control flow: `WHEN` goes to a record if a byte is what it says.  `MOVE` copies bytes from a place
  to another one.  `ROOM` sees whether so many bytes can be added to the log, `PUSH` adds those of a
  place and `NOTE` a number; `POP` takes bytes off its end to a place, and `BACK` a number, which
  says by a table to which record it goes.  `STOP` stops.
"""

import ctypes
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from fdbr.backends.cpu.codegen.language import HEAD

__all__ = [
    *("ADVANCE", "AIM", "BACK", "BEGIN", "DATA", "FIRST", "JUMPS", "LOG", "MOVE", "NOTE", "POP"),
    *("PUSH", "REFUSED", "REPEAT", "ROOM", "STOP", "STRIDES", "WHEN"),
    *("Tables", "Template", "Writer"),
]

REFUSED = 1 << 40
AIM, ADVANCE, BEGIN, REPEAT = 1, 2, 3, 4
WHEN, MOVE, ROOM, PUSH, NOTE, POP, BACK, STOP = 5, 6, 7, 8, 9, 10, 11, 12
FIRST = 0  # the word of the head that says which record comes first
LOG, JUMPS = 6, 8  # those of the log, which are two, and of the jumps
_WORDS = 9  # of the head
_PLACES = (AIM, MOVE)  # whose third word is a place, too
DATA, STRIDES = HEAD // 8, HEAD // 8 + 3  # words of a place


@attrs.define(eq=False)
class Template:
    """The tables of a sequence, but for where they and the memory are.

    Attributes
    ----------
    words
        With offsets in the place of addresses.
    here
        The words that are offsets from the tables' own beginning.
    inside
        Those that are offsets in the program's memory.
    """

    words: Any
    here: Any
    inside: Any

    def at(self, memory: int) -> "Tables":
        """The tables for memory at an address."""
        words = self.words.copy()
        words[self.here] += words.ctypes.data
        words[self.inside] += memory
        return Tables(words)


class Tables:
    """The tables for one piece of memory: ``words``."""

    __slots__ = ("words",)

    def __init__(self, words: Any) -> None:
        self.words = words

    def array(self, place: int, shape: tuple[int, ...], strides: Any, dtype: Any) -> Any:
        """The elements at a place, as an array."""
        address = int(self.words[place + DATA])
        ends = [(n - 1) * step for n, step in zip(shape, strides, strict=True)]
        before, behind = sum(min(end, 0) for end in ends), sum(max(end, 0) for end in ends)
        buffer = (ctypes.c_char * (behind - before + dtype.itemsize)).from_address(address + before)
        return np.ndarray(shape, dtype, buffer, -before, strides)


class Writer:
    """A template in the making."""

    def __init__(self) -> None:
        self.words = [0] * _WORDS
        self.here: list[int] = [4, 5]
        self.inside: list[int] = []

    def place(self, start: int, strides: tuple[int, ...], inside: bool) -> int:
        """A place, of which the address is known, or an offset in the memory."""
        at = len(self.words)
        self.words += [0] * (STRIDES + 1)
        self.words[at + DATA] = start
        self.words[at + STRIDES] = 8 * len(self.words)
        self.here.append(at + STRIDES)
        self.words += strides
        if inside:
            self.inside.append(at + DATA)
        return at

    def word(self) -> int:
        """A word that is written to."""
        self.words.append(0)
        return len(self.words) - 1

    def numbers(self, numbers: Sequence[int]) -> int:
        """A table of numbers."""
        self.words += numbers
        return len(self.words) - len(numbers)

    def table(self, places: list[int]) -> int:
        """A table of places."""
        at = len(self.words)
        self.here += range(at, at + len(places))
        self.words += [8 * place for place in places]
        return at

    def finish(
        self,
        patches: list[tuple[int, int, int]],
        records: list[tuple[int, int, int, int]],
        free: bool,
    ) -> Template:
        """The template with its patches and records, which name places and tables by offsets."""
        self.words[1:6] = len(records), len(patches), int(free), 8 * len(self.words), 0
        for number, place, behind in patches:
            self.here.append(len(self.words) + 1)
            self.words += [number, 8 * place, behind]
        self.words[5] = 8 * len(self.words)
        for code, table, count, last in records:
            at = len(self.words)
            self.here.append(at + 1)
            if code in _PLACES:
                self.here.append(at + 2)
                count *= 8
            elif code > STOP and last:
                self.here.append(at + 3)
                last *= 8
            self.words += [code, 8 * table, count, last]
        indices = [np.array(found, np.intp) for found in (self.here, self.inside)]
        return Template(np.array(self.words, np.int64), *indices)
