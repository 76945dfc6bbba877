"""Train each detector of ChainerCV's structure on ten synthetic pictures, and print its mAP.

``python -m benchmarks.detectors_overfit YOLOv2`` trains a narrow model until the mAP (VOC, area) on
the same pictures is at least 0.95, or for ten minutes.
"""

import sys
import time
from typing import Any

import numpy as np

import fdbr
from fdbr import vision
from fdbr.train import optim
from fdbr.vision import models
from fdbr.vision.evaluation import detection_voc, instances_voc

SIZE = 96
CLASSES = 3

TWO_STAGE: dict[str, Any] = {
    "min_size": SIZE,
    "max_size": SIZE,
    "anchor_sizes": (16, 32, 64),
    "pre_train": 300,
    "pre_test": 300,
    "post_train": 64,
    "post_test": 64,
    "proposal_size": 2,
    "score_threshold": 0.05,
}
YOLO: dict[str, Any] = {"size": SIZE, "score_threshold": 0.05}
COARSE = ((24, 24), (36, 36), (50, 50))

SETTINGS: dict[str, dict[str, Any]] = {
    "YOLOv2": {**YOLO, "width": 8, "anchors": (COARSE,)},
    "YOLOv2Tiny": {**YOLO, "width": 8, "anchors": (COARSE,)},
    "YOLOv3": {
        **YOLO,
        "width": 8,
        "depths": (1, 1, 1, 1, 1),
        "anchors": (((60, 60),), ((40, 40),), ((20, 20), (30, 30))),
    },
    "FasterRCNN_VGG16": {**TWO_STAGE, "width": 8, "hidden": 64, "region_count": 32},
    "LightHeadRCNN_ResNet101": {**TWO_STAGE, "width": 8, "depths": (1, 1, 1, 1)},
    "FCIS_ResNet101": {**TWO_STAGE, "width": 8, "depths": (1, 1, 1, 1), "region_count": 32},
}


def pictures(count: int, seed: int = 0) -> tuple[Any, vision.Truths]:
    """Return pictures of rectangles, discs and triangles, and what is in them."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:SIZE, :SIZE]
    images = rng.uniform(0, 60, (count, 3, SIZE, SIZE)).astype(np.float32)
    truths: list[list[Any]] = [[], [], []]
    for image in images:
        boxes, labels, masks = [], [], []
        for side in (0, 1)[: rng.integers(1, 3)]:
            half = int(rng.integers(11, 22))
            cy = int(rng.integers(half, SIZE - half))
            cx = int(rng.integers(half, SIZE // 2 - half + 1)) + side * SIZE // 2
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


def main(name: str, seconds: float = 600, rate: float = 2e-3) -> None:
    """Train a model and print its mAP."""
    images, truths = pictures(10)
    padded = vision.pad(truths)
    model = getattr(models, name).init(fdbr.random.key(0), CLASSES, **SETTINGS[name])
    optimizer = optim.chain(optim.clip_by_global_norm(10.0), optim.adam(rate))
    state = optimizer.init(model)

    def loss(model: Any, images: Any, truths: Any, key: Any) -> Any:
        losses, model = model.losses(images, truths, key=key)
        return sum(losses.values()), (losses, model)

    @fdbr.jit
    def step(model: Any, state: Any, images: Any, truths: Any, key: Any) -> Any:
        (_, (losses, trained)), grads = fdbr.value_and_grad(loss, has_aux=True)(
            model, images, truths, key
        )
        updates, state = optimizer.update(grads, state, model)
        return optim.apply_updates(trained, updates), state, losses

    start = time.perf_counter()
    rng = np.random.default_rng(1)
    for i in range(1, 100_000):
        some = rng.permutation(10)[:5]
        part = vision.Truths(*(field if field is None else field[some] for field in padded))
        model, state, losses = step(model, state, images[some], part, fdbr.random.key(i))
        if i % 100:
            continue
        found = model.predict(images)
        ap = detection_voc(vision.Detections(*found[:3]), truths)["map"]
        spent = time.perf_counter() - start
        shown = {key: round(float(value), 4) for key, value in losses.items()}
        print(f"{name}: {i} steps, {spent:.0f} s, mAP {ap:.3f}", shown, flush=True)
        if hasattr(found, "masks"):
            mask_ap = instances_voc(found, truths)["map"]
            print(f"{name}: mask mAP {mask_ap:.3f}", flush=True)
            ap = min(ap, mask_ap)
        if ap >= 0.95 or spent > seconds:
            break


if __name__ == "__main__":
    main(sys.argv[1], *map(float, sys.argv[2:]))
