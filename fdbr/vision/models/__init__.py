"""Detectors and segmenters, as frozen classes."""

from fdbr.vision.models.base import Detector, Prepared, Segmenter
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
    "Darknet19",
    "Darknet53",
    "DarknetTiny",
    "Detector",
    "Prepared",
    "Segmenter",
    "YOLOTargets",
    "YOLOv2",
    "YOLOv2Tiny",
    "YOLOv3",
    "yolo_targets",
]
__dir__ = __all__.copy  # `dir` shows the public names alone
