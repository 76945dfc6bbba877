"""Measures of detectors and segmenters: of VOC, of COCO, and of label maps.

They are computed in host memory, where they move predictions and truths that lie on a GPU.
"""

from fdbr.vision.evaluation.coco import detection_coco, instances_coco, keypoints_coco
from fdbr.vision.evaluation.label_maps import (
    segmentation,
    segmentation_confusion,
    segmentation_iou,
)
from fdbr.vision.evaluation.predicting import predict_each
from fdbr.vision.evaluation.stages import (
    evaluate_detection_coco,
    evaluate_detection_voc,
    evaluate_instances_coco,
    evaluate_instances_voc,
    evaluate_keypoints_coco,
    evaluate_segmentation,
)
from fdbr.vision.evaluation.voc import (
    detection_voc,
    detection_voc_curves,
    instances_voc,
    instances_voc_curves,
    voc_average_precision,
)

__all__ = [
    "detection_coco",
    "detection_voc",
    "detection_voc_curves",
    "evaluate_detection_coco",
    "evaluate_detection_voc",
    "evaluate_instances_coco",
    "evaluate_instances_voc",
    "evaluate_keypoints_coco",
    "evaluate_segmentation",
    "instances_coco",
    "instances_voc",
    "instances_voc_curves",
    "keypoints_coco",
    "predict_each",
    "segmentation",
    "segmentation_confusion",
    "segmentation_iou",
    "voc_average_precision",
]
__dir__ = __all__.copy  # `dir` shows the public names alone
