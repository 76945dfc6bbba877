"""Ragged and padded results."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdbr import vision


@given(counts=st.lists(st.integers(0, 4), min_size=1, max_size=4), extra=st.integers(0, 3))
def test_padding_and_leaving_the_padding_out_gives_the_same_result(counts, extra):
    rng = np.random.default_rng(sum(counts))
    truths = vision.Truths(
        tuple(rng.random((n, 4), "float32") for n in counts),
        tuple(rng.integers(0, 5, n, "int32") for n in counts),
        points=tuple(rng.random((n, 3, 2), "float32") for n in counts),
    )
    padded = vision.pad(truths, max(counts) + extra)
    assert padded.boxes.shape == (len(counts), max(counts) + extra, 4)
    back = vision.unpad(padded)
    assert back.masks is None
    for name in ("boxes", "labels", "points"):
        for a, b in zip(getattr(truths, name), getattr(back, name), strict=True):
            np.testing.assert_array_equal(a, b)
            assert a.dtype == b.dtype


def test_too_many_objects_are_refused_with_the_index_of_their_image():
    one = vision.Detections((np.zeros((2, 4)),), (np.zeros(2, int),), (np.zeros(2),))
    with pytest.raises(ValueError, match=r"fdbr\.vision\.pad: image 0 has 2 objects"):
        vision.pad(one, 1)
    with pytest.raises(ValueError, match="scores must have as many entries"):
        vision.pad(one._replace(scores=(np.zeros(3),)))
    with pytest.raises(ValueError, match=r"boxes must have as many axes .* of image 1"):
        vision.pad(vision.Truths((np.zeros((1, 4)), np.zeros(0)), (np.zeros(1, int),) * 2))
    with pytest.raises(ValueError, match="boxes must have an array for each of the 2 images"):
        vision.pad(vision.Truths((np.zeros((1, 4)),), (np.zeros(1, int),) * 2))


def test_padded_fields_have_the_dtype_that_holds_the_values_of_all_images():
    boxes = np.zeros((0, 4), int), np.full((1, 4), 0.5, "float32"), np.full((1, 4), 0.1)
    labels = np.array([]), np.array([200], "uint8"), np.array([7], "uint8")
    padded = vision.pad(vision.Truths(boxes, labels))
    assert padded.boxes[1:, 0, 0].tolist() == [0.5, 0.1]
    assert padded.labels.tolist() == [[-1], [200], [7]]
    assert padded.labels.dtype == "int32"
