"""Detectors whose predictions are timed, without gradients."""

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

__all__ = ["DETECTORS", "Detector", "prediction"]


@attrs.frozen
class Detector:
    """A detector, whose `predict` is timed.

    Attributes
    ----------
    name
        The name, and the size of the image.
    shape
        Of the image.
    ours
        ``ours(models, key)`` is fdbr's model.
    theirs
        ``theirs(detection)`` is torchvision's model, whose parameters have the same names.
    """

    name: str
    shape: tuple[int, ...]
    ours: Any
    theirs: Any


DETECTORS = [
    Detector(
        "SSD 300, VGG16, one image of 375x500",
        (3, 375, 500),
        lambda models, key: models.SSD300_VGG16.init(key, 20),
        lambda detection: detection.ssd300_vgg16(
            weights=None, weights_backbone=None, num_classes=21
        ),
    ),
]


def prediction(row: Detector, library: str, threads: int) -> Callable[[], Any]:
    """Return a function that predicts, whose result are the scores and an empty list.

    The weights are the same in both libraries; without objects there are as many detections as the
    model allows.
    """
    import fdbr
    from fdbr import nn
    from fdbr.vision import models

    image = np.random.default_rng(0).uniform(0, 255, row.shape).astype(np.float32)
    model = row.ours(models, fdbr.random.key(0))
    if library != "torch":
        return lambda: (list(model.predict([image], jit=library == "fdbr.jit").scores), [])
    import torch
    from torchvision.models import detection

    torch.set_num_threads(threads)
    peer = row.theirs(detection).eval()
    state = nn.save_torch_state(model)
    peer.load_state_dict({name: torch.tensor(value) for name, value in state.items()})
    given = torch.tensor(image / 255)

    def step() -> Any:
        with torch.no_grad():
            return [peer([given])[0]["scores"].numpy()], []

    return step
