"""Plots of a run, which are drawn anew as it continues."""

import functools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fdbr.core.devices import optional
from fdbr.core.util.atomic_write import replacing
from fdbr.core.util.pickling import public_factory
from fdbr.errors.checks import describe
from fdbr.train.loop.reports import Report
from fdbr.train.metrics import number
from fdbr.train.stages.history import History, with_value
from fdbr.train.stages.keeping import due
from fdbr.train.stages.piping import Stage, closing, named
from fdbr.train.stages.statistics import checked_percentiles, percentile_label, statistics
from fdbr.train.stages.waiting import Awaited
from fdbr.train.triggers.base import Condition, as_trigger
from fdbr.train.triggers.intervals import each_epoch

__all__ = ["plot", "plot_statistics"]


@public_factory("fdbr.train")
def plot(
    path: str | Path,
    metrics: Sequence[str] | None = None,
    every: Condition = each_epoch,
    x: str = "iteration",
    name: str = "plot",
) -> Stage:
    """A stage that draws metrics as curves, and draws them anew when points have come.

    Metrics that differ before the last ``/`` alone, ``loss`` and ``test/loss``, have one pair of
    axes.  It takes the library Matplotlib, and at most a tenth of the time: points that come sooner
    wait for the next drawing, or the last, at the end of the run.

    Parameters
    ----------
    path
        A picture whose suffix Matplotlib knows: ``.png``, ``.svg``, ``.pdf``; folders that it lies
        in are made.  Who looks at it finds a whole one.
    metrics
        Their names; by default all.
    every
        Which reports are points; by default the last of each epoch.
    x
        The horizontal axis: ``"iteration"``, ``"epoch"`` or ``"seconds"``.
    name
        Under which the points are kept, with which a resumed run continues.

    Returns
    -------
    stage
        Raises OSError if the picture cannot be written, TypeError if a metric is not a single
        number; at the end of a run, ValueError if a metric that is named here never came.

    Raises
    ------
    ImportError
        If Matplotlib is not installed.
    TypeError, ValueError
        If an argument is not what it should be.

    >>> import tempfile, pathlib
    >>> from fdbr import train
    >>> reports = [
    ...     train.Report(i, i, {"loss": 1 / i}, None, train.Position(i, 0), float(i))
    ...     for i in range(1, 4)
    ... ]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "curves.png")
    ...     _ = list(train.plot(path)(iter(reports)))
    ...     path.read_bytes()[1:4]
    b'PNG'
    """
    trigger = as_trigger("plot", "every", every)
    target, name = _picture("plot", path), named("plot", name)
    wanted = None if metrics is None else _names(metrics)
    if x not in ("iteration", "epoch", "seconds"):
        raise ValueError(f"fdbr.train.plot: x must be iteration, epoch or seconds, got {x!r}")

    def stage(reports: Iterator[Report]) -> Iterator[Report]:
        history: History | None = None
        awaited = Awaited("plot", wanted or ())
        with closing(due(reports, trigger, name=name)) as stream, _now_and_then() as drawn:
            for report, fires in stream:
                if history is None:
                    history = report.position.kept.get(name, {})
                    awaited.missing.difference_update(history)
                if fires:
                    awaited.see(report)
                    at = getattr(report, x)
                    for metric in report.metrics if wanted is None else wanted:
                        if metric in report.metrics:
                            value = number(metric, report.metrics[metric])
                            history = with_value(history, metric, at, value)
                    if history:
                        drawn(_draw_curves, target, history, x)
                yield report.keep(name, history)
            awaited.check()

    return stage


def _draw_curves(path: Path, history: History, x: str) -> None:
    groups: dict[str, list[str]] = {}
    for metric in history:
        groups.setdefault(metric.rpartition("/")[2], []).append(metric)
    figure, axes = _figure(len(groups))
    for ax, (group, names) in zip(axes, groups.items(), strict=False):
        for metric in names:
            curve = history[metric]
            few = len(curve["x"]) < 30
            ax.plot(curve["x"], curve["y"], label=metric, marker="." if few else None)
        ax.set(xlabel=x, title=group)
        if len(names) > 1:
            ax.legend(loc="upper right")
    _save(figure, path)


