"""Values of kernels in LLVM, and their types.

Types are named as dtypes are: ``f4``, ``f8``, ``i4``, ``i8``, ``u1``, ``u2``, and ``b1`` for
booleans.  A pointer's name is that of its element type with a star in front.
"""

from typing import Any, NamedTuple

__all__ = [
    *("BITS", "BYTES", "AccessError", "Counts", "KernelError", "TYPES", "Value", "kind", "suffix")
]

TYPES = {"f4": "float", "f8": "double", "i4": "i32", "i8": "i64", "b1": "i1"}
TYPES |= {"u1": "i8", "u2": "i16"}
"""The types of numbers, and what LLVM calls them."""

BITS = {"b1": 1, "u1": 8, "u2": 16, "i4": 32, "i8": 64, "f4": 32, "f8": 64}
"""How long they are in registers."""

BYTES = {type: max(bits // 8, 1) for type, bits in BITS.items()}
"""How long they are in memory."""


class KernelError(Exception):
    """Report code that the kernel language does not support.

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
    """Report a loop whose memory accesses cannot be vectorised, or are not known to be."""


class Counts(NamedTuple):
    """Describe integers that grow by one step from one lane of a vector to the next.

    Attributes
    ----------
    name
        The register of the first lane, minus a constant; empty for the constant alone.
    more
        That constant.
    step
        The step between lanes; the register of one that is not constant.
    """

    name: str
    more: int
    step: Any = 1


class Value(NamedTuple):
    """Describe a value of a kernel.

    Attributes
    ----------
    type
        Its type.
    text
        Its LLVM register or constant.
    literal
        The literal number, if it is one: its type is weak.
    apart
        The alias scope of a pointer's accesses, see `Module.apart`.
    lanes
        The number of lanes of a vector.
    counts
        The description of an integer that grows evenly from lane to lane, which has no register.
    """

    type: str
    text: str
    literal: Any = None
    apart: str = ""
    lanes: int = 1
    counts: Counts | None = None

    @property
    def varies(self) -> bool:
        """Return whether the value differs between lanes."""
        return self.lanes > 1 or self.counts is not None

    @property
    def is_pointer(self) -> bool:
        return self.type[0] == "*"

    @property
    def typed(self) -> str:
        """Return the value with its type, in LLVM's syntax."""
        return f"{kind(self.type, self.lanes)} {self.text}"


def kind(type: str, lanes: int = 1) -> str:
    """Return LLVM's name of a scalar type, or of a vector of it."""
    one = "ptr" if type[0] == "*" else TYPES[type]
    return one if lanes == 1 else f"<{lanes} x {one}>"


def suffix(type: str, lanes: int) -> str:
    """Return the suffix of LLVM's overloaded functions for a type."""
    one = f"{'f' if type[0] == 'f' else 'i'}{BITS[type]}"
    return one if lanes == 1 else f"v{lanes}{one}"
