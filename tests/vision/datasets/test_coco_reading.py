"""COCO's annotations are read as pycocotools reads them."""

import json
import sys

import numpy as np
import pytest
from vision.datasets import published_folders as folders

from fdbr.vision import datasets

NAMES = ("coco_boxes", "coco_instances", "coco_keypoints")


@pytest.mark.parametrize("use_crowded", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_objects_are_those_of_pycocotools(tmp_path, name, use_crowded):
    tools = pytest.importorskip("pycocotools.coco", reason="COCO's own reader is an extra")
    folders.coco(tmp_path)
    kind = "person_keypoints" if name == "coco_keypoints" else "instances"
    index = tools.COCO(str(tmp_path / f"annotations/{kind}_train2017.json"))
    dataset = getattr(datasets, name)(tmp_path, use_crowded=use_crowded)
    assert [int(example["image_id"]) for example in dataset] == sorted(index.getImgIds())
    assert dataset.classes == tuple(one["name"] for one in index.loadCats(index.getCatIds()))
    for example in dataset:
        crowd = None if use_crowded else False
        ids = index.getAnnIds([int(example["image_id"])], iscrowd=crowd)
        rows = [one for one in index.loadAnns(ids) if one["bbox"][2] * one["bbox"][3]]
        assert len(example["labels"]) == len(rows)
        for i, row in enumerate(rows):
            x, y, width, height = row["bbox"]
            np.testing.assert_allclose(example["boxes"][i], [y, x, y + height, x + width])
            assert datasets.coco_label_ids[example["labels"][i]] == row["category_id"]
            assert example["areas"][i] == np.float32(row["area"])
            assert example["crowded"][i] == bool(row["iscrowd"])
            if name == "coco_instances":
                np.testing.assert_array_equal(example["masks"][i], index.annToMask(row))
            if name == "coco_keypoints":
                points = np.array(row["keypoints"], np.float32).reshape(17, 3)
                np.testing.assert_array_equal(example["points"][i], points[:, [1, 0]])
                np.testing.assert_array_equal(example["visible"][i], points[:, 2] > 0)


def test_examples_have_these_values(tmp_path):
    folders.coco(tmp_path)
    empty, first, last = datasets.coco_boxes(tmp_path)
    assert {n: (v.shape, v.dtype.name) for n, v in empty.items() if n != "image"} == {
        "boxes": ((0, 4), "float32"), "labels": ((0,), "int32"), "areas": ((0,), "float32"),
        "crowded": ((0,), "bool"), "image_id": ((), "int64"),
    }  # fmt: skip
    assert (first["boxes"].tolist(), first["labels"].tolist()) == ([[2, 1, 6, 4]], [79])
    assert (last["boxes"].tolist(), last["labels"].tolist()) == ([[1.5, 2, 8.5, 8]], [0])
    crowd = datasets.coco_instances(tmp_path, use_crowded=True)[1]
    assert crowd["crowded"].tolist() == [True, False]
    runs = np.repeat([False, True, False], [30, 20, folders.HEIGHT * folders.WIDTH - 50])
    mask = runs.reshape(folders.WIDTH, folders.HEIGHT).T
    np.testing.assert_array_equal(crowd["masks"][0], mask)
    assert datasets.coco_instances(tmp_path)[0]["masks"].shape == (0, folders.HEIGHT, folders.WIDTH)
    assert datasets.coco_keypoints(tmp_path)[0]["points"].shape == (0, 17, 2)


def test_own_annotations_and_pictures_have_own_names(tmp_path):
    content = folders.coco(tmp_path)
    folders.text(tmp_path / "own/labels.json", json.dumps(content))
    (tmp_path / "train2017").rename(tmp_path / "own/photos")
    own = datasets.coco_instances(tmp_path, annotations="own/labels.json", images="own/photos")
    assert len(own[2]["masks"]) == 1
    absolute = datasets.coco_boxes(
        ".", annotations=tmp_path / "own/labels.json", images=tmp_path / "own/photos"
    )
    assert absolute[2]["labels"].tolist() == [0]


def with_change(root, change):
    content = folders.coco(root)
    change(content)
    for kind in ("instances", "person_keypoints"):
        folders.text(root / f"annotations/{kind}_train2017.json", json.dumps(content))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c["annotations"][0].update(category_id=12), "example 2. is of category 12"),
        (lambda c: c["annotations"][0].update(image_id=7), "no example. belongs to an image"),
        (
            lambda c: c["annotations"][0].update(bbox=[1, 2, 3]),
            r"example 2. has the bbox \[1, 2, 3",
        ),
        (lambda c: c["annotations"][0].update(bbox=[1, 2, 3, "4"]), "example 2. has the bbox"),
        (lambda c: c["annotations"][0].update(area=None), "example 2. has the area None"),
        (lambda c: c.pop("categories"), "has no table 'categories'"),
        (lambda c: c["images"][0].pop("file_name"), "row 0 of images has not all of id, file_name"),
        (lambda c: c["images"][1].update(file_name=3), "row 1 of images has the file_name 3"),
        (lambda c: c["images"][1].update(id="3"), "the ids of images are numbers and texts"),
        (lambda c: c["categories"][0].update(id=[1]), r"row 0 of categories has the id \[1\]"),
        (
            lambda c: c["annotations"][0].update(image_id={}),
            "row 0 of annotations has the image_id",
        ),
    ],
)
def test_damaged_annotations_are_named_when_the_index_is_read(tmp_path, change, message):
    with_change(tmp_path, change)
    with pytest.raises(ValueError, match=message) as caught:
        datasets.coco_boxes(tmp_path)
    assert "instances_train2017.json" in str(caught.value)
    assert "fdbr.vision.datasets.coco_boxes: " in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c["annotations"][0].update(bbox=[5, 5, -2, 3]), "y_min <= y_max"),
        (lambda c: c["annotations"][0].update(bbox=[5, 5, 2, 30]), "outside of its picture"),
        (lambda c: c["annotations"][0].update(bbox=[5, 5, float("nan"), 3]), "y_min <= y_max"),
        (lambda c: c["annotations"][0].update(segmentation=[[1, 2, 3]]), "polygon has 3 numbers"),
        (
            lambda c: c["annotations"][0].update(segmentation={"size": [2, 2], "counts": [4]}),
            r"its size is \[2, 2\]",
        ),
        (
            lambda c: c["annotations"][0].update(segmentation={"size": [12, 16], "counts": [4]}),
            "have 4 pixels",
        ),
        (lambda c: c["annotations"][0].update(segmentation=3), "segmentation .* is damaged"),
        (lambda c: c["images"][2].update(height=11), "its pictures differ in size"),
    ],
)
def test_damaged_objects_are_named_when_their_example_is_read(tmp_path, change, message):
    pytest.importorskip("pycocotools", reason="it fills polygons")
    with_change(tmp_path, change)
    dataset = datasets.coco_instances(tmp_path)
    dataset[1]
    with pytest.raises(ValueError, match=message) as caught:
        dataset[2]
    assert "example 2" in str(caught.value)
    assert "instances_train2017.json" in str(caught.value)


