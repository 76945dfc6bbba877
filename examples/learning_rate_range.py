"""Find a learning rate: let it grow from batch to batch, and see where the loss falls fastest.

    python examples/learning_rate_range.py              # the digits that come with scikit-learn
    python examples/learning_rate_range.py --data DIR   # the idx files of MNIST

Smith, *Cyclical learning rates for training neural networks*, WACV 2017.  The rate is a schedule,
and the end of the run a stage: a generator of five lines.  ``range.png`` has the loss over the
rate.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from mnist import Classifier, loss
from recording import command_line, digits, run_command

import fdbr
from fdbr import random, train


def until_it_diverges(reports: Iterator[train.Report]) -> Iterator[train.Report]:
    """A stage that ends a run when the loss is four times its least."""
    least = np.inf
    for report in reports:
        yield report
        least = min(least, float(report.metrics["loss"]))
        if not float(report.metrics["loss"]) <= 4 * least:
            return


def smooth(values: Any, decay: float = 0.9) -> Any:
    """A running mean of some values, as if each were worth the same from the beginning on."""
    mean, weight, found = 0.0, 0.0, []
    for value in values:
        mean = decay * mean + (1 - decay) * value
        weight = decay * weight + (1 - decay)
        found.append(mean / weight)
    return np.array(found)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = command_line(__doc__ or "", epochs=20, size=32, rate=10.0)
    made.add_argument("--data", type=Path, metavar="DIR", help="folder with MNIST's idx files")
    made.add_argument("--least-rate", type=float, default=1e-5, help="at the beginning")
    return made


def run(options: argparse.Namespace) -> float:
    """Let the rate grow to ``--learning-rate``; return the one where the loss falls fastest."""
    training, _ = train.mnist(options.data) if options.data else digits()
    keys = random.split(random.key(options.seed))
    batches = train.Batches(training, options.batch_size, key=keys[0])
    least, total = options.least_rate, options.epochs * len(batches)
    if not least > 0:
        raise ValueError(f"--least-rate must be positive, for the rate is multiplied, got {least}")
    rate = train.optim.exponential_decay(least, total, options.learning_rate / least)
    optimizer = train.optim.sgd(rate)
    gradient = fdbr.value_and_grad(loss, has_aux=True)

    def step(state: Any, batch: Any) -> tuple[Any, dict[str, Any]]:
        model, opt, count = state
        (value, _), grads = gradient(model, batch)
        updates, opt = optimizer.update(grads, opt, model)
        model = train.optim.apply_updates(model, updates)
        return (model, opt, count + 1), {"loss": value, "rate": rate(count)}

    model = Classifier.init(keys[1], training["image"].shape[1])
    log = options.out / "log.jsonl"
    log.unlink(missing_ok=True)
    reports = train.fit(step, (model, optimizer.init(model), 0), batches, epochs=options.epochs)
    stages = until_it_diverges, train.log(log, train.every(iterations=1)), train.progress()
    for _ in train.pipe(reports, *stages):
        pass

    entries = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    entries = [entry for entry in entries if entry["loss"] is not None]
    rates = np.array([entry["rate"] for entry in entries])
    losses = np.array([entry["loss"] for entry in entries])
    means = smooth(losses)
    best = rates[np.argmin(np.gradient(means, np.log(rates)))] if len(rates) > 1 else rates[0]
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    axes.semilogx(rates, losses, alpha=0.3)
    axes.semilogx(rates, means, color="C0")
    axes.axvline(best, color="C1", linestyle="--", label=f"falls fastest at {best:.2g}")
    axes.set(xlabel="learning rate", ylabel="loss", ylim=(0, 2 * means[0]))
    axes.legend()
    figure.savefig(options.out / "range.png")
    return float(best)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line, and print the rate."""
    run_command(parser(), run, "the loss falls fastest at a learning rate of {:.2g}", arguments)


if __name__ == "__main__":
    main()
