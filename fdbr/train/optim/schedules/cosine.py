"""Schedules along cosines: once, and with restarts."""

import math
from typing import Any

from fdbr import ops
from fdbr.core.util.pickling import public_factory
from fdbr.train.optim.schedules.base import (
    Schedule,
    choose,
    clipped,
    half_cosine,
    number,
    positive,
    steps,
)

__all__ = ["cosine_decay_restarts_schedule", "cosine_decay_schedule"]


@public_factory("fdbr.train.optim")
def cosine_decay_schedule(
    init_value: float, decay_steps: int, alpha: float = 0.0, exponent: float = 1.0
) -> Schedule:
    """Down along half a cosine (Loshchilov and Hutter, *SGDR*, ICLR 2017).

    Formula, with ``t`` the count, at most ``decay_steps``::

        cosine = (1 + cos(pi * t / decay_steps)) / 2
        value = init_value * ((1 - alpha) * cosine**exponent + alpha)

    Parameters
    ----------
    init_value
        The value at the first step.
    decay_steps
        The steps down to ``alpha * init_value``, where it stays; at least 1.
    alpha
        The last value, as a part of the first.
    exponent
        A positive number.

    Returns
    -------
    Schedule

    Raises
    ------
    TypeError, ValueError
        If an argument is no finite number, or out of range.

    >>> from fdbr.train import optim
    >>> rate = optim.cosine_decay_schedule(1.0, 10, alpha=0.1)
    >>> rate(0), round(rate(5), 9), rate(10), rate(11)
    (1.0, 0.55, 0.1, 0.1)
    """
    name = "cosine_decay_schedule"
    init_value = number(name, "init_value", init_value)
    decay_steps = steps(name, "decay_steps", decay_steps)
    alpha = number(name, "alpha", alpha)
    exponent = positive(name, "exponent", exponent)

    def cosine_decay(count: Any) -> Any:
        decayed = half_cosine(clipped(count, 0, decay_steps) / decay_steps) ** exponent
        return init_value * ((1 - alpha) * decayed + alpha)

    return Schedule(cosine_decay)


@public_factory("fdbr.train.optim")
def cosine_decay_restarts_schedule(
    init_value: float,
    first_decay_steps: int,
    t_mul: float = 1.0,
    m_mul: float = 1.0,
    alpha: float = 0.0,
) -> Schedule:
    """Down along half a cosine, again and again (Loshchilov and Hutter, *SGDR*, ICLR 2017).

    PyTorch's ``CosineAnnealingWarmRestarts(T_0, T_mult, eta_min)`` has
    ``first_decay_steps=T_0, t_mul=T_mult, alpha=eta_min / init_value``.

    Parameters
    ----------
    init_value
        The value at the first step.
    first_decay_steps
        The steps of the first cycle; at least 1.
    t_mul
        The factor from the length of one cycle to that of the next; at least 1.
    m_mul
        The factor from the first value of one cycle to that of the next; positive.
    alpha
        The last value of a cycle, as a part of ``init_value``.

    Returns
    -------
    Schedule
        In cycle ``i``, at the part ``p`` of it, the value is
        ``init_value * ((1 - alpha) * m_mul**i * (1 + cos(pi * p)) / 2 + alpha)``.

    Raises
    ------
    TypeError, ValueError
        If an argument is no finite number, or out of range.

    >>> from fdbr.train import optim
    >>> rate = optim.cosine_decay_restarts_schedule(1.0, 10, t_mul=2, m_mul=0.5)
    >>> rate(0), round(rate(5), 9), rate(10), round(rate(20), 9), rate(30)
    (1.0, 0.5, 0.5, 0.25, 0.25)
    """
    name = "cosine_decay_restarts_schedule"
    init_value = number(name, "init_value", init_value)
    first = steps(name, "first_decay_steps", first_decay_steps)
    alpha = number(name, "alpha", alpha)
    m_mul = positive(name, "m_mul", m_mul)
    try:
        t_mul = float(t_mul)
    except (TypeError, ValueError, OverflowError):
        t_mul = math.nan
    if not 1 <= t_mul < math.inf:
        raise ValueError(f"fdbr.train.optim.{name}: t_mul must be a number, at least 1")

    def start(cycle: Any) -> Any:
        return first * (cycle if t_mul == 1 else (t_mul**cycle - 1) / (t_mul - 1))

    def restarting(count: Any) -> Any:
        count = ops.maximum(count, 0)
        if t_mul == 1:
            cycle = ops.floor(count / first)
        else:  # the logarithm is exact to a step or so
            cycle = ops.floor(ops.log1p(count / first * (t_mul - 1)) / math.log(t_mul))
            cycle = choose(count < start(cycle), cycle - 1, cycle)
            cycle = choose(count < start(cycle + 1), cycle, cycle + 1)
        part = (count - start(cycle)) / (first * t_mul**cycle)
        return init_value * ((1 - alpha) * m_mul**cycle * half_cosine(part) + alpha)

    return Schedule(restarting)
