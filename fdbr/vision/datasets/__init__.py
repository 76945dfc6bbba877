"""Data sets of vision, read from folders in the layout of their publishers.

A data set is a sequence of dicts with the fields ``image``, ``boxes``, ``labels``, ``masks``,
``points``, ``visible``, ``label_map``, ``crowded``, ``difficult``, ``areas`` and ``image_id``, as
far as it has them.  To make one reads its index; pictures are read when an example is asked for.
`fdbr.train` slices, splits, concatenates, maps and batches it like any other data set, and `select`
leaves out fields together with the reading of their files.
"""

from fdbr.vision.datasets import labels
from fdbr.vision.datasets.base import read_label_map
from fdbr.vision.datasets.classification import cub, label_folder, online_products
from fdbr.vision.datasets.coco import (
    coco_boxes,
    coco_instances,
    coco_keypoints,
    coco_panoptic,
    coco_segmentation,
)
from fdbr.vision.datasets.collation import collate
from fdbr.vision.datasets.fields import by_field, select
from fdbr.vision.datasets.labels import *  # noqa: F403
from fdbr.vision.datasets.own import box_table, map_folder
from fdbr.vision.datasets.pairs import mix_up, mix_up_pairs, pair_indices, siamese_pairs
from fdbr.vision.datasets.scenes import ade20k, ade20k_images, camvid, cityscapes, cityscapes_images
from fdbr.vision.datasets.voc import sbd_instances, voc_boxes, voc_instances, voc_segmentation

__all__ = [
    "ade20k",
    "ade20k_images",
    "box_table",
    "by_field",
    "camvid",
    "cityscapes",
    "cityscapes_images",
    "coco_boxes",
    "coco_instances",
    "coco_keypoints",
    "coco_panoptic",
    "coco_segmentation",
    "collate",
    "cub",
    "label_folder",
    "map_folder",
    "mix_up",
    "mix_up_pairs",
    "online_products",
    "pair_indices",
    "read_label_map",
    "sbd_instances",
    "select",
    "siamese_pairs",
    "voc_boxes",
    "voc_instances",
    "voc_segmentation",
]
__all__ += labels.__all__
__dir__ = __all__.copy  # `dir` shows the public names alone
