"""Generated kernels: a source in the kernel language, and the arguments that it is called with."""

from typing import Any

import attrs

from fdbr.backends.cpu.codegen.formulas import CODES
from fdbr.compiler.ir.program import Variable
from fdbr.ops.declare.user_reductions import Combine

__all__ = ["Join", "Output", "Written", "checked", "fits_word", "literal", "store", "stored"]


@attrs.frozen
class Output:
    """Describe an output of a kernel.

    Attributes
    ----------
    variable
        The variable, or `None` for memory that only the kernel uses.
    shape, dtype
        Those of the array to allocate, without the first axis if each thread has its own.
    per_thread
        Whether each thread has its own partial sum or partial extreme, which are then combined.
    divisor
        The divisor of the sum of partial sums: 1 for a sum, more for a mean.
    over
        The operand that it overwrites, in which case it has no memory of its own.
    joined
        How the threads' results are combined: ``"add"``, ``"maximum"`` or ``"minimum"``.
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
    """Describe outputs of which each thread has a part, to be combined by a user's function.

    Attributes
    ----------
    combine
        The function that combines two states.
    parts
        The indices of the outputs, one for each part of a state.
    """

    combine: Combine
    parts: tuple[int, ...]


@attrs.frozen
class Written:
    """Hold a kernel's source, and how it is called.

    Attributes
    ----------
    source
        The source, which is the same for kernels that differ only in the number of rows.
    inputs
        The operands at the start of the table: variables and constant arrays.
    outputs
        The outputs after them in the table, without those that overwrite operands.
    rows
        The number of rows.
    weight
        The approximate cost of a row in additions.
    refuses
        Whether the last output is one byte, initially 0, which the kernel sets if the operation
        itself must be run because it raises an error.
    joins
        The outputs of threads that are combined by a user's function instead of being added.
    strided
        The indices of the inputs that may have any strides, because the kernel reads them; other
        inputs must be contiguous.
    pitched
        The indices of the inputs whose rows may have gaps, but whose elements are adjacent along
        the last axis: views of larger arrays.
    interruptible
        Whether it is called with CPython's lock, which it releases and acquires itself, and may
        leave an error to be raised.
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
    interruptible: bool = False


def stored(dtype: Any) -> str:
    """Return the dtype of elements in memory, where booleans are bytes."""
    code = CODES[dtype]
    return "u1" if code == "b1" else code


def store(target: str, text: str, dtype: Any) -> str:
    """Return the statement that stores an element."""
    return f"{target} = {f'u1({text})' if CODES[dtype] == 'b1' else text}"


def checked(value: Any) -> Any:
    """Return a constant.

    Raises
    ------
    OverflowError
        If it is a Python integer that int64 does not hold.
    """
    if not fits_word(value):
        raise OverflowError(f"int64 does not hold {value}")
    return value


def fits_word(value: Any) -> bool:
    """Return whether a value is not a Python integer that int64 does not hold."""
    return type(value) is not int or -(1 << 63) <= value < 1 << 63


def literal(value: Any, code: str) -> str:
    """Return a number in the syntax of the kernel language."""
    number = value.item() if hasattr(value, "item") else value
    if code == "b1":
        return repr(bool(number))
    text = repr(number)
    return f"{code}({text})"
