"""Averages of trees of gradients over all ranks, beside mpi4py's own sum of the same bytes.

A tree has ten arrays of float32.  mpi4py's ``Allreduce`` sums one array of as many bytes into
another that is there already, and neither packs, nor divides, nor looks whether all ranks mean the
same.  Both are called in turns; a time is that of the slowest rank, *first* that of the first call
in the process.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

from fdbr import distributed

__all__ = ["Row", "main", "measured"]

SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000)
_SHARES = (0.3, 0.2, 0.15, 0.1, 0.1, 0.05, 0.05, 0.03, 0.01, 0.01)


@attrs.frozen
class Row:
    """One size.

    Attributes
    ----------
    size
        Bytes.
    first, first_of_mpi
        Seconds of the first calls.
    ours, of_mpi
        Seconds, medians over rounds.
    best, best_of_mpi
        The least.
    """

    size: int
    first: float
    first_of_mpi: float
    ours: float
    of_mpi: float
    best: float
    best_of_mpi: float


def main(arguments: list[str]) -> None:
    """Measure on this rank, with the others; rank 0 prints the table."""
    quick = "--quick" in arguments
    comm = distributed.world()
    if comm.rank == 0:
        print(__doc__)
        print(f"{comm.size} ranks on {comm.nodes} machines; milliseconds")
        print(f"{'bytes':>12}{'first':>10}{'fdbr':>10}{'MPI first':>12}{'MPI':>10}{'ratio':>8}")
    for size in SIZES[:2] if quick else SIZES:
        row = measured(comm, size, 3 if quick else 25)
        if comm.rank == 0:
            times = row.first, row.ours, row.first_of_mpi, row.of_mpi
            a, b, c, d = (1e3 * seconds for seconds in times)
            ratio = row.ours / row.of_mpi
            print(f"{size:12,}{a:10.3f}{b:10.3f}{c:12.3f}{d:10.3f}{ratio:8.2f}", flush=True)


def measured(comm: Any, size: int, rounds: int) -> Row:
    """The times of both for trees of so many bytes."""
    from mpi4py import MPI

    tree = [np.full(max(1, int(size * share / 4)), 0.5, np.float32) for share in _SHARES]
    flat = np.concatenate(tree)
    out = np.zeros_like(flat)

    averaging = distributed.average_gradients(comm)
    state = averaging.init(tree)

    def average() -> Any:
        return averaging.update(tree, state)

    def allreduce() -> None:
        MPI.COMM_WORLD.Allreduce(flat, out)

    calls = max(1, min(200, 1_000_000 // size))
    first, first_of_mpi = _seconds(comm, average, 1), _seconds(comm, allreduce, 1)
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(_seconds(comm, average, calls))
        theirs.append(_seconds(comm, allreduce, calls))
    middle = statistics.median
    return Row(size, first, first_of_mpi, middle(ours), middle(theirs), min(ours), min(theirs))


def _seconds(comm: Any, call: Callable[[], Any], calls: int) -> float:
    """How long the slowest rank takes for a call."""
    distributed.barrier(comm)
    began = time.perf_counter()
    for _ in range(calls):
        call()
    taken = (time.perf_counter() - began) / calls
    return float(distributed.all_reduce(taken, comm, "max"))
