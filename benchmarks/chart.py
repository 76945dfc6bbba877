"""The chart: ratios to the fastest peer as bars, and times along the curves."""

import importlib.util
from pathlib import Path
from typing import Any

from benchmarks.libraries import LIBRARIES
from benchmarks.measuring import Result
from benchmarks.report import best_peer
from benchmarks.workloads import CURVES

__all__ = ["draw"]

_COLOURS = {
    "fdbr": "#9ecae1",
    "fdbr.jit": "#08519c",
    "torch": "#fc9272",
    "torch.compile": "#de2d26",
    "jax": "#74c476",
    "autograd": "#bdbdbd",
}


def draw(path: Path, results: list[Result], curves: dict[str, list[Result]]) -> bool:
    """Draw the chart, where matplotlib is installed; whether it is."""
    if importlib.util.find_spec("matplotlib") is None:
        return False
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = bool(results) + -(-len(curves) // 2)
    figure = pyplot.figure(figsize=(11, 4.2 * rows), layout="constrained")
    grid = figure.add_gridspec(rows, 2)
    if results:
        _bars(figure.add_subplot(grid[0, :]), results)
    for number, (name, points) in enumerate(curves.items()):
        row, column = divmod(number, 2)
        _lines(figure.add_subplot(grid[bool(results) + row, column]), name, points)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return True


def _bars(axes: Any, results: list[Result]) -> None:
    width = 0.8 / len(LIBRARIES)
    for place, library in enumerate(LIBRARIES):
        points = [
            (number, row.median() / best)
            for number, result in enumerate(results)
            for row in result.rows
            if row.library == library and row.seconds and (best := best_peer(result))
        ]
        if points:  # it took part, and peers did
            at = [number + (place - len(LIBRARIES) / 2 + 0.5) * width for number, _ in points]
            heights = [ratio for _, ratio in points]
            axes.bar(at, heights, width, label=library, color=_COLOURS[library])
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_yscale("log")
    axes.set_xticks(range(len(results)), [result.workload for result in results], rotation=20)
    axes.set_ylabel("time / fastest peer's (medians)")
    if axes.containers:
        axes.legend(ncols=len(LIBRARIES), fontsize="small")


def _lines(axes: Any, name: str, points: list[Result]) -> None:
    field = CURVES[name].field
    for library in LIBRARIES:
        line = [
            (point.sizes[field], 1e3 * row.median())
            for point in points
            for row in point.rows
            if row.library == library and row.seconds
        ]
        if line:
            axes.plot(*zip(*line, strict=True), "o-", label=library, color=_COLOURS[library])
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(field)
    axes.set_ylabel("ms a step (median)")
    axes.set_title(f"{CURVES[name].workload} against {field}")
    axes.legend(fontsize="small")
