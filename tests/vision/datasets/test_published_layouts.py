"""Data sets read what is in folders in the layout of their publishers."""

import functools
import pickle

import numpy as np
import pytest
from PIL import Image
from vision.datasets import published_folders as folders

from fdbr import train
from fdbr.vision import datasets


def made(name, root):
    """The data set of a name, and the examples that its folder has."""
    if name.startswith("voc"):
        boxes, maps, instances = folders.voc(root)
        return {
            "voc_boxes": (datasets.voc_boxes(root, use_difficult=True), boxes),
            "voc_segmentation": (datasets.voc_segmentation(root), maps),
            "voc_instances": (datasets.voc_instances(root), instances),
        }[name]
    if name == "sbd_instances":
        examples = list(folders.sbd(root).values())
        return datasets.sbd_instances(root, "trainval"), examples
    if name.startswith("coco_panoptic"):
        examples = folders.coco_panoptic(root)
        return datasets.coco_panoptic(root), examples
    if name == "coco_segmentation":
        examples = []
        for one in folders.coco_panoptic(root):
            label_map = np.where(one["segment_map"] < 0, -1, one["labels"][one["segment_map"]])
            examples.append(
                {"file": one["file"], "label_map": label_map.astype(np.int32),
                 "image_id": one["image_id"]}
            )  # fmt: skip
        return datasets.coco_segmentation(root), examples
    examples = getattr(folders, name)(root)
    return getattr(datasets, name)(root), examples


NAMES = [
    "voc_boxes", "voc_segmentation", "voc_instances", "sbd_instances", "coco_panoptic",
    "coco_segmentation", "camvid", "cityscapes", "ade20k", "cub", "online_products",
]  # fmt: skip


def assert_same(example, expected):
    wanted = {name: value for name, value in expected.items() if name not in ("file", "ids")}
    assert set(example) == {"image", *wanted}
    image = np.asarray(Image.open(expected["file"]).convert("RGB"))
    np.testing.assert_array_equal(example["image"], image.transpose(2, 0, 1))
    assert example["image"].dtype == np.float32
    for name, value in wanted.items():
        np.testing.assert_array_equal(example[name], value, err_msg=name)
        assert example[name].dtype == np.asarray(value).dtype, name
        assert np.shape(example[name]) == np.shape(value), name


@pytest.fixture(params=NAMES)
def folder_of(request, tmp_path):
    return *made(request.param, tmp_path), tmp_path


def test_all_fields_are_read_exactly(folder_of):
    dataset, expected, _ = folder_of
    assert len(dataset) == len(expected)
    for example, one in zip(dataset, expected, strict=True):
        assert_same(example, one)
        assert not any(value.flags.writeable for value in example.values() if value.ndim)
    assert_same(dataset[-1], expected[-1])
    assert_same(dataset[::-1][0], expected[-1])
    assert_same(pickle.loads(pickle.dumps(dataset))[0], expected[0])
    with pytest.raises(IndexError, match=r"there is no example"):
        dataset[len(expected)]


def test_files_are_opened_only_when_an_example_needs_them(folder_of):
    dataset, expected, _ = folder_of
    others = [name for name in dataset.fields if name != "image"]
    expected[0]["file"].unlink()
    with pytest.raises(FileNotFoundError, match=r"is missing; example 0 needs it") as caught:
        dataset[0]
    assert str(expected[0]["file"]) in str(caught.value)
    assert dataset.function in str(caught.value)
    dataset[1]
    if "points" not in others:  # whose visibility depends on the picture's size
        assert set(datasets.select(dataset, *others)[0]) == set(others)
    assert len(datasets.select(train.subset(dataset, [1]), "image")[0]) == 1


def test_a_truncated_picture_is_named(folder_of):
    dataset, expected, _ = folder_of
    file = expected[1]["file"]
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"example 1 \(.*\) is damaged") as caught:
        dataset[1]
    assert str(file) in str(caught.value)


def test_a_picture_of_another_size_is_named(folder_of):
    dataset, expected, _ = folder_of
    if set(dataset.fields).isdisjoint({"boxes", "masks", "label_map", "segment_map"}):
        pytest.skip("its examples have nothing that has a size")
    folders.picture(expected[0]["file"], 0, size=(4, 3))
    with pytest.raises(
        ValueError, match=r"example 0 \(.*\): (its pictures differ|box \d)"
    ) as caught:
        dataset[0]
    assert str(expected[0]["file"]) in str(caught.value)


def test_an_empty_folder_says_what_belongs_there_and_where_to_get_it(tmp_path):
    functions = [n for n in NAMES if n not in ("coco_segmentation",)] + [
        "coco_boxes", "coco_instances", "coco_keypoints", "cityscapes_images", "ade20k_images",
    ]  # fmt: skip
    for name in functions:
        for folder, state in ((tmp_path, "has no"), (tmp_path / "none", "is no folder")):
            with pytest.raises(FileNotFoundError, match=state) as caught:
                getattr(datasets, name)(folder)
            assert f"fdbr.vision.datasets.{name}: " in str(caught.value)
            assert "downloads nothing" in str(caught.value)
            assert "http" in str(caught.value)


