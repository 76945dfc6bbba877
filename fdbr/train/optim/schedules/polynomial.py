"""Schedules that are constant, or go from one value to another along a line or a power."""

from typing import Any

from fdbr import ops
from fdbr.core.util.pickling import public_factory
from fdbr.train.optim.schedules.base import Schedule, clipped, number, positive, steps

__all__ = ["constant_schedule", "linear_schedule", "polynomial_schedule"]


@public_factory("fdbr.train.optim")
def constant_schedule(value: float) -> Schedule:
    """The same value at each step, to join with others.

    Parameters
    ----------
    value
        A finite number.

    Returns
    -------
    Schedule

    Raises
    ------
    TypeError, ValueError
        If it is none.

    >>> from fdbr.train import optim
    >>> optim.constant_schedule(0.1)(7)
    0.1
    """
    value = number("constant_schedule", "value", value)

    def constant(count: Any) -> Any:
        shape = getattr(count, "shape", ())
        return ops.full_like(count, value, dtype="float64") if shape else value

    return Schedule(constant)


@public_factory("fdbr.train.optim")
def polynomial_schedule(
    init_value: float,
    end_value: float,
    power: float,
    transition_steps: int,
    transition_begin: int = 0,
) -> Schedule:
    """From one value to another by a power of the steps that are left.

    Formula, with ``t`` the count from ``transition_begin`` on, brought into
    ``[0, transition_steps]``::

        value = (init_value - end_value) * (1 - t / transition_steps) ** power + end_value

    Parameters
    ----------
    init_value, end_value
        The values at the first step and from the last one on.
    power
        A positive number; 1 is a line.
    transition_steps
        The steps between them; at least 1.
    transition_begin
        The steps for which the value stays at ``init_value``; at least 0.

    Returns
    -------
    Schedule

    Raises
    ------
    TypeError, ValueError
        If an argument is no finite number, or out of range.

    >>> from fdbr.train import optim
    >>> rate = optim.polynomial_schedule(1.0, 0.0, 2, 10)
    >>> rate(0), rate(5), rate(10), rate(99)
    (1.0, 0.25, 0.0, 0.0)
    """
    return _polynomial(
        "polynomial_schedule", init_value, end_value, power, transition_steps, transition_begin
    )


@public_factory("fdbr.train.optim")
def linear_schedule(
    init_value: float, end_value: float, transition_steps: int, transition_begin: int = 0
) -> Schedule:
    """From one value to another along a line: `polynomial_schedule` of power 1.

    Parameters
    ----------
    init_value, end_value
        The values at the first step and from the last one on.
    transition_steps
        The steps between them; at least 1.
    transition_begin
        The steps for which the value stays at ``init_value``; at least 0.

    Returns
    -------
    Schedule

    Raises
    ------
    TypeError, ValueError
        If an argument is no finite number, or out of range.

    >>> from fdbr.train import optim
    >>> rate = optim.linear_schedule(0.0, 1.0, 4, transition_begin=2)
    >>> rate(2), rate(3), rate(6), rate(7)
    (0.0, 0.25, 1.0, 1.0)
    """
    return _polynomial(
        "linear_schedule", init_value, end_value, 1.0, transition_steps, transition_begin
    )


def _polynomial(
    name: str, init_value: Any, end_value: Any, power: Any, transition_steps: Any, begin: Any
) -> Schedule:
    init_value = number(name, "init_value", init_value)
    end_value = number(name, "end_value", end_value)
    power = positive(name, "power", power)
    transition_steps = steps(name, "transition_steps", transition_steps)
    begin = steps(name, "transition_begin", begin, 0)
    straight = type(power) is float and power == 1.0

    def polynomial(count: Any) -> Any:
        left = 1 - clipped(count - begin, 0, transition_steps) / transition_steps
        return (init_value - end_value) * (left if straight else left**power) + end_value

    return Schedule(polynomial)
