"""What the examples share: the options of a run, its log, and its curves."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_digits

from fdbr import train

__all__ = ["command_line", "curves", "digits", "image_grid", "record", "run_command"]


def command_line(text: str, epochs: int, size: int, rate: float) -> argparse.ArgumentParser:
    """The options that every example has."""
    made = argparse.ArgumentParser(
        description=text.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    made.add_argument("--epochs", type=int, default=epochs)
    made.add_argument("--batch-size", type=int, default=size)
    made.add_argument("--learning-rate", type=float, default=rate)
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--out", type=Path, default=Path("result"), metavar="DIR")
    return made


def run_command(
    command: argparse.ArgumentParser,
    run: Callable[[argparse.Namespace], float],
    text: str,
    arguments: list[str] | None,
) -> None:
    """Run what a command line says, and print the number that it gives; errors are one line."""
    options = command.parse_args(arguments)
    try:
        value = run(options)
    except (OSError, ValueError) as error:
        command.error(str(error))
    print(text.format(value))


def record(
    out: Path,
    step: Any,
    state: Any,
    batches: Any,
    epochs: int,
    test_metrics: Callable[[Any], dict[str, Any]] | None = None,
) -> Any:
    """Train, with a line on the screen and in ``log.jsonl`` for each epoch; the last state."""
    log = out / "log.jsonl"
    log.unlink(missing_ok=True)  # that of an earlier run
    stages = [train.average(), train.log(log), train.progress()]
    if test_metrics is not None:
        stages.insert(1, train.evaluate(test_metrics))
    for report in train.pipe(train.fit(step, state, batches, epochs=epochs), *stages):
        state = report.state
    if log.exists():
        curves(log, out / "curves.png")
    return state


def curves(log: Path, path: Path) -> None:
    """Draw the curves of a log: a picture for each metric, of training and of test."""
    entries = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    rest = {"iteration", "epoch", "seconds"}
    names = list(dict.fromkeys(n.removeprefix("test/") for n in entries[-1] if n not in rest))
    figure = Figure(figsize=(4.5 * len(names), 3.5), layout="constrained")
    for axes, name in zip(np.atleast_1d(figure.subplots(1, len(names))), names, strict=True):
        for prefix, label in (("", "training"), ("test/", "test")):
            points = [(e["epoch"], e[prefix + name]) for e in entries if prefix + name in e]
            if points:
                axes.plot(*zip(*points, strict=True), label=label)
        axes.set(xlabel="epoch", ylabel=name)
        axes.legend()
    figure.savefig(path)


def digits() -> tuple[dict[str, Any], dict[str, Any]]:
    """The digits of scikit-learn, 8 by 8 pixels, of which every fifth is held out."""
    bunch = load_digits()
    image = (bunch.data / 16).astype(np.float32)
    label = bunch.target.astype(np.int64)
    held_out = np.arange(len(label)) % 5 == 0
    return (
        {"image": image[~held_out], "label": label[~held_out]},
        {"image": image[held_out], "label": label[held_out]},
    )


def image_grid(images: Any, path: Path, columns: int = 10) -> None:
    """Write grey images, shape ``(count, height, width)`` from 0 to 1, as one picture."""
    framed = np.pad(np.asarray(images), ((0, 0), (1, 1), (1, 1)), constant_values=0.3)
    rows = [np.concatenate(framed[i : i + columns], axis=1) for i in range(0, len(framed), columns)]
    picture = np.concatenate(rows, axis=0)
    figure = Figure(figsize=(picture.shape[1] / 16, picture.shape[0] / 16))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.imshow(picture, cmap="gray", vmin=0, vmax=1)
    axes.set_axis_off()
    figure.savefig(path, dpi=64)
