"""TensorBoard's event files."""

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fdbr.core.devices import optional
from fdbr.core.util.pickling import public_factory
from fdbr.errors.checks import describe
from fdbr.train.loop.reports import Report
from fdbr.train.metrics import numbers
from fdbr.train.stages.keeping import due
from fdbr.train.stages.piping import Stage, closing
from fdbr.train.triggers.base import Condition, as_trigger
from fdbr.train.triggers.intervals import each_epoch

__all__ = ["tensorboard"]


@public_factory("fdbr.train")
def tensorboard(
    folder: str | Path, every: Condition = each_epoch, name: str = "tensorboard"
) -> Stage:
    """A stage that writes the metrics of some reports for TensorBoard.

    Each metric is a scalar under its name, at the iteration as step.  Every part of a run has an
    event file of its own; that of a resumed part tells TensorBoard to leave out what earlier ones
    have written of later iterations.  It takes the library tensorboardX.

    Parameters
    ----------
    folder
        Where the event files lie; it is made.
    every
        Which reports; by default the last of each epoch.
    name
        That of the stage, under which it keeps what its trigger keeps.

    Returns
    -------
    stage
        Raises OSError if the folder cannot be written, TypeError if a metric is not a single
        number.

    Raises
    ------
    ImportError
        If tensorboardX is not installed.

    >>> import tempfile, pathlib
    >>> from fdbr import train
    >>> report = train.Report(1, 1, {"loss": 0.5}, None, train.Position(1, 0), 0.25)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = list(train.tensorboard(folder)(iter([report])))
    ...     len(list(pathlib.Path(folder).glob("events.out.tfevents.*")))
    1
    """
    trigger = as_trigger("tensorboard", "every", every)
    if not isinstance(folder, str | Path):
        raise TypeError(
            f"fdbr.train.tensorboard: folder must be the path of one, not {describe(folder)}"
        )
    library = optional("train.tensorboard", "tensorboardX", "tensorboard")

    def stage(reports: Iterator[Report]) -> Iterator[Report]:
        writer: Any = None
        with closing(due(reports, trigger, name=name)) as stream:
            try:
                for report, fires in stream:
                    if writer is None:
                        suffix = f".{secrets.token_hex(4)}"  # parts may begin in one second
                        writer = library.SummaryWriter(
                            str(folder), purge_step=report.iteration, filename_suffix=suffix
                        )
                    if fires:
                        for metric, value in numbers(report.metrics).items():
                            writer.add_scalar(metric, value, report.iteration)
                        writer.flush()
                    yield report
            finally:
                if writer is not None:
                    writer.close()

    return stage
