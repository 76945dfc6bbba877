"""The stage that writes snapshots of runs on many ranks."""

import os
from collections.abc import Iterator
from pathlib import Path

from fdbr.distributed.arguments import communicator_of
from fdbr.distributed.communicator import Communicator
from fdbr.distributed.loop.snapshots.writing import Group
from fdbr.errors.checks import integer
from fdbr.errors.public import public
from fdbr.train.loop.interrupts import Terminated
from fdbr.train.loop.reports import Report
from fdbr.train.snapshots.folder import Retention
from fdbr.train.stages.keeping import due
from fdbr.train.stages.piping import Stage, closing, named
from fdbr.train.triggers.base import Condition, Trigger, as_trigger
from fdbr.train.triggers.intervals import each_epoch, is_counted

__all__ = ["snapshot"]

_NAME = "fdbr.distributed.snapshot"


@public("fdbr.distributed")
def snapshot(
    folder: str | Path,
    comm: Communicator,
    every: Condition = each_epoch,
    *,
    shards: bool | None = None,
    keep: int | None = None,
    keep_every: Condition | None = None,
    best: str | None = None,
    mode: str = "min",
    final: bool = True,
    background: bool = True,
    overwrite: bool = False,
    name: str = "snapshot",
) -> Stage:
    """A stage that writes some reports of all ranks to files, from which `resume` continues.

    It is `fdbr.train.snapshot` for many ranks; all of them have it.  Rank 0 decides when one is
    due, and which are kept, so triggers may follow the time.

    Where the state is the same on all ranks, as in data-parallel training, rank 0 writes it: a file
    that `fdbr.train.resume` reads, too.  Where states differ, each rank writes its own, and when
    all of these are whole and on the disk, rank 0 writes the file that makes a snapshot of them.
    So a run may be killed at any moment, in the middle of writing too: a snapshot is complete or it
    is none, and older ones are deleted only when it is.

    Parameters
    ----------
    folder
        The folder; it is made.  It may be one that all ranks see, or one of each machine or rank:
        a rank reads again what it has written itself.  To continue on another number of ranks where
        states differ takes a folder that all see, or the files of all in one place.
    comm
        The ranks.
    every
        Which reports; by default the last of each epoch.
    shards
        Whether each rank writes its own state.  By default that is found out for each snapshot, by
        checksums; `False` says that states are the same, and saves these.
    keep, keep_every, best, mode
        Which snapshots are kept, as in `fdbr.train.snapshot`; ``best`` is a metric of rank 0, to be
        put behind `aggregate`.
    final
        Whether the last report is written too when the run ends: by its numbers, by a trigger, by
        Ctrl-C or by SIGTERM.  Where a loop is left by an error, or by a ``break``, nobody knows
        whether other ranks have come as far, and there is no talking to them: only with
        ``shards=False`` rank 0 writes its last report then.
    background
        Whether the run continues while files are written.
    overwrite
        Whether a run may begin where the folder has snapshots of later iterations.
    name
        That of the stage, under which it keeps what its triggers keep.

    Returns
    -------
    stage
        Put it last.  It raises, on all ranks, what `fdbr.train.snapshot` raises; and
        DistributedError where ranks have come to different iterations.

    Raises
    ------
    TypeError, ValueError
        If an argument is not what it should be.

    >>> import tempfile
    >>> import numpy as np
    >>> from fdbr import distributed, train
    >>> batches = train.Batches(np.arange(8.0), size=2)
    >>> def run(comm, folder, epochs):
    ...     def step(state, batch):
    ...         return state + distributed.all_reduce(batch.sum(), comm), {}
    ...     reports = train.fit(
    ...         step,
    ...         np.zeros(()),
    ...         distributed.share(batches, comm),
    ...         epochs=epochs,
    ...         resume=distributed.resume(folder, np.zeros(()), comm),
    ...     )
    ...     stage = distributed.snapshot(folder, comm, train.every(iterations=3))
    ...     return [(r.iteration, r.state.item()) for r in train.pipe(reports, stage)][-1]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first = distributed.run_in_threads(lambda comm: run(comm, folder, 1), 2)
    ...     rest = distributed.run_in_threads(lambda comm: run(comm, folder, 2), 3)
    >>> first, rest
    ([(4, 28.0), (4, 28.0)], [(8, 56.0), (8, 56.0), (8, 56.0)])
    """
    comm = communicator_of("snapshot", comm)
    if keep is not None:
        keep = integer(_NAME, "keep", keep, least=1)
    elif best is not None or keep_every is not None:
        keep = 1
    if mode not in ("min", "max"):
        raise ValueError(f"{_NAME}: mode must be 'min' or 'max', got {mode!r}")
    name = named("snapshot", name)
    trigger = as_trigger("snapshot", "every", every)
    lasting = None if keep_every is None else as_trigger("snapshot", "keep_every", keep_every)
    path = Path(os.fspath(folder))
    retention = Retention(keep, best, mode)
    agreed = is_counted(trigger) and (lasting is None or is_counted(lasting))

    def stage(reports: Iterator[Report]) -> Iterator[Report]:
        permanent = False

        def noted(lasting: Trigger) -> Iterator[Report]:
            nonlocal permanent
            with closing(due(reports, lasting, name=f"{name}/keep_every")) as stream:
                for report, lasts in stream:
                    permanent = lasts
                    yield report

        source = reports if lasting is None else noted(lasting)
        with (
            closing(due(source, trigger, name=name)) as stream,
            Group(path, comm, retention, overwrite, shards, background) as group,
        ):
            unsaved = None
            iteration = 0
            try:
                for report, fires in stream:
                    fires, lasts = group.decide(report, fires, permanent, agreed=agreed)
                    unsaved, iteration = report, report.iteration
                    if fires or lasts:
                        group.save(report, lasts)
                        unsaved = None
                    yield report.seal("snapshot")
            except Terminated:  # all ranks have ended with one iteration, as by Ctrl-C
                group.finish(unsaved if final else None, iteration)
                raise
            except BaseException as error:
                group.give_up(unsaved if final else None, error)
                raise
            group.finish(unsaved if final else None, iteration)

    return stage
