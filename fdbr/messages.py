"""Names of functions and values in messages, and what these say of arguments that are none."""

import operator
from typing import Any

import numpy as np

__all__ = [
    "brief",
    "describe",
    "differences",
    "integer",
    "integers",
    "is_refusal",
    "name_of",
    "number_types",
    "refusal",
    "refuse_other_kinds",
    "shortened",
]

number_types = frozenset({float, int, bool, complex})
"""The types of Python's numbers."""


def name_of(function: Any) -> str:
    """The name of a function in messages."""
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)


def describe(value: Any) -> str:
    """A value's dtype and shape, for messages."""
    if hasattr(value, "dtype") and isinstance(getattr(value, "shape", None), tuple):
        return f"{value.dtype}[{','.join(map(str, value.shape))}]"
    if type(value) in number_types:
        return f"{type(value).__name__} {value!r}"
    return type(value).__name__


_LONGEST = 200  # characters of a value that a message shows


def brief(value: Any) -> str:
    """The text of a value, or its beginning and end where it is as long as a model's."""
    return shortened(repr(value))


def shortened(text: str) -> str:
    """A text, or its beginning and end if it is long."""
    if len(text) <= _LONGEST:
        return text
    half = _LONGEST // 2
    return f"{text[:half]} … {text[-half:]}"


def differences(lists: dict[str, list[str]], most: int = 20) -> str:
    """Named lists of paths in words, of which each is cut after some."""
    texts = []
    for name, paths in lists.items():
        more = [f"and {len(paths) - most} more"] * (len(paths) > most)
        if paths:
            texts.append(f"{name}: {', '.join(paths[:most] + more)}")
    return "; ".join(texts)


# --- arguments ----------------------------------------------------------------------


def integer(function: str, name: str, value: Any, least: int | None = None) -> int:
    """An argument as an integer, of at least ``least``; messages begin with ``function``."""
    try:
        number = operator.index(value)
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
            return operator.index(value)
        return tuple(map(operator.index, value))
    except TypeError:
        raise TypeError(
            f"{function}: {name} must be an integer or a sequence of integers, not {brief(value)}"
        ) from None


def refuse_other_kinds(value: Any, where: str) -> None:
    """The error for arrays whose operators mean other things than those of arrays."""
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