@public_factory("fdbr.train")
def plot_statistics(
    path: str | Path,
    of: Callable[[Any], Any],
    every: Condition = each_epoch,
    percentiles: Sequence[float] = (0, 2.28, 15.87, 50, 84.13, 97.72, 100),
    name: str = "plot_statistics",
) -> Stage:
    """A stage that draws how the numbers in arrays are distributed, over the iterations.

    Each array has a pair of axes, with its mean as a line, and bands between its percentiles: by
    default the extremes, and those that lie two and one standard deviations from the median of a
    normal distribution.  It takes the library Matplotlib.

    Parameters
    ----------
    path
        A picture whose suffix Matplotlib knows: ``.png``, ``.svg``, ``.pdf``.
    of
        ``of(state)``: a tree of at most 64 arrays: the parameters of a layer, or gradients that it
        computes.
    every
        Which reports are points; by default the last of each epoch.
    percentiles
        Numbers from 0 to 100, of which the first and the last, the second and the last but one,
        and so on, are the edges of bands; a middle one is a line.
    name
        Under which the points are kept, with which a resumed run continues.

    Returns
    -------
    stage
        Raises OSError if the picture cannot be written, ValueError if there is no array with
        numbers to draw, or too many.

    Raises
    ------
    ImportError
        If Matplotlib is not installed.
    TypeError, ValueError
        If an argument is not what it should be.

    >>> import tempfile, pathlib
    >>> import numpy as np
    >>> from fdbr import train
    >>> reports = [
    ...     train.Report(i, i, {}, {"w": np.arange(5.0) * i}, train.Position(i, 0), float(i))
    ...     for i in range(1, 4)
    ... ]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "weights.png")
    ...     stage = train.plot_statistics(path, lambda state: state)
    ...     last = list(stage(iter(reports)))[-1]
    ...     path.read_bytes()[1:4]
    b'PNG'
    """
    trigger = as_trigger("plot_statistics", "every", every)
    target, name = _picture("plot_statistics", path), named("plot_statistics", name)
    levels = sorted(checked_percentiles("plot_statistics", percentiles))

    def stage(reports: Iterator[Report]) -> Iterator[Report]:
        history: History | None = None
        with closing(due(reports, trigger, name=name)) as stream, _now_and_then() as drawn:
            for report, fires in stream:
                if history is None:
                    history = report.position.kept.get(name, {})
                if fires:
                    history = _with_statistics(history, report, of(report.state), levels)
                    drawn(_draw_bands, target, history, levels)
                yield report.keep(name, history)

    return stage


def _with_statistics(history: History, report: Report, values: Any, levels: list[float]) -> History:
    wanted = {"mean", *map(percentile_label, levels)}
    found = {
        path: value
        for path, value in statistics(values, percentiles=levels).items()
        if path.rpartition("/")[2] in wanted
    }
    count = len(found) // len(wanted)
    if not 0 < count <= 64:
        raise ValueError(
            f"fdbr.train.plot_statistics: of gave {count} arrays with numbers to draw; give from 1 "
            "to 64, such as those of some layers: of=lambda state: state[0].layers[:2]"
        )
    for path, value in found.items():
        history = with_value(history, path, report.iteration, number(path, value))
    return history


def _draw_bands(path: Path, history: History, levels: list[float]) -> None:
    arrays = list(dict.fromkeys(curve.rpartition("/")[0] for curve in history))
    figure, axes = _figure(len(arrays))
    for ax, array in zip(axes, arrays, strict=False):
        at = f"{array}/" if array else ""
        mean = history[f"{at}mean"]
        edges = [history[f"{at}{percentile_label(level)}"]["y"] for level in levels]
        for low, high in zip(edges[: len(edges) // 2], edges[::-1], strict=False):
            ax.fill_between(mean["x"], low, high, color="tab:blue", alpha=0.2, linewidth=0)
        if len(edges) % 2:
            ax.plot(mean["x"], edges[len(edges) // 2], "--", color="tab:blue")
        ax.plot(mean["x"], mean["y"], color="tab:blue", marker=".")
        ax.set(xlabel="iteration", title=array or "all")
    _save(figure, path)


# --- pictures -----------------------------------------------------------------------


@contextmanager
def _now_and_then() -> Iterator[Callable[..., None]]:
    """A way to draw that takes a tenth of the time: what is left out is drawn in the end."""
    after, left = 0.0, None

    def drawn(draw: Callable[..., None], *given: Any) -> None:
        nonlocal after, left
        began = time.perf_counter()
        left = functools.partial(draw, *given)
        if began >= after:
            left()
            ended, left = time.perf_counter(), None
            after = ended + 9 * (ended - began)

    try:
        yield drawn
    finally:
        if left is not None:
            left()


def _figure(count: int) -> tuple[Any, Any]:
    """A figure with so many axes, which nobody shows."""
    figures = optional("train.plot", "matplotlib.figure", "plots")
    across = math.ceil(math.sqrt(count))
    down = math.ceil(count / across)
    figure = figures.Figure(figsize=(4.8 * across, 3.2 * down), layout="constrained")
    axes = figure.subplots(down, across, squeeze=False).ravel()
    for ax in axes[count:]:
        ax.set_axis_off()
    return figure, axes


def _save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with replacing(path) as written:
            figure.savefig(written, format=path.suffix[1:].lower())
    except OSError as error:
        raise type(error)(
            error.errno, f"fdbr.train.plot: {path} cannot be written: {error.strerror or error}"
        ) from error


def _picture(function: str, path: Any) -> Path:
    if not isinstance(path, str | Path):
        raise TypeError(
            f"fdbr.train.{function}: path must be that of a picture, not {describe(path)}"
        )
    figures = optional(f"train.{function}", "matplotlib.figure", "plots")
    target = Path(path)
    known = figures.Figure().canvas.get_supported_filetypes()
    if target.suffix[1:].lower() not in known:
        raise ValueError(
            f"fdbr.train.{function}: {str(path)!r} has no suffix of a picture; give one of "
            f"{', '.join(sorted(known))}"
        )
    return target


def _names(metrics: Any) -> list[str]:
    if isinstance(metrics, str) or not isinstance(metrics, Sequence):
        raise TypeError(
            f"fdbr.train.plot: metrics must be a sequence of names, not {describe(metrics)}"
        )
    for metric in metrics:
        if not isinstance(metric, str):
            raise TypeError(f"fdbr.train.plot: a metric is a name, not {describe(metric)}")
    return list(metrics)
