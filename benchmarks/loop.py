"""``python -m benchmarks loop``: the time that the loop and its stages take for an iteration.

The step does nothing but return two metrics, and no batch is made, so that all of the time is the
loop's own.  It is the processor's time of the one thread that it takes, which other programs do
not lengthen.  With five stages attached it is to be at most 25 µs.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fdbr import train

LIMIT = 25.0  # µs, with five stages
EPOCH = 1000


class Same:
    """One batch, again and again."""

    def __len__(self) -> int:
        return EPOCH

    def epoch(self, number: int, start: int = 0) -> Any:
        """The batches of an epoch."""
        return iter([number] * (EPOCH - start))


def step(state: int, batch: Any) -> tuple[int, dict[str, float]]:
    """A step that does nothing."""
    return state + 1, {"loss": 0.5, "accuracy": 0.25}


def stages(folder: Path) -> dict[str, Callable[[], Any]]:
    """The stages that a run usually has, none of which has much to do in most iterations."""
    rarely = train.every(epochs=1)
    return {
        "average": train.average,
        "evaluate": lambda: train.evaluate(lambda state: {"loss": 0.5}, rarely),
        "log": lambda: train.log(folder / "log.jsonl", rarely),
        "progress": lambda: train.progress(every=lambda report: False),
        "until": lambda: train.until(train.early_stopping("loss", patience=10**6)),
        "check_finite": train.check_finite,
        "observe": lambda: train.observe("rate", lambda report: 0.1),
        "stateful": lambda: train.stateful(lambda n, report: (n + 1, report), 0, name="count"),
        "snapshot": lambda: train.snapshot(folder / "snapshots", train.every(epochs=10**6)),
    }


FIVE = ("average", "evaluate", "log", "progress", "snapshot")
STATEFUL = ("average", "evaluate", "until", "stateful", "log")


def microseconds(chosen: tuple[str, ...], iterations: int, rounds: int) -> float:
    """The median, over some runs, of the time for an iteration with some stages."""
    times = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            made = [stages(Path(folder))[name]() for name in chosen]
            reports = train.pipe(train.fit(step, 0, Same(), iterations=iterations), *made)
            next(reports)
            began = time.thread_time()
            for _ in reports:
                pass
            times.append((time.thread_time() - began) / (iterations - 1))
    return statistics.median(times) * 1e6


def main(arguments: list[str] | None = None) -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks loop", description=__doc__)
    parser.add_argument("--iterations", type=int, default=20_000, help="of each run")
    parser.add_argument("--rounds", type=int, default=5, help="runs, of which the median counts")
    chosen = parser.parse_args(arguments)
    plain = microseconds((), chosen.iterations, chosen.rounds)
    print("µs of the processor for an iteration\n")
    print(f"{'fit alone':36}{plain:6.2f}")
    for name in stages(Path()):
        print(f"{'and ' + name:36}{microseconds((name,), chosen.iterations, chosen.rounds):6.2f}")
    for title, names in (("five stages", FIVE), ("five, four of which keep a state", STATEFUL)):
        found = microseconds(names, chosen.iterations, chosen.rounds)
        verdict = "at most" if found <= LIMIT else "MORE THAN"
        print(f"{title:36}{found:6.2f}  {verdict} {LIMIT:g}: {', '.join(names)}")


if __name__ == "__main__":
    main()
