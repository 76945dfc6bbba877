"""Metrics of the state, beside those of the step."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fdbr.train.loop.reports import Report
from fdbr.train.stages.keeping import due
from fdbr.train.stages.piping import Stage, check_new, closing
from fdbr.train.triggers.base import Condition, as_trigger
from fdbr.train.triggers.intervals import each_epoch

__all__ = ["evaluate"]


def evaluate(
    metrics_of_state: Callable[[Any], Mapping[str, Any]],
    every: Condition = each_epoch,
    prefix: str = "test/",
    name: str = "evaluate",
) -> Stage:
    """A stage that adds metrics of the state to some reports.

    Parameters
    ----------
    metrics_of_state
        ``metrics_of_state(state)``: a mapping from names to numbers.
    every
        Which reports; by default the last of each epoch.
    prefix
        What is put before the names.
    name
        That of the stage, under which it keeps what its trigger keeps.

    Returns
    -------
    stage
        Raises ValueError where a report has a metric of that name already.

    >>> from fdbr import train
    >>> stage = train.evaluate(lambda state: {"loss": 2.0 * state})
    >>> report = train.Report(1, 1, {"loss": 0.5}, 3.0, train.Position(1, 0), 0.1)
    >>> dict(next(stage(iter([report]))).metrics)
    {'loss': 0.5, 'test/loss': 6.0}
    """
    trigger = as_trigger("evaluate", "every", every)

    def stage(reports: Iterator[Report]) -> Iterator[Report]:
        with closing(due(reports, trigger, name=name)) as stream:
            for report, fires in stream:
                if fires:
                    found = metrics_of_state(report.state)
                    added = {prefix + name: value for name, value in found.items()}
                    check_new("evaluate", added, report.metrics)
                    report = report.with_metrics({**report.metrics, **added})
                yield report

    return stage
