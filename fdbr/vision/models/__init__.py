"""Detectors and segmenters, as frozen classes."""

from fdbr.vision.models.base import Detector, Prepared, Segmenter
from fdbr.vision.models.faster_rcnn_vgg import FasterRCNN_VGG16, VGG16RoIHead
from fdbr.vision.models.fcis import FCIS_ResNet101, FCISHead, MaskedRegions, mask_voting
from fdbr.vision.models.fpn import (
    Backbone,
    FeaturePyramid,
    FrozenBatchNorm,
    LastLevels,
    ResNetBody,
    split_backbone,
)
from fdbr.vision.models.light_head_rcnn import (
    GlobalContextModule,
    LightHeadRCNN_ResNet101,
    LightHeadRoIHead,
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
from fdbr.vision.models.yolo import (
    Darknet19,
    Darknet53,
    DarknetTiny,
    YOLOTargets,
    YOLOv2,
    YOLOv2Tiny,
    YOLOv3,
    yolo_targets,
)

__all__ = [
    "AnchorTargets",
    "Backbone",
    "Darknet19",
    "Darknet53",
    "DarknetTiny",
    "Detector",
    "FCISHead",
    "FCIS_ResNet101",
    "FasterRCNN",
    "FasterRCNN_ResNet101_FPN",
    "FasterRCNN_ResNet50_FPN",
    "FasterRCNN_VGG16",
    "FeaturePyramid",
    "FrozenBatchNorm",
    "GlobalContextModule",
    "KeypointRCNN_ResNet50_FPN",
    "LastLevels",
    "LightHeadRCNN_ResNet101",
    "LightHeadRoIHead",
    "MaskRCNN_ResNet101_FPN",
    "MaskRCNN_ResNet50_FPN",
    "MaskedRegions",
    "Prepared",
    "RegionSettings",
    "RegionTargets",
    "ResNetBody",
    "Sample",
    "Segmenter",
    "VGG16RoIHead",
    "YOLOTargets",
    "YOLOv2",
    "YOLOv2Tiny",
    "YOLOv3",
    "anchor_losses",
    "anchor_targets",
    "keypoint_losses",
    "mask_losses",
    "mask_voting",
    "match",
    "region_losses",
    "region_targets",
    "sample",
    "split_backbone",
    "yolo_targets",
]
__dir__ = __all__.copy  # `dir` shows the public names alone
