"""Detectors, whose predictions are timed."""

from typing import Any

from benchmarks.layers.rows import Row

__all__ = ["DETECTORS"]

SIDES = {"min_size": 320, "max_size": 400}


def _ours(nn: Any, key: Any) -> Any:
    from fdbr.vision import models

    return models.MaskRCNN_ResNet50_FPN.init(key, 90, **SIDES)


def _theirs(nn: Any) -> Any:
    from torchvision.models.detection import maskrcnn_resnet50_fpn

    return maskrcnn_resnet50_fpn(weights=None, weights_backbone=None, num_classes=91, **SIDES)


DETECTORS = [
    Row(
        "MaskRCNN ResNet-50 FPN, 320x400, predict",
        (3, 320, 400),
        _ours,
        _theirs,
        lambda generator, shape: generator.uniform(0, 255, shape).astype("float32"),
        forward=lambda model, x, jitted: [model.predict([x], jit=jitted).scores[0]],
        their_call=lambda model, x: [model([x / 255])[0]["scores"]],
        random=True,
    ),
]
