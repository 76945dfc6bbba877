"""The numbers on which optimizers depend, and their checks."""

from collections.abc import Callable
from typing import Any

from fdbr.core.array_modules import array_module
from fdbr.core.tracer import Tracer
from fdbr.pytrees.short_repr import brief

__all__ = ["LearningRate", "check_decays", "check_positive", "learning_rate_of", "rate_at"]

LearningRate = float | Callable[[Any], Any]
"""A number, or a schedule: a function from the count of updates made before to a number."""


def check_decays(function: str, **values: Any) -> None:
    """Raise unless all are in [0, 1); traced numbers are taken on trust."""
    for name, value in values.items():
        if not isinstance(value, Tracer) and not 0 <= value < 1:
            raise ValueError(f"fdbr.train.optim.{function}: {name} must lie in [0, 1), got {value}")


def check_positive(function: str, *, or_zero: bool = False, **values: Any) -> None:
    """Raise unless all are positive (or zero); traced numbers are taken on trust."""
    for name, value in values.items():
        if not isinstance(value, Tracer) and not (value > 0 or (or_zero and value == 0)):
            kind = "at least 0" if or_zero else "positive"
            raise ValueError(f"fdbr.train.optim.{function}: {name} must be {kind}, got {value}")


def learning_rate_of(function: str, learning_rate: Any) -> Any:
    """A learning rate, checked: a schedule, a number of Python's or an array that stays one."""
    return learning_rate if callable(learning_rate) else _number(function, learning_rate)


def rate_at(function: str, learning_rate: Any, count: Any) -> Any:
    """The learning rate after so many updates, from what `learning_rate_of` returns."""
    return _number(function, learning_rate(count)) if callable(learning_rate) else learning_rate


def _number(function: str, value: Any) -> Any:
    """A number as Python's float, which leaves the dtype of gradients as it is.

    What is traced, or lies on a GPU, stays where it is.
    """
    if isinstance(value, Tracer) or array_module(value).__name__ == "cupy":
        return value
    try:
        rate = float(value)
    except (TypeError, ValueError):
        raise TypeError(
            f"fdbr.train.optim.{function}: the learning rate must be a number or a function that "
            f"returns one, got {brief(value)}"
        ) from None
    if not rate >= 0:
        raise ValueError(
            f"fdbr.train.optim.{function}: the learning rate must be at least 0, got {rate}"
        )
    return rate
