"""Triggers that follow from where a run is, and for how long it has gone on."""

import functools
from collections.abc import Collection
from typing import Any

from fdbr.core.util.pickling import public_factory
from fdbr.errors.checks import describe, integer
from fdbr.train.loop.reports import Report
from fdbr.train.triggers.base import Condition, Trigger, as_trigger, condition_of, stateless

__all__ = ["at", "each_epoch", "each_iteration", "every", "is_counted", "once", "within"]


@public_factory("fdbr.train")
def every(
    *,
    epochs: int | None = None,
    iterations: int | None = None,
    hours: float | None = None,
    minutes: float | None = None,
    seconds: float | None = None,
) -> Trigger:
    """True of the last report of every so many epochs, of every so many iterations, or of the
    first one after every period of time.

    Parameters
    ----------
    epochs, iterations
        Positive integers.
    hours, minutes, seconds
        Positive numbers, which are added up to one period of ``report.seconds``.

    Returns
    -------
    Trigger
        If several are given, any suffices.  Of epochs and iterations it has no state: it may be
        called with a report alone.

    Raises
    ------
    TypeError
        If none is given, or one is no number of its kind.
    ValueError
        If one is not positive.

    >>> from fdbr import train
    >>> report = train.Report(7, 1, {}, None, train.Position(1, 3), 0.5)
    >>> train.every(iterations=7)(report), train.every(epochs=1)(report)
    (True, False)
    """
    given = {"epochs": epochs, "iterations": iterations}
    times = {"hours": hours, "minutes": minutes, "seconds": seconds}
    if all(number is None for number in (*given.values(), *times.values())):
        raise TypeError(
            "fdbr.train.every: give epochs, iterations, or both, or a time in hours, minutes or "
            "seconds"
        )
    for name, number in given.items():
        if number is not None:
            integer("fdbr.train.every", name, number, least=1)
    period = _duration("every", times)
    label = f"every({_listed({**given, **times})})"
    counted = functools.partial(_counted, epochs, iterations)
    if not period:
        return stateless(label, counted)

    def update(state: Any, report: Report) -> tuple[bool, Any]:
        passed = int(report.seconds // period)
        return passed > state or counted(report), max(passed, state)

    return Trigger(update, lambda: 0, label)


def _counted(epochs: int | None, iterations: int | None, report: Report) -> bool:
    if epochs is not None:
        position = report.position
        if position.batch == 0 and position.epoch % epochs == 0:
            return True
    return iterations is not None and report.iteration % iterations == 0


@public_factory("fdbr.train")
def at(
    *, epochs: Collection[int] | int | None = None, iterations: Collection[int] | int | None = None
) -> Trigger:
    """True of the last reports of some epochs, and of some iterations.

    Parameters
    ----------
    epochs, iterations
        Numbers of epochs and of iterations, which are counted from 1; either suffices.

    Returns
    -------
    Trigger
        It has no state.

    Raises
    ------
    TypeError
        If neither is given, or a number is no integer.
    ValueError
        If a number is negative.

    >>> from fdbr import train
    >>> trigger = train.at(iterations=[1, 10, 100])
    >>> reports = [train.Report(i, 0, {}, None, train.Position(0, i), 0.1) for i in range(1, 12)]
    >>> [report.iteration for report in reports if trigger(report)]
    [1, 10]
    """
    if epochs is None and iterations is None:
        raise TypeError("fdbr.train.at: give epochs, iterations, or both")
    ends, counts = _numbers("epochs", epochs), _numbers("iterations", iterations)
    given = {"epochs": sorted(ends) or None, "iterations": sorted(counts) or None}
    return stateless(f"at({_listed(given)})", functools.partial(_there, ends, counts))


def _there(ends: frozenset[int], counts: frozenset[int], report: Report) -> bool:
    position = report.position
    return report.iteration in counts or (position.batch == 0 and position.epoch in ends)


def is_counted(trigger: Trigger) -> bool:
    """Whether a trigger is one of epochs and iterations alone, as `every` and `at` make them."""
    condition = condition_of(trigger)
    return isinstance(condition, functools.partial) and condition.func in (_counted, _there)


@public_factory("fdbr.train")
def within(
    *, hours: float | None = None, minutes: float | None = None, seconds: float | None = None
) -> Trigger:
    """True from when a run has taken so long: ``fit(…, until=within(hours=1))`` ends it then.

    The time of earlier parts of the run counts.

    Parameters
    ----------
    hours, minutes, seconds
        Numbers, which are added up; not less than 0.

    Returns
    -------
    Trigger
        It has no state.

    Raises
    ------
    TypeError
        If none is given, or one is no number.
    ValueError
        If one is negative or no finite number.

    >>> from fdbr import train
    >>> report = train.Report(7, 1, {}, None, train.Position(1, 3), seconds=61.0)
    >>> train.within(minutes=1)(report), train.within(hours=1, minutes=1)(report)
    (True, False)
    """
    times = {"hours": hours, "minutes": minutes, "seconds": seconds}
    if all(number is None for number in times.values()):
        raise TypeError("fdbr.train.within: give hours, minutes, seconds, or several")
    limit = _duration("within", times)
    return stateless(f"within({_listed(times)})", functools.partial(_is_after, limit))


def _is_after(limit: float, report: Report) -> bool:
    return report.seconds >= limit


@public_factory("fdbr.train")
def once(trigger: Condition | None = None) -> Trigger:
    """True of the first report of a run, or of the first one of which another trigger is.

    Parameters
    ----------
    trigger
        The other trigger.

    Returns
    -------
    Trigger
        Its state tells whether it has fired, so that it does not again in a resumed run.

    Raises
    ------
    TypeError
        If it is no trigger.

    >>> from fdbr import train
    >>> trigger = train.once(train.every(iterations=2))
    >>> reports = [train.Report(i, 0, {}, None, train.Position(0, i), 0.1) for i in range(1, 7)]
    >>> [report.iteration for report, fires in train.due(reports, trigger) if fires]
    [2]
    """
    inner = as_trigger("once", "trigger", (lambda report: True) if trigger is None else trigger)

    def update(state: Any, report: Report) -> tuple[bool, Any]:
        fires, kept = inner.update(state["of"], report)
        first = fires and not state["fired"]
        return first, {"fired": state["fired"] or fires, "of": kept}

    label = "once()" if trigger is None else f"once({inner.label})"
    return Trigger(update, lambda: {"fired": False, "of": inner.start()}, label)


def _duration(function: str, times: dict[str, float | None]) -> float:
    total = 0.0
    factors = {"hours": 3600, "minutes": 60, "seconds": 1}
    least = "positive" if function == "every" else "at least 0"
    for name, number in times.items():
        if number is None:
            continue
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise TypeError(
                f"fdbr.train.{function}: {name} must be a number, not {describe(number)}"
            )
        if not 0 <= number < 1e15 or (function == "every" and number == 0):
            raise ValueError(f"fdbr.train.{function}: {name} must be {least}, got {number}")
        total += number * factors[name]
    return total


def _numbers(name: str, given: Any) -> frozenset[int]:
    if given is None:
        return frozenset()
    numbers = [given] if not isinstance(given, Collection) or isinstance(given, str) else given
    return frozenset(integer("fdbr.train.at", name, number, least=0) for number in numbers)


def _listed(given: dict[str, Any]) -> str:
    return ", ".join(f"{name}={number}" for name, number in given.items() if number is not None)


each_epoch = every(epochs=1)
"""The last report of each epoch: when most stages are due."""

each_iteration = every(iterations=1)
"""Every report."""
