"""The command line: ``python -m benchmarks ops``."""

import argparse
import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks.operations import report
from benchmarks.operations.absent import WITHOUT_COUNTERPART
from benchmarks.operations.measuring import LIBRARIES, Measured, Plan, measure, programs
from benchmarks.operations.program import Program

__all__ = ["main"]


def main(arguments: list[str], environment: Callable[[Plan], dict[str, Any]]) -> None:
    """Time operations, print the table, and write the results.

    ``environment`` limits the threads of processes to come, and says on what the times depend.
    """
    chosen, plan = _parsed(arguments)
    if chosen.list:
        for program in chosen.programs:
            print(program.name)
        _print_absent()
        return
    found = environment(plan)
    measured: list[Measured] = []
    try:
        total = len(chosen.programs) * len(plan.sizes) * len(plan.gradients)
        runs = measure(chosen.programs, plan)
        measured.extend(tqdm(runs, total=total, leave=False, disable=None))
    except KeyboardInterrupt:
        print("Interrupted: this is what there is.", file=sys.stderr)
    for size, group in itertools.groupby(_by_size(measured), lambda each: each.size):
        print(f"\n{size:,} elements\n" + report.table(list(group)))
    print("\n" + report.summary(measured) + "\n")
    _print_absent()
    report.write_json(chosen.output / "operations.json", found, measured)
    print(f"{chosen.output}/operations.json has everything.")


def _by_size(measured: list[Measured]) -> list[Measured]:
    return sorted(measured, key=lambda each: each.size)


def _print_absent() -> None:
    print("Without a counterpart:")
    for why, names in WITHOUT_COUNTERPART.items():
        print(f"- {why}: {', '.join(names.split())}")


def _parsed(arguments: list[str]) -> tuple[Any, Plan]:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks ops", description="Single operations beside PyTorch's."
    )
    parser.add_argument("--list", action="store_true", help="name the programs")
    parser.add_argument("--only", default="", help="operations, or programs such as power/3: a,b,c")
    parser.add_argument("--sizes", default="8,10000,1000000", help="numbers of elements")
    parser.add_argument("--what", default="value,gradient", help="of value,gradient")
    parser.add_argument("--libraries", default=",".join(Plan().libraries), help=f"of {LIBRARIES}")
    parser.add_argument("--rounds", type=int, default=7, help="timed repeats of each")
    parser.add_argument("--threads", type=int, default=2, help="of each library")
    parser.add_argument("--quick", action="store_true", help="eager only, few and short repeats")
    parser.add_argument("--output", type=Path, default=Path("result"), help="a folder")
    chosen = parser.parse_args(arguments)
    what = chosen.what.split(",")
    plan = Plan(
        libraries=tuple(chosen.libraries.split(",")),
        sizes=tuple(int(size) for size in chosen.sizes.split(",")),
        gradients=tuple(gradient for gradient in (False, True) if _WHAT[gradient] in what),
        threads=chosen.threads,
        rounds=chosen.rounds,
    )
    if chosen.quick:
        plan = _quick(plan)
    table = programs()
    chosen.programs = _chosen(table, [name for name in chosen.only.split(",") if name])
    if unknown := set(plan.libraries) - set(LIBRARIES) or set(what) - set(_WHAT):
        parser.error(f"unknown {sorted(unknown)}: there are {LIBRARIES} and {_WHAT}")
    if not chosen.programs:
        parser.error(f"unknown operations {chosen.only}; see --list")
    if plan.rounds < 1 or plan.threads < 1 or min(plan.sizes) < 8:
        parser.error("--rounds and --threads must be at least 1, and --sizes at least 8")
    return chosen, plan


_WHAT = ("value", "gradient")


def _quick(plan: Plan) -> Plan:
    libraries = tuple(name for name in plan.libraries if name != "fdbr.jit")
    return Plan(libraries, plan.sizes, plan.gradients, plan.threads, min(plan.rounds, 3), 0.005)


def _chosen(table: dict[str, Program], names: list[str]) -> list[Program]:
    return [
        program
        for program in table.values()
        if not names or program.name in names or program.operation in names
    ]
