"""Displays of a run on a terminal."""

import sys
from collections.abc import Iterator
from typing import Any

from tqdm import tqdm

from fdbr.train.loop.reports import Report
from fdbr.train.metrics import text
from fdbr.train.stages.keeping import due
from fdbr.train.stages.piping import Stage, closing
from fdbr.train.triggers.base import Condition, as_trigger
from fdbr.train.triggers.intervals import each_epoch

__all__ = ["progress"]


def progress(every: Condition = each_epoch, name: str = "progress") -> Stage:
    """A stage that shows how far a run has come.

    Some reports print a line on standard output, below which a bar runs on standard error.
    Where standard error is no terminal, there is no bar, only the lines.

    Parameters
    ----------
    every
        Which reports have a line; by default the last of each epoch.
    name
        That of the stage, under which it keeps what its trigger keeps.

    Returns
    -------
    stage
        Raises TypeError if a metric to be printed is not a single number.

    >>> from fdbr import train
    >>> report = train.Report(9, 1, {"loss": 0.5}, None, train.Position(1, 0), 0.25)
    >>> _ = list(train.progress()(iter([report])))
    epoch 1  iteration 9  loss 0.5  0.2 s
    """
    trigger = as_trigger("progress", "every", every)

    def stage(reports: Iterator[Report]) -> Iterator[Report]:
        bar: Any = None
        with closing(due(reports, trigger, name=name)) as stream:
            try:
                for report, fires in stream:
                    if bar is None:
                        begun = report.iteration - 1
                        bar = tqdm(total=report.total, initial=begun, disable=None, leave=False)
                    bar.update()
                    if fires:
                        tqdm.write(_summary(report), file=sys.stdout)
                        sys.stdout.flush()
                    yield report
            finally:
                if bar is not None:
                    bar.close()

    return stage


def _summary(report: Report) -> str:
    parts = [f"epoch {report.epoch}", f"iteration {report.iteration}", text(report.metrics)]
    return "  ".join([*filter(None, parts), f"{report.seconds:.1f} s"])