def assert_batches_are_padded(source, expected):
    ((images, truths),) = list(source)
    assert images.shape == (2, 3, folders.HEIGHT, folders.WIDTH)
    np.testing.assert_array_equal(truths.labels, [[14, 2, -1, -1], [19, -1, -1, -1]])
    np.testing.assert_array_equal(truths.masks[0, :2], expected[0]["masks"])
    assert truths.points is None


def test_batches_have_padded_truths(tmp_path):
    dataset, expected = made("voc_instances", tmp_path)
    batches = train.Batches(dataset, 2, collate=functools.partial(datasets.collate, size=4))
    assert_batches_are_padded(batches, expected)
    assert_batches_are_padded(train.prefetch(batches, workers=1), expected)


@pytest.mark.slow
def test_worker_processes_read_batches(tmp_path):
    dataset, expected = made("voc_instances", tmp_path)
    batches = train.Batches(dataset, 2, collate=functools.partial(datasets.collate, size=4))
    assert_batches_are_padded(train.prefetch(batches, workers=1, processes=True), expected)


# --- options ------------------------------------------------------------------------


def test_difficult_objects_of_voc_are_left_out_by_default(tmp_path):
    boxes, _, _ = folders.voc(tmp_path)
    for example, one in zip(datasets.voc_boxes(tmp_path), boxes, strict=True):
        kept = ~one["difficult"]
        np.testing.assert_array_equal(example["boxes"], one["boxes"][kept])
        assert example["boxes"].shape == (kept.sum(), 4)
        assert not example["difficult"].any()
    assert len(datasets.voc_boxes(tmp_path / "VOCdevkit" / "VOC2012", "val")) == 1
    with pytest.raises(FileNotFoundError, match=r"the lists beside it are train, val"):
        datasets.voc_boxes(tmp_path, "test")


def test_voc_s_layout_may_have_other_classes(tmp_path):
    folders.voc(tmp_path)
    dataset = datasets.voc_boxes(tmp_path, classes=("Dog", "TVmonitor", "cat", "person"))
    assert [example["labels"].tolist() for example in dataset] == [[0], [1], []]
    with pytest.raises(ValueError, match=r"example 1 .*object 0 is of the class 'tvmonitor'"):
        datasets.voc_boxes(tmp_path, classes=("dog",))[1]


def test_splits_of_sbd_are_those_of_publisher_and_chainercv(tmp_path):
    examples = folders.sbd(tmp_path)
    splits = {
        "train": [0, 1], "val": [2], "train_noval": [1], "trainval": [0, 1, 2],
        "train_voc2012": [1], "val_voc2012": [0, 2], "trainval_voc2012": [0, 1, 2],
    }  # fmt: skip
    for split, indices in splits.items():
        dataset = datasets.sbd_instances(tmp_path, split)
        for example, i in zip(dataset, indices, strict=True):
            assert_same(example, list(examples.values())[i])
    with pytest.raises(FileNotFoundError, match=r"lists beside it are train, train_noval, val"):
        datasets.sbd_instances(tmp_path, "test")


def test_cityscapes_has_coarse_maps_and_all_ids(tmp_path):
    examples = folders.cityscapes(tmp_path, "gtCoarse", "train_extra")
    coarse = datasets.cityscapes(tmp_path, "train_extra", "coarse")
    whole = datasets.cityscapes(tmp_path, "train_extra", "coarse", ignore_labels=False)
    for some, other, one in zip(coarse, whole, examples, strict=True):
        assert_same(some, one)
        np.testing.assert_array_equal(other["label_map"], one["ids"])
    with pytest.raises(ValueError, match="resolution must be one of 'fine', 'coarse', got 'best'"):
        datasets.cityscapes(tmp_path, resolution="best")


def test_pictures_for_tests_come_alone(tmp_path):
    folders.ade20k(tmp_path)
    folders.cityscapes(tmp_path, split="test")
    for dataset in (datasets.ade20k_images(tmp_path), datasets.cityscapes_images(tmp_path)):
        assert [set(example) for example in dataset] == [{"image"}] * 2


def test_cub_has_splits_and_lacks_masks_without_segmentations(tmp_path):
    examples = folders.cub(tmp_path, segmentations=False)
    for split, expected in (("all", examples), ("train", examples[:1]), ("test", examples[1:])):
        for example, one in zip(datasets.cub(tmp_path, split), expected, strict=True):
            assert_same(example, one)
    with pytest.raises(ValueError, match="split must be one of 'all', 'train', 'test'"):
        datasets.cub(tmp_path, "val")
