"""Displays of a run on a terminal."""

import contextlib
import math
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from tqdm import tqdm

from fdbr.core.util.pickling import public_factory
from fdbr.errors.checks import describe
from fdbr.train.loop.reports import Report
from fdbr.train.metrics import number, text
from fdbr.train.stages.keeping import due
from fdbr.train.stages.piping import Stage, closing
from fdbr.train.stages.waiting import Awaited
from fdbr.train.triggers.base import Condition, as_trigger
from fdbr.train.triggers.intervals import each_epoch

__all__ = ["progress", "table"]


@public_factory("fdbr.train")
def progress(every: Condition = each_epoch, name: str = "progress") -> Stage:
    """A stage that shows how far a run has come.

    Some reports print a line on standard output, below which a bar runs on standard error, with
    the metrics of the last report, the iterations a second and the time that is left, if the end is
    known.  Where standard error is no terminal, there is no bar, only the lines.  Beside a `table`
    in the same `pipe` there are no lines, unless ``every`` is given: the table has them.

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

    def shown(reports: Iterator[Report], lines: bool) -> Iterator[Report]:
        bar: Any = None
        due_again = 0.0
        with closing(due(reports, trigger, name=name)) as stream:
            try:
                for report, fires in stream:
                    if bar is None:
                        begun = max(report.iteration - 1, 0)
                        bar = tqdm(total=report.total, initial=begun, disable=None, leave=False)
                    if not bar.disable and time.monotonic() >= due_again:
                        bar.set_description_str(_shown(report), refresh=False)
                        due_again = time.monotonic() + bar.mininterval
                    if report.iteration:
                        bar.update()
                    if fires and lines:
                        tqdm.write(_summary(report), file=sys.stdout)
                        sys.stdout.flush()
                    yield report
            finally:
                if bar is not None:
                    bar.close()

    def stage(reports: Iterator[Report]) -> Iterator[Report]:
        return shown(reports, lines=True)

    if trigger is each_epoch:
        stage.beside_table = partial(shown, lines=False)  # type: ignore[attr-defined]
    return stage


def _shown(report: Report) -> str:
    """The metrics that are single numbers, for the bar."""
    found = {}
    for name, value in report.metrics.items():
        with contextlib.suppress(TypeError):  # the others are an error where a line is due
            found[name] = number(name, value)
    return text(found)


def _summary(report: Report) -> str:
    parts = [f"epoch {report.epoch}", f"iteration {report.iteration}", text(report.metrics)]
    return "  ".join([*filter(None, parts), f"{report.seconds:.1f} s"])


@public_factory("fdbr.train")
def table(
    columns: Sequence[str] | None = None, every: Condition = each_epoch, name: str = "table"
) -> Stage:
    """A stage that prints some reports as the rows of a table.

    Parameters
    ----------
    columns
        ``"epoch"``, ``"iteration"``, ``"seconds"`` and names of metrics, in the order in which
        they are to be printed; by default those three and all metrics, with a new header when
        there are others.  A metric that a report does not have leaves its place empty.
    every
        Which reports; by default the last of each epoch.
    name
        That of the stage, under which it keeps what its trigger keeps.

    Returns
    -------
    stage
        Raises TypeError if a metric to be printed is not a single number; at the end of a run,
        ValueError if none of the rows had a metric that is a column.

    Raises
    ------
    TypeError
        If ``columns`` are no texts.

    >>> from fdbr import train
    >>> reports = [
    ...     train.Report(i, i, {"loss": 1 / i}, None, train.Position(i, 0), float(i))
    ...     for i in range(1, 4)
    ... ]
    >>> _ = list(train.table(["epoch", "loss"])(iter(reports)))
    epoch  loss
    1      1
    2      0.5
    3      0.333333
    """
    trigger = as_trigger("table", "every", every)
    if columns is not None:
        _check_columns(columns)

    def stage(reports: Iterator[Report]) -> Iterator[Report]:
        awaited = Awaited("table", [c for c in columns or () if c not in _PLACES])
        shown: list[str] = []
        with closing(due(reports, trigger, name=name)) as stream:
            for report, fires in stream:
                if fires:
                    awaited.see(report)
                    wanted = [*_PLACES, *report.metrics] if columns is None else list(columns)
                    if not shown or not set(wanted) <= set(shown):
                        shown = wanted
                        _print(_row(shown, shown))
                    _print(_row(shown, [_cell(report, column) for column in shown]))
                yield report
            awaited.check()

    stage.is_table = True  # type: ignore[attr-defined]
    return stage


def _print(line: str) -> None:
    """Print a line above the bars that there are."""
    tqdm.write(line, file=sys.stdout)
    sys.stdout.flush()


_PLACES = ("epoch", "iteration", "seconds")
_WIDTH = 10  # of a column, at least: that of the longest number


def _check_columns(columns: Any) -> None:
    if isinstance(columns, str) or not isinstance(columns, Sequence):
        raise TypeError(
            f"fdbr.train.table: columns must be a sequence of names, not {describe(columns)}"
        )
    for column in columns:
        if not isinstance(column, str):
            raise TypeError(f"fdbr.train.table: a column is a name, not {describe(column)}")


def _row(columns: list[str], cells: list[str]) -> str:
    widths = [len(c) if c in ("epoch", "iteration") else max(len(c), _WIDTH) for c in columns]
    padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return "  ".join(padded).rstrip()


def _cell(report: Report, column: str) -> str:
    if column in ("epoch", "iteration"):
        return str(getattr(report, column))
    if column == "seconds":
        return f"{report.seconds:.1f}"
    if column not in report.metrics:
        return ""
    value = number(column, report.metrics[column])
    return f"{value:.6g}" if math.isfinite(value) else str(value)
