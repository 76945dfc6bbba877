"""Images from a folder, decoded by workers, feed a jitted training step: ``benchmarks input``.

The share of a run's time in which the step waits for its batch.  Images are JPEG files, which are
decoded, cropped at random and flipped; the step is of a small convolutional network.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import fdbr
from benchmarks.report import lines
from fdbr import nn, ops, random, train

__all__ = ["augmented", "main", "measure", "write_images"]

BOUND = 0.05
"""The share of the time that the step may wait."""
SIDE, CROP, CLASSES = 80, 64, 10


def write_images(folder: Path, count: int) -> None:
    """Write JPEG files of coloured noise that is smooth enough to look like pictures to a coder."""
    generator = np.random.default_rng(0)
    from_array = fdbr.core.devices.optional("benchmarks.input", "PIL.Image", "data").fromarray
    for number in range(count):
        place = folder / f"class{number % CLASSES}"
        place.mkdir(parents=True, exist_ok=True)
        coarse = generator.integers(0, 256, (10, 10, 3), "uint8")
        from_array(coarse).resize((SIDE, SIDE)).save(place / f"{number}.jpg", quality=90)


def augmented(key: Any, example: Any) -> Any:
    """An example as it is trained with."""
    first, second = random.split(key)
    image = train.augment.random_crop(first, example["image"], CROP)
    return {**example, "image": train.augment.random_flip(second, image)}


@fdbr.frozen
class Network:
    """A small convolutional network."""

    first: nn.Conv2d
    second: nn.Conv2d
    third: nn.Conv2d
    out: nn.Linear

    @classmethod
    def init(cls, key: Any) -> "Network":
        keys = random.split(key, 4)
        return cls(
            nn.Conv2d.init(keys[0], 3, 32, 3, padding=1),
            nn.Conv2d.init(keys[1], 32, 64, 3, padding=1),
            nn.Conv2d.init(keys[2], 64, 64, 3, padding=1),
            nn.Linear.init(keys[3], 64, CLASSES),
        )

    def __call__(self, x: Any) -> Any:
        x = ops.max_pool(ops.relu(self.first(x)), 2)
        x = ops.max_pool(ops.relu(self.second(x)), 2)
        x = ops.mean(ops.relu(self.third(x)), axis=(2, 3))
        return self.out(x)


def _loss(model: Any, batch: Any) -> Any:
    images = ops.astype(batch["image"], np.float32) / 255
    return ops.softmax_cross_entropy(model(images), batch["label"])


_optimizer = train.optim.sgd(0.01)


@fdbr.jit
def _step(state: Any, batch: Any) -> Any:
    model, opt = state
    value, grads = fdbr.value_and_grad(_loss)(model, batch)
    updates, opt = _optimizer.update(grads, opt, model)
    return (train.optim.apply_updates(model, updates), opt), {"loss": value}


def _begin() -> Any:
    model = Network.init(random.key(0))
    return model, _optimizer.init(model)


class _Timed:
    """Batches that measure how long they are waited for."""

    def __init__(self, batches: Any) -> None:
        self.batches = batches
        self.waited = 0.0

    def __len__(self) -> int:
        return len(self.batches)

    def epoch(self, number: int, start: int = 0) -> Iterator[Any]:
        batches = iter(self.batches.epoch(number, start))
        while True:
            began = time.perf_counter()
            batch = next(batches, None)
            self.waited += time.perf_counter() - began
            if batch is None:
                return
            yield batch


def measure(batches: Any, epochs: int) -> tuple[float, float]:
    """Seconds of a run without its first epoch, in which it compiles, and those that it waited."""
    timed = _Timed(batches)
    began = waited = 0.0
    reports = train.fit(_step, _begin(), timed, epochs=epochs + 1)
    for report in reports:
        if report.epoch == 1 and not began:
            began, waited = time.perf_counter(), timed.waited
    return time.perf_counter() - began, timed.waited - waited


def _arguments(arguments: list[str]) -> Any:
    parser = argparse.ArgumentParser(prog="python -m benchmarks input", description=__doc__)
    parser.add_argument("--images", type=int, default=2048, help="files")
    parser.add_argument("--size", type=int, default=64, help="examples in a batch")
    parser.add_argument("--epochs", type=int, default=3, help="after the first")
    parser.add_argument("--workers", type=int, default=1, help="threads or processes")
    parser.add_argument("--threads", type=int, default=2, help="of the step")
    parser.add_argument("--output", type=Path, default=Path("result"), help="a folder")
    return parser.parse_args(arguments)


def main(arguments: list[str], environment: Callable[[int, int], dict[str, Any]]) -> None:
    """Measure without workers, with threads and with processes; print and write the results."""
    chosen = _arguments(arguments)
    found = environment(chosen.threads, chosen.epochs)
    rows: list[tuple[str, ...]] = [("input", "ms a step", "of them waiting", "share")]
    results = []
    with tempfile.TemporaryDirectory() as folder:
        write_images(Path(folder), chosen.images)
        images = train.image_folder(folder)
        examples = train.map_examples(augmented, images, random.key(1))
        plain = train.Batches(examples, chosen.size, random.key(2), drop_last=True)
        kept = train.Batches(train.gather(examples), chosen.size, random.key(2), drop_last=True)
        for name, batches in (
            ("arrays in memory", kept),
            ("files, read by the step's own thread", plain),
            ("files, read by threads", train.prefetch(plain, chosen.workers)),
            ("files, read by processes", train.prefetch(plain, chosen.workers, processes=True)),
        ):
            seconds, waited = measure(batches, chosen.epochs)
            each = 1e3 / (chosen.epochs * len(plain))
            results.append({"name": name, "seconds": seconds, "waited": waited})
            shown = (f"{seconds * each:.1f}", f"{waited * each:.2f}", f"{waited / seconds:.1%}")
            rows.append((name, *shown))
    print(f"\n{chosen.images} JPEG files, batches of {chosen.size}, {chosen.workers} workers\n")
    print("\n".join(lines(rows)))
    print(f"\nWith processes, at most {BOUND:.0%} is wanted.")
    chosen.output.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"environment": found, "results": results}, indent=1)
    (chosen.output / "input.json").write_text(text, encoding="utf-8")
