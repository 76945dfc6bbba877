"""Detectors, whose predictions are timed."""

from typing import Any

from benchmarks.layers.rows import Row

__all__ = ["DETECTORS"]

SIDES: dict[str, Any] = {"min_size": 320, "max_size": 400}


def _ours(name: str, classes: int, **settings: Any) -> Any:
    def model(nn: Any, key: Any) -> Any:
        from fdbr.vision import models

        return getattr(models, name).init(key, classes, **settings)

    return model


def _theirs(name: str, classes: int, **settings: Any) -> Any:
    def model(nn: Any) -> Any:
        from torchvision.models import detection

        of = getattr(detection, name)
        return of(weights=None, weights_backbone=None, num_classes=classes, **settings)

    return model


def _row(name: str, shape: tuple[int, ...], ours: Any, theirs: Any) -> Row:
    return Row(
        name,
        shape,
        ours,
        theirs,
        lambda generator, shape: generator.uniform(0, 255, shape).astype("float32"),
        forward=lambda model, x, jitted: [model.predict([x], jit=jitted).scores[0]],
        their_call=lambda model, x: [model([x / 255])[0]["scores"]],
        random=True,
    )


DETECTORS = [
    _row(
        "MaskRCNN ResNet-50 FPN, 320x400, predict",
        (3, 320, 400),
        _ours("MaskRCNN_ResNet50_FPN", 90, **SIDES),
        _theirs("maskrcnn_resnet50_fpn", 91, **SIDES),
    ),
    _row(
        "SSD 300 VGG16, 375x500, predict",
        (3, 375, 500),
        _ours("SSD300_VGG16", 20),
        _theirs("ssd300_vgg16", 21),
    ),
]
