"""Names of functions and values in messages, and what these say of arguments that are none."""

import functools
import operator
from typing import Any

import numpy as np

from fdbr.pytrees.short_repr import brief

__all__ = [
    "describe",
    "differences",
    "index",
    "integer",
    "integers",
    "is_refusal",
    "name_of",
    "named_as",
    "number_types",
    "refusal",
    "refuse_other_kinds",
]

number_types = frozenset({float, int, bool, complex})
"""The types of Python's numbers."""


def name_of(function: Any) -> str:
    """The name of a function in messages."""
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

    Attributes that are of another type than a function's, as where ``__getattr__`` of a callable
    object answers every name, are left out.
    """
    wanted = [
        name
        for name in functools.WRAPPER_ASSIGNMENTS
        if isinstance(getattr(f, name, None), _ATTRIBUTES.get(name, object))
    ]
    return functools.wraps(f, assigned=wanted, updated=())


def describe(value: Any) -> str:
    """A value's dtype and shape, for messages."""
    if hasattr(value, "dtype") and isinstance(getattr(value, "shape", None), tuple):
        return f"{value.dtype}[{','.join(map(str, value.shape))}]"
    if type(value) in number_types:
        return f"{type(value).__name__} {value!r}"
    return type(value).__name__


def differences(lists: dict[str, list[str]], most: int = 20) -> str:
    """Named lists of paths in words, of which each is cut after some."""
    texts = []
    for name, paths in lists.items():
        more = [f"and {len(paths) - most} more"] * (len(paths) > most)
        if paths:
            texts.append(f"{name}: {', '.join(paths[:most] + more)}")
    return "; ".join(texts)


# --- arguments ----------------------------------------------------------------------


def index(value: Any) -> int:
    """Return an axis, a size, a count or an index as an integer.

    It is `operator.index` without truth values, which name no axis and count nothing.

    Raises
    ------
    TypeError
        If ``value`` is no integer.

    >>> import numpy as np
    >>> index(np.int8(3))
    3
    """
    if isinstance(value, bool):
        raise TypeError(f"an integer is needed, not the truth value {value}")
    return operator.index(value)


def integer(function: str, name: str, value: Any, least: int | None = None) -> int:
    """An argument as an integer, of at least ``least``; messages begin with ``function``."""
    try:
        number = index(value)
    except TypeError:
        raise TypeError(f"{function}: {name} must be an integer, got {describe(value)}") from None
    if least is not None and number < least:
        raise ValueError(f"{function}: {name} must be at least {least}, got {number}")
    return number


def integers(function: str, name: str, value: Any) -> int | tuple[int, ...]:
    """An argument as an integer or a tuple of them; messages begin with ``function``."""
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
    """The error for arrays whose operators mean other things than those of arrays."""
    if type(value) is np.ndarray:
        return
    if issubclass(type(value), np.matrix | np.ma.MaskedArray):
        advice = "x.filled(value)" if isinstance(value, np.ma.MaskedArray) else "np.asarray(x)"
        raise TypeError(
            f"{where}: a {type(value).__name__} is no plain array: its operators mean other "
            f"things, which have no derivatives here. Give {advice}; for a mask, use ops.where"
        )


def refusal(error: Exception) -> Exception:
    """An error that says that values are traced, and what to write instead; marked as such."""
    vars(error)["is_refusal"] = True
    return error


def is_refusal(error: Exception) -> bool:
    """Whether an error is a `refusal`: it is meant, even where there is none without traces."""
    return "is_refusal" in vars(error)
