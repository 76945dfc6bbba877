"""Detectors of torchvision with random weights, and the same ones of fdbr."""

from typing import Any

import numpy as np

import fdbr
from fdbr import nn
from fdbr.vision import models

SIZES = ((90, 131), (128, 96), (75, 140))
SETTINGS = {"min_size": 128, "max_size": 200}


def images(seed: int = 0) -> list[Any]:
    """Return three pictures of different sizes, smooth enough to have features at all levels."""
    rng = np.random.default_rng(seed)
    pictures = []
    for height, width in SIZES:
        coarse = rng.uniform(0, 255, (3, 12, 12)).astype(np.float32)
        rows = np.linspace(0, 11, height).astype(int)
        columns = np.linspace(0, 11, width).astype(int)
        noise = rng.uniform(-20, 20, (3, height, width)).astype(np.float32)
        pictures.append(np.clip(coarse[:, rows][:, :, columns] + noise, 0, 255))
    return pictures


def pair(kind: str, network: str = "resnet50", classes: int = 5, **settings: Any) -> Any:
    """Return torchvision's model and fdbr's, with the same random weights."""
    import torch
    from torchvision.models import detection
    from torchvision.models.detection.backbone_utils import resnet_fpn_backbone

    torch.manual_seed(0)
    settings = {**SETTINGS, **settings}
    backbone = resnet_fpn_backbone(backbone_name=network, weights=None, trainable_layers=5)
    kinds = {"Faster": "FasterRCNN", "Mask": "MaskRCNN", "Keypoint": "KeypointRCNN"}
    theirs = getattr(detection, kinds[kind])(backbone, classes + 1, **settings)
    state = theirs.state_dict()
    generator = torch.Generator().manual_seed(1)
    for name, value in state.items():
        if name.endswith("running_mean"):
            value.normal_(0, 0.1, generator=generator)
        elif name.endswith("running_var"):
            value.uniform_(0.7, 1.3, generator=generator)
        elif "bn3.weight" in name:
            value.fill_(0.3)
        elif name.endswith("cls_score.weight"):
            value.mul_(30)
        elif "rpn.head.cls_logits.weight" in name or "rpn.head.bbox_pred.weight" in name:
            value.mul_(10)
    theirs.load_state_dict(state)
    cls = getattr(models, f"{kinds[kind]}_ResNet{network[6:]}_FPN")
    ours = cls.init(fdbr.random.key(0), classes, weight_init=nn.initializers.zeros(), **settings)
    return theirs.eval(), nn.load_torch_state(ours, state)
