"""Train a segmenter to find disks, squares and triangles in pictures that the script makes.

    python examples/segment_shapes.py

A picture has 48 by 48 pixels, a dark background with a gradient of colours and noise, and one or
two brighter shapes of random colours, sizes and positions; each pixel has a known class.  SegNet
with few channels trains on 800 pictures, and at the end prints the mean overlap of the classes on
100 that were not trained on, which is 0.938.  The folder of the run has the log, the curves,
pictures of predictions beside the truth, and the model, with which ``fine_tune.py`` begins.
"""

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np
from recording import command_line, record, run_command

import fdbr
from fdbr import random, train, vision

NAMES = ("background", "disk", "square", "triangle")
SIZE = 48


def shape(draw: Any, name: str, size: int) -> Any:
    """The pixels of a shape at a random position, shape ``(size, size)``, bool."""
    radius = draw.uniform(size / 6, size / 3.6)
    centre = draw.uniform(radius * 0.8, size - radius * 0.8, 2)
    angle = draw.uniform(-0.1, 0.1)
    y, x = np.mgrid[:size, :size] + 0.5 - centre[:, None, None]
    u, v = x * np.cos(angle) + y * np.sin(angle), y * np.cos(angle) - x * np.sin(angle)
    distance = np.hypot(x, y)
    found = {
        "disk": distance < radius,
        "square": np.maximum(abs(u), abs(v)) < radius * 0.85,
        "triangle": np.maximum(abs(u) * np.sqrt(3) - v, 2 * v) < radius * 1.2,
        "ring": abs(distance - radius * 0.8) < radius * 0.3,
        "cross": (np.minimum(abs(u), abs(v)) < radius * 0.35) & (distance < radius * 1.1),
    }
    return found[name]


def pictures(
    draw: Any, count: int, names: Sequence[str] = NAMES, size: int = SIZE
) -> dict[str, Any]:
    """Images, ``(count, 3, size, size)`` from 0 to 255, and the classes of their pixels."""
    images = np.zeros((count, 3, size, size), np.float32)
    label_maps = np.zeros((count, size, size), np.int32)
    for image, label_map in zip(images, label_maps, strict=True):
        across, down = np.meshgrid(np.linspace(0, 1, size), np.linspace(0, 1, size))
        one, other = draw.uniform(0, 120, (2, 3, 1, 1))
        image += one + (other - one) * (across + down) / 2
        for _ in range(draw.integers(1, 3)):
            label = int(draw.integers(1, len(names)))
            pixels = shape(draw, names[label], size)
            if label_map[pixels].any():
                continue  # it would hide a part of another, which could then be any shape
            contrast = draw.uniform(60, 120, 3)
            colour = (image[:, pixels].mean(1) if pixels.any() else 0) + contrast
            image[:, pixels] = colour[:, None]
            label_map[pixels] = label
        image += draw.normal(0, 8, image.shape)
    return {"image": images.clip(0, 255), "label_map": label_maps}


def model_of(key: Any, classes: int, width: int = 16) -> vision.models.SegNetBasic:
    """SegNet with few channels."""
    return vision.models.SegNetBasic.init(key, classes, width=width)


def measures(model: Any, test: dict[str, Any]) -> dict[str, Any]:
    """The mean overlap of classes on test pictures, and the accuracy of pixels."""
    found = [
        label_map
        for i in range(0, len(test["image"]), 25)
        for label_map in model.predict(test["image"][i : i + 25], jit=True)
    ]
    figures = vision.evaluation.segmentation(found, list(test["label_map"]))
    return {name: figures[name] for name in ("miou", "pixel_accuracy")}


def draw_predictions(model: Any, test: dict[str, Any], names: Sequence[str], out: Any) -> None:
    """Write pictures with the truth and the prediction side by side."""
    examples = [{name: values[i] for name, values in test.items()} for i in range(4)]
    stage = vision.drawing.report(
        out, lambda state, images: state.predict(images), examples, lambda _: True, names=names
    )
    list(stage(iter([train.Report(1, 1, {}, model, train.Position(1, 0), 0.0)])))


def run(options: argparse.Namespace) -> float:
    """Train as the command line says; return the mean overlap on test pictures."""
    draw = np.random.default_rng(options.seed)
    training, test = pictures(draw, options.pictures), pictures(draw, 100)
    model_key, order_key, loss_key = random.split(random.key(options.seed), 3)
    batches = train.Batches(training, options.batch_size, key=order_key)
    model = model_of(model_key, len(NAMES), options.width)
    total = max(options.epochs * len(batches), 1)
    optimizer = train.optim.adam(lambda step: options.learning_rate * (1 - step / total))

    def loss(model: Any, batch: dict[str, Any], key: Any) -> tuple[Any, Any]:
        losses, successor = model.losses(batch["image"], batch["label_map"], key=key)
        return losses["out"], successor

    @fdbr.jit
    def step(state: Any, batch: Any) -> tuple[Any, dict[str, Any]]:
        model, opt, key = state
        key, own = random.split(key)
        (value, successor), grads = fdbr.value_and_grad(loss, has_aux=True)(model, batch, own)
        updates, opt = optimizer.update(grads, opt, successor)
        return (train.optim.apply_updates(successor, updates), opt, key), {"loss": value}

    state = model, optimizer.init(model), loss_key
    state = record(options.out, step, state, batches, options.epochs)
    train.save(options.out / "model", state[0])
    draw_predictions(state[0], test, NAMES, options.out)
    return float(measures(state[0], test)["miou"])


def main(arguments: list[str] | None = None) -> None:
    """Run the command line, and print the mean overlap."""
    made = command_line(__doc__ or "", epochs=13, size=16, rate=5e-3)
    made.add_argument("--pictures", type=int, default=800, help="how many to train on")
    made.add_argument("--width", type=int, default=16, help="the number of channels")
    run_command(made, run, "test mIoU {:.4f}", arguments)


if __name__ == "__main__":
    main()
