"""Reports of all ranks."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from fdbr import tree
from fdbr.distributed.arguments import communicator_of
from fdbr.distributed.communicator import Communicator
from fdbr.distributed.loop.decisions import apart
from fdbr.distributed.loop.means import plain, together
from fdbr.distributed.objects import all_gather_object
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.train.loop.reports import Report
from fdbr.train.stages.averages import Sums, means, with_batch
from fdbr.train.stages.keeping import due
from fdbr.train.stages.piping import Stage, closing, named
from fdbr.train.triggers.base import Condition, as_trigger
from fdbr.train.triggers.intervals import each_iteration

__all__ = ["SUMMED", "aggregate", "of_all"]

SUMMED = "summed over ranks"
"""The key of what a rank keeps, and has to be added up where the number of ranks changes."""


@public("fdbr.distributed")
def aggregate(
    comm: Communicator,
    every: Condition = each_iteration,
    sums: Collection[str] = (),
    name: str = "aggregate",
) -> Stage:
    """A stage that makes reports of one rank those of all.

    The metrics become means over the examples of all ranks, whatever their numbers; a rank whose
    share is empty does not count.  ``examples`` becomes the number of all, and ``seconds`` is that
    of rank 0.  All ranks have the same then, to the last bit: triggers that follow metrics or the
    time, behind this stage, fire alike on all of them.

    Parameters
    ----------
    comm
        The ranks.
    every
        Which reports; by default all.  The metrics of one are means since the last such report, as
        those of `fdbr.train.average`; the others stay those of this rank.  Ranks talk to each other
        only there, and must agree which these are.
    sums
        The names of metrics that are added up, and no means: what `fdbr.train.micro_average`
        behind this stage divides by one another.
    name
        Under which the sums are kept, with which a resumed run continues.

    Returns
    -------
    stage
        Put it first.  It raises DistributedError where ranks have come to different iterations.

    Raises
    ------
    TypeError
        If an argument is not what it should be.

    >>> from fdbr import distributed, train
    >>> def f(comm):
    ...     loss, examples = float(comm.rank), 1 + comm.rank
    ...     report = train.Report(
    ...         1, 0, {"loss": loss}, None, train.Position(0, 1), 0.1, examples=examples
    ...     )
    ...     found = next(distributed.aggregate(comm)(iter([report])))
    ...     return round(found.metrics["loss"], 3), found.examples
    >>> distributed.run_in_threads(f, 2)
    [(0.667, 3), (0.667, 3)]
    """
    comm = communicator_of("aggregate", comm)
    trigger = as_trigger("aggregate", "every", every)
    if isinstance(sums, str) or not all(isinstance(metric, str) for metric in sums):
        raise TypeError(
            f"fdbr.distributed.aggregate: sums must be the names of metrics, not {describe(sums)}"
        )
    added = frozenset(sums)
    own = named("aggregate", name)

    def stage(reports: Iterator[Report]) -> Iterator[Report]:
        with closing(due(reports, trigger, name=own)) as stream:
            since: Sums | None = None
            for report, fires in stream:
                if since is None:
                    since = _kept(report, own)
                since = _with(since, report, added)
                if fires:
                    report = of_all(report, since, added, comm)
                    since = {}
                yield report.keep(own, {SUMMED: plain(since)} if since else {})

    return stage


def _kept(report: Report, name: str) -> Sums:
    kept: Mapping[str, Any] = report.position.kept.get(name, {})
    return {metric: tuple(pair) for metric, pair in kept.get(SUMMED, {}).items()}


def _with(sums: Sums, report: Report, added: frozenset[str]) -> Sums:
    weight = 1 if report.examples is None else report.examples
    parts = {name: value for name, value in report.metrics.items() if name in added}
    others = {name: value for name, value in report.metrics.items() if name not in added}
    return with_batch(with_batch(sums, others, weight), parts, 1)


def of_all(report: Report, sums: Sums, added: frozenset[str], comm: Communicator) -> Report:
    """The report of all ranks, with the sums since the last one."""
    said = all_gather_object((report.iteration, report.examples, report.seconds, plain(sums)), comm)
    iterations = [iteration for iteration, _, _, _ in said]
    if len(set(iterations)) > 1:
        raise apart("aggregate", iterations)
    total = together([part for _, _, _, part in said])
    metrics = means(total) | {name: total[name][0] for name in added & total.keys()}
    counts = [count for _, count, _, _ in said]
    examples = None if None in counts else sum(counts)
    return tree.replace(report.with_metrics(metrics), examples=examples, seconds=said[0][2])
