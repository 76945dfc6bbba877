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

__all__ = [
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
