"""Measures of label maps follow from the confusion of classes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdbr.vision import evaluation


@st.composite
def label_maps(draw):
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    classes = draw(st.integers(1, 5))
    shapes = draw(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 6)), max_size=4))
    true = [random.integers(-1, classes, shape).astype(np.int32) for shape in shapes]
    found = [random.integers(0, classes, shape).astype(np.int32) for shape in shapes]
    return found, true, classes


@given(label_maps())
def test_figures_are_those_of_counted_pixels(data):
    found, true, classes = data
    figures = evaluation.segmentation(found, true, classes=classes)
    pixels = [
        (int(t), int(f))
        for a, b in zip(true, found, strict=True)
        for t, f in zip(a.ravel(), b.ravel(), strict=True)
        if t >= 0
    ]
    overlaps, accuracies = [], []
    for label in range(classes):
        both = sum(t == f == label for t, f in pixels)
        either = sum(label in pair for pair in pixels)
        own = sum(t == label for t, _ in pixels)
        overlaps.append(both / either if either else np.nan)
        accuracies.append(both / own if own else np.nan)
    np.testing.assert_allclose(figures["iou"], overlaps, atol=1e-12)
    np.testing.assert_allclose(figures["class_accuracy"], accuracies, atol=1e-12)
    if pixels:
        assert figures["pixel_accuracy"] == pytest.approx(np.mean([t == f for t, f in pixels]))
        assert figures["miou"] == pytest.approx(np.nanmean(overlaps))
        assert figures["mean_class_accuracy"] == pytest.approx(np.nanmean(accuracies))
    else:
        names = ("miou", "pixel_accuracy", "mean_class_accuracy")
        assert np.isnan([figures[name] for name in names]).all()


@given(label_maps())
def test_figures_are_those_of_torchmetrics(data):
    torch = pytest.importorskip("torch", reason="torchmetrics is not installed")
    theirs = pytest.importorskip(
        "torchmetrics.functional.classification", reason="torchmetrics is not installed"
    )
    found, true, classes = data
    if classes < 2 or not sum(int((t >= 0).sum()) for t in true):
        return
    flat = [
        torch.tensor(np.concatenate([m.ravel() for m in maps])).long() for maps in (found, true)
    ]
    confusion = theirs.multiclass_confusion_matrix(*flat, num_classes=classes, ignore_index=-1)
    np.testing.assert_array_equal(
        evaluation.segmentation_confusion(found, true, classes=classes), confusion.numpy()
    )
    jaccard = theirs.multiclass_jaccard_index(
        *flat, num_classes=classes, ignore_index=-1, average=None
    )
    figures = evaluation.segmentation(found, true, classes=classes)
    np.testing.assert_allclose(np.nan_to_num(figures["iou"]), jaccard.numpy(), atol=1e-6)


def test_recorded_figures():
    figures = evaluation.segmentation(
        [np.array([[0, 0, 1], [2, 2, 1]]), np.array([[1, 1]])],
        [np.array([[0, 1, 1], [2, -1, 1]]), np.array([[1, 0]])],
    )
    np.testing.assert_allclose(figures["iou"], [1 / 3, 3 / 5, 1])
    np.testing.assert_allclose(figures["class_accuracy"], [1 / 2, 3 / 4, 1])
    assert figures["pixel_accuracy"] == 5 / 7
    with pytest.raises(ValueError, match="segmentation_iou: confusion must be a square matrix"):
        evaluation.segmentation_iou(np.zeros((2, 3)))


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint64", ">i4"])
def test_labels_of_all_dtypes_of_integers_count(dtype):
    true = np.array([[0, 1], [2, 1]])
    found = true[::-1].astype(dtype)
    desired = evaluation.segmentation_confusion([true[::-1]], [true])
    np.testing.assert_array_equal(evaluation.segmentation_confusion([found], [true]), desired)
    assert not evaluation.segmentation_confusion([found[:0]], [found[:0]]).size
    boxes, labels, scores = [np.array([[0, 0, 4, 4]])], [found[1, :1]], [np.array([0.5])]
    assert evaluation.detection_voc((boxes, labels, scores), (boxes, labels))["map"] == 1
