"""Values of kernels in LLVM's language, and their types.

The types are called as dtypes are: ``f4``, ``f8``, ``i4``, ``i8``, ``u1``, and ``b1`` for truth
values; a pointer to numbers has a star before their type.
"""

from typing import Any, NamedTuple

__all__ = [
    *("BITS", "BYTES", "AccessError", "Counts", "KernelError", "TYPES", "Value", "kind", "suffix")
]

TYPES = {"f4": "float", "f8": "double", "i4": "i32", "i8": "i64", "u1": "i8", "b1": "i1"}
"""The types of numbers, and what LLVM calls them."""

BITS = {"b1": 1, "u1": 8, "i4": 32, "i8": 64, "f4": 32, "f8": 64}
"""How long they are in registers."""

BYTES = {type: max(bits // 8, 1) for type, bits in BITS.items()}
"""How long they are in memory."""


class KernelError(Exception):
    """A kernel says what its language does not have.

    Attributes
    ----------
    where
        The function and the line in it, once they are known.
    """

    where: str | None = None

    def __str__(self) -> str:
        text = super().__str__()
        return text if self.where is None else f"{self.where}: {text}"


class AccessError(KernelError):
    """A loop reaches memory in a way that is no vector's, as far as is known when it is written."""


class Counts(NamedTuple):
    """Integers that grow by the same from one lane of a vector to the next.

    Attributes
    ----------
    name
        That of the first one, less a constant; empty for the constant alone.
    more
        That constant.
    step
        By how much they grow.
    """

    name: str
    more: int
    step: int = 1


class Value(NamedTuple):
    """A value of a kernel.

    Attributes
    ----------
    type
        Its type.
    text
        What LLVM calls it.
    literal
        The number that is written down, if it is one: its type is weak.
    apart
        What marks the reads and writes of a pointer's elements, see `Module.apart`.
    lanes
        How many numbers it is, in a vector.
    counts
        Of an integer that grows evenly from lane to lane: it has no text.
    """

    type: str
    text: str
    literal: Any = None
    apart: str = ""
    lanes: int = 1
    counts: Counts | None = None

    @property
    def varies(self) -> bool:
        """Whether it has a number for each lane."""
        return self.lanes > 1 or self.counts is not None

    @property
    def is_pointer(self) -> bool:
        return self.type[0] == "*"

    @property
    def typed(self) -> str:
        """It with its type, as LLVM writes it."""
        return f"{'ptr' if self.is_pointer else kind(self.type, self.lanes)} {self.text}"


def kind(type: str, lanes: int = 1) -> str:
    """LLVM's name of a type of numbers, or of vectors of them."""
    return TYPES[type] if lanes == 1 else f"<{lanes} x {TYPES[type]}>"


def suffix(type: str, lanes: int) -> str:
    """The ending that tells LLVM's functions for numbers of a type from those for others."""
    one = f"{'f' if type[0] == 'f' else 'i'}{BITS[type]}"
    return one if lanes == 1 else f"v{lanes}{one}"
