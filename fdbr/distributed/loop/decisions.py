"""Decisions that all ranks make alike."""

from collections.abc import Iterator
from typing import Any

from fdbr.distributed.arguments import communicator_of, root_of
from fdbr.distributed.communicator import Communicator
from fdbr.distributed.errors import DistributedError
from fdbr.distributed.objects import all_gather_object, broadcast_object
from fdbr.errors.public import public
from fdbr.train.loop.endings import unless_ended
from fdbr.train.loop.reports import Report
from fdbr.train.stages.keeping import due
from fdbr.train.stages.piping import Stage, closing, named
from fdbr.train.triggers.base import Condition, Trigger, as_trigger

__all__ = ["agreed", "apart", "until"]


@public("fdbr.distributed")
def agreed(trigger: Condition, comm: Communicator, root: int = 0) -> Trigger:
    """A trigger that fires on all ranks where it does on one of them.

    It is for what ranks may see differently: the time, and metrics of one rank.  Triggers of epochs
    and iterations agree by themselves, and so do those of metrics behind `aggregate` and
    `evaluate`, whose metrics are those of all ranks.

    Parameters
    ----------
    trigger
        A trigger, the same on all ranks.
    comm
        The ranks, which talk to each other at each report.
    root
        The rank that decides.

    Returns
    -------
    Trigger
        For stages, and for ``until`` of `fdbr.train.fit`.

    Raises
    ------
    TypeError
        If ``trigger`` is none.

    >>> from fdbr import distributed, train
    >>> def f(comm):
    ...     limit = distributed.agreed(train.within(seconds=1), comm)
    ...     report = train.Report(1, 0, {}, None, train.Position(0, 1), 1.5 - comm.rank)
    ...     return limit(report)
    >>> distributed.run_in_threads(f, 2)
    [True, True]
    """
    root = root_of("agreed", root, comm)
    own = as_trigger("agreed", "trigger", trigger)

    def update(state: Any, report: Report) -> tuple[bool, Any]:
        fires, state = own.update(state, report)
        return broadcast_object(bool(fires), comm, root), state

    return Trigger(update, own.init, f"agreed({own.label})")


@public("fdbr.distributed")
def until(trigger: Condition, comm: Communicator, root: int = 0, name: str = "until") -> Stage:
    """A stage that ends a run on all ranks after the same iteration.

    It is `fdbr.train.until` where one rank decides, for time limits and such.

    Parameters
    ----------
    trigger
        When to end.
    comm
        The ranks, which talk to each other at each report.
    root
        The rank whose trigger counts.
    name
        Under which the stage keeps that it has ended the run.

    Returns
    -------
    stage
        Raises DistributedError where ranks have come to different iterations.

    Raises
    ------
    TypeError
        If ``trigger`` is none.

    >>> from fdbr import distributed, train
    >>> def f(comm):
    ...     times = [0.25, 0.5] if comm.rank else [0.5, 1.5]
    ...     reports = (
    ...         train.Report(i, 0, {}, None, train.Position(0, i), time)
    ...         for i, time in enumerate([*times, 2.0], 1)
    ...     )
    ...     stage = distributed.until(train.within(seconds=1), comm)
    ...     return [report.iteration for report in stage(reports)]
    >>> distributed.run_in_threads(f, 2)
    [[1, 2], [1, 2]]
    """
    root = root_of("until", root, communicator_of("until", comm))
    condition = as_trigger("until", "trigger", trigger)
    name = named("until", name)

    def stage(reports: Iterator[Report]) -> Iterator[Report]:
        going_on = unless_ended(reports, name, condition.label)
        with closing(reports), closing(due(going_on, condition, name=name)) as stream:
            for report, fires in stream:
                said = all_gather_object((report.iteration, fires), comm)
                iterations = [iteration for iteration, _ in said]
                if len(set(iterations)) > 1:
                    raise apart("until", iterations)
                if said[root][1]:
                    yield report.keep(name, condition.label)
                    return
                yield report

    return stage


def apart(function: str, iterations: list[int]) -> DistributedError:
    """The error where ranks have come to different iterations."""
    return DistributedError(
        f"fdbr.distributed.{function}: the ranks have come to different iterations, {iterations}; "
        "give all the same batches, fdbr.distributed.share(batches, comm), and the same end"
    )
