"""The tables of sequences, which tell the runner what to do.

They are an array of 64-bit words, one array for each workspace of a program, so that concurrent
runs have their own:

- the *head*: the numbers of records and patches, whether the GIL is released, and the addresses of
  patches and records;
- *patches*, for each slot in an argument: the number of the argument, the slot that its data
  address is written to, and an offset in bytes;
- *slots*, which look like array objects to a kernel: a data address, and the address of strides;
- *kernel tables* of slots, one for each call;
- *records*, of four words.  A call has the address of its code, its table, its rows, and the slot
  of a byte that is set to 0 before and must be 0 afterwards (or 0).  A check has 0, the slot of a
  value, its size in bytes, and the bits that it must have.  `AIM` sets a slot to the address of
  another one plus an offset; `ADVANCE` moves it by some bytes.  `BEGIN` writes the number of
  iterations to a word; `REPEAT` decrements it, and jumps back to a record while it is positive.
"""

import ctypes
from typing import Any

import attrs
import numpy as np

from fdbr.backends.cpu.codegen.language import HEAD

__all__ = [
    *("ADVANCE", "AIM", "BEGIN", "DATA", "REFUSED", "REPEAT", "STRIDES"),
    *("Tables", "Template", "Writer"),
]

REFUSED = 1 << 40
AIM, ADVANCE, BEGIN, REPEAT = 1, 2, 3, 4
_WORDS = 5  # of the head
DATA, STRIDES = HEAD // 8, HEAD // 8 + 3  # words of a slot, as in NumPy's array struct


@attrs.define(eq=False)
class Template:
    """The tables of a sequence, independent of the addresses of tables and memory.

    Attributes
    ----------
    words
        The words, with offsets instead of addresses.
    here
        The indices of words that are offsets from the beginning of the tables.
    inside
        The indices of words that are offsets in the program's memory.
    """

    words: Any
    here: Any
    inside: Any

    def at(self, memory: int) -> "Tables":
        """Return the tables for memory at an address."""
        words = self.words.copy()
        words[self.here] += words.ctypes.data
        words[self.inside] += memory
        return Tables(words)


class Tables:
    """The tables for one workspace: ``words``."""

    __slots__ = ("words",)

    def __init__(self, words: Any) -> None:
        self.words = words

    def array(self, place: int, shape: tuple[int, ...], strides: Any, dtype: Any) -> Any:
        """Return the elements of a slot as an array."""
        address = int(self.words[place + DATA])
        ends = [(n - 1) * step for n, step in zip(shape, strides, strict=True)]
        before, behind = sum(min(end, 0) for end in ends), sum(max(end, 0) for end in ends)
        buffer = (ctypes.c_char * (behind - before + dtype.itemsize)).from_address(address + before)
        return np.ndarray(shape, dtype, buffer, -before, strides)


class Writer:
    """Builds a template."""

    def __init__(self) -> None:
        self.words = [0] * _WORDS
        self.here: list[int] = [3, 4]
        self.inside: list[int] = []

    def place(self, start: int, strides: tuple[int, ...], inside: bool) -> int:
        """Add a slot, whose address is known, or an offset in the memory; return its index."""
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
        """Add a word that the runner writes to; return its index."""
        self.words.append(0)
        return len(self.words) - 1

    def table(self, places: list[int]) -> int:
        """Add a table of slots; return its index."""
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
        """Return the template with its patches and records, which refer to slots by index."""
        self.words[:_WORDS] = len(records), len(patches), int(free), 8 * len(self.words), 0
        for number, place, behind in patches:
            self.here.append(len(self.words) + 1)
            self.words += [number, 8 * place, behind]
        self.words[4] = 8 * len(self.words)
        for code, table, count, last in records:
            at = len(self.words)
            self.here.append(at + 1)
            if code == AIM:
                self.here.append(at + 2)
                count *= 8
            elif code > REPEAT and last:
                self.here.append(at + 3)
                last *= 8
            self.words += [code, 8 * table, count, last]
        indices = [np.array(found, np.intp) for found in (self.here, self.inside)]
        return Template(np.array(self.words, np.int64), *indices)
