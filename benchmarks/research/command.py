"""The command line: ``python -m benchmarks research``."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import research
from benchmarks.research import report
from benchmarks.research.measuring import Measured, Plan, measure
from benchmarks.research.running import LIBRARIES

__all__ = ["main"]


def main(arguments: list[str], environment: Callable[[int], dict[str, Any]]) -> None:
    """Time programs, print the tables, and write the results.

    ``environment`` limits the threads of processes to come, and says on what the times depend.
    """
    chosen, plan = _parsed(arguments)
    if chosen.list:
        for name in chosen.programs:
            print(f"{name:20} {research.load(name).TITLE}")
        return
    found = environment(plan.threads)
    measured: list[Measured] = []
    try:
        for name in chosen.programs:
            measured.append(measure(name, plan))
            print("\n" + report.table(measured[-1], plan.counts), flush=True)
    except KeyboardInterrupt:
        print("Interrupted: this is what there is.", file=sys.stderr)
    print("\n" + report.ratios(measured, plan.counts))
    report.write_json(chosen.output / "research.json", found, measured)
    print(f"\n{chosen.output}/research.json has everything.")


def _parsed(arguments: list[str]) -> tuple[Any, Plan]:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks research",
        description="Research programs from a cold start, beside jax.jit.",
    )
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help="all by default")
    parser.add_argument("--list", action="store_true", help="name the programs")
    parser.add_argument("--libraries", default=",".join(LIBRARIES), help=f"of {LIBRARIES}")
    parser.add_argument("--calls", default="1,10,100,1000", help="when the time is taken, rising")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for each run")
    parser.add_argument("--starts", type=int, default=1, help="of each; the least times count")
    parser.add_argument("--threads", type=int, default=2, help="of each library")
    parser.add_argument("--output", type=Path, default=Path("result"), help="a folder")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, to see whether it runs")
    chosen = parser.parse_args(arguments)
    chosen.programs = chosen.programs or list(research.NAMES)
    plan = Plan(
        libraries=tuple(chosen.libraries.split(",")),
        counts=tuple(int(count) for count in chosen.calls.split(",")),
        limit=chosen.limit,
        starts=chosen.starts,
        threads=chosen.threads,
        tiny=chosen.tiny,
    )
    if unknown := set(chosen.programs) - set(research.NAMES):
        parser.error(f"unknown program {sorted(unknown)}; see --list")
    if unknown := set(plan.libraries) - set(LIBRARIES):
        parser.error(f"unknown library {sorted(unknown)}; there are {LIBRARIES}")
    if list(plan.counts) != sorted({*plan.counts} - {0}):
        parser.error("--calls must rise from 1 or more")
    if plan.starts < 1 or plan.threads < 1 or plan.limit <= 0:
        parser.error("--starts and --threads must be at least 1, and --limit above 0")
    return chosen, plan
