"""What was measured of research programs, as tables and as JSON."""

import json
from pathlib import Path
from typing import Any

import attrs

from benchmarks.report import lines
from benchmarks.research.measuring import Measured

__all__ = ["ratios", "table", "write_json"]

PAIRS = (("fdbr.jit", "fdbr"), ("fdbr.jit", "jax.jit"), ("fdbr", "jax.jit"))


def table(measured: Measured, counts: tuple[int, ...]) -> str:
    """A program's seconds by the number of calls, and the libraries' ratios."""
    sizes = ", ".join(f"{name} {value}" for name, value in measured.sizes.items())
    cells: list[tuple[str, ...]] = [("seconds for so many calls", *(f"{n:,}" for n in counts))]
    for library, seconds in measured.seconds.items():
        cells.append(
            (
                library,
                *(f"{seconds[n]:.4g}" if n in seconds else f"> {measured.limit:g}" for n in counts),
            )
        )
    for library, other in PAIRS:
        cells.append(
            (f"{library} / {other}", *(_ratio(measured, library, other, n) for n in counts))
        )
    notes = [f"{library}: {note}" for library, note in measured.notes.items()]
    return "\n".join([f"{measured.program}: {measured.title}", f"({sizes})", *lines(cells), *notes])


def ratios(measured: list[Measured], counts: tuple[int, ...]) -> str:
    """All ratios; those of one pair of libraries stand together."""
    parts = []
    for library, other in PAIRS:
        cells: list[tuple[str, ...]] = [
            (f"{library} / {other}, calls", *(f"{n:,}" for n in counts))
        ]
        cells += [
            (each.program, *(_ratio(each, library, other, n) for n in counts)) for each in measured
        ]
        parts.append("\n".join(lines(cells)))
    return "\n\n".join(parts)


def _ratio(measured: Measured, library: str, other: str, calls: int) -> str:
    found = measured.ratio(library, other, calls)
    if found is None:
        return "-"
    sign, ratio = found
    digits = f"{ratio:.2f}" if ratio < 10 else f"{ratio:.3g}" if ratio < 1000 else f"{ratio:,.0f}"
    return digits if sign == "=" else f"{sign} {digits}"


def write_json(path: Path, environment: dict[str, Any], measured: list[Measured]) -> None:
    """Everything, as JSON."""
    document = {"environment": environment, "programs": [attrs.asdict(each) for each in measured]}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")
