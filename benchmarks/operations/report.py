"""What was measured of operations, as a table and as JSON."""

import json
import math
from pathlib import Path
from typing import Any

import attrs

from benchmarks.operations.absent import WITHOUT_COUNTERPART
from benchmarks.operations.measuring import LIBRARIES, Measured
from benchmarks.report import lines

__all__ = ["MOST", "summary", "table", "write_json"]

MOST = {8: 1.2, 1_000_000: 2.0}
"""The ratio of eager to PyTorch's that nothing shall exceed, by size."""

_RATIOS = {"fdbr": "eager /", "fdbr.jit": "jit /", "numpy": "numpy /"}
_HEAD = ("operation", "elements", "what", *(f"{name} µs" for name in LIBRARIES), *_RATIOS.values())


def table(measured: list[Measured]) -> str:
    """Times in microseconds, and their ratios to PyTorch's; notes below."""
    cells: list[tuple[str, ...]] = [_HEAD]
    notes = []
    for each in measured:
        times = [each.median(library) for library in LIBRARIES]
        cells.append(
            (
                each.program,
                f"{each.size:,}",
                "gradient" if each.gradient else "value",
                *("-" if time is None else f"{1e6 * time:,.1f}" for time in times),
                *(_ratio(each.ratio(library)) for library in _RATIOS),
            )
        )
        where = f"{each.program} at {each.size:,}{', gradient' * each.gradient}"
        notes += [f"{where}: {name} {note}" for name, note in each.notes.items() if name != "numpy"]
    return "\n".join([*lines(cells), *notes])


def _ratio(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


def summary(measured: list[Measured]) -> str:
    """Geometric means of the ratios by size, and the operations that exceed the bounds."""
    cells: list[tuple[str, ...]] = [
        ("library", "elements", "what", "programs", "mean /", "most /", "too slow")
    ]
    slow = []
    for library in _RATIOS:
        for size, gradient in sorted({(each.size, each.gradient) for each in measured}):
            of = [each for each in measured if (each.size, each.gradient) == (size, gradient)]
            ratios = [(r, each.program) for each in of if (r := each.ratio(library)) is not None]
            if not ratios:
                continue
            bound = MOST.get(size, math.inf)
            above = sorted(((r, name) for r, name in ratios if r > bound), reverse=True)
            mean = math.exp(sum(math.log(r) for r, _ in ratios) / len(ratios))
            what = "gradient" if gradient else "value"
            cells.append(
                (
                    *(library, f"{size:,}", what, str(len(ratios)), f"{mean:.2f}"),
                    f"{max(ratios)[0]:.2f}",
                    str(len(above)) if size in MOST else "-",
                )
            )
            if above and library == "fdbr":
                named = ", ".join(f"{name} {r:.1f}" for r, name in above)
                slow.append(f"above {bound} with {size:,} elements, {what}: {named}")
    return "\n".join([*lines(cells), *slow])


def write_json(path: Path, environment: dict[str, Any], measured: list[Measured]) -> None:
    """Everything, every single round included."""
    document = {
        "environment": environment,
        "operations": [attrs.asdict(each) for each in measured],
        "without counterpart": {why: names.split() for why, names in WITHOUT_COUNTERPART.items()},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")
