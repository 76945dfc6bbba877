"""Logs: files of what the reports say."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fdbr.train.loop.reports import Report
from fdbr.train.metrics import numbers
from fdbr.train.stages.keeping import due
from fdbr.train.stages.piping import Stage, check_new, closing
from fdbr.train.triggers.base import Condition, as_trigger
from fdbr.train.triggers.intervals import each_epoch

__all__ = ["log"]


def log(path: str | Path, every: Condition = each_epoch, name: str = "log") -> Stage:
    """A stage that appends some reports to a file, each as a line of JSON.

    A line is an object of ``iteration``, ``epoch``, ``seconds`` and the metrics.  It is in the
    file as soon as its report comes out of the stage.  JSON has no NaN and no infinity: both are
    written as ``null``.

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
        Raises OSError if the file cannot be written, ValueError if a metric has the name of
        another entry, TypeError if a metric is not a single number.

    >>> import tempfile, pathlib
    >>> from fdbr import train
    >>> report = train.Report(1, 1, {"loss": 0.5}, None, train.Position(1, 0), 0.25)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "log.jsonl")
    ...     _ = list(train.log(path)(iter([report])))
    ...     print(path.read_text(), end="")
    {"iteration": 1, "epoch": 1, "seconds": 0.25, "loss": 0.5}
    """
    target = Path(path)

    trigger = as_trigger("log", "every", every)

    def stage(reports: Iterator[Report]) -> Iterator[Report]:
        with closing(due(reports, trigger, name=name)) as stream:
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("a", encoding="utf-8") as file:
                for report, fires in stream:
                    if fires:
                        file.write(_line(report))
                        file.flush()
                    yield report

    return stage


def _line(report: Report) -> str:
    entry: dict[str, Any] = {
        "iteration": report.iteration,
        "epoch": report.epoch,
        "seconds": round(report.seconds, 6),
    }
    check_new("log", report.metrics, entry)
    for name, value in numbers(report.metrics).items():
        entry[name] = value if math.isfinite(value) else None
    return json.dumps(entry, allow_nan=False) + "\n"
