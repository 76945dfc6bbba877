"""Logs: a line of a file for a report, in JSON or CSV."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from fdbr.core.util.pickling import public_factory
from fdbr.errors.checks import describe
from fdbr.train.loop.reports import Report
from fdbr.train.stages.csv_lines import CsvLines
from fdbr.train.stages.json_lines import JsonLines
from fdbr.train.stages.keeping import due
from fdbr.train.stages.piping import Stage, closing
from fdbr.train.triggers.base import Condition, as_trigger
from fdbr.train.triggers.intervals import each_epoch

__all__ = ["log"]


class _Lines(Protocol):
    """A file of lines."""

    def cut(self, first: Report) -> None:
        """Leave out the lines from a report on."""
        ...

    def write(self, report: Report) -> None:
        """Write a line."""
        ...


@public_factory("fdbr.train")
def log(path: str | Path, every: Condition = each_epoch, name: str = "log") -> Stage:
    """A stage that writes some reports to a file, each as a line.

    A line has ``iteration``, ``epoch``, ``seconds`` and the metrics.  It is in the file as soon as
    its report comes out of the stage.  Each line is an object of JSON; or, if the name of the file
    ends in ``.csv``, a row under a header, which becomes wider when a metric comes that has no
    column yet.  JSON has no NaN and no infinity: both are written as ``null``.

    Each iteration is in the file once.  A resumed run continues after the line of the iteration at
    which it begins: lines of later ones, which a killed part had written after its last snapshot,
    are cut.  A run that begins anew begins the file anew, and keeps the one that was there under
    its name with a ``~`` at the end, further ones under ``~1``, ``~2`` and so on: there are the
    lines of runs that were killed before their first snapshot.

    Parameters
    ----------
    path
        The file; folders that it lies in are made.
    every
        Which reports; by default the last of each epoch.
    name
        That of the stage, under which it keeps what its trigger keeps.

    Returns
    -------
    stage
        Raises OSError if the file cannot be written, ValueError if it is none that this stage has
        written or if a metric has the name of another entry, TypeError if a metric is not a
        single number.

    >>> import tempfile, pathlib
    >>> from fdbr import train
    >>> report = train.Report(1, 1, {"loss": 0.5}, None, train.Position(1, 0), 0.25)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "log.jsonl")
    ...     _ = list(train.log(path)(iter([report])))
    ...     print(path.read_text(), end="")
    {"iteration": 1, "epoch": 1, "seconds": 0.25, "loss": 0.5}
    """
    trigger = as_trigger("log", "every", every)
    if not isinstance(path, str | Path) or not str(path):
        raise TypeError(f"fdbr.train.log: path must be that of a file, not {describe(path)}")
    target = Path(path)
    kind = CsvLines if target.suffix.lower() == ".csv" else JsonLines

    def stage(reports: Iterator[Report]) -> Iterator[Report]:
        with closing(due(reports, trigger, name=name)) as stream:
            lines: _Lines | None = None
            for report, fires in stream:
                if lines is None:
                    lines = kind(target)
                    _writing(target, lines.cut, report)
                if fires:
                    _writing(target, lines.write, report)
                yield report

    return stage


def _writing(path: Path, write: Any, *args: Any) -> None:
    """Write; an error of the system names the stage and the file."""
    try:
        write(*args)
    except OSError as error:
        raise type(error)(
            error.errno,
            f"fdbr.train.log: {path} cannot be written: {error.strerror or error}; the lines "
            "before are in it",
        ) from error
