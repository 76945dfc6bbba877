"""The command line: ``python -m benchmarks.accuracy [OPERATION ...] [--write PAGE]``."""

import argparse
from pathlib import Path

from mpmath import mp

from benchmarks.accuracy.measuring import Row, measure
from benchmarks.accuracy.references import PROGRAMS, Program

MOST = 4.0  # units in the last place that need no reason
_BEGIN, _END = "<!-- accuracy table: begin -->", "<!-- accuracy table: end -->"


def main() -> None:
    """Measure the chosen operations, print the table, and write it where it is wanted."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__)
    parser.add_argument("operations", nargs="*", help="some of them; all by default")
    parser.add_argument("--points", type=int, default=4000, help="numbers for each operation")
    parser.add_argument("--write", type=Path, help="a page whose table is to be replaced")
    chosen = parser.parse_args()
    mp.prec = 250
    lines = [
        "| operation | value, eager | value, jit | derivative, eager | derivative, jit | why |",
        "|---|---|---|---|---|---|",
    ]
    print("\n".join(lines))
    for program in PROGRAMS:
        if not chosen.operations or program.name in chosen.operations:
            lines.append(_line(program, measure(program, chosen.points)))
            print(lines[-1], flush=True)
    if chosen.write:
        text = chosen.write.read_text()
        before, after = text.split(_BEGIN)[0], text.split(_END)[1]
        chosen.write.write_text(f"{before}{_BEGIN}\n{chr(10).join(lines)}\n{_END}{after}")


def _line(program: Program, row: Row) -> str:
    cells = [
        f"{row.eager[0]:.3g}",
        f"{row.jitted[0]:.3g}",
        ", ".join(f"{error:.3g}" for error in row.eager[1:]),
        ", ".join(f"{error:.3g}" for error in row.jitted[1:]),
    ]
    exact = max(*row.eager, *row.jitted) <= MOST
    where = "" if exact else f" (worst at {', '.join(f'{x:.4g}' for x in row.worst)})"
    return f"| `{program.name}` | {' | '.join(cells)} | {'' if exact else program.reason}{where} |"


if __name__ == "__main__":
    main()
