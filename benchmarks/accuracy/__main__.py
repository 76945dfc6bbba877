"""The command line: ``python -m benchmarks.accuracy [OPERATION ...] [--write PAGE]``."""

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from mpmath import mp

from benchmarks.accuracy.measuring import measure
from benchmarks.accuracy.others import OF_VALUES, REASONS, Row, losses, others
from benchmarks.accuracy.references import PROGRAMS, Program

MOST = 4.0  # units in the last place that need no reason
HEAD = [
    "| operation | value, eager | value, jit | derivative, eager | derivative, jit | why |",
    "|---|---|---|---|---|---|",
]


def main() -> None:
    """Measure the chosen operations, print the table, and write it where it is wanted."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__)
    parser.add_argument("operations", nargs="*", help="some of them; all by default")
    parser.add_argument("--points", type=int, default=4000, help="numbers for each operation")
    parser.add_argument("--write", type=Path, help="a page whose tables are to be replaced")
    parser.add_argument("--table", choices=("accuracy", "others"), help="one of the two tables")
    chosen = parser.parse_args()
    mp.prec = 250
    known = {program.name for program in PROGRAMS}
    tables: dict[str, Iterator[tuple[str, Callable[[], str]]]] = {
        "accuracy": ((p.name, partial(_beside_mpmath, p, chosen.points)) for p in PROGRAMS),
        "others": ((name, partial(_beside_double, name)) for name in others(known)),
    }
    for table, rows in tables.items():
        if chosen.table not in (None, table):
            continue
        lines = list(HEAD)
        print("\n".join(lines))
        for name, line in rows:
            if not chosen.operations or name in chosen.operations:
                lines.append(line())
                print(lines[-1], flush=True)
        if chosen.write:
            text = chosen.write.read_text()
            begin, end = f"<!-- {table} table: begin -->", f"<!-- {table} table: end -->"
            before, after = text.split(begin)[0], text.split(end)[1]
            chosen.write.write_text(f"{before}{begin}\n{chr(10).join(lines)}\n{end}{after}")


def _beside_mpmath(program: Program, points: int) -> str:
    return _line(program.name, program.reason, measure(program, points))


def _beside_double(name: str) -> str:
    row = losses(name, 100)
    derivatives = max(*row.eager[1:], *row.jitted[1:])
    return _line(name, REASONS.get(name, "" if derivatives > MOST else OF_VALUES), row)


def _line(name: str, reason: str, row: Row) -> str:
    cells = [
        f"{row.eager[0]:.3g}",
        f"{row.jitted[0]:.3g}",
        ", ".join(f"{error:.3g}" for error in row.eager[1:]),
        ", ".join(f"{error:.3g}" for error in row.jitted[1:]),
    ]
    exact = max(*row.eager, *row.jitted) <= MOST
    where = "" if exact else f" (worst at {', '.join(f'{x:.4g}' for x in row.worst)})"
    return f"| `{name}` | {' | '.join(cells)} | {'' if exact else reason}{where} |"


if __name__ == "__main__":
    main()
