"""Boxes, masks and anchors: overlaps, suppression, encodings."""

from fdbr.vision.boxes.anchors import base_anchors, default_boxes, grid_anchors
from fdbr.vision.boxes.coding import decode_boxes, encode_boxes
from fdbr.vision.boxes.geometry import (
    box_area,
    box_iou,
    clip_boxes,
    convert_boxes,
    generalized_box_iou,
    giou_loss,
)
from fdbr.vision.boxes.masks import (
    crop_masks,
    mask_iou,
    masks_to_boxes,
    paste_masks,
    resize_masks,
)
from fdbr.vision.boxes.run_lengths import decode_rle, encode_rle
from fdbr.vision.boxes.suppression import nms

__all__ = [
    "base_anchors",
    "box_area",
    "box_iou",
    "clip_boxes",
    "convert_boxes",
    "crop_masks",
    "decode_boxes",
    "decode_rle",
    "default_boxes",
    "encode_boxes",
    "encode_rle",
    "generalized_box_iou",
    "giou_loss",
    "grid_anchors",
    "mask_iou",
    "masks_to_boxes",
    "nms",
    "paste_masks",
    "resize_masks",
]
__dir__ = __all__.copy  # `dir` shows the public names alone
