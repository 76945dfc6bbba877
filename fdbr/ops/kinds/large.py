"""Elementwise operations of one operand on large NumPy arrays, piece by piece.

What takes long is divided among threads.  And where memory is short, because a function is run
again to save it, the temporary arrays of a piece are small beside the whole, and the result takes
the place of an array that nobody can look at again.

Each element is computed as it always is, so results are the same to the last bit.
"""

import copy
import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from fdbr.core import dispatch
from fdbr.ops.kinds.rules import Function
from fdbr.ops.threads import divide, slices
from fdbr.reverse import ReverseTracer

__all__ = ["LARGE", "evaluated", "letting_go", "pulled", "sparing"]

LARGE = 1 << 18  # bytes from which on memory is saved
_LONG = 1 << 21  # bytes from which on operations that take long are divided among threads
_SHARE = 1 << 18  # bytes of a piece for a thread
_PIECES = 8  # to save memory

_sparing: ContextVar[bool] = ContextVar("sparing", default=False)
_array = np.ndarray


@contextmanager
def sparing() -> Iterator[None]:
    """Have memory saved, though it takes some time, in what is computed meanwhile."""
    token = _sparing.set(True)
    try:
        yield
    finally:
        _sparing.reset(token)


def _in_a_row(*arrays: Any) -> Any:
    """Arrays of one shape, so that their elements lie along the first axis if possible."""
    if all(array.flags.c_contiguous for array in arrays):
        return [array.reshape(-1) for array in arrays]
    if all(array.flags.f_contiguous for array in arrays):
        return [array.T.reshape(-1) for array in arrays]
    return arrays


# --- divided among threads ----------------------------------------------------------


def evaluated(value: Function) -> Function:
    """The value of an operation that takes long."""

    @functools.wraps(value)
    def in_pieces(xp: Any, x: Any, **params: Any) -> Any:
        if type(x) is not _array or x.nbytes < _LONG:
            return value(xp, x, **params)
        out = np.empty_like(x, dtype=value(xp, x[:0], **params).dtype)
        x, into = _in_a_row(x, out)

        def work(piece: slice) -> None:
            into[piece] = value(xp, x[piece], **params)

        divide(work, slices(x, _SHARE))
        return out

    return in_pieces


def pulled(references: int, ct: Any, partial: Function, saved: Any, heavy: bool) -> Any:
    """``ct * partial(saved)`` for a large ``ct``.

    Where memory is short it takes the place of ``ct``, if nobody has that but the caller of the
    pull, who gives it away as `backward` does: ``references`` are those that the pull sees.
    """
    spare, threads = _sparing.get(), heavy and ct.nbytes >= _LONG
    if (
        not (spare or threads)
        or type(saved) is not _array
        or saved.dtype != ct.dtype
        or saved.shape != ct.shape
        or (ct[:0] * partial(saved[:0])).dtype != ct.dtype
    ):
        return ct * partial(saved)
    alone = spare and references == _SOLE_COTANGENT and _is_private(ct)
    out = ct if alone else np.empty_like(saved)
    ct, saved, into = _in_a_row(ct, saved, out)

    def work(piece: slice) -> None:
        np.multiply(ct[piece], partial(saved[piece]), out=into[piece])

    if threads:
        divide(work, slices(into, _SHARE))
    else:
        for piece in slices(into, out.nbytes // _PIECES):
            work(piece)
    return out


# --- in the place of what nobody needs any more -------------------------------------
#
# Whoever can look at an array holds a reference to it.  How few references there are at least is
# found out with an array that nobody else has, by counting in the same way.


def _is_private(array: Any) -> bool:
    return array.base is None and array.flags.writeable


def letting_go(function: Function) -> Function:
    """The function of an operation, which uses up an operand that nobody else has.

    In ``tanh(linear(x, weight))`` nobody but `tanh` has the result of `linear`.  Where memory is
    short, the result of `tanh` takes its place.
    """
    primitive = function.primitive  # type: ignore[attr-defined]
    value = primitive.value
    overwriting = copy.copy(primitive)  # the same operation otherwise
    overwriting.value = functools.partial(_overwrite, value)
    none: dict[str, Any] = {}

    @functools.wraps(function)
    def last(*args: Any) -> Any:
        if len(args) != 1:
            return function(*args)  # which says that this is an error
        if (
            type(args[0]) is ReverseTracer
            and type(args[0].value) is _array
            and args[0].value.nbytes >= LARGE
            and _sparing.get()
            # The arguments are a tuple that this call has alone.  The operand gets no name here.
            and (sys.getrefcount(args[0]), sys.getrefcount(args[0].value)) == _SOLE_OPERAND
            and _is_private(args[0].value)
            and primitive.value is value  # else somebody observes it
        ):
            return dispatch(overwriting, args, none)
        return dispatch(primitive, args, none)

    return last


def _overwrite(value: Function, xp: Any, x: Any) -> Any:
    if value(xp, x[:0]).dtype != x.dtype:
        return value(xp, x)
    (row,) = _in_a_row(x)
    for piece in slices(row, x.nbytes // _PIECES):
        row[piece] = value(xp, row[piece])
    return x


def _count_operand(*args: Any) -> tuple[int, int]:
    return sys.getrefcount(args[0]), sys.getrefcount(args[0].value)


def _sole_operand() -> Any:
    tracer = object.__new__(ReverseTracer)
    tracer.value = np.empty(0)
    return tracer


def _count_cotangent(ct: Any, like: Any, saved: Any) -> int:
    return sys.getrefcount(ct)


def _pull_alone(pull: Function, saved: tuple[Any, ...]) -> Any:
    cotangent = object()
    return pull(cotangent, *saved)  # as in `backward`


_SOLE_OPERAND = _count_operand(_sole_operand())
_SOLE_COTANGENT = _pull_alone(_count_cotangent, (None, None))
