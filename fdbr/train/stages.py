"""Stages: functions from an iterator of reports to an iterator of reports.

A stage that is closed closes what it reads from, so that closing the last one, or breaking
out of a loop over it, ends them all.
"""

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tqdm import tqdm

from fdbr.train.loop import Report
from fdbr.train.metrics import numbers, text
from fdbr.train.triggers import Trigger
from fdbr.train.triggers import every as every_

__all__ = ["Stage", "average", "evaluate", "log", "pipe", "progress"]

Stage = Callable[[Iterator[Report]], Iterator[Report]]

_each_epoch = every_(epochs=1)


def pipe(reports: Iterable[Report], *stages: Stage) -> Iterator[Report]:
    """Reports that have gone through some stages, the first stage first.

    Parameters
    ----------
    reports
        What `fit` returns.
    stages
        Functions from an iterator of reports to an iterator of reports.

    Returns
    -------
    iterator
        The reports that come out of the last stage.

    Raises
    ------
    TypeError
        If a stage is no function.

    >>> import numpy as np
    >>> from fdbr import train
    >>> reports = train.fit(
    ...     lambda state, batch: (state + 1, {"count": state}),
    ...     0,
    ...     train.Batches(np.arange(3), size=1),
    ...     epochs=1,
    ... )
    >>> for report in train.pipe(reports, train.average()):
    ...     print(dict(report.metrics))
    {'count': 0}
    {'count': 1}
    {'count': 1.0}
    """
    if not isinstance(reports, Iterable):
        raise TypeError(
            "fdbr.train.pipe: reports must be an iterator of reports, such as train.fit(…) gives, "
            f"not {type(reports).__name__}"
        )
    stream = iter(reports)
    for position, stage in enumerate(stages):
        if not callable(stage):
            raise TypeError(
                f"fdbr.train.pipe: stage {position} must be a function from reports to reports, "
                f"got {type(stage).__name__}"
            )
        stream = stage(stream)
    return stream


@contextmanager
def _closing(reports: Iterator[Report]) -> Iterator[Iterator[Report]]:
    try:
        yield reports
    finally:
        if (close := getattr(reports, "close", None)) is not None:
            close()


def evaluate(
    metrics_of_state: Callable[[Any], Mapping[str, Any]],
    every: Trigger = _each_epoch,
    prefix: str = "test/",
) -> Stage:
    """A stage that adds metrics of the state to some reports.

    Parameters
    ----------
    metrics_of_state
        ``metrics_of_state(state)``: a mapping from names to numbers.
    every
        Which reports; by default the last of each epoch.
    prefix
        What is put before the names.

    Returns
    -------
    stage
        Raises ValueError where a report has a metric of that name already.

    >>> from fdbr import train
    >>> stage = train.evaluate(lambda state: {"loss": 2.0 * state})
    >>> report = train.Report(1, 1, {"loss": 0.5}, 3.0, train.Position(1, 0), 0.1)
    >>> dict(next(stage(iter([report]))).metrics)
    {'loss': 0.5, 'test/loss': 6.0}
    """

    def stage(reports: Iterator[Report]) -> Iterator[Report]:
        with _closing(reports):
            for report in reports:
                if not every(report):
                    yield report
                    continue
                found = metrics_of_state(report.state)
                added = {prefix + name: value for name, value in found.items()}
                _check_new("evaluate", added, report.metrics)
                yield report.with_metrics({**report.metrics, **added})

    return stage


def average(every: Trigger = _each_epoch) -> Stage:
    """A stage that replaces the metrics of some reports by their mean since the last of these.

    Each report counts the same, whatever the size of its batch.  The metrics of the other
    reports stay as they are, and nothing is converted to a number before its mean is due.

    Parameters
    ----------
    every
        Which reports; by default the last of each epoch.

    Returns
    -------
    stage
        Put it before `evaluate`, whose metrics need no mean.

    >>> from fdbr import train
    >>> reports = [
    ...     train.Report(i, i // 2, {"loss": float(i)}, None, train.Position(i // 2, i % 2), 0.0)
    ...     for i in (1, 2)
    ... ]
    >>> [report.metrics["loss"] for report in train.average()(iter(reports))]
    [1.0, 1.5]
    """

    def stage(reports: Iterator[Report]) -> Iterator[Report]:
        with _closing(reports):
            history: dict[str, list[Any]] = {}
            for report in reports:
                for name, value in report.metrics.items():
                    history.setdefault(name, []).append(value)
                if every(report):
                    means = {name: _mean(name, values) for name, values in history.items()}
                    report = report.with_metrics(means)
                    history = {}
                yield report

    return stage


def _mean(name: str, values: list[Any]) -> float:
    return math.fsum(numbers({name: value})[name] for value in values) / len(values)


def log(path: str | Path, every: Trigger = _each_epoch) -> Stage:
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

    def stage(reports: Iterator[Report]) -> Iterator[Report]:
        with _closing(reports):
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("a", encoding="utf-8") as file:
                for report in reports:
                    if every(report):
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
    _check_new("log", report.metrics, entry)
    for name, value in numbers(report.metrics).items():
        entry[name] = value if math.isfinite(value) else None
    return json.dumps(entry, allow_nan=False) + "\n"


def progress(every: Trigger = _each_epoch) -> Stage:
    """A stage that shows how far a run has come.

    Some reports print a line on standard output, below which a bar runs on standard error.
    Where standard error is no terminal, there is no bar, only the lines.

    Parameters
    ----------
    every
        Which reports have a line; by default the last of each epoch.

    Returns
    -------
    stage
        Raises TypeError if a metric to be printed is not a single number.

    >>> from fdbr import train
    >>> report = train.Report(9, 1, {"loss": 0.5}, None, train.Position(1, 0), 0.25)
    >>> _ = list(train.progress()(iter([report])))
    epoch 1  iteration 9  loss 0.5  0.2 s
    """

    def stage(reports: Iterator[Report]) -> Iterator[Report]:
        bar: Any = None
        with _closing(reports):
            try:
                for report in reports:
                    if bar is None:
                        begun = report.iteration - 1
                        bar = tqdm(total=report.total, initial=begun, disable=None, leave=False)
                    bar.update()
                    if every(report):
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


def _check_new(function: str, names: Iterable[str], taken: Mapping[str, Any]) -> None:
    if clash := sorted(set(names) & set(taken)):
        raise ValueError(
            f"fdbr.train.{function}: {', '.join(clash)} would stand twice in one report; rename "
            "the metric or give another prefix"
        )
