"""Pictures, where matplotlib is installed: efficiencies, and the timeline of a simulated step."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.scaling.simulation import Simulated

__all__ = ["efficiencies", "timeline"]


def efficiencies(path: Path, lines: Mapping[str, Sequence[tuple[int, float]]]) -> None:
    """Draw efficiencies against ranks, a line for each name."""
    figure, axes = _figure(7.0, 4.5)
    for name, points in lines.items():
        axes.plot(*zip(*points, strict=True), "o-", label=name, markersize=3)
    axes.set_xscale("log", base=2)
    axes.set_ylim(0, 1.05)
    axes.set_xlabel("ranks")
    axes.set_ylabel("efficiency by one rank")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    _save(figure, path)


def timeline(path: Path, runs: Mapping[str, Simulated], steps: int = 2) -> None:
    """Draw what rank 0 and the network do in the first steps of simulations, one above another."""
    figure, axes = _figure(10.0, 1.0 + 1.1 * len(runs))
    places = []
    for number, (name, run) in enumerate(runs.items()):
        end = run.ends[min(steps, len(run.ends)) - 1]
        for what, begin, stop in run.spans:
            if begin >= end:
                continue
            network = what.startswith("reduce")
            place = -(2.4 * number + network)
            kind = "network" if network else "update" if what == "update" else "compute"
            colour = {"network": "#de2d26", "update": "#74c476", "compute": "#6baed6"}[kind]
            bar = [(1e3 * begin, 1e3 * (stop - begin))]
            axes.broken_barh(bar, (place - 0.4, 0.8), facecolors=colour, edgecolor="white")
        places += [(-2.4 * number, f"{name}: rank 0"), (-2.4 * number - 1, "network")]
    axes.set_yticks(*zip(*places, strict=True))
    axes.set_xlabel("ms")
    _save(figure, path)


def _figure(width: float, height: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def _save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
