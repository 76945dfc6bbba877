"""Argument checks, and how messages name functions and values."""

import functools
import inspect
import itertools
import operator
import sys
from collections.abc import Iterator
from types import FrameType, FunctionType, ModuleType
from typing import Any

import numpy as np

from fdbr.pytrees.short_repr import brief

__all__ = [
    "describe",
    "differences",
    "index",
    "integer",
    "integers",
    "is_interrupt",
    "is_refusal",
    "name_of",
    "named_as",
    "number_types",
    "recoverable",
    "refusal",
    "refuse_other_kinds",
    "show",
]

number_types = frozenset({float, int, bool, complex})
"""The types of Python's numbers."""


def name_of(function: Any) -> str:
    """Return the name of a function for messages."""
    found = getattr(function, "__qualname__", None)
    return found if found and isinstance(found, str) else str(type(function).__qualname__)


_ATTRIBUTES = {
    "__name__": str,
    "__qualname__": str,
    "__annotations__": dict,
    "__type_params__": tuple,
}


def named_as(f: Any) -> Any:
    """Decorate a function to look like ``f``, as `functools.wraps` does.

    Attributes whose type is not that of a function's attribute are left out, because a callable
    object may have a ``__getattr__`` that returns something for every name.
    """
    wanted: Any = functools.WRAPPER_ASSIGNMENTS
    if type(f) is not FunctionType:
        wanted = [
            name
            for name in wanted
            if isinstance(getattr(f, name, None), _ATTRIBUTES.get(name, object))
        ]
    return functools.wraps(f, assigned=wanted, updated=())


def describe(value: Any) -> str:
    """Return a value's dtype and shape for messages, as ``float64[3,4]``."""
    if hasattr(value, "dtype") and isinstance(getattr(value, "shape", None), tuple):
        return f"{value.dtype}[{','.join(map(str, value.shape))}]"
    if type(value) in number_types:
        return f"{type(value).__name__} {value!r}"
    return type(value).__name__


def show(value: Any) -> str:
    """Return an argument as messages list it: small constants by value, others by `describe`."""
    if value is None or isinstance(value, bool):
        return repr(value)
    if isinstance(value, str):
        return repr(value) if len(value) < 40 else f"{value[:40]!r}…"
    if isinstance(value, type | FunctionType | ModuleType):
        return getattr(value, "__qualname__", None) or value.__name__
    if isinstance(value, int) and abs(value) > 10**20:
        return f"an integer of {value.bit_length()} bits"
    return describe(value)


def differences(lists: dict[str, list[str]], most: int = 20) -> str:
    """Return named lists of paths as text, each cut after ``most`` paths."""
    texts = []
    for name, paths in lists.items():
        more = [f"and {len(paths) - most} more"] * (len(paths) > most)
        if paths:
            texts.append(f"{name}: {', '.join(paths[:most] + more)}")
    return "; ".join(texts)


# --- arguments ----------------------------------------------------------------------


def index(value: Any) -> int:
    """Return an axis, a size, a count or an index as an integer.

    It is `operator.index`, except that truth values are errors.

    Raises
    ------
    TypeError
        If ``value`` is not an integer.

    >>> import numpy as np
    >>> index(np.int8(3))
    3
    """
    if isinstance(value, bool):
        raise TypeError(f"an integer is needed, not the truth value {value}")
    return operator.index(value)


def integer(function: str, name: str, value: Any, least: int | None = None) -> int:
    """Return an argument as an integer of at least ``least``; messages begin with ``function``."""
    try:
        number = index(value)
    except TypeError:
        raise TypeError(f"{function}: {name} must be an integer, got {describe(value)}") from None
    if least is not None and number < least:
        raise ValueError(f"{function}: {name} must be at least {least}, got {number}")
    return number


def integers(function: str, name: str, value: Any) -> int | tuple[int, ...]:
    """Return an argument as an integer or a tuple of integers; messages begin with ``function``."""
    if type(value) is int:
        return value
    try:
        if hasattr(value, "__index__"):
            return index(value)
        return tuple(map(index, value))
    except TypeError:
        raise TypeError(
            f"{function}: {name} must be an integer or a sequence of integers, not {brief(value)}"
        ) from None


def refuse_other_kinds(value: Any, where: str) -> None:
    """Raise an error for arrays whose operators differ from those of arrays, as of `np.matrix`."""
    if type(value) is np.ndarray:
        return
    if issubclass(type(value), np.matrix | np.ma.MaskedArray):
        advice = "x.filled(value)" if isinstance(value, np.ma.MaskedArray) else "np.asarray(x)"
        raise TypeError(
            f"{where}: a {type(value).__name__} is no plain array: its operators mean other "
            f"things, which have no derivatives here. Give {advice}; for a mask, use ops.where"
        )


def refusal(error: Exception) -> Exception:
    """Mark an error as one that only tracing raises, and that says what to write instead."""
    vars(error)["is_refusal"] = True
    return error


def is_refusal(error: Exception) -> bool:
    """Whether `refusal` has marked an error."""
    return "is_refusal" in vars(error)


def recoverable() -> type[Exception] | tuple[()]:
    """Return what an ``except`` clause catches that continues in another way after any error.

    Errors of signal handlers are not caught (see `is_interrupt`).

    >>> try:
    ...     1 / 0
    ... except recoverable() as error:
    ...     print(error)
    division by zero
    """
    error = sys.exception()
    return () if error is not None and is_interrupt(error) else Exception


def is_interrupt(error: BaseException) -> bool:
    """Return whether the handler of a signal raised an error.

    Such an error says nothing about the code that it interrupts.  Python calls a handler with the
    number of the signal and the interrupted frame.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        interrupted, trace = trace.tb_frame, trace.tb_next
        given = itertools.pairwise(_arguments(trace.tb_frame))
        if any(frame is interrupted and type(number) is int for number, frame in given):
            return True
    return False


def _arguments(frame: FrameType) -> Iterator[Any]:
    """Yield the values of a call's positional parameters."""
    code, values = frame.f_code, frame.f_locals
    yield from map(values.get, code.co_varnames[: code.co_argcount])
    if code.co_flags & inspect.CO_VARARGS:
        rest = values.get(code.co_varnames[code.co_argcount + code.co_kwonlyargcount])
        yield from rest if type(rest) is tuple else ()
