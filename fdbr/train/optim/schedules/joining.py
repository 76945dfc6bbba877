"""Schedules one after the other, and those that begin with a warm-up."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fdbr import ops
from fdbr.core.util.pickling import public_factory
from fdbr.errors.checks import describe
from fdbr.train.optim.schedules.base import Schedule, choose, number, steps
from fdbr.train.optim.schedules.cosine import cosine_decay_schedule
from fdbr.train.optim.schedules.decay import exponential_decay
from fdbr.train.optim.schedules.polynomial import constant_schedule, linear_schedule

__all__ = [
    "join_schedules",
    "sgdr_schedule",
    "warmup_constant_schedule",
    "warmup_cosine_decay_schedule",
    "warmup_exponential_decay_schedule",
]


@public_factory("fdbr.train.optim")
def join_schedules(
    schedules: Sequence[Callable[[Any], Any]], boundaries: Sequence[int]
) -> Schedule:
    """Schedules one after the other, each of which counts from its own beginning.

    Parameters
    ----------
    schedules
        Functions of the count: the first is given the count, the others the count minus the
        boundary at which they begin.
    boundaries
        The steps from which on the second, the third … holds, in increasing order; one less than
        there are schedules.

    Returns
    -------
    Schedule

    Raises
    ------
    TypeError, ValueError
        If there is no schedule, one is no function, or the boundaries are not as many or not in
        order.

    Notes
    -----
    Of a Python integer, the schedule that holds is called alone; a traced count is given to all,
    brought to where each of them holds, and their values must be finite there.

    >>> from fdbr.train import optim
    >>> parts = [optim.linear_schedule(0.0, 1.0, 4), optim.exponential_decay(1.0, 1, 0.5)]
    >>> rate = optim.join_schedules(parts, [4])
    >>> rate(2), rate(4), rate(6)
    (0.5, 1.0, 0.25)
    """
    name = "join_schedules"
    if not isinstance(schedules, Sequence) or not schedules or not all(map(callable, schedules)):
        raise TypeError(
            f"fdbr.train.optim.{name}: schedules must be a list of functions of the count, got "
            f"{describe(schedules)}"
        )
    if not isinstance(boundaries, Sequence) or isinstance(boundaries, str | bytes):
        raise TypeError(
            f"fdbr.train.optim.{name}: boundaries must be a list of steps, got "
            f"{describe(boundaries)}"
        )
    parts = list(schedules)
    ends = [steps(name, "a boundary", boundary, 0) for boundary in boundaries]
    if len(ends) != len(parts) - 1 or ends != sorted(ends):
        raise ValueError(
            f"fdbr.train.optim.{name}: {len(parts)} schedules take {len(parts) - 1} boundaries in "
            f"increasing order, got {ends}"
        )
    starts = [0, *ends]

    def joined(count: Any) -> Any:
        if type(count) in (int, float):
            held = sum(count >= end for end in ends)
            return parts[held](count - starts[held])
        found = parts[-1](ops.maximum(count - starts[-1], 0))
        for index in reversed(range(len(ends))):
            begin, end = starts[index], ends[index]
            own = ops.minimum(
                count - begin if index == 0 else ops.maximum(count - begin, 0), end - begin
            )
            found = choose(count < end, parts[index](own), found)
        return found

    return Schedule(joined)


@public_factory("fdbr.train.optim")
def warmup_constant_schedule(init_value: float, peak_value: float, warmup_steps: int) -> Schedule:
    """Up along a line, and on with what is reached.

    Parameters
    ----------
    init_value, peak_value
        The values at the first step, and from ``warmup_steps`` on.
    warmup_steps
        The steps of the warm-up; with 0 there is none.

    Returns
    -------
    Schedule

    Raises
    ------
    TypeError, ValueError
        If an argument is no finite number, or out of range.

    >>> from fdbr.train import optim
    >>> rate = optim.warmup_constant_schedule(0.0, 1.0, 4)
    >>> rate(0), rate(3), rate(4), rate(5)
    (0.0, 0.75, 1.0, 1.0)
    """
    return _warmed_up(
        "warmup_constant_schedule", init_value, peak_value, warmup_steps, constant_schedule
    )


@public_factory("fdbr.train.optim")
def warmup_cosine_decay_schedule(
    init_value: float,
    peak_value: float,
    warmup_steps: int,
    decay_steps: int,
    end_value: float = 0.0,
    exponent: float = 1.0,
) -> Schedule:
    """Up along a line, and down along half a cosine, as `cosine_decay_schedule`.

    Parameters
    ----------
    init_value, peak_value, end_value
        The values at the first step, at the end of the warm-up, and from ``decay_steps`` on.
    warmup_steps
        The steps of the warm-up; with 0 there is none.
    decay_steps
        The steps of the whole, warm-up included: more than ``warmup_steps``.
    exponent
        A positive number, to which the cosine is raised.

    Returns
    -------
    Schedule

    Raises
    ------
    TypeError, ValueError
        If an argument is no finite number, or out of range.

    >>> from fdbr.train import optim
    >>> rate = optim.warmup_cosine_decay_schedule(0.0, 1.0, 4, 14, end_value=0.1)
    >>> rate(0), rate(2), rate(4), round(rate(9), 9), rate(14)
    (0.0, 0.5, 1.0, 0.55, 0.1)
    """
    name = "warmup_cosine_decay_schedule"
    warmup = steps(name, "warmup_steps", warmup_steps, 0)
    length = steps(name, "decay_steps, which include warmup_steps,", decay_steps, warmup + 1)
    end_value = number(name, "end_value", end_value)
    at_zero = type(peak_value) in (int, float) and peak_value == 0

    def down(peak: Any) -> Schedule:
        alpha = 0.0 if at_zero else end_value / peak
        return cosine_decay_schedule(peak, length - warmup, alpha, exponent)

    return _warmed_up(name, init_value, peak_value, warmup, down)


@public_factory("fdbr.train.optim")
def warmup_exponential_decay_schedule(
    init_value: float,
    peak_value: float,
    warmup_steps: int,
    transition_steps: int,
    decay_rate: float,
    transition_begin: int = 0,
    staircase: bool = False,
    end_value: float | None = None,
) -> Schedule:
    """Up along a line, and on as `exponential_decay`.

    Parameters
    ----------
    init_value, peak_value
        The values at the first step, and at the end of the warm-up.
    warmup_steps
        The steps of the warm-up; with 0 there is none.
    transition_steps, decay_rate, transition_begin, staircase, end_value
        Those of `exponential_decay`, which counts from the end of the warm-up.

    Returns
    -------
    Schedule

    Raises
    ------
    TypeError, ValueError
        If an argument is no finite number, or out of range.

    >>> from fdbr.train import optim
    >>> rate = optim.warmup_exponential_decay_schedule(0.0, 1.0, 4, 10, 0.5)
    >>> rate(2), rate(4), rate(14)
    (0.5, 1.0, 0.5)
    """
    return _warmed_up(
        "warmup_exponential_decay_schedule",
        init_value,
        peak_value,
        warmup_steps,
        lambda peak: exponential_decay(
            peak, transition_steps, decay_rate, transition_begin, staircase, end_value
        ),
    )


def _warmed_up(
    name: str,
    init_value: Any,
    peak_value: Any,
    warmup_steps: Any,
    after: Callable[[Any], Schedule],
) -> Schedule:
    init_value = number(name, "init_value", init_value)
    peak_value = number(name, "peak_value", peak_value)
    warmup = steps(name, "warmup_steps", warmup_steps, 0)
    rest = after(peak_value)
    if not warmup:
        return rest
    return join_schedules([linear_schedule(init_value, peak_value, warmup), rest], [warmup])


@public_factory("fdbr.train.optim")
def sgdr_schedule(cosine_kwargs: Iterable[Mapping[str, Any]]) -> Schedule:
    """Cosines with warm-ups and restarts (Loshchilov and Hutter, *SGDR*, ICLR 2017).

    `cosine_decay_restarts_schedule` has cycles without an end that follow a rule.

    Parameters
    ----------
    cosine_kwargs
        For each cycle, the arguments of `warmup_cosine_decay_schedule` by name; its
        ``decay_steps`` is the cycle's length.

    Returns
    -------
    Schedule

    Raises
    ------
    TypeError, ValueError
        If there is no cycle, or the arguments of one are not those of
        `warmup_cosine_decay_schedule`.

    >>> from fdbr.train import optim
    >>> cycle = {"init_value": 0.0, "peak_value": 1.0, "warmup_steps": 2, "decay_steps": 6}
    >>> rate = optim.sgdr_schedule([cycle, {**cycle, "peak_value": 0.5}])
    >>> rate(2), rate(6), rate(8)
    (1.0, 0.0, 0.5)
    """
    cycles = list(cosine_kwargs)
    if not cycles or not all(isinstance(cycle, Mapping) for cycle in cycles):
        raise TypeError(
            "fdbr.train.optim.sgdr_schedule: cosine_kwargs must be a list with a dict of the "
            "arguments of warmup_cosine_decay_schedule for each cycle, got "
            f"{describe(cosine_kwargs)}"
        )
    boundaries, parts, total = [], [], 0
    for cycle in cycles:
        parts.append(warmup_cosine_decay_schedule(**cycle))
        total += steps("sgdr_schedule", "decay_steps", cycle["decay_steps"])
        boundaries.append(total)
    return join_schedules(parts, boundaries[:-1])
