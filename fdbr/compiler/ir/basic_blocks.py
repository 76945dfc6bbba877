"""Control flow between programs: basic blocks, and the registers that values lie in between."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import attrs

from fdbr.compiler.ir.program import Program

__all__ = ["BasicBlock"]


@attrs.frozen(eq=False)
class BasicBlock:
    """A program that has gone through the passes, and what comes after it.

    What was read is noted in a *log*, for a way back, if one is wanted; and a block on the way back
    takes it from there.

    Attributes
    ----------
    program
        The program.
    reads
        The register that each input is in; `None` if it is taken from the end of the log, where
        the last input lies last.
    writes
        The register that each output goes to; `None` of those that go nowhere.
    moves
        Pairs of registers: what the second one had before goes to the first one.
    asks
        Whether the first output, a truth value, says where to go.
    nexts
        The numbers of the blocks that follow: by answers; or, if the block asks nothing, by the
        number that was noted in the log before what it took from there.
    """

    program: Program
    reads: tuple[int | None, ...]
    writes: tuple[int | None, ...]
    moves: tuple[tuple[int, int], ...] = ()
    asks: bool = False
    nexts: Mapping[Any, int] = MappingProxyType({})
