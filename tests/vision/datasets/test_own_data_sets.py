"""Own folders and tables become data sets; fields are selected; examples are collated."""

import numpy as np
import pytest
from vision.datasets import published_folders as folders

from fdbr import train
from fdbr.vision import datasets


def test_folders_name_classes(tmp_path):
    for i, name in enumerate(("10/b.png", "10/a.jpg", "9/deep/c.png")):
        folders.picture(tmp_path / name, i)
    text = datasets.label_folder(tmp_path)
    number = datasets.label_folder(tmp_path, numerical_sort=True, color=False)
    assert text.classes == ("10", "9")
    assert [example["label"].item() for example in text] == [0, 0, 1]
    assert text[0]["label"].dtype == np.int32
    assert number.classes == ("9", "10")
    assert [example["label"].item() for example in number] == [0, 1, 1]
    assert number[0]["image"].shape == (1, folders.HEIGHT, folders.WIDTH)
    assert text[0]["image"].dtype == np.float32
    assert len(datasets.label_folder(tmp_path, accept=lambda path: path.endswith(".png"))) == 2
    with pytest.raises(FileNotFoundError, match=r"label_folder: .* is no folder"):
        datasets.label_folder(tmp_path / "none")


def test_a_table_of_boxes(tmp_path):
    for name in ("a.jpg", "b.jpg", "c.jpg"):
        folders.picture(tmp_path / name, 1)
    rows = [
        "file,top,left,bottom,right,what", "b.jpg,1,2,3.5,4,cat", "a.jpg,0,0,12,16,dog",
        "b.jpg,5,5,6,6,dog", "c.jpg,,,,,",
    ]  # fmt: skip
    folders.text(tmp_path / "boxes.csv", "\n".join(rows))
    columns = ("file", "what", "top", "left", "bottom", "right")
    dataset = datasets.box_table(tmp_path / "boxes.csv", tmp_path, columns=columns)
    assert dataset.classes == ("cat", "dog")
    assert [example["labels"].tolist() for example in dataset] == [[0, 1], [1], []]
    assert dataset[0]["boxes"].tolist() == [[1, 2, 3.5, 4], [5, 5, 6, 6]]
    assert dataset[2]["boxes"].shape == (0, 4)
    assert dataset[2]["labels"].dtype == np.int32
    table = {"image": ["a.jpg"], "label": ["dog"], "y_min": [1], "x_min": [1], "y_max": [5.0],
             "x_max": np.array([30])}  # fmt: skip
    with pytest.raises(ValueError, match=r"example 0 .*a\.jpg.*: box 0 .* outside of its picture"):
        datasets.box_table(table, tmp_path)[0]
    with pytest.raises(ValueError, match=r"row 0 has the label 'dog', not one of \['cat'\]"):
        datasets.box_table(table, classes=["cat"])
    with pytest.raises(ValueError, match="has no column 'image', but"):
        datasets.box_table(tmp_path / "boxes.csv")
    with pytest.raises(ValueError, match="row 0 has no box"):
        datasets.box_table({**table, "y_min": ["?"]})
    with pytest.raises(FileNotFoundError):
        datasets.box_table(tmp_path / "none.csv")
    with pytest.raises(ValueError, match="has no rows"):
        datasets.box_table({name: [] for name in table})


def test_a_folder_of_label_maps(tmp_path):
    values = np.resize([0, 1, 255, 7], (folders.HEIGHT, folders.WIDTH))
    folders.picture(tmp_path / "photos/a.jpeg", 1)
    folders.indexed(tmp_path / "maps/a.png", values)
    photos, maps = tmp_path / "photos", tmp_path / "maps"
    dataset = datasets.map_folder(photos, maps, ["floor", "road"], ignored=[7, 255])
    np.testing.assert_array_equal(dataset[0]["label_map"], np.where(values > 1, -1, values))
    with pytest.raises(ValueError, match="its pixel value 7 belongs to no class"):
        datasets.map_folder(photos, maps, ["floor", "road"])[0]
    folders.indexed(maps / "b.png", values)
    with pytest.raises(FileNotFoundError, match=r"has no picture for b\.png"):
        datasets.map_folder(photos, maps, ["floor"])


