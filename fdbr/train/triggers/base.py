"""Triggers: which reports, as predicates that can be combined and may keep a state."""

import functools
from collections.abc import Callable
from typing import Any

import attrs

from fdbr.core.util.pickling import factory
from fdbr.errors.checks import describe, name_of
from fdbr.errors.public import public
from fdbr.train.loop.reports import Report

__all__ = ["Condition", "Trigger", "as_trigger", "condition_of", "stateless"]

Condition = Callable[[Report], bool]
"""What may stand where a trigger is expected: a `Trigger`, or a function of a report."""


@public("fdbr.train")
@attrs.frozen(repr=False)
class Trigger:
    """A predicate on reports, which may depend on the reports before.

    Triggers are combined by ``&``, ``|`` and ``~``, with each other and with functions from a
    report to a truth value.  Each part of a combination sees every report.

    A trigger without a state is called: ``trigger(report)``.  One with a state is a pair of pure
    functions, and the stage that it is given to keeps the state.

    Attributes
    ----------
    update
        ``update(state, report) -> (fires, state)``.
    init
        ``init() -> state``, or `None` where there is none.  The state is what `Report.keep` takes.
    label
        What messages call the trigger; a run that it has ended continues under another one only.

    >>> from fdbr import train
    >>> train.every(epochs=1) | train.every(iterations=4)
    (every(epochs=1) | every(iterations=4))
    >>> either = train.every(epochs=1) | train.every(iterations=4)
    >>> report = train.Report(4, 0, {"loss": 0.5}, None, train.Position(0, 4), 0.1)
    >>> either(report), (~either)(report), (either & (lambda r: r.metrics["loss"] < 0.1))(report)
    (True, False, False)
    """

    update: Callable[[Any, Report], tuple[bool, Any]]
    init: Callable[[], Any] | None = None
    label: str = "a trigger"

    def start(self) -> Any:
        """The state before the first report."""
        return None if self.init is None else self.init()

    def __call__(self, report: Report) -> bool:
        """Whether a trigger without a state fires."""
        if self.init is not None:
            raise TypeError(
                "fdbr.train.Trigger: a trigger that depends on earlier reports cannot be called "
                "with one alone; give it to a stage, go through train.due(reports, trigger), or "
                "call update(state, report)"
            )
        return self.update(None, report)[0]

    def __and__(self, other: Condition) -> "Trigger":
        return _joined("&", self, other)

    def __rand__(self, other: Condition) -> "Trigger":
        return _joined("&", other, self)

    def __or__(self, other: Condition) -> "Trigger":
        return _joined("|", self, other)

    def __ror__(self, other: Condition) -> "Trigger":
        return _joined("|", other, self)

    @factory
    def __invert__(self) -> "Trigger":
        label = f"~{self.label}"
        if self.init is None:
            return stateless(label, functools.partial(_is_not, self))

        def update(state: Any, report: Report) -> tuple[bool, Any]:
            fires, state = self.update(state, report)
            return not fires, state

        return Trigger(update, self.init, label)

    def __repr__(self) -> str:
        return self.label


@factory
def _joined(sign: str, first: Any, second: Any) -> Trigger:
    one, other = (as_trigger("Trigger", f"what {sign} joins", part) for part in (first, second))
    label = f"({one.label} {sign} {other.label})"
    both = sign == "&"
    if one.init is None and other.init is None:
        return stateless(label, functools.partial(_are_both if both else _is_either, one, other))

    def update(state: Any, report: Report) -> tuple[bool, Any]:
        fires, first = one.update(state[0], report)
        too, second = other.update(state[1], report)
        return (fires and too) if both else (fires or too), [first, second]

    return Trigger(update, lambda: [one.start(), other.start()], label)


def _is_not(trigger: Trigger, report: Report) -> bool:
    return not trigger(report)


def _are_both(one: Trigger, other: Trigger, report: Report) -> bool:
    return one(report) and other(report)


def _is_either(one: Trigger, other: Trigger, report: Report) -> bool:
    return one(report) or other(report)


def stateless(label: str, condition: Condition) -> Trigger:
    """A trigger of a plain predicate."""
    return Trigger(_Stateless(condition), None, label)


@attrs.frozen
class _Stateless:
    """The update of a trigger without a state."""

    condition: Condition

    def __call__(self, state: Any, report: Report) -> tuple[bool, Any]:
        if type(report) is not Report and not isinstance(report, Report):
            raise TypeError(f"fdbr.train: a trigger takes a report, not {describe(report)}")
        return bool(self.condition(report)), state


def as_trigger(function: str, name: str, condition: Any) -> Trigger:
    """A trigger of a condition; errors name the function, and what it calls the argument."""
    if isinstance(condition, Trigger):
        return condition
    if not callable(condition) or isinstance(condition, type):
        raise TypeError(
            f"fdbr.train.{function}: {name} must be a trigger, such as train.every(epochs=1), or "
            f"a function from a report to a truth value, not {describe(condition)}"
        )
    if getattr(condition, "__annotations__", {}).get("return") is Trigger:
        raise TypeError(
            f"fdbr.train.{function}: {name} is {name_of(condition)}, a function that makes a "
            f"trigger; call it: {name}={name_of(condition)}(…)"
        )
    return stateless(name_of(condition), condition)


def condition_of(trigger: Trigger) -> Condition | None:
    """The plain predicate of a trigger without a state; `None` of one with a state."""
    update = trigger.update
    if isinstance(update, _Stateless):
        return update.condition
    return trigger if trigger.init is None else None
