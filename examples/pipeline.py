"""Train a classifier of handwritten digits whose layers lie on several processes, as a pipeline.

    mpiexec -n 2 python examples/pipeline.py
    mpiexec -n 3 python examples/pipeline.py --order gpipe --micro-batches 8

Each rank has some of the layers, one after the other, and batches go through them in micro-batches:
while one rank works at one of them, the next works at the one before. What each rank does when is
drawn into ``schedule.png``. Loss and result are those of one process.
"""

import argparse
from typing import Any

import numpy as np
from recording import command_line, digits, record, run_command

from fdbr import distributed, nn, ops, random, train

LAYERS = 4


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = command_line(__doc__ or "", epochs=20, size=100, rate=3e-3)
    made.add_argument("--width", type=int, default=100)
    made.add_argument("--order", choices=("1f1b", "gpipe"), default="1f1b")
    made.add_argument("--micro-batches", type=int, default=4)
    return made


def layers(key: Any, pixels: int, width: int) -> list[Any]:
    """The layers of the whole model."""
    sizes = [pixels, *[width] * (LAYERS - 1), 10]
    made: list[Any] = []
    for number, own_key in enumerate(random.split(key, LAYERS)):
        linear = nn.Linear.init(own_key, sizes[number], sizes[number + 1])
        made.append(linear if number == LAYERS - 1 else nn.Sequential(linear, ops.relu))
    return made


def run(options: argparse.Namespace) -> float:
    """Train as the command line says; return the test accuracy."""
    comm = distributed.world()
    if comm.size > LAYERS:
        raise ValueError(f"there are {LAYERS} layers; start {LAYERS} processes at most")
    training, test = digits()
    model_key, order_key = random.split(random.key(options.seed))
    parts = np.array_split(np.arange(LAYERS), comm.size)
    whole = layers(model_key, training["image"].shape[1], options.width)
    stage = nn.Sequential(*(whole[number] for number in parts[comm.rank]))
    last = comm.size - 1
    before, behind = comm.rank - 1, comm.rank + 1
    wire = (None if comm.rank == 0 else before, None if comm.rank == last else behind)
    optimizer = train.optim.adam(options.learning_rate)
    gradient = distributed.pipeline(
        lambda stage, x: stage(x),
        ops.softmax_cross_entropy,
        comm,
        micro_batches=options.micro_batches,
        order=options.order,
    )

    def step(state: Any, batch: Any) -> Any:
        stage, opt = state
        value, grads = gradient(stage, batch["image"], batch["label"])
        updates, opt = optimizer.update(grads, opt, stage)
        return (train.optim.apply_updates(stage, updates), opt), {"loss": value}

    def test_metrics(state: Any) -> dict[str, Any]:
        model = distributed.MultiNodeSequential.init([(state[0], *wire)], comm)
        logits = model(test["image"])
        found = np.float32(0.0) if logits is None else ops.accuracy(logits, test["label"])
        return {"accuracy": distributed.broadcast(np.float32(found), comm, last)}

    batches = train.Batches(training, options.batch_size, key=order_key)
    state = (stage, optimizer.init(stage))
    state = record(options.out, step, state, batches, options.epochs, test_metrics)
    if comm.rank == 0:
        plan = distributed.schedule(options.order, comm.size, options.micro_batches)
        plan.draw(options.out / "schedule.png")
    return float(test_metrics(state)["accuracy"])


def main(arguments: list[str] | None = None) -> None:
    """Run the command line, and print the test accuracy."""
    run_command(parser(), run, "test accuracy {:.4f}", arguments)


if __name__ == "__main__":
    main()
