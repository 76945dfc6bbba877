"""Schedules that decay by a factor, or with the inverse of the step."""

import math
import sys
from typing import Any

from fdbr import ops
from fdbr.core.util.pickling import public_factory
from fdbr.train.optim.schedules.base import Schedule, number, positive, steps

__all__ = ["exponential_decay", "inverse_time_decay"]

_LARGEST = math.log(sys.float_info.max)


@public_factory("fdbr.train.optim")
def exponential_decay(
    init_value: float,
    transition_steps: int,
    decay_rate: float,
    transition_begin: int = 0,
    staircase: bool = False,
    end_value: float | None = None,
) -> Schedule:
    """A factor every so many steps.

    Formula, with ``t`` the count from ``transition_begin`` on, and 0 before::

        value = init_value * decay_rate ** (t / transition_steps)

    With ``staircase`` the exponent is rounded down: PyTorch's ``StepLR`` and Chainer's
    ``StepShift``.

    Parameters
    ----------
    init_value
        The value at the first step.
    transition_steps
        The steps in which the value changes by ``decay_rate``; at least 1.
    decay_rate
        A positive number, above 1 for a rise.
    transition_begin
        The steps for which the value stays as it is; at least 0.
    staircase
        Whether the value changes every ``transition_steps`` steps alone.
    end_value
        The bound at which the value stops: the lower one for ``decay_rate < 1``, else the upper
        one; `None` for none.

    Returns
    -------
    Schedule

    Raises
    ------
    TypeError, ValueError
        If an argument is no finite number, or out of range.

    >>> from fdbr.train import optim
    >>> halving = optim.exponential_decay(1.0, 10, 0.5, staircase=True)
    >>> halving(9), halving(10), halving(25)
    (1.0, 0.5, 0.25)
    """
    name = "exponential_decay"
    init_value = number(name, "init_value", init_value)
    transition_steps = steps(name, "transition_steps", transition_steps)
    decay_rate = positive(name, "decay_rate", decay_rate)
    transition_begin = steps(name, "transition_begin", transition_begin, 0)
    bounded = None
    if end_value is not None:
        end_value = number(name, "end_value", end_value)
        bounded = ops.maximum if decay_rate < 1 else ops.minimum

    # Python's numbers raise an error where they would become infinite.
    grows = isinstance(decay_rate, float | int) and decay_rate > 1
    most: Any = math.floor(_LARGEST / math.log(decay_rate)) if grows else None

    end: Any = end_value

    def exponential(count: Any) -> Any:
        exponent: Any = ops.maximum(count - transition_begin, 0) / transition_steps
        if most is not None:
            exponent = ops.minimum(exponent, most)
        value = init_value * decay_rate ** (ops.floor(exponent) if staircase else exponent)
        return value if bounded is None else bounded(value, end)

    return Schedule(exponential)


@public_factory("fdbr.train.optim")
def inverse_time_decay(
    init_value: float,
    transition_steps: int,
    decay_rate: float,
    power: float = 1.0,
    transition_begin: int = 0,
    staircase: bool = False,
) -> Schedule:
    """A decay with the inverse of the step, or of a power of it.

    Formula, with ``t`` the count from ``transition_begin`` on, and 0 before::

        value = init_value / (1 + decay_rate * t / transition_steps) ** power

    ``inverse_time_decay(lr, 1, gamma, power)`` is Chainer's ``InverseShift(gamma, power)``, and
    ``power=0.5`` the decay of many transformers.

    Parameters
    ----------
    init_value
        The value at the first step.
    transition_steps
        The steps in which the bracket grows by ``decay_rate``; at least 1.
    decay_rate
        A number, at least 0.
    power
        A positive number.
    transition_begin
        The steps for which the value stays as it is; at least 0.
    staircase
        Whether the value changes every ``transition_steps`` steps alone.

    Returns
    -------
    Schedule

    Raises
    ------
    TypeError, ValueError
        If an argument is no finite number, or out of range.

    >>> from fdbr.train import optim
    >>> rate = optim.inverse_time_decay(1.0, 10, 1.0)
    >>> rate(0), rate(10), rate(30)
    (1.0, 0.5, 0.25)
    """
    name = "inverse_time_decay"
    init_value = number(name, "init_value", init_value)
    transition_steps = steps(name, "transition_steps", transition_steps)
    decay_rate = number(name, "decay_rate", decay_rate)
    if type(decay_rate) is float and decay_rate < 0:
        raise ValueError(
            f"fdbr.train.optim.{name}: decay_rate must be at least 0, got {decay_rate}"
        )
    power = positive(name, "power", power)
    transition_begin = steps(name, "transition_begin", transition_begin, 0)

    def inverse_time(count: Any) -> Any:
        time = ops.maximum(count - transition_begin, 0) / transition_steps
        return init_value * (1 + decay_rate * (ops.floor(time) if staircase else time)) ** -power

    return Schedule(inverse_time)
