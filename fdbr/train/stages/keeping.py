"""Stages that keep something from report to report, and so that a resumed run continues with it."""

from collections.abc import Callable, Iterator
from typing import Any

from fdbr.core.util.pickling import public_factory
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.train.loop.reports import Report
from fdbr.train.stages.piping import Stage, closing, named
from fdbr.train.triggers.base import Condition, as_trigger, condition_of

__all__ = ["due", "stateful"]

_NONE = object()


@public_factory("fdbr.train")
def stateful(
    update: Callable[[Any, Report], tuple[Any, Report]], init: Any = None, *, name: str
) -> Stage:
    """A stage that keeps a state: a scan over the reports.

    The state is in each report that the stage gives, under ``report.position.kept[name]``.  So a
    snapshot has it, and a resumed run continues with it: the stage takes it from the first report
    that it sees.

    Parameters
    ----------
    update
        ``update(state, report) -> (state, report)``, for each report.
    init
        The state at the beginning of a run: what `Report.keep` takes.
    name
        Under which the state is kept; no other stage may have it.

    Returns
    -------
    stage
        Raises TypeError if ``update`` returns something else, ValueError if another stage of a
        `pipe` has the same name, or if it stands after a `snapshot`.

    >>> from fdbr import train
    >>> def smooth(mean, report):
    ...     loss = report.metrics["loss"]
    ...     mean = loss if mean is None else 0.5 * mean + 0.5 * loss
    ...     return mean, report.with_metrics({**report.metrics, "smooth": mean})
    >>> stage = train.stateful(smooth, name="smooth")
    >>> reports = [
    ...     train.Report(i, 0, {"loss": float(i)}, None, train.Position(0, i), 0.1)
    ...     for i in (1, 2)
    ... ]
    >>> [(dict(r.metrics), dict(r.position.kept)) for r in stage(iter(reports))]
    [({'loss': 1.0, 'smooth': 1.0}, {'smooth': 1.0}),
     ({'loss': 2.0, 'smooth': 1.5}, {'smooth': 1.5})]
    """
    name = named("stateful", name)

    def stage(reports: Iterator[Report]) -> Iterator[Report]:
        with closing(reports):
            state, begun = init, False
            for report in reports:
                if not begun:
                    state, begun = report.position.carried.state_of(name, init), True
                result = update(state, report)
                if type(result) is not tuple or len(result) != 2:
                    raise TypeError(
                        f"fdbr.train.stateful: update of {name!r} must return (state, report), "
                        f"not {describe(result)}"
                    )
                state, report = result
                yield report.keep(name, state)

    return stage


@public("fdbr.train")
def due(
    reports: Iterator[Report], every: Condition, *, name: str = "due"
) -> Iterator[tuple[Report, bool]]:
    """Each report, and whether a trigger fires of it.

    What the trigger keeps, such as the best value so far, is put into the reports.

    Parameters
    ----------
    reports
        What a stage reads from.
    every
        A trigger, or a function from a report to a truth value.
    name
        That of the stage: what the trigger keeps is under ``name + "/trigger"``.

    Returns
    -------
    iterator
        Pairs of a report, which is to be passed on, and a truth value.  Closing it closes
        ``reports``.

    Raises
    ------
    TypeError
        If ``every`` is no trigger.

    >>> from fdbr import train
    >>> reports = [
    ...     train.Report(i, 0, {}, None, train.Position(0, i), 0.1) for i in (1, 2)
    ... ]
    >>> [(r.iteration, fires) for r, fires in train.due(reports, train.every(iterations=2))]
    [(1, False), (2, True)]
    """
    return _due(reports, as_trigger("due", "every", every), named("due", name) + "/trigger")


def _due(reports: Iterator[Report], trigger: Any, name: str) -> Iterator[tuple[Report, bool]]:
    with closing(reports):
        if (condition := condition_of(trigger)) is not None:
            for report in reports:
                yield report, condition(report)
            return
        state, begun = None, False
        for report in reports:
            if not begun:
                state = report.position.carried.state_of(name, _NONE)
                state, begun = trigger.start() if state is _NONE else state, True
            fires, state = trigger.update(state, report)
            yield report.keep(name, state), fires