def fail(item):
    raise RuntimeError("not to be called")


def test_fields_are_selected_through_views():
    numbers = datasets.by_field(range(6), {("a", "b"): lambda i: (i, -i), "c": fail}, classes=())
    first, second = train.split(numbers, 2)
    beside = train.zip_examples(a=[0, 1, 2], c=[fail, fail, fail])
    for dataset, expected in (
        (numbers, range(6)),
        (numbers[4:], (4, 5)),
        (train.concatenate(second, first), (2, 3, 4, 5, 0, 1)),
        (beside, range(3)),
        (train.map_examples(lambda x: {"a": x, "c": 0}, [7, 8]), (7, 8)),
        ([{"a": 3, "c": 0}], (3,)),
    ):
        chosen = datasets.select(dataset, "a")
        assert [dict(example) for example in chosen] == [{"a": i} for i in expected]
    assert datasets.select({"a": np.arange(3), "c": np.ones(3)}, "a")["a"].tolist() == [0, 1, 2]
    assert list(datasets.select(numbers, "b", "a")[2].items()) == [("b", -2), ("a", 2)]
    with pytest.raises(RuntimeError, match="not to be called"):
        numbers[0]
    with pytest.raises(KeyError, match="have no 'd', but a, b, c"):
        datasets.select(numbers, "d")
    with pytest.raises(TypeError, match="give the names of fields"):
        datasets.select(numbers)
    with pytest.raises(TypeError, match="the field x must be a function"):
        datasets.by_field([1], {"x": 3})


def example(height=4, width=5, count=1, **more):
    image = np.zeros((3, height, width), np.float32)
    boxes, labels = np.zeros((count, 4), np.float32), np.arange(count, dtype=np.int32)
    return {"image": image, "boxes": boxes, "labels": labels, **more}


def test_collation_pads_truths():
    points = np.ones((2, 17, 2), np.float32), np.ones((2, 17), bool)
    some = example(count=2, points=points[0], visible=points[1], image_id=np.int64(3))
    none = example(count=0, points=points[0][:0], visible=points[1][:0], image_id=np.int64(4))
    images, truths = datasets.collate([some, none], size=3)
    assert images.shape == (2, 3, 4, 5)
    assert truths.labels.tolist() == [[0, 1, -1], [-1, -1, -1]]
    assert truths.points.shape == (2, 3, 17, 2)
    assert truths.visible[0].any(axis=1).tolist() == [True, True, False]
    assert truths.masks is None
    images, _ = datasets.collate([some, example(6, 6, points=points[0], visible=points[1])][:1])
    assert images.shape == (1, 3, 4, 5)
    images, truths = datasets.collate([example(), example(6, 6, count=2)])
    assert [image.shape for image in images] == [(3, 4, 5), (3, 6, 6)]
    assert truths.boxes.shape == (2, 2, 4)
    with pytest.raises(ValueError, match="image 0 has 2 objects, more than size=1"):
        datasets.collate([example(count=2)], size=1)


def test_collation_pads_label_maps():
    maps = [np.zeros((2, 3), np.int32), np.ones((3, 2), np.int32)]
    images, padded = datasets.collate(
        [{"image": np.zeros((3, *one.shape), np.float32), "label_map": one} for one in maps]
    )
    assert padded.tolist() == [
        [[0, 0, 0], [0, 0, 0], [-1, -1, -1]], [[1, 1, -1], [1, 1, -1], [1, 1, -1]],
    ]  # fmt: skip
    assert len(images) == 2
    with pytest.raises(ValueError, match="must have boxes and labels, or a label_map, but have"):
        datasets.collate([{"image": maps[0]}])
    with pytest.raises(ValueError, match="there are no examples"):
        datasets.collate([])
