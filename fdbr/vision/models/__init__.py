"""Detectors and segmenters, as frozen classes."""

from fdbr.vision.models.base import Detector, Prepared, Segmenter
from fdbr.vision.models.fpn import (
    Backbone,
    FeaturePyramid,
    FrozenBatchNorm,
    LastLevels,
    ResNetBody,
    split_backbone,
)
from fdbr.vision.models.matching import Sample, match, sample
from fdbr.vision.models.rcnn import (
    FasterRCNN,
    FasterRCNN_ResNet50_FPN,
    FasterRCNN_ResNet101_FPN,
    KeypointRCNN_ResNet50_FPN,
    MaskRCNN_ResNet50_FPN,
    MaskRCNN_ResNet101_FPN,
    RegionSettings,
)
from fdbr.vision.models.region_losses import (
    AnchorTargets,
    RegionTargets,
    anchor_losses,
    anchor_targets,
    keypoint_losses,
    mask_losses,
    region_losses,
    region_targets,
)

__all__ = [
    "AnchorTargets",
    "Backbone",
    "Detector",
    "FasterRCNN",
    "FasterRCNN_ResNet50_FPN",
    "FasterRCNN_ResNet101_FPN",
    "FeaturePyramid",
    "FrozenBatchNorm",
    "KeypointRCNN_ResNet50_FPN",
    "LastLevels",
    "MaskRCNN_ResNet50_FPN",
    "MaskRCNN_ResNet101_FPN",
    "Prepared",
    "RegionSettings",
    "RegionTargets",
    "ResNetBody",
    "Sample",
    "Segmenter",
    "anchor_losses",
    "anchor_targets",
    "keypoint_losses",
    "mask_losses",
    "match",
    "region_losses",
    "region_targets",
    "sample",
    "split_backbone",
]
__dir__ = __all__.copy  # `dir` shows the public names alone
