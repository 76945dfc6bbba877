"""Train narrow models of ``fdbr.vision`` on ten synthetic pictures until they know them.

``python -m benchmarks.overfit YOLOv2 PSPNet_ResNet50`` trains these models, without names all, each
until the mAP (VOC, area; of boxes and, of models with masks, of these) or the mean overlap of the
classes on the same pictures is at least 0.95, or for ten minutes, or as many seconds as a number
among the arguments says.  It prints the steps and the seconds of CPU and of wall time.
"""

import sys
import time
from typing import Any

import numpy as np

import fdbr
from fdbr import vision
from fdbr.train import optim
from fdbr.vision import evaluation

CLASSES = 3
PICTURES = 10
ENOUGH = 0.95

TWO_STAGE: dict[str, Any] = {
    "width": 8,
    "min_size": 96,
    "max_size": 96,
    "anchor_sizes": (16, 32, 64),
    "pre_train": 300,
    "pre_test": 300,
    "post_train": 64,
    "post_test": 64,
    "region_count": 32,
    "proposal_size": 2,
    "score_threshold": 0.05,
}
YOLO: dict[str, Any] = {"width": 8, "size": 96, "score_threshold": 0.05}
COARSE = ((24, 24), (36, 36), (50, 50))
SHALLOW = (1, 1, 1, 1)

MODELS: dict[str, dict[str, Any]] = {
    "YOLOv2": {**YOLO, "anchors": (COARSE,)},
    "YOLOv2Tiny": {**YOLO, "anchors": (COARSE,)},
    "YOLOv3": {
        **YOLO,
        "depths": (1, *SHALLOW),
        "anchors": (((60, 60),), ((40, 40),), ((20, 20), (30, 30))),
    },
    "SSD300_VGG16": {"width": 4, "chainer": True},
    "SSD512_VGG16": {"width": 4, "chainer": True},
    "FasterRCNN_VGG16": {**TWO_STAGE, "hidden": 64},
    "LightHeadRCNN_ResNet101": {**TWO_STAGE, "depths": SHALLOW},
    "FCIS_ResNet101": {**TWO_STAGE, "depths": SHALLOW},
    "SegNetBasic": {"width": 12},
    "PSPNet_ResNet50": {"width": 8, "depths": SHALLOW, "input_size": (96, 96)},
    "DeepLabV3Plus_Xception65": {
        "width": 8,
        "depth": 1,
        "channels": 64,
        "rates": (1, 2, 3),
        "min_input_size": (96, 96),
    },
}
"""The arguments of ``init``, which make a model small."""


def pictures(count: int, size: int = 96, seed: int = 0) -> tuple[Any, vision.Truths]:
    """Return pictures of rectangles, discs and triangles, and what is in them."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:size, :size]
    images = rng.uniform(0, 60, (count, 3, size, size)).astype(np.float32)
    truths: list[list[Any]] = [[], [], []]
    for image in images:
        boxes, labels, masks = [], [], []
        for side in (0, 1)[: rng.integers(1, 3)]:
            half = int(rng.integers(size // 6, size // 4))
            cy = int(rng.integers(half, size - half))
            cx = int(rng.integers(half, size // 2 - half + 1)) + side * size // 2
            label = int(rng.integers(CLASSES))
            dy, dx = abs(y - cy + 0.5), abs(x - cx + 0.5)
            within = (dy < half) & (dx < half)
            mask = [within, dy**2 + dx**2 < half**2, within & (2 * dx < y - cy + half)][label]
            image[:, mask] += np.eye(3)[label][:, None] * 150 + 40
            ys, xs = np.nonzero(mask)
            boxes.append([ys.min(), xs.min(), ys.max() + 1, xs.max() + 1])
            labels.append(label)
            masks.append(mask)
        truths[0].append(np.array(boxes, np.float32))
        truths[1].append(np.array(labels, np.int32))
        truths[2].append(np.array(masks))
    return images, vision.Truths(*map(tuple, truths))


def label_maps(truths: vision.Truths) -> Any:
    """Return the class of each pixel: 0 for the background, 1 for the first class of objects."""
    classes = [
        (masks * (labels + 1)[:, None, None]).max(0)
        for masks, labels in zip(truths.masks, truths.labels, strict=True)
    ]
    return np.stack(classes).astype(np.int32)


def measures(model: Any, images: Any, truths: vision.Truths) -> dict[str, float]:
    """Return how well a model finds what is in pictures."""
    found = model.predict(images, jit=True)
    if isinstance(model, vision.models.Segmenter):
        return {"mIoU": float(evaluation.segmentation(found, list(label_maps(truths)))["miou"])}
    boxes = vision.Detections(*found[:3])
    figures = {"mAP": float(evaluation.detection_voc(boxes, truths)["map"])}
    if hasattr(found, "masks"):
        figures["mask mAP"] = float(evaluation.instances_voc(found, truths)["map"])
    return figures


def overfit(name: str, seconds: float) -> None:
    """Train a model, and print its figures after every fifty steps."""
    images, truths = pictures(PICTURES)
    seen = images
    family = getattr(vision.models, name)
    segments = issubclass(family, vision.models.Segmenter)
    model = family.init(fdbr.random.key(0), CLASSES + segments, **MODELS[name])
    aims: tuple[Any, ...] = vision.pad(truths)
    if segments:  # with mirror images, since PSPNet predicts the mean of both
        aims = (np.concatenate([maps := label_maps(truths), maps[:, :, ::-1]]),)
        seen = np.concatenate([images, images[:, :, :, ::-1]])
    optimizer = optim.chain(optim.clip_by_global_norm(10.0), optim.adam(4e-3 if segments else 2e-3))

    def loss(model: Any, images: Any, aims: Any, key: Any) -> Any:
        aims = aims[0] if segments else vision.Truths(*aims)
        losses, model = model.losses(images, aims, key=key)
        return sum(losses.values()), (losses, model)

    @fdbr.jit
    def step(model: Any, state: Any, images: Any, aims: Any, key: Any) -> Any:
        gradients = fdbr.value_and_grad(loss, has_aux=True)
        (_, (losses, trained)), grads = gradients(model, images, aims, key)
        updates, state = optimizer.update(grads, state, model)
        return optim.apply_updates(trained, updates), state, losses

    state = optimizer.init(model)
    began = time.perf_counter(), time.process_time()
    rng = np.random.default_rng(1)
    steps, figures, spent = 0, {"": 0.0}, 0.0
    while min(figures.values()) < ENOUGH and spent < seconds:
        for _ in range(50):
            steps += 1
            some = rng.permutation(len(seen))[: PICTURES // 2]
            part = tuple(None if field is None else field[some] for field in aims)
            model, state, losses = step(model, state, seen[some], part, fdbr.random.key(steps))
        figures = measures(model, images, truths)
        spent = time.perf_counter() - began[0]
        cpu = time.process_time() - began[1]
        print(
            f"{name}: {steps} steps, {cpu:.0f} s of CPU in {spent:.0f} s,",
            *(f"{key} {value:.3f}" for key, value in figures.items()),
            {key: round(float(value), 4) for key, value in losses.items()},
            flush=True,
        )


def main(arguments: list[str]) -> None:
    """Train the models that the command line names."""
    names = [argument for argument in arguments if argument in MODELS]
    (seconds,) = [float(argument) for argument in arguments if argument not in MODELS] or [600.0]
    for name in names or MODELS:
        overfit(name, seconds)


if __name__ == "__main__":
    main(sys.argv[1:])
