"""Schedules with different values between boundaries: steps, lines, cosines, and one cycle."""

from collections.abc import Callable, Mapping
from typing import Any

from fdbr.core.util.pickling import public_factory
from fdbr.errors.checks import describe
from fdbr.train.optim.schedules.base import (
    Schedule,
    choose,
    clipped,
    half_cosine,
    number,
    positive,
    steps,
)

__all__ = [
    "cosine_onecycle_schedule",
    "linear_onecycle_schedule",
    "piecewise_constant_schedule",
    "piecewise_interpolate_schedule",
]


@public_factory("fdbr.train.optim")
def piecewise_constant_schedule(
    init_value: float, boundaries_and_scales: Mapping[int, float] | None = None
) -> Schedule:
    """A value that is multiplied at some steps.

    Formula: ``init_value`` times the scales of all boundaries that are at most the count.  With one
    scale for all of them it is PyTorch's ``MultiStepLR`` and Chainer's ``MultistepShift``.

    Parameters
    ----------
    init_value
        The value before the first boundary.
    boundaries_and_scales
        For each step at which the value changes, its factor, a number at least 0.

    Returns
    -------
    Schedule

    Raises
    ------
    TypeError, ValueError
        If a boundary is no integer, or a scale is negative.

    >>> from fdbr.train import optim
    >>> rate = optim.piecewise_constant_schedule(1.0, {10: 0.1, 20: 0.5})
    >>> rate(9), rate(10), rate(20)
    (1.0, 0.1, 0.05)
    """
    name = "piecewise_constant_schedule"
    values, boundaries = _accumulated(name, init_value, boundaries_and_scales)

    def piecewise_constant(count: Any) -> Any:
        found = values[-1] + 0 * count  # of the count's shape
        for value, boundary in zip(values[-2::-1], boundaries[::-1], strict=True):
            found = choose(count < boundary, value, found)
        return found

    return Schedule(piecewise_constant)


@public_factory("fdbr.train.optim")
def piecewise_interpolate_schedule(
    interpolate_type: str,
    init_value: float,
    boundaries_and_scales: Mapping[int, float] | None = None,
) -> Schedule:
    """A value that goes from boundary to boundary along a line or a cosine.

    At the first step it is ``init_value``, at each boundary the value at the one before times the
    boundary's scale, and after the last one it stays.  Between values ``a`` and ``b`` it is, with
    ``p`` the part of the way in [0, 1], ``a + (b - a) * p``, or
    ``b + (a - b) * (1 + cos(pi * p)) / 2``.

    Parameters
    ----------
    interpolate_type
        ``"linear"`` or ``"cosine"``.
    init_value
        The value at the first step.
    boundaries_and_scales
        For each boundary, a step, its factor, a number at least 0.

    Returns
    -------
    Schedule

    Raises
    ------
    TypeError, ValueError
        If the type is another, a boundary is no integer, or a scale is negative.

    >>> from fdbr.train import optim
    >>> rate = optim.piecewise_interpolate_schedule("linear", 1.0, {4: 0.5, 8: 0.0})
    >>> rate(0), rate(2), rate(4), rate(6), rate(9)
    (1.0, 0.75, 0.5, 0.25, 0.0)
    """
    name = "piecewise_interpolate_schedule"
    ways = {"linear": _along_line, "cosine": _along_cosine}
    if interpolate_type not in ways:
        raise ValueError(
            f"fdbr.train.optim.{name}: interpolate_type must be 'linear' or 'cosine', got "
            f"{interpolate_type!r}"
        )
    values, boundaries = _accumulated(name, init_value, boundaries_and_scales)
    return _interpolated(ways[interpolate_type], values, boundaries)


def _accumulated(name: str, init_value: Any, scales: Any) -> tuple[list[Any], list[int]]:
    """The values before, between and after boundaries, and these in order."""
    if not isinstance(scales, Mapping | None):
        raise TypeError(
            f"fdbr.train.optim.{name}: boundaries_and_scales must be a mapping from steps to "
            f"factors, as in {{100: 0.1}}, got {describe(scales)}"
        )
    values = [number(name, "init_value", init_value)]
    found = [
        (steps(name, "a boundary", boundary, 0), number(name, f"the scale at {boundary}", scale))
        for boundary, scale in (scales or {}).items()
    ]
    found.sort(key=lambda pair: pair[0])
    for boundary, scale in found:
        if type(scale) is float and scale < 0:
            raise ValueError(
                f"fdbr.train.optim.{name}: the scale at {boundary} must be at least 0, got {scale}"
            )
        values.append(values[-1] * scale)
    return values, [boundary for boundary, _ in found]


def _along_line(start: Any, end: Any, part: Any) -> Any:
    return start + (end - start) * part


