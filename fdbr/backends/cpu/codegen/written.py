"""Kernels as they are written: a source in the kernel language, and what it is called with."""

from typing import Any

import attrs

from fdbr.backends.cpu.codegen.formulas import CODES
from fdbr.compiler.ir.program import Variable
from fdbr.ops.declare.user_reductions import Combine

__all__ = ["Join", "Output", "Written", "literal", "store", "stored"]


@attrs.frozen
class Output:
    """An output of a kernel.

    Attributes
    ----------
    variable
        The variable, or `None` for memory that only the kernel uses.
    shape, dtype
        Those of the array to be made; without the first axis where each thread has its own.
    per_thread
        Whether each thread has one of its own: partial sums, to be added up, or partial extremes.
    divisor
        By what the sum of partial sums is divided, 1 for sums and more for means.
    over
        The operand over whose elements it is written: it has no memory of its own then.
    joined
        How the parts of threads become one: ``"add"``, ``"maximum"`` or ``"minimum"``.
    """

    variable: Variable | None
    shape: tuple[int, ...]
    dtype: Any
    per_thread: bool
    divisor: int
    over: Variable | None = None
    joined: str = "add"


@attrs.frozen
class Join:
    """Outputs of which each thread has a part of its own, to be joined as a user says.

    Attributes
    ----------
    combine
        The function of two states that joins them.
    parts
        Which outputs they are, by their places: one for each part of a state.
    found
        The place of the output in which each thread notes that it has found its part.
    """

    combine: Combine
    parts: tuple[int, ...]
    found: int


@attrs.frozen
class Written:
    """A kernel's source, and how it is called.

    Attributes
    ----------
    source
        The same for kernels that differ in nothing but the number of rows.
    inputs
        The operands that the table names first: variables and constant arrays.
    outputs
        What it names after them, but for those that are written over operands.
    rows
        The number of rows.
    weight
        About how many additions a row costs.
    refuses
        Whether the last output is one byte, which is 0 and which the kernel sets where the function
        itself has to be run, because it raises an error.
    joins
        Which parts of threads are joined in the place of being added up.
    strided
        The places of the inputs that may lie anyhow in memory, for the kernel asks for their
        steps; the others are laid out in order.
    pitched
        The places of those whose rows may lie anyhow, but whose elements follow one another
        along the last axis: views of larger arrays.
    """

    source: str
    inputs: tuple[Any, ...]
    outputs: tuple[Output, ...]
    rows: int
    weight: int
    refuses: bool = False
    strided: frozenset[int] = frozenset()
    pitched: frozenset[int] = frozenset()
    joins: tuple[Join, ...] = ()


def stored(dtype: Any) -> str:
    """The dtype of elements in memory, where truth values are bytes."""
    code = CODES[dtype]
    return "u1" if code == "b1" else code


def store(target: str, text: str, dtype: Any) -> str:
    """The statement that writes an element."""
    return f"{target} = {f'u1({text})' if CODES[dtype] == 'b1' else text}"


def literal(value: Any, code: str) -> str:
    """A number as the kernel language writes it."""
    number = value.item() if hasattr(value, "item") else value
    if code == "b1":
        return repr(bool(number))
    text = repr(number)
    return f"{code}({text})"
