"""Means of metrics over several batches."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from fdbr.core.array_modules import array_module, is_array
from fdbr.core.util.pickling import public_factory
from fdbr.errors.checks import describe
from fdbr.train.loop.reports import Report
from fdbr.train.metrics import number
from fdbr.train.stages.keeping import due
from fdbr.train.stages.piping import Stage, check_new, closing, named
from fdbr.train.triggers.base import Condition, as_trigger
from fdbr.train.triggers.intervals import each_epoch

__all__ = ["Sums", "average", "means", "micro_average", "with_batch"]

Sums = Mapping[str, tuple[Any, float]]
"""Of each metric, the sum of its values times their weights, and the sum of the weights."""


def with_batch(sums: Sums, metrics: Mapping[str, Any], weight: float) -> Sums:
    """Sums to which the metrics of a batch are added.

    Numbers are added in double precision; arrays of a GPU stay there, and nobody waits for them.
    Those of a batch without examples, which may be NaN, do not count.
    """
    added = dict(sums)
    for name, value in metrics.items():
        total, weights = added.get(name, (0.0, 0.0))
        if weight:
            total = total + _double(name, value) * weight
        added[name] = total, weights + weight
    return added


def kept_sums(report: Report, name: str) -> Sums:
    """The sums that a stage has kept; what was an array of a GPU is a number after a snapshot."""
    kept = report.position.kept.get(name, {})
    return {
        metric: (number(metric, total) if isinstance(total, np.ndarray) else total, weight)
        for metric, (total, weight) in kept.items()
    }


def _double(name: str, value: Any) -> Any:
    if is_array(value) and value.shape == () and array_module(value) is not np:
        return value.astype("float64")
    return number(name, value)


def means(sums: Sums) -> dict[str, float]:
    """The means that follow from sums."""
    return {
        name: number(name, total) / weight if weight else float("nan")
        for name, (total, weight) in sums.items()
    }


@public_factory("fdbr.train")
def average(every: Condition = each_epoch, name: str = "average") -> Stage:
    """A stage that replaces the metrics of some reports by their mean since the last of these.

    A report counts by the examples of its batch, so that the mean is that of the examples; where
    ``report.examples`` is `None`, it counts as one.  The metrics of the other reports stay as they
    are.  Nobody waits for arrays of a GPU before their mean is due.

    Parameters
    ----------
    every
        Which reports; by default the last of each epoch.
    name
        Under which the sums are kept, with which a resumed run continues.

    Returns
    -------
    stage
        Put it before `evaluate`, whose metrics need no mean.

    >>> from fdbr import train
    >>> reports = [
    ...     train.Report(i, i // 2, {"loss": float(i)}, None, train.Position(i // 2, i % 2), 0.0)
    ...     for i in (1, 2)
    ... ]
    >>> [report.metrics["loss"] for report in train.average()(iter(reports))]
    [1.0, 1.5]
    """
    trigger = as_trigger("average", "every", every)
    name = named("average", name)

    def stage(reports: Iterator[Report]) -> Iterator[Report]:
        with closing(due(reports, trigger, name=name)) as stream:
            sums: Sums | None = None
            for report, fires in stream:
                if sums is None:
                    sums = kept_sums(report, name)
                weight = 1 if report.examples is None else report.examples
                sums = with_batch(sums, report.metrics, weight)
                if fires:
                    report = report.with_metrics(means(sums))
                    sums = {}
                yield report.keep(name, sums)

    return stage


@public_factory("fdbr.train")
def micro_average(
    metric: str,
    numerator: str,
    denominator: str,
    every: Condition = each_epoch,
    name: str | None = None,
) -> Stage:
    """A stage that adds a micro-average: the sum of one metric over that of another.

    Precision, for example, is all that was rightly found over all that was found, which is not the
    mean of the batches' precisions.

    Parameters
    ----------
    metric
        The name of the metric that it becomes, in some reports.
    numerator, denominator
        The metrics of each report that are added up since the last of these.
    every
        Which reports; by default the last of each epoch.
    name
        Under which the sums are kept, with which a resumed run continues: by default that of the
        metric.

    Returns
    -------
    stage
        Put it before `average`, which replaces the metrics by means.  It raises ValueError where
        there is a metric of that name already, or where none of the reports that are added up had
        one of the two.

    Raises
    ------
    TypeError
        If a name is none.

    >>> from fdbr import train
    >>> found, right = [10, 2], [5, 2]
    >>> reports = [
    ...     train.Report(
    ...         i, i // 2, {"found": f, "right": r}, None, train.Position(i // 2, i % 2), 0.1
    ...     )
    ...     for i, (f, r) in enumerate(zip(found, right), 1)
    ... ]
    >>> stage = train.micro_average("precision", "right", "found")
    >>> [report.metrics.get("precision") for report in stage(iter(reports))]
    [None, 0.5833333333333334]
    """
    for given in (metric, numerator, denominator):
        if not isinstance(given, str):
            raise TypeError(
                f"fdbr.train.micro_average: a metric is given by its name, not {describe(given)}"
            )
    trigger = as_trigger("micro_average", "every", every)
    own = named("micro_average", f"micro_average {metric}" if name is None else name)

    def stage(reports: Iterator[Report]) -> Iterator[Report]:
        with closing(due(reports, trigger, name=own)) as stream:
            sums: Sums | None = None
            for report, fires in stream:
                if sums is None:
                    sums = kept_sums(report, own)
                wanted = (numerator, denominator)
                sums = with_batch(sums, {n: v for n, v in report.metrics.items() if n in wanted}, 1)
                if fires and report.iteration:
                    check_new("micro_average", [metric], report.metrics)
                    ratio = _ratio(sums, numerator, denominator, report)
                    report = report.with_metrics({**report.metrics, metric: ratio})
                    sums = {}
                yield report.keep(own, sums)

    return stage


def _ratio(sums: Sums, numerator: str, denominator: str, report: Report) -> float:
    for name in (numerator, denominator):
        if name not in sums:
            raise ValueError(
                f"fdbr.train.micro_average: no report up to iteration {report.iteration} had the "
                f"metric {name!r}; this one has {', '.join(map(repr, report.metrics)) or 'none'}"
            )
    above, below = (number(name, sums[name][0]) for name in (numerator, denominator))
    return above / below if below else float("nan")
