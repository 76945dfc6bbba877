"""The worth of each pass of the compiler: ``python -m benchmarks.ablation [WORKLOAD ...]``.

Each workload is compiled with all passes, and without each of them in turn; all versions run
interleaved in one process.  A ratio above 1 is by how much a step is slower without the pass.
"""

import argparse
import functools
import statistics
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks import libraries, research, workloads
from benchmarks.research import running
from benchmarks.timing import interleaved
from fdbr.compiler import Jitted
from fdbr.compiler.engine.compile import Code
from fdbr.compiler.passes import PASSES

__all__ = ["main"]

ALL = "all"
WORKLOADS = "mlp", "lstm", "cnn", "transformer", "resnet18"
RESEARCH = "adam", "maml", "pinn", "realnvp", "gaussian_process", "hmc", "kalman"


def main(arguments: list[str] | None = None) -> None:
    """Time every version of the chosen workloads, and print the ratios."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ablation", description=__doc__)
    parser.add_argument("workloads", nargs="*", default=[*WORKLOADS, *RESEARCH])
    parser.add_argument("--without", nargs="+", default=None, help="these passes alone, one by one")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--shortest", type=float, default=0.05, help="seconds of a repeat")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, to see whether it runs")
    chosen = parser.parse_args(arguments)
    versions = dict(_versions())
    if chosen.without is not None:
        versions = {name: versions[name] for name in (ALL, *chosen.without)}
    names = list(versions)
    print(f"{'':18}" + "".join(f"{name[:14]:>15}" for name in names), flush=True)
    for workload in chosen.workloads:
        loops = {name: _loop(workload, code, chosen.tiny) for name, code in versions.items()}
        times = interleaved(loops, chosen.rounds, chosen.shortest, rest=0.02)
        medians = {name: statistics.median(seconds) for name, seconds in times.items()}
        cells = [f"{medians[ALL] * 1e3:12.3f} ms"]
        cells += [f"{medians[name] / medians[ALL]:15.2f}" for name in names[1:]]
        print(f"{workload:18}" + "".join(cells), flush=True)


def _versions() -> Iterator[tuple[str, Callable[..., Code]]]:
    yield ALL, Code
    for pass_ in PASSES:
        rest = tuple(other for other in PASSES if other is not pass_)
        yield pass_.__name__, functools.partial(Code, passes=rest)
    yield "products", functools.partial(Code, products=False)


def _loop(name: str, code: Callable[..., Code], tiny: bool) -> Callable[[int], float]:
    """A workload compiled in one way, as a function that makes some calls."""
    if name in research.NAMES:
        run = running.start("fdbr", name, tiny)
        step, state, batch = run._step, run._state, run._batch
    else:
        workload = workloads.load(name)
        step, state, batch = workload.fdbr(workload.TINY if tiny else workload.Sizes())
    jitted: Any = Jitted(step, code, 64, (0,))
    jitted.compile(state, batch)
    return libraries.Run(jitted, state, batch, lambda values: None, lambda result: []).loop


if __name__ == "__main__":
    main()
