"""The `Schedule` type: functions of the step with arithmetic, and what they are written with."""

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr import ops
from fdbr.core.tracer import Tracer
from fdbr.core.util.pickling import factory
from fdbr.errors.checks import describe, integer, name_of
from fdbr.errors.public import public
from fdbr.ops.dtypes import is_number
from fdbr.tree import frozen, static

__all__ = ["Schedule", "choose", "clipped", "half_cosine", "number", "positive", "steps"]

Number = Any
"""A number, a 0-d array, or a traced one of either."""


@public("fdbr.train.optim")
@frozen
class Schedule:
    """A number that depends on the count of updates made before: a learning rate, a decay.

    Any function of the count is a schedule to an optimizer.  What this class adds is arithmetic:
    ``+``, ``-``, ``*``, ``/`` and ``**`` with numbers and with other functions of the count.

    Attributes
    ----------
    function
        ``function(count) -> value``.

    Raises
    ------
    TypeError
        If the function is none; by a call, if the count is no real number or array of them.

    Notes
    -----
    A count is an integer of Python, an array of integers, or a traced one of either; an array gives
    the values at all its counts, for a plot.  Values are computed in float64.  That of a Python
    integer is a Python float, jitted or not, which leaves the dtype of what it multiplies as it is;
    that of an array without dimensions is so too outside of transformations.

    >>> from fdbr.train import optim
    >>> warmup = optim.linear_schedule(0.0, 1.0, 4)
    >>> rate = 0.5 * warmup * optim.Schedule(lambda count: 1 / (1 + count))
    >>> rate(0), rate(1), rate(4)
    (0.0, 0.0625, 0.1)
    """

    function: Callable[[Any], Any] = static(repr=name_of)

    def __call__(self, count: Any) -> Any:
        return _weak(self.function(_counted(count)))

    def __add__(self, other: Any) -> "Schedule":
        return _joined(operator.add, self, other)

    def __radd__(self, other: Any) -> "Schedule":
        return _joined(operator.add, other, self)

    def __sub__(self, other: Any) -> "Schedule":
        return _joined(operator.sub, self, other)

    def __rsub__(self, other: Any) -> "Schedule":
        return _joined(operator.sub, other, self)

    def __mul__(self, other: Any) -> "Schedule":
        return _joined(operator.mul, self, other)

    def __rmul__(self, other: Any) -> "Schedule":
        return _joined(operator.mul, other, self)

    def __truediv__(self, other: Any) -> "Schedule":
        return _joined(operator.truediv, self, other)

    def __rtruediv__(self, other: Any) -> "Schedule":
        return _joined(operator.truediv, other, self)

    def __pow__(self, other: Any) -> "Schedule":
        return _joined(operator.pow, self, other)

    @factory
    def clip(self, min: float | None = None, max: float | None = None) -> "Schedule":
        """The same, brought into ``[min, max]``; a bound of `None` is none.

        >>> from fdbr.train import optim
        >>> optim.exponential_decay(1.0, 1, 0.5).clip(0.2)(9)
        0.2
        """
        low = -math.inf if min is None else number("Schedule.clip", "min", min)
        high = math.inf if max is None else number("Schedule.clip", "max", max)
        return Schedule(lambda count: clipped(self.function(count), low, high))

    @factory
    def __neg__(self) -> "Schedule":
        return Schedule(lambda count: -self.function(count))


@factory
def _joined(operation: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    parts = [_part(operand) for operand in (left, right)]
    if NotImplemented in parts:
        return NotImplemented
    first, second = parts

    def joined(count: Any) -> Any:
        return operation(first(count), second(count))

    return Schedule(joined)


def _part(operand: Any) -> Any:
    """An operand as a function of the count."""
    if isinstance(operand, Schedule):
        return operand.function
    if callable(operand):
        return operand
    if is_number(operand) or getattr(operand, "shape", None) == ():
        return lambda count: operand
    return NotImplemented


def _counted(count: Any) -> Any:
    """A count that is an integer of Python, traced or not, or an array of float64."""
    if type(count) in (int, float) or (isinstance(count, Tracer) and is_number(count)):
        return count
    if _is_number_of_numpy(count):
        return count.item()
    if getattr(getattr(count, "dtype", None), "kind", None) in _REAL and hasattr(count, "shape"):
        return ops.astype(count, "float64")
    raise TypeError(
        "fdbr.train.optim.Schedule: the count must be an integer or an array of integers, got "
        f"{describe(count)}"
    )


_REAL = ("i", "u", "f")


def _is_number_of_numpy(value: Any) -> bool:
    """Whether a value is a 0-d array of NumPy that is there: a traced one says that it is one."""
    return issubclass(type(value), np.generic | np.ndarray) and (
        value.shape == () and value.dtype.kind in _REAL
    )


def _weak(value: Any) -> Any:
    """A value as Python's number, if it is one number that is there."""
    return value.item() if _is_number_of_numpy(value) else value


def choose(condition: Any, x: Any, y: Any) -> Any:
    """``x`` where a condition on the count holds, ``y`` elsewhere.

    Numbers stay numbers, traced ones too, where `ops.where` would make arrays of them, which are
    not weak.  Both must be finite.
    """
    if type(condition) in (bool, np.bool_):
        return x if condition else y
    if is_number(condition):
        return condition * x + (1 - condition) * y
    return ops.where(condition, x, y)


def clipped(x: Any, low: Any, high: Any) -> Any:
    """``x`` brought into ``[low, high]``; numbers stay numbers."""
    return ops.minimum(ops.maximum(x, low), high)


def half_cosine(part: Any) -> Any:
    """``(1 + cos(pi * part)) / 2``, from 1 to 0, with all digits where it is nearly 0."""
    return ops.sin(0.5 * math.pi * (1 - part)) ** 2


# --- arguments ----------------------------------------------------------------------


def number(function: str, name: str, value: Any) -> Number:
    """An argument as a weak number; a traced one as it is.  Messages name function and argument."""
    if isinstance(value, Tracer):
        return value
    if isinstance(value, bool | complex) or getattr(value, "shape", ()) != ():
        return _refuse(function, name, value)
    if hasattr(value, "dtype") and not isinstance(value, np.generic | np.ndarray):
        return value  # a 0-d array of a GPU, which nobody waits for
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        return _refuse(function, name, value)
    return found if math.isfinite(found) else _refuse(function, name, value)


def _refuse(function: str, name: str, value: Any) -> Any:
    kind = TypeError if not isinstance(value, float | int) else ValueError
    raise kind(
        f"fdbr.train.optim.{function}: {name} must be a finite number, got {describe(value)}"
    )


def steps(function: str, name: str, value: Any, least: int = 1) -> int:
    """An argument as a number of steps."""
    return integer(f"fdbr.train.optim.{function}", name, value, least)


def positive(function: str, name: str, value: Any) -> Number:
    """An argument as a weak positive number."""
    found = number(function, name, value)
    if isinstance(found, float) and type(found) is float and not found > 0:
        raise ValueError(f"fdbr.train.optim.{function}: {name} must be positive, got {found}")
    return found
