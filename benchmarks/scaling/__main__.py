"""The command line: ``python -m benchmarks.scaling paper``, ``predict``, ``simulate``, ``measure``.

``measure`` runs on the ranks at hand: ``mpiexec -n 2 python -m benchmarks.scaling measure``.
"""

import argparse
import os
from pathlib import Path
from typing import Any

from benchmarks.scaling import paper, pictures
from benchmarks.scaling.collectives import ALGORITHMS
from benchmarks.scaling.delays import Delay, Exponential, Hiccups, Normal, OneSlow, Steady
from benchmarks.scaling.fitting import FittedLink, Sample, fit_link
from benchmarks.scaling.links import Cluster
from benchmarks.scaling.simulation import Simulated, simulate
from benchmarks.scaling.steps import BUCKET, SCHEDULES, predict, reducing
from benchmarks.scaling.workload import Workload, resnet50

RANKS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
STRAGGLERS: dict[str, Delay] = {
    "nobody is late": Steady(),
    "times spread normally by 8 %": Normal(0.08),
    "exponentially, 5 % in the mean": Exponential(0.05),
    "1 in 1,000 takes twice as long": Hiccups(0.001, 2.0),
    "one rank is slower by 20 %": OneSlow(1.2),
}


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    chosen = _parsed(arguments)
    if chosen.command == "paper":
        print(paper.report())
    elif chosen.command == "predict":
        _predict(chosen)
    elif chosen.command == "simulate":
        _simulate(chosen)
    else:
        _measure(chosen)


def _workload() -> Workload:
    return resnet50().taking(paper.fit().compute)


def _predict(chosen: Any) -> None:
    workload = _workload()
    print(f"ResNet-50 on the paper's machine, {workload.seconds * 1e3:.0f} ms a step on one GPU;")
    print("no stragglers: milliseconds of a step, efficiency, and the all-reduce's algorithm\n")
    print(f"{'ranks':>6}" + "".join(f"{schedule:>28}" for schedule in SCHEDULES))
    lines: dict[str, list[tuple[int, float]]] = {schedule: [] for schedule in SCHEDULES}
    for ranks in RANKS:
        cluster = paper.CLUSTER.first(ranks)
        cells = []
        for schedule in SCHEDULES:
            found = predict(workload, cluster, schedule, chosen.algorithm, chosen.bucket)
            lines[schedule].append((ranks, found.efficiency))
            cells.append(f"{found.seconds * 1e3:7.1f}{found.efficiency:7.1%} {found.algorithm:>13}")
        print(f"{ranks:6}" + "".join(cells))
    if chosen.picture:
        pictures.efficiencies(chosen.picture, lines)


def _simulate(chosen: Any) -> None:
    workload = _workload()
    reduce = reducing(paper.CLUSTER.first(chosen.ranks), chosen.algorithm)
    print(f"ResNet-50 on {chosen.ranks:,} simulated ranks of the paper's machine, {chosen.steps}")
    print("steps: milliseconds of a step, efficiency, time spent waiting\n")
    print(f"{'':32}" + "".join(f"{schedule:>24}" for schedule in SCHEDULES))
    drawn: dict[str, Simulated] = {}
    for title, delay in STRAGGLERS.items():
        cells = []
        for schedule in SCHEDULES:
            run = simulate(
                workload, chosen.ranks, reduce, schedule=schedule, bucket=chosen.bucket,
                delay=delay, steps=chosen.steps, theft=chosen.theft, seed=chosen.seed,
            )  # fmt: skip
            drawn.setdefault(schedule, run)
            efficiency = workload.seconds / run.seconds
            cells.append(f"{run.seconds * 1e3:9.1f}{efficiency:7.1%}{run.waiting:8.1%}")
        print(f"{title:32}" + "".join(cells))
    if chosen.picture:
        pictures.timeline(chosen.picture, drawn)


def _measure(chosen: Any) -> None:
    for variable in ("OMP", "OPENBLAS", "MKL", "FDBR"):  # a thread each, before NumPy is at work
        os.environ.setdefault(f"{variable}_NUM_THREADS", "1")
    from benchmarks.scaling import measuring
    from fdbr import distributed

    comm = distributed.world()
    if comm.size == 1:
        raise SystemExit("one rank alone measures nothing: mpiexec -n 2 python -m … measure")
    samples = measuring.all_reduces(comm, rounds=chosen.rounds)
    step = measuring.steps(comm, rounds=chosen.rounds)
    if comm.rank:
        return
    fitted = fit_link(samples, chosen.algorithm)
    print(_table(samples, fitted))
    print(f"\na step of {step.parameters / 1e6:.1f} million parameters, in milliseconds:")
    for name in ("compute", "after", "overlap"):
        print(f"  {name:8} {getattr(step, name) * 1e3:8.2f}")
    print(f"  overlap hides {step.hidden:.0%} of what the all-reduce adds")
    print("\nif all links were like this one, and every rank had a core as now:")
    print(f"{'ranks':>6}{'step ms':>10}{'efficiency':>12}")
    lines = []
    for ranks in RANKS:
        cluster = Cluster.flat(ranks, fitted.link)
        reduced = reducing(cluster, chosen.algorithm or fitted.algorithm)(4.0 * step.parameters)
        seconds = step.compute + reduced
        lines.append((ranks, step.compute / seconds))
        print(f"{ranks:6}{seconds * 1e3:10.2f}{step.compute / seconds:12.1%}")
    if chosen.picture:
        pictures.efficiencies(chosen.picture, {"after": lines})


def _table(samples: list[Sample], fitted: FittedLink) -> str:
    link = fitted.link
    bandwidth = f"{1e-9 / link.per_byte:.2f} GB/s" if link.per_byte else "no limit"
    lines = [
        f"α = {link.latency * 1e6:.1f} µs, 1/β = {bandwidth}, as {fitted.algorithm}; "
        f"relative error {fitted.error:.0%}",
        f"{'ranks':>6}{'bytes':>12}{'µs':>12}{'model':>12}",
    ]
    for one in samples:
        model = reducing(Cluster.flat(one.ranks, link), fitted.algorithm)(one.size)
        lines.append(f"{one.ranks:6}{one.size:12,.0f}{one.seconds * 1e6:12.1f}{model * 1e6:12.1f}")
    return "\n".join(lines)


def _parsed(arguments: list[str] | None) -> Any:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("paper", help="the KDD paper's figures, and the model's")
    for name, text in (
        ("predict", "step times and efficiencies up to 1,024 ranks"),
        ("simulate", "steps with stragglers, event by event"),
        ("measure", "fit the model to the ranks at hand (mpiexec -n 2 …)"),
    ):
        made = commands.add_parser(name, help=text)
        made.add_argument("--algorithm", choices=ALGORITHMS, help="default: the best")
        made.add_argument("--picture", type=Path, metavar="FILE", help="draw it")
        if name == "measure":
            made.add_argument("--rounds", type=int, default=7, help="of which the least counts")
            continue
        made.add_argument("--bucket", type=float, default=BUCKET, help="bytes, at least")
        if name == "simulate":
            made.add_argument("--ranks", type=int, default=1024)
            made.add_argument("--steps", type=int, default=20)
            made.add_argument("--theft", type=float, default=0.0, help="speed that messages take")
            made.add_argument("--seed", type=int, default=0)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
