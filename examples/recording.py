"""What the examples share: the options of a run, its log, and its curves."""

import argparse
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from fdbr import distributed, train

__all__ = ["command_line", "digits", "image_grid", "record", "run_command"]


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
    """Run what a command line says, and print the number that it gives; errors are one line.

    Of several ranks, the first one prints.
    """
    options = command.parse_args(arguments)
    try:
        value = run(options)
    except (OSError, ValueError) as error:
        command.error(str(error))
    if distributed.world().rank == 0:
        print(text.format(value))


def record(
    out: Path,
    step: Any,
    state: Any,
    batches: Any,
    epochs: int,
    test_metrics: Callable[[Any], dict[str, Any]] | None = None,
    *,
    resume: bool | None = None,
) -> Any:
    """Train, with a line on the screen and in ``log.jsonl`` for each epoch, and curves of them.

    With ``resume`` there are snapshots, too: a run goes on from those of an earlier one if it is
    true, and begins anew if it is false.  The result is the last state.

    Started by an MPI launcher, metrics are means over the examples of all ranks, and one rank
    writes; alone, a rank is all of them.
    """
    comm = distributed.world()
    log, snapshots = out / "log.jsonl", out / "snapshots"
    writing = [train.log(log), train.progress(), train.plot(out / "curves.png", x="epoch")]
    stages = [
        distributed.aggregate(comm, train.every(epochs=1)),
        distributed.on_root(comm, *writing),
    ]
    if test_metrics is not None:
        stages.insert(1, train.evaluate(test_metrics))
    if resume is not None:
        stages.append(distributed.snapshot(snapshots, comm, keep=2))
    last = distributed.resume(snapshots, like=state, comm=comm) if resume else None
    if last is not None:
        state = last.state
    elif comm.rank == 0:  # nothing is left of an earlier run
        log.unlink(missing_ok=True)
        shutil.rmtree(snapshots, ignore_errors=True)
    for report in train.pipe(train.fit(step, state, batches, epochs=epochs, resume=last), *stages):
        state = report.state
    return state


def digits() -> tuple[dict[str, Any], dict[str, Any]]:
    """The digits of scikit-learn, 8 by 8 pixels, of which every fifth is held out."""
    from sklearn.datasets import load_digits  # most examples need no scikit-learn

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
