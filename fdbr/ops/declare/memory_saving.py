"""Saving memory while a checkpointed function is recomputed.

Results are computed piece by piece, so that temporary arrays stay small, and overwrite operands
that have no other reference.

CPython counts references.  The count of an array that only the running call refers to differs
between versions, so it is measured once, with a fresh array on the same call path.
"""

import copy
import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from fdbr.core.primitive import Primitive, dispatch
from fdbr.core.tape import ReverseTracer
from fdbr.core.util.threads import parts
from fdbr.ops.declare.rules import Function

__all__ = [
    *("LARGE", "flattened", "is_saving_memory", "pieces", "reusing_operand", "saving_memory"),
    "sole_references",
]

LARGE = 1 << 18  # bytes from which on memory is saved by overwriting and by pieces
_PIECES = 8  # pieces of a result that is computed to save memory: temporaries are 1/8 of it

_saving_memory: ContextVar[bool] = ContextVar("saving_memory", default=False)
is_saving_memory = _saving_memory.get


@contextmanager
def saving_memory() -> Iterator[None]:
    """Save memory at the cost of time within the context."""
    token = _saving_memory.set(True)
    try:
        yield
    finally:
        _saving_memory.reset(token)


def flattened(*arrays: Any) -> Any:
    """View arrays of one shape as one axis each, where their memory order allows it."""
    if all(array.flags.c_contiguous for array in arrays):
        return [array.reshape(-1) for array in arrays]
    if all(array.flags.f_contiguous for array in arrays):
        return [array.T.reshape(-1) for array in arrays]
    return arrays


def pieces(array: Any, least: int) -> list[slice]:
    """Slices of about 1 / `_PIECES` of an array, of at least ``least`` bytes."""
    size = max(array.nbytes // _PIECES, least)
    rows = max(1, -(-size * len(array) // array.nbytes))
    return parts(len(array), len(array) // rows)


def reusing_operand(function: Function) -> Function:
    """Wrap an operation to overwrite an operand that has no other reference.

    In ``tanh(linear(x, weight))`` only `tanh` refers to the result of `linear`.  Within
    `saving_memory` the result of `tanh` overwrites it.
    """
    primitive = function.primitive  # type: ignore[attr-defined]
    overwriting = copy.copy(primitive)  # the same operation otherwise
    overwriting.host = functools.partial(_overwrite, primitive)
    none: dict[str, Any] = {}

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        if len(args) != 1:
            return function(*args)  # raises the error for a wrong number of arguments
        if (
            type(args[0]) is ReverseTracer
            and type(args[0].value) is np.ndarray
            and args[0].value.nbytes >= LARGE
            and is_saving_memory()
            # A local name for the operand would add a reference.
            and (sys.getrefcount(args[0]), sys.getrefcount(args[0].value)) == _SOLE_OPERAND
            and args[0].value.base is None
            and args[0].value.flags.writeable
        ):
            return dispatch(overwriting, args, none)
        return dispatch(primitive, args, none)

    return call


def _overwrite(primitive: Primitive, xp: Any, x: Any) -> Any:
    value = primitive.host
    if value(xp, x[:0]).dtype != x.dtype:
        return value(xp, x)
    (row,) = flattened(x)
    for piece in pieces(row, getattr(value, "least", 0)):
        row[piece] = value(xp, row[piece])
    return x


def _operand_references(*args: Any) -> tuple[int, int]:
    return sys.getrefcount(args[0]), sys.getrefcount(args[0].value)


def _sole_operand() -> Any:
    tracer = object.__new__(ReverseTracer)
    tracer.value = np.empty(0)
    return tracer


def _cotangent_references(ct: Any, like: Any, saved: Any) -> int:
    return sys.getrefcount(ct)


def _call_as_backward(vjp: Function, saved: tuple[Any, ...]) -> Any:
    cotangent = object()
    return vjp(cotangent, *saved)  # as `backward` does, with the same number of references


_SOLE_OPERAND = _operand_references(_sole_operand())
sole_references: int = _call_as_backward(_cotangent_references, (None, None))
"""The references to a cotangent that only `backward` refers to, as a vjp rule counts them."""
