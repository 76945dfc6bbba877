"""Stages of one rank."""

from collections.abc import Iterator

from fdbr.distributed.arguments import root_of
from fdbr.distributed.communicator import Communicator
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.train.loop.reports import Report
from fdbr.train.stages.piping import Stage, closing, pipe

__all__ = ["on_root"]


@public("fdbr.distributed")
def on_root(comm: Communicator, *stages: Stage, root: int = 0) -> Stage:
    """Stages that only one rank has: logs, plots, displays.

    The other ranks pass their reports through.  What the stages make of a report, for instance
    means, stays among them: the root continues with the report that came, as the others do, and
    with what the stages keep.

    Parameters
    ----------
    comm
        The ranks.
    stages
        Stages that give each report that they get, such as `fdbr.train.log`, `fdbr.train.plot`,
        `fdbr.train.progress`, `fdbr.train.table` and `fdbr.train.tensorboard`.
    root
        The rank that has them.

    Returns
    -------
    stage
        Put it behind `aggregate` and `evaluate`, whose metrics are those of all ranks.  It raises
        ValueError if a stage ends the run or leaves a report out, which would be for this rank
        alone: `fdbr.train.until` stands outside, on all ranks.

    Raises
    ------
    TypeError
        If a stage is no function.

    >>> from fdbr import distributed, train
    >>> def f(comm):
    ...     report = train.Report(7, 1, {}, None, train.Position(1, 0), 0.1)
    ...     seen = []
    ...     look = train.stateful(lambda s, r: (seen.append(r.iteration), r), name="look")
    ...     return [r.iteration for r in distributed.on_root(comm, look)(iter([report]))], seen
    >>> distributed.run_in_threads(f, 2)
    [([7], [7]), ([7], [])]
    """
    root = root_of("on_root", root, comm)
    for stage in stages:
        if not callable(stage):
            raise TypeError(
                "fdbr.distributed.on_root: a stage is a function from reports to reports, not "
                f"{describe(stage)}"
            )

    def through(reports: Iterator[Report]) -> Iterator[Report]:
        return _through(reports, stages) if comm.rank == root else reports

    return through


def _through(reports: Iterator[Report], stages: tuple[Stage, ...]) -> Iterator[Report]:
    waiting: list[Report] = []
    ended = False

    def noted() -> Iterator[Report]:
        nonlocal ended
        with closing(reports):
            for report in reports:
                if waiting:
                    raise _alone(f"left out the report of iteration {waiting[0].iteration}")
                waiting.append(report)
                yield report
        ended = True

    source = noted()
    with closing(pipe(source, *stages)) as stream, closing(source):
        for seen in stream:
            if not waiting:
                raise _alone("gave a report that has not come")
            report = waiting.pop()
            yield report.with_kept_of(seen)
        if not ended:
            raise _alone("ended the run")


def _alone(what: str) -> ValueError:
    return ValueError(
        f"fdbr.distributed.on_root: a stage {what}, on this rank alone; put it outside of on_root, "
        "on all ranks, behind fdbr.distributed.aggregate"
    )
