"""Names and colours of classes are those of the publishers."""

import zlib

import pytest

from fdbr.vision import datasets

# How many there are, and a checksum of ChainerCV 0.13's tables, written one on a line.
TABLES = {
    "voc_label_names": (20, 412978256),
    "coco_label_names": (80, 702725029),
    "coco_panoptic_label_names": (133, 1028801222),
    "coco_panoptic_label_colors": (133, 2987752211),
    "camvid_label_names": (11, 4072760418),
    "camvid_label_colors": (11, 3889175259),
    "cityscapes_label_colors": (19, 3655777290),
    "ade20k_label_colors": (150, 2087714124),
    "cub_label_names": (200, 1748080079),
    "online_products_super_label_names": (12, 1198088559),
    "voc_segmentation_label_colors": (21, 3311998668),
    "voc_segmentation_label_names": (21, 1791974260),
}


def checksum(table):
    return zlib.crc32("\n".join(map(str, table)).encode())


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_those_of_chainercv(name):
    table = getattr(datasets, name)
    assert (len(table), checksum(table)) == TABLES[name]


def test_tables_of_a_data_set_have_one_length():
    assert len(datasets.ade20k_label_names) == len(set(datasets.ade20k_label_names)) == 150
    assert len(datasets.cityscapes_label_names) == len(datasets.cityscapes_label_colors)
    assert len(datasets.coco_label_ids) == 80
    assert len(datasets.coco_panoptic_label_ids) == 133
    assert sorted(datasets.coco_panoptic_label_ids) == list(datasets.coco_panoptic_label_ids)
    assert max(map(max, datasets.coco_skeleton)) < len(datasets.coco_keypoint_names) == 17
    assert len(datasets.cub_point_names) == 15
    assert datasets.voc_ignore_label_color == (224, 224, 192)


def test_labels_of_torchvision_s_detectors_are_ids_less_1():
    names = datasets.coco_torchvision_label_names
    for label, i in enumerate(datasets.coco_label_ids):
        assert names[i - 1] == datasets.coco_label_names[label]
    assert (len(names), names.count("N/A")) == (90, 10)
    meta = pytest.importorskip("torchvision.models._meta", reason="torchvision is not installed")
    assert list(names) == meta._COCO_CATEGORIES[1:]
    assert list(datasets.coco_keypoint_names) == meta._COCO_PERSON_KEYPOINT_NAMES
    assert list(datasets.voc_segmentation_label_names[1:]) == meta._VOC_CATEGORIES[1:]
