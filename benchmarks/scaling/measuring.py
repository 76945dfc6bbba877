"""Measurements on the ranks at hand: all-reduces of many sizes, and steps with and without them."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

import fdbr
from benchmarks.scaling.fitting import Sample
from fdbr import distributed, nn, ops, random

__all__ = ["SIZES", "Measured", "all_reduces", "steps"]

SIZES = tuple(4 ** (i + 1) for i in range(1, 13))  # 16 bytes to 67 MB


def all_reduces(comm: Any, sizes: Sequence[int] = SIZES, rounds: int = 7) -> list[Sample]:
    """Times of all-reduces among 2, 4, 8… of the ranks, and among all.

    A time is the least over rounds of that of the slowest rank, for what others do on the machine
    only adds to it.  Every rank gets all samples.
    """
    numbers = sorted({2**i for i in range(1, comm.size.bit_length())} | {comm.size})
    samples = []
    for number in numbers:
        if number < 2 or number > comm.size:
            continue
        part = comm.split(0 if comm.rank < number else None)
        for size in sizes:
            taken = 0.0
            if part is not None:
                array = np.ones(max(size // 4, 1), np.float32)

                def call(array: Any = array, part: Any = part) -> Any:
                    return distributed.all_reduce(array, part)

                taken = _seconds(call, part, rounds)
            taken = float(distributed.broadcast(taken, comm))
            samples.append(Sample(number, 4.0 * max(size // 4, 1), taken))
    return samples


def _seconds(call: Callable[[], Any], comm: Any, rounds: int) -> float:
    """The least over rounds of the slowest rank's time."""
    call()
    times = []
    for _ in range(rounds):
        distributed.barrier(comm)
        began = time.perf_counter()
        call()
        taken = time.perf_counter() - began
        times.append(float(distributed.all_reduce(taken, comm, "max")))
    return min(times)


@attrs.frozen
class Measured:
    """Seconds of a step: what is computed, with an all-reduce after it, and with overlap."""

    ranks: int
    parameters: int
    compute: float
    after: float
    overlap: float

    @property
    def hidden(self) -> float:
        """Which part of the time for communication overlap hides."""
        exposed = self.after - self.compute
        return (self.after - self.overlap) / exposed if exposed > 0 else 0.0


def steps(comm: Any, width: int = 1024, batch: int = 128, rounds: int = 7) -> Measured:
    """Gradients of a perceptron with three hidden layers, and their averages over all ranks."""
    keys = random.split(random.key(0), 4)
    layers = [nn.Linear.init(key, width, width) for key in keys]
    x = random.normal(random.fold_in(keys[0], comm.rank), (batch, width), dtype=np.float32)

    def loss(layers: Any, x: Any) -> Any:
        for layer in layers:
            x = ops.relu(layer(x))
        return ops.mean(x * x)

    gradient = fdbr.value_and_grad(loss)
    overlapped = distributed.value_and_grad(loss, comm)

    def after() -> Any:
        return distributed.all_reduce(gradient(layers, x), comm, "mean")

    calls = {
        "compute": lambda: gradient(layers, x),
        "after": after,
        "overlap": lambda: overlapped(layers, x),
    }
    taken = {name: _seconds(call, comm, rounds) for name, call in calls.items()}
    return Measured(comm.size, fdbr.tree.size(layers), **taken)
