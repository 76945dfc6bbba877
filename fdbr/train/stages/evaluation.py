"""Metrics of the state, beside those of the step."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fdbr.core.util.pickling import public_factory
from fdbr.errors.checks import describe
from fdbr.train.loop.examples import examples_of
from fdbr.train.loop.reports import Report
from fdbr.train.loop.sources import Feed, explain_key, feed_of
from fdbr.train.stages.averages import Sums, means, with_batch
from fdbr.train.stages.keeping import due
from fdbr.train.stages.piping import Stage, check_new, closing
from fdbr.train.triggers.base import Condition, Trigger, as_trigger
from fdbr.train.triggers.intervals import each_epoch

__all__ = ["adding", "evaluate", "evaluated_feed", "sums_of"]


@public_factory("fdbr.train")
def evaluate(
    metrics_of_state: Callable[..., Mapping[str, Any]],
    every: Condition = each_epoch,
    prefix: str = "test/",
    name: str = "evaluate",
    *,
    batches: Any = None,
    examples: Callable[[Any], int | None] = examples_of,
) -> Stage:
    """A stage that adds metrics of the state to some reports.

    Parameters
    ----------
    metrics_of_state
        ``metrics_of_state(state)``: a mapping from names to numbers; with ``batches``,
        ``metrics_of_state(state, batch)``.
    every
        Which reports; by default the last of each epoch.
    prefix
        What is put before the names.
    name
        That of the stage, under which it keeps what its trigger keeps.
    batches
        Data in batches, such as `fit` takes, of which each evaluation reads one epoch, the first:
        the metrics are the means over it, weighed by the examples of each batch; a batch without
        examples is passed by.
    examples
        ``examples(batch)``: how many examples a batch has, or `None`; as in `fit`.

    Returns
    -------
    stage
        Raises ValueError where a report has a metric of that name already, TypeError if the metrics
        are no mapping.

    Raises
    ------
    TypeError
        If ``metrics_of_state`` is no function, or ``batches`` are none that can be read again.
    ValueError
        If there are no ``batches``.

    >>> from fdbr import train
    >>> stage = train.evaluate(lambda state: {"loss": 2.0 * state})
    >>> report = train.Report(1, 1, {"loss": 0.5}, 3.0, train.Position(1, 0), 0.1)
    >>> dict(next(stage(iter([report]))).metrics)
    {'loss': 0.5, 'test/loss': 6.0}
    """
    trigger = as_trigger("evaluate", "every", every)
    feed = None if batches is None else evaluated_feed(batches)

    def found(state: Any) -> Mapping[str, Any]:
        if feed is None:
            return _mapping(metrics_of_state(state))
        return means(sums_of(metrics_of_state, state, feed, examples))

    return adding(found, trigger, prefix, name)


def evaluated_feed(batches: Any) -> Feed:
    """The batches of an evaluation, which must be such as can be read again."""
    feed = feed_of(batches, "evaluate")
    if feed.passes is not None:
        raise TypeError(
            "fdbr.train.evaluate: batches must be such as can be read again: Batches, or a list, "
            f"not {describe(batches)}"
        )
    if feed.size == 0:
        raise ValueError(
            "fdbr.train.evaluate: batches are empty, there is nothing to evaluate; give at least "
            "one batch"
        )
    return feed


def sums_of(
    metrics_of_state: Callable[..., Mapping[str, Any]],
    state: Any,
    feed: Feed,
    examples: Callable[[Any], int | None],
) -> Sums:
    """The sums of metrics over the first epoch of some batches; those without examples are none."""
    sums: Sums = {}
    for batch, _, _ in feed.batches(0, 0):
        count = examples(batch)
        if count != 0:
            try:
                metrics = _mapping(metrics_of_state(state, batch))
            except KeyError as error:
                explain_key(error, batch, "fdbr.train.evaluate")
                raise
            sums = with_batch(sums, metrics, 1 if count is None else count)
    return sums


def adding(
    found: Callable[[Any], Mapping[str, Any]], trigger: Trigger, prefix: str, name: str
) -> Stage:
    """The stage that adds what is found of a state, where a trigger fires."""

    def stage(reports: Iterator[Report]) -> Iterator[Report]:
        with closing(due(reports, trigger, name=name)) as stream:
            for report, fires in stream:
                if fires:
                    added = {prefix + name: value for name, value in found(report.state).items()}
                    check_new("evaluate", added, report.metrics)
                    report = report.with_metrics({**report.metrics, **added})
                yield report

    return stage


def _mapping(metrics: Any) -> Mapping[str, Any]:
    if not isinstance(metrics, Mapping):
        raise TypeError(
            "fdbr.train.evaluate: metrics_of_state must return a mapping from names to numbers, "
            f"such as {{'loss': value}}, not {describe(metrics)}"
        )
    return metrics
