"""Train with many settings, several runs at a time, and compare them.

    python examples/sweep.py --out result      # stop it, and start it again: it goes on

Each run has a process of its own; while they run, ``python -m fdbr.train.watch result`` shows their
curves in a browser.  In the end there are a table (``results.csv``) and a picture
(``compared.png``).  ``--rates`` and ``--widths`` say which settings.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
from mnist import Classifier, loss
from recording import command_line, digits, run_command

import fdbr
from fdbr import random, train


@attrs.frozen
class Config:
    """The settings of a run."""

    epochs: int
    batch_size: int
    rate: float = 1e-3
    width: int = 100
    seed: int = 0
    data: str | None = None


def train_once(config: Config) -> Iterator[train.Report]:
    """The reports of a run: a pure function of its settings."""
    training, test = train.mnist(config.data) if config.data else digits()
    keys = random.split(random.key(config.seed))
    optimizer = train.optim.adam(config.rate)
    model = Classifier.init(keys[0], training["image"].shape[1], config.width)

    @fdbr.jit
    def step(state: Any, batch: Any) -> Any:
        model, opt = state
        (value, metrics), grads = fdbr.value_and_grad(loss, has_aux=True)(model, batch)
        updates, opt = optimizer.update(grads, opt, model)
        return (train.optim.apply_updates(model, updates), opt), {"loss": value, **metrics}

    def test_metrics(state: Any) -> dict[str, Any]:
        value, metrics = loss(state[0], test)
        return {"loss": value, **metrics}

    batches = train.Batches(training, config.batch_size, key=keys[1])
    reports = train.fit(step, (model, optimizer.init(model)), batches, epochs=config.epochs)
    return train.pipe(reports, train.average(), train.evaluate(test_metrics))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = command_line(__doc__ or "", epochs=10, size=100, rate=1e-3)
    made.add_argument("--data", type=Path, metavar="DIR", help="folder with MNIST's idx files")
    made.add_argument("--rates", type=float, nargs="+", default=[1e-4, 1e-3, 1e-2])
    made.add_argument("--widths", type=int, nargs="+", default=[30, 100])
    return made


def run(options: argparse.Namespace) -> float:
    """Sweep over rates and widths; return the best test accuracy."""
    data = None if options.data is None else str(options.data)
    base = Config(options.epochs, options.batch_size, seed=options.seed, data=data)
    configs = train.grid(base, rate=options.rates, width=options.widths)
    every = train.every(epochs=1)
    for report in train.sweep(train_once, configs, options.out, every=every):
        settings = f"rate {report.config.rate:g}  width {report.config.width}"
        if report.state == "running":
            print(f"{settings}  epoch {report.epoch}  loss {report.metrics['loss']:.3f}")
        else:
            print(f"{settings}  {report.state}  {report.error or ''}")
    table = train.results(options.out)
    table.save(options.out / "results.csv")
    table.plot(options.out / "compared.png", "test/accuracy", x="epoch")
    return float(table.last().best("test/accuracy", "max")["test/accuracy"])


def main(arguments: list[str] | None = None) -> None:
    """Run the command line, and print the best accuracy."""
    run_command(parser(), run, "best test accuracy {:.4f}", arguments)


if __name__ == "__main__":
    main()
