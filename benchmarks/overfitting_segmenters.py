"""Narrow segmenters learn ten pictures of shapes: ``python -m benchmarks.overfitting_segmenters``.

It prints for each model how well it predicts the pictures that it was trained on, and the seconds
of CPU that it took.
"""

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import fdbr
from fdbr import random, train, vision

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from segment_shapes import pictures

MODELS: dict[str, tuple[dict[str, Any], int]] = {
    "SegNetBasic": ({"width": 12}, 150),
    "PSPNet_ResNet50": ({"width": 8, "depths": (1, 1, 1, 1), "input_size": (48, 48)}, 250),
    "DeepLabV3Plus_Xception65": (
        {"width": 8, "depth": 1, "channels": 32, "rates": (1, 2, 3), "min_input_size": (48, 48)},
        250,
    ),
}
SIZE = 48


def overfit(name: str) -> float:
    """Train a model on ten pictures; return the mean overlap of the classes on these."""
    options, steps = MODELS[name]
    data = pictures(np.random.default_rng(0), 10, size=SIZE)
    model = getattr(vision.models, name).init(random.key(0), 4, **options)
    optimizer = train.optim.adam(lambda step: 5e-3 * (1 - step / (steps + 1)))

    def loss(model: Any, key: Any) -> tuple[Any, Any]:
        losses, successor = model.losses(data["image"], data["label_map"], key=key)
        return sum(losses.values()), successor

    @fdbr.jit
    def step(model: Any, opt: Any, key: Any) -> tuple[Any, Any]:
        (_, successor), grads = fdbr.value_and_grad(loss, has_aux=True)(model, key)
        updates, opt = optimizer.update(grads, opt, successor)
        return train.optim.apply_updates(successor, updates), opt

    opt = optimizer.init(model)
    for i in range(steps):
        model, opt = step(model, opt, random.key(i))
    found = model.predict(data["image"])
    figures = vision.evaluation.segmentation(found, list(data["label_map"]))
    return float(figures["miou"])


def main() -> None:
    """Print the overlap and the seconds of each model."""
    for name in sys.argv[1:] or MODELS:
        began = time.process_time()
        print(f"{name}: mIoU {overfit(name):.3f}, {time.process_time() - began:.0f} s of CPU")


if __name__ == "__main__":
    main()
