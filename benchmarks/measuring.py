"""A workload in every library: started, compared, timed, and its memory taken."""

import statistics
from types import ModuleType
from typing import Any

import attrs
import numpy as np
from tqdm import tqdm

from benchmarks import timing, workloads
from benchmarks.libraries import LIBRARIES
from benchmarks.worker import FailedError, Worker

__all__ = ["Plan", "Result", "Row", "disagreement", "measure"]

REFERENCE = "fdbr"  # the others must give what it gives


@attrs.frozen
class Plan:
    """What is measured, and how.

    Attributes
    ----------
    libraries
        Names of `LIBRARIES`; the reference is among them.
    rounds
        Timed repeats of each.
    starts
        In how many processes of its own each library is timed, one after the other: where a
        process finds its memory decides about its speed until it ends, by up to a third.
    memory
        Whether memory is measured, too: in the last start, when whatever libraries keep on disk
        of what they compiled is there.
    tiny
        Whether the sizes are those for tests.
    """

    libraries: tuple[str, ...]
    rounds: int = 15
    starts: int = 1
    threads: int = 2
    memory: bool = True
    tiny: bool = False


@attrs.frozen
class Row:
    """A library's part in a workload, or the reason why it has none.

    Attributes
    ----------
    seconds
        Of a call, in each round.
    first_call
        Seconds that the first call took, in which compilers compile.
    memory
        What `Worker.memory` found, in bytes by name.
    """

    library: str
    seconds: list[float] = attrs.field(factory=list)
    first_call: float | None = None
    memory: dict[str, int] = attrs.field(factory=dict)
    reason: str | None = None

    def median(self) -> float:
        """Seconds of a call."""
        return statistics.median(self.seconds)

    def least(self) -> float:
        """Seconds of the fastest round's calls."""
        return min(self.seconds)


@attrs.frozen
class Result:
    """A workload's rows: the libraries, and bare matrix products."""

    workload: str
    title: str
    sizes: dict[str, Any]
    rows: list[Row]


def measure(name: str, plan: Plan, changes: dict[str, int] | None = None) -> Result:
    """Measure a workload, with some of its sizes changed."""
    starts = min(plan.starts, plan.rounds)
    part = attrs.evolve(plan, rounds=-(-plan.rounds // starts), memory=False)
    last = attrs.evolve(part, memory=plan.memory)
    plans = [part] * (starts - 1) + [last]
    results = [_measured(name, each, changes or {}) for each in plans]
    rows = []
    for parts in zip(*(result.rows for result in results), strict=True):
        seconds = [taken for row in parts for taken in row.seconds]
        rows.append(attrs.evolve(parts[0], seconds=seconds, memory=parts[-1].memory))
    return attrs.evolve(results[0], rows=rows)


def _measured(name: str, plan: Plan, changes: dict[str, int]) -> Result:
    """Measure with each library in one process."""
    workload = workloads.load(name)
    labels = (*plan.libraries, *getattr(workload, "PRODUCTS", {}))
    workers: dict[str, Worker] = {}
    try:
        for label in labels:
            workers[label] = Worker(label, name, changes, plan.threads, plan.tiny)
        rows = _rows(workload, workers, plan)
    finally:
        for worker in workers.values():
            worker.end()
    sizes = workloads.resized(workload, changes, plan.tiny)
    return Result(name, workload.TITLE, attrs.asdict(sizes), rows)


def _rows(workload: ModuleType, workers: dict[str, Worker], plan: Plan) -> list[Row]:
    first = {REFERENCE: workers[REFERENCE].first()}
    expected = first[REFERENCE].results
    reasons: dict[str, str] = {}
    for label in tqdm(workers, desc=workload.TITLE, leave=False, disable=None):
        try:
            first[label] = first.get(label) or workers[label].first()
        except FailedError as error:
            reasons[label] = str(error)
            continue
        if label in LIBRARIES:
            apart = disagreement(first[label].results, expected, workload.RTOL)
            reasons |= {label: apart} if apart else {}
    able = {label: worker for label, worker in workers.items() if label not in reasons}
    seconds = timing.interleaved({name: worker.loop for name, worker in able.items()}, plan.rounds)
    return [
        Row(
            label,
            seconds[label],
            first[label].seconds,
            worker.memory() if plan.memory and label in LIBRARIES else {},
        )
        if label in able
        else Row(label, reason=reasons[label])
        for label, worker in workers.items()
    ]


def disagreement(
    results: list[list[np.ndarray]], expected: list[list[np.ndarray]], rtol: float
) -> str | None:
    """What a library computes otherwise: its time would mean nothing."""
    for number, (theirs, ours) in enumerate(zip(results, expected, strict=True), 1):
        if [(x.shape, x.dtype) for x in theirs] != [(x.shape, x.dtype) for x in ours]:
            return f"disagrees with {REFERENCE} about shapes or dtypes in call {number}"
        for got, want in zip(theirs, ours, strict=True):
            away = np.linalg.norm(got - want)
            if not away <= rtol * np.linalg.norm(want):
                return (
                    f"disagrees with {REFERENCE} in call {number}: {_shown(got)}, not "
                    f"{_shown(want)}, where {rtol:g} of it is allowed"
                )
    return None


def _shown(value: np.ndarray) -> str:
    return f"{value:.6g}" if value.ndim == 0 else f"{value.dtype}{list(value.shape)}"
