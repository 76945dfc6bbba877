"""Jitted steps beside other libraries in one process: ``python -m benchmarks.beside``.

Threads of other libraries wait for work busily for a while, and some take over what others have
set.  Each workload runs in one process alone, and in one more for each neighbour, which is imported
first and does its own work on all threads: once, and in turn with our steps (of which ours alone
are timed).  A ratio above 1 is by how much a step is slower beside the neighbour.
"""

import argparse
import importlib.util
import os
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from benchmarks import libraries, timing, workloads
from benchmarks.worker import FailedError, Process, answering

__all__ = ["NEIGHBOURS", "main"]

Work = Callable[[], object]
WORKLOADS = "mlp", "lstm", "cnn", "transformer"
NEIGHBOURS: dict[str, Callable[[], Work]] = {}


def neighbour(make: Callable[[], Work]) -> Callable[[], Work]:
    """Register what imports a library and gives a function that works on all its threads."""
    NEIGHBOURS[make.__name__] = make
    return make


@neighbour
def torch() -> Work:
    import torch

    x = torch.ones(512, 512)
    return lambda: torch.relu(x @ x).sum().item()


@neighbour
def sklearn() -> Work:
    from sklearn.ensemble import HistGradientBoostingRegressor

    x = np.random.default_rng(0).normal(size=(500, 4))
    return lambda: HistGradientBoostingRegressor(max_iter=3).fit(x, x[:, 0])


@neighbour
def threadpoolctl() -> Work:
    import threadpoolctl

    x = np.ones((300, 300))

    def work() -> None:
        with threadpoolctl.threadpool_limits(limits=1):
            x @ x

    return work


@neighbour
def numba() -> Work:
    import numba

    @numba.njit(parallel=True)
    def total(x: Any) -> Any:
        found = 0.0
        for i in numba.prange(len(x)):  # which numba runs on all threads
            found += x[i] * x[i]
        return found

    x = np.ones(100_000)
    return lambda: total(x)


def main(arguments: list[str] | None = None) -> None:
    """Time the chosen workloads beside each neighbour, and print the ratios."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.beside", description=__doc__)
    parser.add_argument("workloads", nargs="*", default=list(WORKLOADS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--starts", type=int, default=3, help="processes of each, in turn")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, to see whether it runs")
    chosen = parser.parse_args(arguments)
    names = [name for name in NEIGHBOURS if importlib.util.find_spec(name)]
    for missing in sorted(set(NEIGHBOURS) - set(names)):
        print(f"without {missing}, which is not installed")
    columns = [f"{name}{iterations}" for name in names for iterations in ("", " in turn")]
    columns += ["forked"] if hasattr(os, "fork") else []
    print(f"{'':14}{'alone':>12}" + "".join(f"{name:>22}" for name in columns), flush=True)
    for workload in chosen.workloads:
        found = [
            _measured(workload, ["alone", *columns], chosen.rounds, chosen.tiny)
            for _ in range(chosen.starts)  # where a process finds its memory decides its speed
        ]
        seconds = {name: statistics.median(one[name] for one in found) for name in found[0]}
        cells = [f"{seconds['alone'] * 1e3:9.3f} ms"]
        cells += [f"{seconds[name] / seconds['alone']:22.2f}" for name in columns]
        print(f"{workload:14}" + "".join(cells), flush=True)


def _measured(workload: str, names: list[str], rounds: int, tiny: bool) -> dict[str, float]:
    """The seconds that a step takes, by what is beside it."""
    processes = {name: Process(_serve, name, workload, tiny) for name in names}
    try:
        loops: dict[str, Callable[[int], float]] = {}
        for name, process in processes.items():
            process.ask(0)
            loops[name] = process.ask
        times = timing.interleaved(loops, rounds)
        return {name: statistics.median(seconds) for name, seconds in times.items()}
    except FailedError as error:
        raise SystemExit(f"{workload}: {error}") from error
    finally:
        for process in processes.values():
            process.end()


def _serve(pipe: Connection, name: str, workload: str, tiny: bool) -> None:
    """What a process does: steps of a workload beside a neighbour, as many as it is asked for."""
    make = NEIGHBOURS.get(name.partition(" ")[0])
    work = make() if make else lambda: None
    work()
    module = workloads.load(workload)
    sizes = workloads.resized(module, {}, tiny)
    run = libraries.start("fdbr.jit", module, sizes, threads=2)
    run.results()
    run.settle()
    run.loop(2)
    if name == "forked" and os.fork():
        pipe.close()  # the child answers
        os.wait()
        return
    between = work if name.endswith(" in turn") else None
    answering(pipe, lambda number: _loop(run, number, between))


def _loop(run: libraries.Run, number: int, between: Work | None) -> float:
    """The seconds that so many steps take, without what is done in between."""
    if between is None:
        return run.loop(number)
    taken = 0.0
    for _ in range(number):
        between()
        start = time.perf_counter()
        run.loop(1)
        taken += time.perf_counter() - start
    return taken


if __name__ == "__main__":
    main()
