"""The stage that writes snapshots."""

import os
from collections.abc import Iterator
from pathlib import Path

from fdbr.core.util.pickling import public_factory
from fdbr.errors.checks import integer
from fdbr.train.loop.reports import Report
from fdbr.train.snapshots.background import Background
from fdbr.train.snapshots.folder import Retention
from fdbr.train.snapshots.writer import Writer, opened
from fdbr.train.stages.keeping import due
from fdbr.train.stages.piping import Stage, closing, named
from fdbr.train.triggers.base import Condition, Trigger, as_trigger
from fdbr.train.triggers.intervals import each_epoch

__all__ = ["snapshot"]


@public_factory("fdbr.train")
def snapshot(
    folder: str | Path,
    every: Condition = each_epoch,
    *,
    keep: int | None = None,
    keep_every: Condition | None = None,
    best: str | None = None,
    mode: str = "min",
    final: bool = True,
    background: bool = True,
    overwrite: bool = False,
    name: str = "snapshot",
) -> Stage:
    """A stage that writes some reports to files, from which `resume` continues.

    A snapshot holds the state, the position in the data, what stages keep, and the metrics.  It is
    written under another name, synced and renamed, so a run may be killed at any moment.  The next
    step begins at once, and the file is written meanwhile; no array is copied but those that
    somebody can write to, and those of a GPU, which are brought to host memory first.  Before the
    stage ends, the last write has.

    Put it last in a `pipe`: what later stages keep would not be in the snapshot, so that is an
    error.

    Parameters
    ----------
    folder
        The folder; it is made.  One run at a time may write there.
    every
        Which reports; by default the last of each epoch.
    keep
        How many of the newest snapshots are kept.  `None` stands for all, or, where ``keep_every``
        or ``best`` is given, for the newest one alone.  Older ones are deleted when the next one is
        safe on the disk.
    keep_every
        Which snapshots are kept beside those, for good: a trigger.
    best
        The name of a metric: the snapshot where it is best is kept, too.
    mode
        ``"min"`` if the smallest value of it is best, ``"max"`` if the largest is.
    final
        Whether the last report is written too, however the run ends: by itself, by Ctrl-C or
        SIGTERM, by a ``break``, or by an error in the step.
    background
        Whether the run continues while a file is written.  A run that is faster than the
        disk waits for the write before; an error comes with the next report.
    overwrite
        Whether a run may begin where the folder has snapshots of later iterations.  They are
        deleted when the first new one is written.
    name
        That of the stage, under which it keeps what its triggers keep.

    Returns
    -------
    stage
        Raises OSError if a file cannot be written, BlockingIOError if another run writes there,
        FileExistsError if the folder has readable snapshots of later iterations, TypeError if the
        report holds what cannot be in a file.

    Raises
    ------
    TypeError, ValueError
        If an argument is not what it should be.

    >>> import tempfile
    >>> import numpy as np
    >>> from fdbr import train
    >>> batches = train.Batches(np.arange(4.0), size=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     reports = train.fit(lambda s, b: (s + b, {"sum": s[0]}), np.zeros(1), batches, epochs=2)
    ...     stage = train.snapshot(folder, train.every(iterations=2), keep=2)
    ...     for report in train.pipe(reports, stage):
    ...         pass
    ...     [s.path.name for s in train.snapshots(folder)]
    ['snapshot-0000000006.safetensors', 'snapshot-0000000008.safetensors']
    """
    if keep is not None:
        keep = integer("fdbr.train.snapshot", "keep", keep, least=1)
    elif best is not None or keep_every is not None:
        keep = 1
    if mode not in ("min", "max"):
        raise ValueError(f"fdbr.train.snapshot: mode must be 'min' or 'max', got {mode!r}")
    name = named("snapshot", name)
    trigger = as_trigger("snapshot", "every", every)
    lasting = None if keep_every is None else as_trigger("snapshot", "keep_every", keep_every)
    path = Path(os.fspath(folder))
    retention = Retention(keep, best, mode)

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
            opened(path) as unfinished,
            Background(background) as work,
        ):
            writer = Writer(path, unfinished, retention, overwrite, work)
            unsaved = None
            try:
                for report, fires in stream:
                    writer.see(report)
                    unsaved = report
                    if fires or permanent:
                        writer.save(report, permanent)
                        unsaved = None
                    yield report.seal("snapshot")
            except BaseException as error:
                writer.finish(unsaved if final else None, error)
                raise
            writer.finish(unsaved if final else None)

    return stage
