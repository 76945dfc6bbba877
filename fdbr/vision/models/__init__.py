"""Detectors and segmenters, as frozen classes."""

from fdbr.vision.models.base import Detector, Prepared, Segmenter
from fdbr.vision.models.dense import (
    DenseDetector,
    DenseHead,
    FCOS_ResNet50_FPN,
    RetinaNet_ResNet50_FPN,
    RetinaNet_ResNet50_FPN_V2,
    fcos_losses,
    match_points,
    retinanet_losses,
)
from fdbr.vision.models.fpn import (
    Backbone,
    FeaturePyramid,
    FrozenBatchNorm,
    LastLevels,
    ResNetBody,
    split_backbone,
)
from fdbr.vision.models.matching import Sample, match, sample
from fdbr.vision.models.single_shot import match_default_boxes, multibox_loss
from fdbr.vision.models.ssd import (
    SSD,
    SSD300_VGG16,
    SSD512_VGG16,
    MobileNetExtractor,
    ScoringHead,
    SSDHead,
    SSDLite320_MobileNet_V3_Large,
    VGG16Extractor,
)

__all__ = [
    "DenseDetector",
    "DenseHead",
    "FCOS_ResNet50_FPN",
    "RetinaNet_ResNet50_FPN",
    "RetinaNet_ResNet50_FPN_V2",
    "fcos_losses",
    "match_points",
    "retinanet_losses",
    "match_default_boxes",
    "multibox_loss",
    "SSD",
    "MobileNetExtractor",
    "ScoringHead",
    "SSD300_VGG16",
    "SSD512_VGG16",
    "SSDHead",
    "SSDLite320_MobileNet_V3_Large",
    "VGG16Extractor",
    "Backbone",
    "Detector",
    "FeaturePyramid",
    "FrozenBatchNorm",
    "LastLevels",
    "Prepared",
    "ResNetBody",
    "Sample",
    "Segmenter",
    "match",
    "sample",
    "split_backbone",
]
__dir__ = __all__.copy  # `dir` shows the public names alone
