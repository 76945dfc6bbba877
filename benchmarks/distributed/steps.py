"""Training steps on many ranks, beside the same global batches on one of them.

The ranks share each batch, and average their gradients; in turns with that rank 0 alone takes the
whole batch, and the others sleep.  The last row is what the machine itself gives: bare products of
matrices by NumPy, all of them on one rank or each rank its share, which nobody has to send.  Where
cores share their units, or other programs run, that ratio is above 1/ranks, and so are those of
the steps.  A time is that of the slowest rank; *first* is that of the first call in the process,
*ratio* is the median of the ratios of neighbouring turns, and *best* that of the least times.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

import fdbr
from fdbr import distributed, nn, ops
from fdbr.train import optim

__all__ = ["Workload", "main", "workloads"]


@attrs.frozen
class Workload:
    """A model, its loss, and a global batch.

    Attributes
    ----------
    model
        The parameters.
    loss
        ``loss(model, x, y)``, a mean over examples.
    x, y
        The global batch.
    """

    model: Any
    loss: Callable[[Any, Any, Any], Any]
    x: Any
    y: Any


def _loss(model: Any, x: Any, y: Any) -> Any:
    return ops.mean(ops.softmax_cross_entropy(model(x), y))


def workloads(tiny: bool = False) -> dict[str, Workload]:
    """The workloads, by name."""
    rng = np.random.default_rng(0)
    width, count, images = (16, 8, 4) if tiny else (1000, 1024, 128)
    k = fdbr.random.split(fdbr.random.key(0), 8)
    mlp = nn.Sequential(
        nn.Linear.init(k[0], 784, width),
        ops.relu,
        nn.Linear.init(k[1], width, width),
        ops.relu,
        nn.Linear.init(k[2], width, 10),
    )
    cnn = nn.Sequential(
        nn.Conv2d.init(k[3], 3, 32, 3, padding=1),
        ops.relu,
        nn.MaxPool2d(2),
        nn.Conv2d.init(k[4], 32, 64, 3, padding=1),
        ops.relu,
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear.init(k[5], 64 * 8 * 8, 10),
    )
    x = rng.normal(size=(count, 784)).astype(np.float32)
    pixels = rng.normal(size=(images, 3, 32, 32)).astype(np.float32)
    return {
        "MLP": Workload(mlp, _loss, x, rng.integers(0, 10, count)),
        "CNN": Workload(cnn, _loss, pixels, rng.integers(0, 10, images)),
    }


def main(arguments: list[str]) -> None:
    """Measure on this rank, with the others; rank 0 prints the table."""
    quick = "--quick" in arguments
    comm = distributed.world()
    if comm.rank == 0:
        print(__doc__)
        print(f"{comm.size} ranks on {comm.nodes} machines; milliseconds")
        heads = ("first alone", "alone", "first", "ranks", "ratio", "best")
        print(f"{'':24}" + "".join(f"{head:>12}" for head in heads))
    rounds = 2 if quick else 9
    for name, workload in workloads(quick).items():
        for how in ("after backward", "overlapped"):
            alone = _stepping(workload, distributed.serial(), how)
            mine = _shared(workload, comm)
            _row(comm, f"{name}, {how}", alone, _stepping(mine, comm, how), rounds)
    _row(comm, "NumPy's products", *_products(comm, 64 if quick else 1024), rounds)


def _shared(workload: Workload, comm: Any) -> Workload:
    """The workload with this rank's share of the batch."""
    part = slice(comm.rank, None, comm.size)
    return attrs.evolve(workload, x=workload.x[part].copy(), y=workload.y[part].copy())


def _stepping(workload: Workload, comm: Any, how: str) -> Callable[[], None]:
    """A function that makes a training step."""
    optimizer = optim.adam(1e-3)
    gradient_of = fdbr.value_and_grad(workload.loss)
    if how == "overlapped":
        gradient_of = distributed.value_and_grad(workload.loss, comm)
    elif comm.size > 1:
        optimizer = optim.chain(distributed.average_gradients(comm), optimizer)

    def stepped(model: Any, state: Any, x: Any, y: Any) -> Any:
        value, grads = gradient_of(model, x, y)
        updates, state = optimizer.update(grads, state, model)
        return optim.apply_updates(model, updates), state, value

    step: Callable[..., Any] = fdbr.jit(stepped)
    now: list[Any] = [workload.model, optimizer.init(workload.model)]

    def call() -> None:
        now[0], now[1], _ = step(*now, workload.x, workload.y)

    return call


def _products(comm: Any, size: int) -> tuple[Callable[[], None], Callable[[], None]]:
    """Products of matrices, all of them and this rank's share."""
    a = np.random.default_rng(comm.rank).normal(size=(size, size)).astype(np.float32)
    out = np.empty_like(a)

    def times(count: int) -> Callable[[], None]:
        def multiply() -> None:
            for _ in range(count):
                np.matmul(a, a, out=out)

        return multiply

    return times(4 * comm.size), times(4)


def _row(
    comm: Any, name: str, alone: Callable[[], None], shared: Callable[[], None], rounds: int
) -> None:
    """Measure and print one row."""
    first_alone, first = _seconds(comm, alone, 0), _seconds(comm, shared)
    for _ in range(min(rounds, 5)):  # what is compiled in the background gets its time
        _seconds(comm, alone, 0)
        _seconds(comm, shared)
    one, many = [], []
    for _ in range(rounds):
        one.append(_seconds(comm, alone, 0))
        many.append(_seconds(comm, shared))
    if comm.rank == 0:
        times = (first_alone, statistics.median(one), first, statistics.median(many))
        ratio = statistics.median(b / a for a, b in zip(one, many, strict=True))
        said = "".join(f"{1e3 * seconds:12.1f}" for seconds in times)
        print(f"{name:24}{said}{ratio:12.2f}{min(many) / min(one):12.2f}", flush=True)


def _seconds(comm: Any, call: Callable[[], None], only: int | None = None) -> float:
    """How long the slowest rank takes for a call, or the only one that makes it."""
    distributed.barrier(comm)
    began = time.perf_counter()
    if only is None or comm.rank == only:
        call()
    taken = time.perf_counter() - began
    return float(distributed.all_reduce(taken, comm, "max"))
