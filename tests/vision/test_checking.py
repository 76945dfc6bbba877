"""Checks of examples and data sets."""

import numpy as np
import pytest

from fdbr.vision.checking import check_dataset, check_example

GOOD = {
    "image": np.full((3, 6, 8), 255, "uint8"),
    "boxes": np.array([[0, 0, 6, 8], [1, 1, 2, 2]], "float32"),
    "labels": np.array([0, 2], "int32"),
    "masks": np.zeros((2, 6, 8), bool),
    "points": np.array([[[0, 0], [6, 8]], [[-5, 3], [1, 1]]], "float32"),
    "visible": np.array([[True, True], [False, True]]),
    "label_map": np.full((6, 8), -1, "int32"),
    "crowded": np.zeros(2, bool),
    "difficult": np.ones(2, bool),
    "areas": np.ones(2, "float32"),
    "name": "anything",
}
EMPTY = {k: v[:0] if k not in ("image", "label_map", "name") else v for k, v in GOOD.items()}


@pytest.mark.parametrize("classes", [3, ["a", "b", "c"], None])
@pytest.mark.parametrize("example", [GOOD, EMPTY, {}, {"boxes": GOOD["boxes"]}])
def test_good_examples_pass(example, classes):
    assert check_example(example, classes) is None
    assert check_dataset([example, example], classes) is None


def changed(field, index, value):
    array = GOOD[field].astype("float32" if field == "image" else GOOD[field].dtype)
    array[index] = value
    return {**GOOD, field: array}


@pytest.mark.parametrize(
    ("example", "error", "message"),
    [
        (3, TypeError, "example must be a dict"),
        ({**GOOD, "boxes": GOOD["boxes"].astype(float)}, TypeError, "boxes must be of dtype float"),
        ({**GOOD, "labels": GOOD["labels"].astype("int64")}, TypeError, "labels must be of dtype"),
        ({**GOOD, "visible": np.ones((2, 2))}, TypeError, "visible must be of dtype bool"),
        ({**GOOD, "masks": np.ones((2, 6, 8))}, TypeError, "masks must be of dtype bool"),
        ({**GOOD, "image": np.zeros((1, 6, 8))}, ValueError, "channels red, green and blue"),
        ({**GOOD, "masks": np.ones((2, 6, 7), bool)}, ValueError, "image 6 x 8, .*masks 6 x 7"),
        ({**GOOD, "labels": GOOD["labels"][:1]}, ValueError, "boxes 2, labels 1"),
        (changed("image", 0, 256), ValueError, r"lie in \[0, 255\], got 255.0 to 256.0"),
        (changed("image", 0, np.nan), ValueError, "colours of the image"),
        (changed("boxes", (1, 2), 1), ValueError, r"box 1 must have y_min < y_max and x_min < x_m"),
        (changed("boxes", (0, 3), 9), ValueError, "box 0 must have its corners within the picture"),
        (changed("boxes", (0, 0), -1), ValueError, "box 0 must have its corners within"),
        (changed("boxes", (1, 0), np.nan), ValueError, "boxes must be finite, those of object 1"),
        (changed("points", (1, 1), 9), ValueError, "object 1 must have its visible points within"),
        (changed("labels", 1, 3), ValueError, "labels must be at least 0 and below 3, got 3 at in"),
        (changed("labels", 0, -1), ValueError, "labels must be at least 0 and below 3, got -1"),
        ({**GOOD, "label": np.int32(3)}, ValueError, "label must be at least 0 and below 3, got 3"),
        (changed("label_map", (2, 3), 3), ValueError, "got 3 at index 2, 3"),
        (changed("label_map", (2, 3), -2), ValueError, "label_map must be at least -1"),
    ],
)
def test_errors_say_what_is_wrong_and_where(example, error, message):
    with pytest.raises(error, match=f"^fdbr.vision.check_example: .*{message}"):
        check_example(example, 3)
    with pytest.raises(error, match=f"^fdbr.vision.check_dataset: example 1: .*{message}"):
        check_dataset([GOOD, example], 3)


def test_labels_have_no_limit_without_classes():
    check_example(changed("labels", 0, 1000))
    with pytest.raises(ValueError, match="labels must be at least 0, got -1 at index 0"):
        check_example(changed("labels", 0, -1))


def test_a_data_set_has_an_example():
    with pytest.raises(ValueError, match="must have an example"):
        check_dataset([])
