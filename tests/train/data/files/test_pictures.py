"""Images in files: one by one, in folders, lists and archives."""

import pickle
import zipfile

import numpy as np
import pytest

from fdbr import random, train

pytest.importorskip("PIL")
from PIL import Image


def picture(number, height=6, width=5):
    return np.random.default_rng(number).integers(0, 256, (height, width, 3), "uint8")


@pytest.fixture
def folder(tmp_path):
    for number in range(6):
        place = tmp_path / "data" / ("cat" if number % 2 else "dog")
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture(number)).save(place / f"{number}.png")
    (tmp_path / "data" / "cat" / "notes.txt").write_text("no image")
    return tmp_path / "data"


@pytest.fixture(params=["plain", "with a folder of its own"])
def archive(request, folder, tmp_path):
    path = tmp_path / "data.zip"
    with zipfile.ZipFile(path, "w") as file:
        for number, one in enumerate(sorted(folder.rglob("*.png"))):
            name = one.relative_to(folder.parent if request.param != "plain" else folder)
            method = zipfile.ZIP_DEFLATED if number % 2 else zipfile.ZIP_STORED
            file.write(one, name, compress_type=method)
    return path


def check(dataset):
    assert dataset.classes == ("cat", "dog")
    assert [int(e["label"]) for e in dataset] == [0, 0, 0, 1, 1, 1]
    for number, example in zip((1, 3, 5, 0, 2, 4), dataset, strict=True):
        np.testing.assert_array_equal(example["image"], picture(number).transpose(2, 0, 1))
    batch = next(iter(train.Batches(dataset, 4, random.key(0))))
    assert batch["image"].shape == (4, 3, 6, 5)
    assert batch["image"].dtype == np.uint8
    assert batch["label"].dtype == np.int64


def test_images_are_labelled_by_their_folders(folder):
    check(train.image_folder(folder))


def test_images_in_an_archive_are_too(archive):
    check(train.image_folder(archive))
    check(pickle.loads(pickle.dumps(train.image_folder(archive))))


def test_images_without_labels_may_lie_anywhere(folder):
    assert train.gather(train.image_folder(folder, labels=False)).shape == (6, 3, 6, 5)
    Image.fromarray(picture(9)).save(folder / "9.png")
    with pytest.raises(ValueError, match=r"9\.png lies in no folder of a class"):
        train.image_folder(folder)


def test_modes_and_sizes(folder):
    gray = train.image_folder(folder, mode="L", size=(3, 4))[0]["image"]
    assert gray.shape == (1, 3, 4)
    assert not gray.flags.writeable


@pytest.mark.parametrize("separator", [" ", "\t"])
def test_a_list_names_files_and_labels(folder, tmp_path, separator):
    listed = tmp_path / "list.txt"
    listed.write_text(f"cat/1.png{separator}7\ndog/2.png{separator}-1\n\n")
    dataset = train.image_files(listed, folder)
    assert [int(e["label"]) for e in dataset] == [7, -1]
    same = train.image_files([("cat/1.png", 7), ("dog/2.png", -1)], folder)
    np.testing.assert_array_equal(train.gather(dataset)["image"], train.gather(same)["image"])
    assert train.gather(train.image_files(["cat/1.png"], folder)).shape == (1, 3, 6, 5)


def test_a_list_names_members_of_an_archive(folder, tmp_path):
    path = tmp_path / "some.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.write(folder / "cat" / "1.png", "1.png")
    assert int(train.image_files([("1.png", 3)], path)[0]["label"]) == 3
    with pytest.raises(ValueError, match=r"some\.zip has no 2\.png"):
        train.image_files(["2.png"], path)


def test_an_image_that_has_vanished_is_named(folder):
    dataset = train.image_folder(folder)
    (folder / "cat" / "3.png").unlink()
    with pytest.raises(FileNotFoundError, match=r"3\.png is not there \(any more\).* example 1"):
        list(train.Batches(dataset, 2))


def test_a_truncated_image_is_named(folder):
    path = folder / "cat" / "3.png"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ValueError, match=r"3\.png.* is no image, or is damaged"):
        list(train.Batches(train.image_folder(folder), 2))


def test_a_damaged_archive_is_named(archive):
    content = bytearray(archive.read_bytes())
    place = content.index(b"IDAT") + 20
    content[place] ^= 1
    archive.write_bytes(content)
    with pytest.raises(ValueError, match=r"data\.zip.*damaged"):
        list(train.image_folder(archive))
    archive.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match="no whole zip archive"):
        train.image_folder(archive)


def test_an_archive_that_vanishes_is_named(archive):
    dataset = train.image_folder(archive)
    archive.unlink()
    with pytest.raises(FileNotFoundError, match=r"data\.zip is not there"):
        dataset[0]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda p: train.image_folder(p), ValueError, "has no images"),
        (lambda p: train.image_folder(p / "no"), FileNotFoundError, "no"),
        (lambda p: train.image_files([]), ValueError, "there must be paths"),
        (lambda p: train.image_files(["a", ("b", 1)]), ValueError, "with a label or none"),
        (lambda p: train.image_files([("a", "cat")]), ValueError, "labels integers"),
        (lambda p: train.image_files(3), TypeError, "files must be paths"),
        (lambda p: train.read_image(p / "no.png"), FileNotFoundError, "no.png"),
    ],
)
def test_what_has_no_images_is_refused(make, error, message, tmp_path):
    with pytest.raises(error, match=message):
        make(tmp_path)
