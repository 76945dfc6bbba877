"""The way back from a folder of snapshots to the report of the newest one."""

import os
import warnings
from pathlib import Path
from typing import Any

from fdbr.errors.public import public
from fdbr.train.loop.reports import Report
from fdbr.train.snapshots.folder import newest_first
from fdbr.train.snapshots.header import DamagedError
from fdbr.train.snapshots.reports import read_report

__all__ = ["resume"]


@public("fdbr.train")
def resume(folder: str | Path, like: Any) -> Report | None:
    """The report of the newest snapshot in a folder that can be read.

    Give it to `fit`, which continues from there: ``fit(step, state, batches,
    resume=train.resume(folder, like=state), epochs=…)``.

    Parameters
    ----------
    folder
        The folder that `snapshot` writes to; or the file of one snapshot, such as the best one,
        which is then read and no other.
    like
        A state of the structure that is expected, such as that of a new run; see `load`.

    Returns
    -------
    Report or None
        The report, with the state, the position and all that stages keep; `None` if the folder is
        missing or has no snapshot.  Arrays of the state lie where those of ``like`` lie, others in
        host memory.

    Warns
    -----
    RuntimeWarning
        If a snapshot is damaged, is of another iteration than its name says, or of another run than
        most in the folder, and the one before is taken; the warning names both.

    Raises
    ------
    OSError
        If ``folder`` cannot be read.
    ValueError
        If every snapshot is damaged, or the file that was given; if it cannot be told which of
        two runs the folder is of; or if the newest one that is not damaged holds another state than
        ``like``: the message lists the paths.

    >>> import tempfile
    >>> import numpy as np
    >>> from fdbr import train
    >>> batches = train.Batches(np.arange(4.0), size=1)
    >>> def run(folder, epochs):
    ...     report = train.resume(folder, like=0.0)
    ...     reports = train.fit(
    ...         lambda s, b: (s + b[0], {"sum": s}), 0.0, batches, epochs=epochs, resume=report
    ...     )
    ...     return [r.state for r in train.pipe(reports, train.snapshot(folder))]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first, second = run(folder, epochs=1), run(folder, epochs=2)
    >>> float(first[-1]), float(second[0])
    (6.0, 6.0)
    """
    given = Path(os.fspath(folder))
    if given.exists() and not given.is_dir():
        return read_report("resume", given, like)
    while True:
        failures: list[tuple[Path, Exception]] = []
        missed = False
        for path, error_of_run in newest_first("resume", given):
            try:
                if error_of_run is not None:
                    raise error_of_run
                report = read_report("resume", path, like)
            except (DamagedError, OSError) as error:
                if os.path.lexists(path):
                    failures.append((path, error))
                else:  # it was deleted: a run that continues has a newer one by now
                    missed = True
                continue
            if failures:
                _warn(failures, path, report)
            return report
        if not missed:
            break
    if failures:
        reasons = "; ".join(str(error) for _, error in failures)
        raise ValueError(
            f"fdbr.train.resume: none of the {len(failures)} snapshots in {folder} can be read. "
            f"To begin anew, move them away. {reasons}"
        )
    return None


def _warn(failures: list[tuple[Path, Exception]], path: Path, report: Report) -> None:
    names = ", ".join(str(failed) for failed, _ in failures)
    warnings.warn(
        f"fdbr.train.resume: {names} cannot be read, so the run goes on from {path}, iteration "
        f"{report.iteration}: {failures[0][1]}",
        RuntimeWarning,
        stacklevel=4,  # where resume is called
    )
