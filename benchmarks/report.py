"""What was measured, as tables and as JSON."""

import json
from pathlib import Path
from typing import Any

import attrs

from benchmarks.libraries import LIBRARIES, PEERS
from benchmarks.measuring import Result, Row

__all__ = ["best_peer", "lines", "ratio_table", "table", "write_json"]

Cells = list[tuple[str, ...]]
_HEAD = (
    *("library", "median µs", "min µs", "/ best", "min / best"),
    *("first call s", "whole MB", "peak MB", "arrays MB"),
)


def best_peer(result: Result, least: bool = False) -> float | None:
    """The least time of all peers, by medians or by minima."""
    times = [_time(row, least) for row in result.rows if row.library in PEERS and row.seconds]
    return min(times, default=None)


def _time(row: Row, least: bool) -> float:
    return row.least() if least else row.median()


def _ratio(row: Row, other: float | None, least: bool = False) -> str:
    return f"{_time(row, least) / other:.2f}" if other and row.seconds else "-"


def table(result: Result) -> str:
    """A workload's times and memory; ``/ best`` is the ratio to the fastest peer."""
    sizes = ", ".join(f"{name} {value}" for name, value in result.sizes.items())
    cells: Cells = [_HEAD]
    notes = []
    for row in result.rows:
        if row.reason is not None:
            notes.append(f"{row.library}: {row.reason}")
            cells.append((row.library, *("-",) * (len(_HEAD) - 1)))
            continue
        cells.append(
            (
                row.library,
                f"{1e6 * row.median():,.1f}",
                f"{1e6 * row.least():,.1f}",
                _ratio(row, best_peer(result)),
                _ratio(row, best_peer(result, least=True), least=True),
                "-" if row.first_call is None else f"{row.first_call:.2f}",
                *(_megabytes(row, name) for name in ("whole", "growth", "arrays")),
            )
        )
    return "\n".join([f"{result.workload}: {result.title}", f"({sizes})", *lines(cells), *notes])


def _megabytes(row: Row, name: str) -> str:
    return f"{row.memory[name] / 1e6:,.1f}" if name in row.memory else "-"


def ratio_table(results: list[Result]) -> str:
    """How long fdbr takes for each workload, as ratios to the others: medians, and minima."""
    products = [row.library for r in results for row in r.rows if row.library not in LIBRARIES]
    others = [*PEERS, *dict.fromkeys(products)]
    cells: Cells = [("workload", "library", "/ best peer", *(f"/ {name}" for name in others))]
    for result in results:
        rows = {row.library: row for row in result.rows if row.seconds}
        for name in ("fdbr", "fdbr.jit"):
            if row := rows.get(name):
                best = (best_peer(result), best_peer(result, least=True))
                pairs = [best, *(_times(rows.get(other)) for other in others)]
                cells.append((result.workload, name, *(_both(row, *pair) for pair in pairs)))
    return "\n".join(lines(cells))


def _times(row: Row | None) -> tuple[float | None, float | None]:
    return (row.median(), row.least()) if row else (None, None)


def _both(row: Row, median: float | None, least: float | None) -> str:
    return f"{_ratio(row, median)} ({_ratio(row, least, least=True)})" if median else "-"


def lines(rows: Cells) -> list[str]:
    """Rows of cells, of which the first is the head, as lines of aligned text."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    made = []
    for row in rows:
        first = row[0].ljust(widths[0])
        rest = [text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True)]
        made.append("  ".join([first, *rest]).rstrip())
    return [made[0], "-" * max(map(len, made)), *made[1:]]


def write_json(
    path: Path, environment: dict[str, Any], results: list[Result], curves: dict[str, list[Result]]
) -> None:
    """Everything, every single round included."""
    document = {
        "environment": environment,
        "workloads": [attrs.asdict(result) for result in results],
        "curves": {name: list(map(attrs.asdict, points)) for name, points in curves.items()},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")
