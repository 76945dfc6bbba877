"""The idx files of MNIST."""

import gzip
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fdbr import train

CODES = {"uint8": 8, "int8": 9, "int16": 11, "int32": 12, "float32": 13, "float64": 14}


def encode(array):
    header = struct.pack(
        f">BBBB{array.ndim}I", 0, 0, CODES[array.dtype.name], array.ndim, *array.shape
    )
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


def arrays():
    dtypes = st.sampled_from([np.dtype(name) for name in CODES])
    shapes = hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4)
    return dtypes.flatmap(lambda dtype: hnp.arrays(dtype, shapes))


@given(arrays(), st.booleans())
def test_what_is_in_the_file_is_read(tmp_path_factory, array, compressed):
    path = tmp_path_factory.mktemp("idx") / "array"
    content = encode(array)
    path.write_bytes(gzip.compress(content, 1, mtime=0) if compressed else content)
    found = train.read_idx(path)
    np.testing.assert_array_equal(found, array)
    assert found.dtype == array.dtype
    assert found.dtype.isnative
    assert not found.flags.writeable


@pytest.mark.parametrize("compressed", [False, True])
def test_the_content_tells_whether_it_is_compressed_not_the_name(tmp_path, compressed):
    path = tmp_path / ("labels" if compressed else "labels.gz")
    content = encode(np.arange(3, dtype="uint8"))
    path.write_bytes(gzip.compress(content, mtime=0) if compressed else content)
    assert train.read_idx(str(path)).tolist() == [0, 1, 2]


GOOD = encode(np.arange(6, dtype="int16").reshape(2, 3))
PACKED = gzip.compress(GOOD, mtime=0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is no idx file: it begins with ''"),
        (b"\x89PNG\r\n", "is no idx file: it begins with '89 50 4e 47'"),
        (b"\0\0\x07\x01\0\0\0\0", "is no idx file"),
        (GOOD[:9], "is truncated: it has 9 bytes, and the header of 2 axes alone takes 12"),
        (GOOD[:-1], r"is truncated: int16 of shape \(2, 3\) takes 24 bytes .* the file has 23"),
        (GOOD + b"\0", r"has bytes left over: int16 of shape \(2, 3\) takes 24 .* has 25"),
        (PACKED[:-9], "is a damaged gzip file"),
        (PACKED[:-8] + bytes(8), "is a damaged gzip file"),
        (PACKED[:12] + b"\xff\xff" + PACKED[14:], "is a damaged gzip"),
        (gzip.compress(GOOD[:-1], mtime=0), "is truncated"),
    ],
)
def test_a_damaged_file_is_named_with_its_sizes(tmp_path, content, message):
    path = tmp_path / "broken-file"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"broken-file.*{message}"):
        train.read_idx(path)


def test_a_missing_file_is_an_error_of_the_system(tmp_path):
    with pytest.raises(FileNotFoundError):
        train.read_idx(tmp_path / "nothing")


# --- mnist --------------------------------------------------------------------------

FILES = {
    "train-images-idx3-ubyte.gz": np.full((5, 4, 3), 255, "uint8"),
    "train-labels-idx1-ubyte.gz": np.arange(5, dtype="uint8"),
    "t10k-images-idx3-ubyte": np.zeros((2, 4, 3), "uint8"),
    "t10k-labels.idx1-ubyte": np.ones(2, "uint8"),
}


def write(folder, **changes):
    for name, array in FILES.items():
        array = changes.get(name.split("-idx")[0].split(".")[0].replace("-", "_"), array)
        (folder / name).write_bytes(encode(array))
    return folder


def test_mnist_gives_flat_images_in_the_unit_interval_and_labels(tmp_path):
    training, test = train.mnist(write(tmp_path))
    assert training["image"].shape == (5, 12)
    assert training["image"].dtype == np.float32
    assert (training["image"] == 1).all()
    assert training["label"].tolist() == [0, 1, 2, 3, 4]
    assert training["label"].dtype == np.int64
    assert len(test["image"]) == len(test["label"]) == 2
    assert not training["image"].flags.writeable
    next(iter(train.Batches(training, 2)))


def test_labels_where_images_belong_are_an_error(tmp_path):
    with pytest.raises(ValueError, match=r"train-images.* should hold images.* holds uint8\[5\]"):
        train.mnist(write(tmp_path, train_images=np.arange(5, dtype="uint8")))


def test_images_where_labels_belong_are_an_error(tmp_path):
    with pytest.raises(ValueError, match=r"t10k-labels.* should hold labels.*uint8\[2,4,3\]"):
        train.mnist(write(tmp_path, t10k_labels=np.zeros((2, 4, 3), "uint8")))


def test_images_of_another_dtype_are_an_error(tmp_path):
    with pytest.raises(ValueError, match=r"float32\[2,4,3\]"):
        train.mnist(write(tmp_path, t10k_images=np.zeros((2, 4, 3), "float32")))


def test_different_numbers_of_images_and_labels_are_an_error(tmp_path):
    with pytest.raises(ValueError, match=r"holds 5 images, but .*train-labels.* holds 4 labels"):
        train.mnist(write(tmp_path, train_labels=np.zeros(4, "uint8")))


def test_a_missing_part_is_named(tmp_path):
    write(tmp_path)
    (tmp_path / "t10k-labels.idx1-ubyte").unlink()
    with pytest.raises(FileNotFoundError, match=r"none of t10k-labels-idx1-ubyte, .*\.gz"):
        train.mnist(tmp_path)
