"""Train the classifier of handwritten digits on several processes.

    mpiexec -n 2 python examples/mnist_distributed.py
    mpiexec -n 4 python examples/mnist_distributed.py --data DIR

This is ``mnist.py`` but for three statements: each rank has its share of each batch, gradients are
averaged over all ranks, and weighted by the number of examples that they are of.  So the batches,
the gradients and the result are those of one process, whatever the number of processes, but for
the order in which numbers are added.  On one process it is ``mnist.py``.
"""

import argparse
from pathlib import Path
from typing import Any

from recording import digits, record, run_command

import fdbr
from fdbr import nn, ops, random, train

OPTIMIZERS: dict[str, tuple[Any, float]] = {
    "adam": (train.optim.adam, 3e-3),
    "sgd": (train.optim.sgd, 0.1),
    "momentum": (train.optim.momentum_sgd, 0.05),
}


@fdbr.frozen
class Classifier:
    """A multilayer perceptron for ten classes."""

    first: nn.Linear
    second: nn.Linear
    out: nn.Linear

    @classmethod
    def init(cls, key: Any, pixels: int, width: int = 100) -> "Classifier":
        """A classifier with fresh parameters for images of so many pixels."""
        keys = random.split(key, 3)
        return cls(
            nn.Linear.init(keys[0], pixels, width),
            nn.Linear.init(keys[1], width, width),
            nn.Linear.init(keys[2], width, 10),
        )

    def __call__(self, x: Any) -> Any:
        """The logits, shape ``(n, 10)``, of images of shape ``(n, pixels)``."""
        h = ops.relu(self.first(x))
        h = ops.relu(self.second(h))
        return self.out(h)


def loss(model: Classifier, batch: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The mean cross entropy, and the accuracy beside it."""
    logits = model(batch["image"])
    value = ops.softmax_cross_entropy(logits, batch["label"])
    return value, {"accuracy": ops.accuracy(logits, batch["label"])}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description="Train a classifier of handwritten digits.")
    made.add_argument("--data", type=Path, metavar="DIR", help="folder with MNIST's idx files")
    made.add_argument("--epochs", type=int, help="default: 20 on MNIST, 50 on the small digits")
    made.add_argument("--batch-size", type=int, default=100)
    made.add_argument("--optimizer", choices=OPTIMIZERS, default="adam")
    rates = ", ".join(f"{name} {rate}" for name, (_, rate) in OPTIMIZERS.items())
    made.add_argument("--learning-rate", type=float, help=f"at the beginning; default: {rates}")
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--resume", action="store_true", help="go on with the run in --out")
    made.add_argument("--out", type=Path, default=Path("result"), metavar="DIR")
    return made


def run(options: argparse.Namespace) -> float:
    """Train as the command line says; return the test accuracy."""
    training, test = train.mnist(options.data) if options.data else digits()
    epochs = options.epochs if options.epochs is not None else 20 if options.data else 50
    model_key, order_key = random.split(random.key(options.seed))
    batches = fdbr.distributed.share(
        train.Batches(training, options.batch_size, key=order_key), fdbr.distributed.world()
    )
    make, rate = OPTIMIZERS[options.optimizer]
    rate = rate if options.learning_rate is None else options.learning_rate
    total = max(epochs * len(batches), 1)
    optimizer = train.optim.chain(
        fdbr.distributed.average_gradients(fdbr.distributed.world()),
        make(lambda step: rate * (1 - step / total)),
    )
    model = Classifier.init(model_key, training["image"].shape[1])
    gradient = fdbr.value_and_grad(loss, has_aux=True)

    def step(state: Any, batch: Any) -> tuple[Any, dict[str, Any]]:
        model, opt = state
        (value, metrics), grads = gradient(model, batch)
        updates, opt = optimizer.update(grads, opt, model, weight=len(batch["label"]))
        return (train.optim.apply_updates(model, updates), opt), {"loss": value, **metrics}

    def test_metrics(state: Any) -> dict[str, Any]:
        value, metrics = loss(state[0], test)
        return {"loss": value, **metrics}

    state = (model, optimizer.init(model))
    resume = options.resume
    state = record(options.out, step, state, batches, epochs, test_metrics, resume=resume)
    return float(test_metrics(state)["accuracy"])


def main(arguments: list[str] | None = None) -> None:
    """Run the command line, and print the test accuracy."""
    run_command(parser(), run, "test accuracy {:.4f}", arguments)


if __name__ == "__main__":
    main()
