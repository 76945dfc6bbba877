"""The command line: ``python -m benchmarks``, of workloads, ``ops``, ``layers``, ``loop``…."""

import argparse
import os
import platform
import sys
from pathlib import Path
from typing import Any

import attrs
import numpy

from benchmarks import (
    chart,
    input,
    libraries,
    loop,
    measuring,
    optimizers,
    report,
    tune,
    workloads,
)
from benchmarks.distributed import command as distributed
from benchmarks.layers import command as layers
from benchmarks.libraries import PEERS
from benchmarks.measuring import Plan, Result
from benchmarks.operations import command
from benchmarks.operations import measuring as operations
from benchmarks.research import command as research
from benchmarks.workloads import CURVES, NAMES

QUIET = 0.5  # the load, before the run, up to which a machine counts as idle


def main(arguments: list[str] | None = None) -> None:
    """Measure the chosen workloads, print the tables, and write the results."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["ops"]:
        command.main(arguments[1:], _environment_of_operations)
        return
    if arguments[:1] == ["layers"]:
        layers.main(arguments[1:], _environment_of_layers)
        return
    if arguments[:1] == ["loop"]:
        loop.main(arguments[1:])
        return
    if arguments[:1] == ["input"]:
        input.main(arguments[1:], _environment_of_layers)
        return
    if arguments[:1] == ["optimizers"]:
        optimizers.main(arguments[1:])
        return
    if arguments[:1] == ["distributed"]:
        distributed.main(arguments[1:])
        return
    if arguments[:1] == ["tune"]:
        tune.main(arguments[1:])
        return
    if arguments[:1] == ["research"]:
        research.main(arguments[1:], _environment_of_research)
        return
    chosen = _parsed(arguments)
    if chosen.list:
        _print_list()
        return
    _limit_threads(chosen.threads)
    plan = Plan(
        libraries=("fdbr", "fdbr.jit", *chosen.peers),
        rounds=chosen.rounds,
        starts=chosen.starts,
        threads=chosen.threads,
        memory=not chosen.no_memory,
        tiny=chosen.tiny,
    )
    environment = _environment(plan)
    results = []
    for name in (name for name in chosen.workloads if name not in CURVES):
        results.append(measuring.measure(name, plan))
        print("\n" + report.table(results[-1]), flush=True)
    curves = {name: _curve(name, plan) for name in chosen.workloads if name in CURVES}
    if results:
        print("\nfdbr's times as ratios to others': by medians (by minima)")
        print(report.ratio_table(results))

    report.write_json(chosen.output / "benchmarks.json", environment, results, curves)
    drawn = chart.draw(chosen.output / "benchmarks.png", results, curves)
    print(f"\n{chosen.output}/benchmarks.json has everything" + ", benchmarks.png a chart." * drawn)
    if not drawn:
        print("Without matplotlib there is no chart: pip install matplotlib")


def _environment_of_operations(plan: operations.Plan) -> dict[str, Any]:
    _limit_threads(plan.threads)
    return _environment(Plan(plan.libraries, plan.rounds, threads=plan.threads))


def _environment_of_layers(threads: int, rounds: int) -> dict[str, Any]:
    _limit_threads(threads)
    return _environment(Plan(layers.LIBRARIES, rounds, threads=threads))


def _environment_of_research(threads: int) -> dict[str, Any]:
    _limit_threads(threads)
    return _environment(Plan(("fdbr", "jax"), rounds=1, threads=threads))


def _environment(plan: Plan) -> dict[str, Any]:
    """What the times depend on; it is printed, too."""
    versions = {name: libraries.version(name) for name in plan.libraries}
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    kernels = {name: value for name, value in os.environ.items() if name.startswith("OPENBLAS_")}
    named = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    print(f"Python {platform.python_version()}, numpy {numpy.__version__}, {named}")
    print(f"{plan.threads} threads, {plan.rounds} interleaved rounds in {plan.starts} starts")
    if "OPENBLAS_CORETYPE" in kernels:
        print(f"NumPy's products are those for {kernels['OPENBLAS_CORETYPE']}: OPENBLAS_CORETYPE.")
    if load > QUIET:
        print(f"The machine was busy (load {load:.1f}): these times are not to be trusted.")
    return {
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "machine": platform.machine(),
        "libraries": versions,
        "threads": plan.threads,
        "rounds": plan.rounds,
        "load before": load,
        "variables": kernels,
    }


def _limit_threads(threads: int) -> None:
    """Of the processes that are begun from now on: thread pools read this when they are made."""
    for variable in ("OMP", "OPENBLAS", "MKL", "FDBR"):
        os.environ[f"{variable}_NUM_THREADS"] = str(threads)
    if hasattr(os, "sched_setaffinity"):  # JAX makes as many threads as there are processors
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def _parsed(arguments: list[str] | None) -> Any:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help="all by default")
    parser.add_argument("--list", action="store_true", help="name workloads and libraries")
    parser.add_argument("--peers", default=",".join(PEERS), help=f"of {','.join(PEERS)}")
    parser.add_argument("--rounds", type=int, default=15, help="timed repeats of each library")
    parser.add_argument("--starts", type=int, default=3, help="processes of each, in turn")
    parser.add_argument("--threads", type=int, default=2, help="of each library")
    parser.add_argument("--output", type=Path, default=Path("result"), help="a folder")
    parser.add_argument("--no-memory", action="store_true", help="time only")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, to see whether it runs")
    chosen = parser.parse_args(arguments)
    chosen.workloads = chosen.workloads or [*NAMES, *CURVES]
    chosen.peers = [name for name in chosen.peers.split(",") if name]
    if unknown := set(chosen.workloads) - set(NAMES) - set(CURVES):
        parser.error(f"unknown workload {sorted(unknown)}; see --list")
    if unknown := set(chosen.peers) - set(PEERS):
        parser.error(f"unknown peer {sorted(unknown)}; there are {list(PEERS)}")
    if chosen.rounds < 1 or chosen.starts < 1 or chosen.threads < 1:
        parser.error("--rounds, --starts and --threads must be at least 1")
    return chosen


def _print_list() -> None:
    for name in NAMES:
        print(f"{name:20} {workloads.load(name).TITLE}")
    for name, curve in CURVES.items():
        print(f"{name:20} {curve.workload} at {curve.field} {', '.join(map(str, curve.values))}")
    for name in libraries.LIBRARIES:
        print(f"{name:20} {libraries.version(name) or 'not installed'}")


def _curve(name: str, plan: Plan) -> list[Result]:
    curve = CURVES[name]
    plan = attrs.evolve(plan, rounds=max(1, plan.rounds // 3), starts=1, memory=False)
    points = []
    for value in curve.values:
        points.append(measuring.measure(curve.workload, plan, {curve.field: value}))
        print(f"\n{name}: " + report.table(points[-1]), flush=True)
    return points


if __name__ == "__main__":
    main()