def test_pictures_without_a_size_are_named(tmp_path):
    with_change(tmp_path, lambda c: c["images"][2].update(height=float("nan")))
    with pytest.raises(ValueError, match=r"example 2. are .nan, 16"):
        datasets.coco_instances(tmp_path)


def test_missing_masks_points_and_json_are_errors(tmp_path):
    with_change(tmp_path, lambda c: c["annotations"][2].pop("segmentation"))
    with pytest.raises(ValueError, match=r"annotation 3 of image 9 .* has no segmentation"):
        datasets.coco_instances(tmp_path)
    with_change(tmp_path, lambda c: c["annotations"][2].update(keypoints=[1, 2]))
    with pytest.raises(ValueError, match="has 2 numbers for its 17 keypoints"):
        datasets.coco_keypoints(tmp_path)
    folders.text(tmp_path / "annotations/instances_train2017.json", '{"images": [')
    with pytest.raises(ValueError, match="no whole file of JSON"):
        datasets.coco_boxes(tmp_path)


def test_a_panoptic_map_with_an_unknown_number_is_damaged(tmp_path):
    folders.coco_panoptic(tmp_path)
    path = tmp_path / "annotations/panoptic_train2017.json"
    content = json.loads(path.read_text())
    content["annotations"][0]["segments_info"].pop()
    path.write_text(json.dumps(content))
    for read in (datasets.coco_panoptic, datasets.coco_segmentation):
        with pytest.raises(
            ValueError, match=r"example 0 .*its number 70000 is none of its segments"
        ):
            read(tmp_path)[0]
    content["annotations"].append(content["annotations"][0])
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="is not the only one of its image"):
        datasets.coco_panoptic(tmp_path)
    content["annotations"] = [{"image_id": 9, "file_name": "x.png"}]
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="has no segments_info"):
        datasets.coco_panoptic(tmp_path)


def test_polygons_without_pycocotools_name_the_extra(tmp_path, monkeypatch):
    folders.coco(tmp_path)
    monkeypatch.setitem(sys.modules, "pycocotools.mask", None)
    dataset = datasets.coco_instances(tmp_path)
    assert dataset[0]["masks"].shape[0] == 0
    with pytest.raises(ImportError, match=r"needs pycocotools; .*fdbr\[vision\]"):
        dataset[2]
    assert datasets.select(dataset, "labels")[2]["labels"].tolist() == [0]


def test_missing_folders_of_pictures_are_named(tmp_path):
    folders.coco(tmp_path)
    with pytest.raises(FileNotFoundError, match="has no photos"):
        datasets.coco_boxes(tmp_path, images="photos")
    (tmp_path / "train2017").rename(tmp_path / "elsewhere")
    with pytest.raises(FileNotFoundError, match=r"has no train2017.*train2017 or images/train2017"):
        datasets.coco_boxes(tmp_path)
