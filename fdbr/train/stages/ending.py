"""The end of a stream of reports before that of the run."""

from collections.abc import Iterator

from fdbr.core.util.pickling import public_factory
from fdbr.train.loop.endings import unless_ended
from fdbr.train.loop.reports import Report
from fdbr.train.stages.keeping import due
from fdbr.train.stages.piping import Stage, closing, named
from fdbr.train.triggers.base import Condition, as_trigger

__all__ = ["until"]


@public_factory("fdbr.train")
def until(trigger: Condition, name: str = "until") -> Stage:
    """A stage that ends a run: the first report of which a trigger fires is the last.

    It sees the metrics of the stages before it; ``fit(…, until=…)`` sees those of the step.  A run
    that has ended so has nothing left when it is resumed, unless the trigger is another one.

    Parameters
    ----------
    trigger
        When to end: `early_stopping`, for example.
    name
        Under which the stage keeps that it has ended the run.

    Returns
    -------
    stage
        A stage.

    Raises
    ------
    TypeError
        If ``trigger`` is none.

    >>> from fdbr import train
    >>> reports = [
    ...     train.Report(i, 0, {"loss": 1 / i}, None, train.Position(0, i), 0.1)
    ...     for i in range(1, 9)
    ... ]
    >>> stage = train.until(lambda report: report.metrics["loss"] < 0.3)
    >>> [report.iteration for report in stage(iter(reports))]
    [1, 2, 3, 4]
    """
    condition = as_trigger("until", "trigger", trigger)
    name = named("until", name)

    def stage(reports: Iterator[Report]) -> Iterator[Report]:
        going_on = unless_ended(reports, name, condition.label)
        with closing(reports), closing(due(going_on, condition, name=name)) as stream:
            for report, fires in stream:
                if fires:
                    yield report.keep(name, condition.label)
                    return
                yield report

    return stage
