"""Control flow between programs: basic blocks, and the registers that pass values between them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import attrs

from fdbr.compiler.ir.program import Program

__all__ = ["BasicBlock"]


@attrs.frozen(eq=False)
class BasicBlock:
    """A program that has gone through the passes, and its successors.

    Values that the backward pass needs are appended to a *log*; a block of the backward pass takes
    them from its end.

    Attributes
    ----------
    program
        The program.
    reads
        The register of each input; `None` if it is popped from the log, whose end holds the last
        such input.
    writes
        The register of each output; `None` for outputs that are discarded.
    moves
        Pairs of registers (target, source), moved at once: sources are read before any write.
    asks
        Whether the first output, a boolean, selects the successor.
    nexts
        The numbers of the successors: by outcome, or, if there is no guard, by the number that
        the log holds before the popped values.
    """

    program: Program
    reads: tuple[int | None, ...]
    writes: tuple[int | None, ...]
    moves: tuple[tuple[int, int], ...] = ()
    asks: bool = False
    nexts: Mapping[Any, int] = MappingProxyType({})