def _along_cosine(start: Any, end: Any, part: Any) -> Any:
    return end + (start - end) * half_cosine(part)


def _interpolated(
    way: Callable[[Any, Any, Any], Any], values: list[Any], boundaries: list[int]
) -> Schedule:
    starts = [0, *boundaries[:-1]]

    def piecewise_interpolated(count: Any) -> Any:
        found = values[-1] + 0 * count
        for i in reversed(range(len(boundaries))):
            length = max(boundaries[i] - starts[i], 1)
            part = clipped((count - starts[i]) / length, 0.0, 1.0)
            found = choose(count < boundaries[i], way(values[i], values[i + 1], part), found)
        return found

    return Schedule(piecewise_interpolated)


# --- one cycle ----------------------------------------------------------------------


@public_factory("fdbr.train.optim")
def linear_onecycle_schedule(
    transition_steps: int,
    peak_value: float,
    pct_start: float = 0.3,
    pct_final: float = 0.85,
    div_factor: float = 25.0,
    final_div_factor: float = 1e4,
) -> Schedule:
    """One cycle of three lines (Smith and Topin, *Super-convergence*, 2018).

    Up from ``peak_value / div_factor`` to ``peak_value``, down again to where it began, and from
    there to a ``final_div_factor``-th of it, where it stays.

    Parameters
    ----------
    transition_steps
        The steps of the whole cycle; at least 1.
    peak_value
        The largest value.
    pct_start, pct_final
        The parts of the steps at which the value is at its peak, and at its start again:
        ``0 <= pct_start <= pct_final <= 1``.
    div_factor, final_div_factor
        Positive numbers.

    Returns
    -------
    Schedule

    Raises
    ------
    TypeError, ValueError
        If an argument is no finite number, or out of range.

    >>> from fdbr.train import optim
    >>> rate = optim.linear_onecycle_schedule(100, 1.0, 0.25, 0.75, 4, final_div_factor=2)
    >>> rate(0), rate(25), rate(50), rate(75), rate(100)
    (0.25, 1.0, 0.625, 0.25, 0.125)
    """
    name = "linear_onecycle_schedule"
    total, peak, start, last = _cycle(
        name, transition_steps, peak_value, pct_start, div_factor, final_div_factor
    )
    final = number(name, "pct_final", pct_final)
    if not pct_start <= final <= 1:
        raise ValueError(
            f"fdbr.train.optim.{name}: pct_final must lie in [pct_start, 1], got {pct_final}"
        )
    boundaries = [int(pct_start * total), int(final * total), total]
    return _interpolated(_along_line, [start, peak, start, last], boundaries)


@public_factory("fdbr.train.optim")
def cosine_onecycle_schedule(
    transition_steps: int,
    peak_value: float,
    pct_start: float = 0.3,
    div_factor: float = 25.0,
    final_div_factor: float = 1e4,
) -> Schedule:
    """One cycle of two halves of cosines (Smith and Topin, *Super-convergence*, 2018).

    Up from ``peak_value / div_factor`` to ``peak_value``, and down to a ``final_div_factor``-th of
    where it began, where it stays: PyTorch's ``OneCycleLR``.

    Parameters
    ----------
    transition_steps
        The steps of the whole cycle; at least 1.
    peak_value
        The largest value.
    pct_start
        The part of the steps at which the value is at its peak, in [0, 1].
    div_factor, final_div_factor
        Positive numbers.

    Returns
    -------
    Schedule

    Raises
    ------
    TypeError, ValueError
        If an argument is no finite number, or out of range.

    >>> from fdbr.train import optim
    >>> rate = optim.cosine_onecycle_schedule(100, 1.0, 0.5, div_factor=4, final_div_factor=2)
    >>> rate(0), round(rate(25), 9), rate(50), rate(100)
    (0.25, 0.625, 1.0, 0.125)
    """
    name = "cosine_onecycle_schedule"
    total, peak, start, last = _cycle(
        name, transition_steps, peak_value, pct_start, div_factor, final_div_factor
    )
    return _interpolated(_along_cosine, [start, peak, last], [int(pct_start * total), total])


def _cycle(
    name: str, total: Any, peak: Any, pct_start: Any, div_factor: Any, final_div_factor: Any
) -> tuple[int, Any, Any, Any]:
    """The steps of a cycle, its peak, and its first and last values."""
    total = steps(name, "transition_steps", total)
    peak = number(name, "peak_value", peak)
    if not 0 <= number(name, "pct_start", pct_start) <= 1:
        raise ValueError(f"fdbr.train.optim.{name}: pct_start must lie in [0, 1], got {pct_start}")
    start = peak / positive(name, "div_factor", div_factor)
    return total, peak, start, start / positive(name, "final_div_factor", final_div_factor)
