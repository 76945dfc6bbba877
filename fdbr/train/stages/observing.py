"""Values beside the metrics of the step: what is observed, checked, or drawn."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fdbr.core.util.pickling import public_factory
from fdbr.debug.drawing import draw
from fdbr.debug.graph import Graph
from fdbr.errors.checks import describe
from fdbr.train.loop.reports import Report
from fdbr.train.stages.keeping import due
from fdbr.train.stages.piping import Stage, check_new, closing
from fdbr.train.triggers.base import Condition, as_trigger
from fdbr.train.triggers.intervals import each_iteration, once

__all__ = ["draw_tape", "observe"]


@public_factory("fdbr.train")
def observe(
    metric: str,
    value: Callable[[Report], Any],
    every: Condition = each_iteration,
    name: str | None = None,
) -> Stage:
    """A stage that adds a value to some reports: the learning rate, or any other.

    Parameters
    ----------
    metric
        The name of the metric that it becomes.
    value
        ``value(report)``: a number or a 0-d array.
    every
        Which reports; by default each.
    name
        That of the stage, under which it keeps what its trigger keeps: by default that of the
        metric.

    Returns
    -------
    stage
        Raises ValueError where a report has a metric of that name already.

    Raises
    ------
    TypeError
        If ``metric`` is no text, or ``value`` no function.

    >>> from fdbr import train
    >>> rate = lambda count: 0.1 / count
    >>> stage = train.observe("learning_rate", lambda report: rate(report.iteration))
    >>> report = train.Report(2, 0, {"loss": 0.5}, None, train.Position(0, 2), 0.1)
    >>> dict(next(stage(iter([report]))).metrics)
    {'loss': 0.5, 'learning_rate': 0.05}
    """
    trigger = as_trigger("observe", "every", every)
    own = f"observe {metric}" if name is None else name

    def stage(reports: Iterator[Report]) -> Iterator[Report]:
        with closing(due(reports, trigger, name=own)) as stream:
            for report, fires in stream:
                if fires:
                    check_new("observe", [metric], report.metrics)
                    report = report.with_metrics({**report.metrics, metric: value(report)})
                yield report

    return stage


@public_factory("fdbr.train")
def draw_tape(
    path: str | Path,
    function: Callable[[Any], Any],
    every: Condition | None = None,
    name: str = "draw_tape",
) -> Stage:
    """A stage that saves a drawing of the tape: once, or whenever a trigger fires.

    Parameters
    ----------
    path
        A file whose suffix `fdbr.debug.Graph.save` knows, such as ``tape.dot``, or ``tape.svg``
        with Graphviz; folders that it lies in are made.
    function
        ``function(state)``: what is drawn by `fdbr.debug.draw`, the loss on some batch for
        example; or it returns a `fdbr.debug.Graph` itself.
    every
        Which reports; by default the first one of the run alone.
    name
        That of the stage, under which it keeps what its trigger keeps.

    Returns
    -------
    stage
        Raises OSError if the file cannot be written, TypeError if there is nothing to
        differentiate.

    Raises
    ------
    TypeError
        If ``path`` is none, or ``function`` is no function.

    >>> import tempfile, pathlib
    >>> import numpy as np
    >>> from fdbr import ops, train
    >>> report = train.Report(1, 1, {}, np.ones(3), train.Position(1, 0), 0.25)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "tape.dot")
    ...     _ = list(train.draw_tape(path, lambda w: ops.sum(w * w))(iter([report])))
    ...     path.read_text().split()[0]
    'digraph'
    """
    trigger = as_trigger("draw_tape", "every", once() if every is None else every)
    if not isinstance(path, str | Path):
        raise TypeError(f"fdbr.train.draw_tape: path must be that of a file, not {describe(path)}")
    target = Path(path)

    def stage(reports: Iterator[Report]) -> Iterator[Report]:
        with closing(due(reports, trigger, name=name)) as stream:
            for report, fires in stream:
                if fires:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    _drawn(function, report.state).save(target)
                yield report

    return stage


def _drawn(function: Callable[[Any], Any], state: Any) -> Graph:
    found: list[Graph] = []

    def noting(state: Any) -> Any:
        result = function(state)
        if isinstance(result, Graph):
            found.append(result)
            return ()
        return result

    drawn = draw(noting, state)
    return found[0] if found else drawn
