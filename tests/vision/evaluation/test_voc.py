"""VOC's average precisions are those of a formulation in plain Python, and recorded values."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from vision.evaluation.data_sets import data_sets

from fdbr import vision
from fdbr.vision import evaluation


def overlap_of_boxes(a, b):
    height = min(a[2], b[2]) - max(a[0], b[0]) + 1
    width = min(a[3], b[3]) - max(a[1], b[1]) + 1
    if height <= 0 or width <= 0:
        return 0.0
    areas = [(c[2] - c[0] + 1) * (c[3] - c[1] + 1) for c in (a, b)]
    return height * width / (sum(areas) - height * width)


def overlap_of_masks(a, b):
    union = int((a | b).sum())
    return int((a & b).sum()) / union if union else 0.0


def averages(data, by, overlap, least, eleven_points):
    """VOC's measure as its development kit states it: one prediction after another."""
    classes = max(
        (int(label) for name in ("labels", "found_labels") for each in data[name]
         for label in each), default=-1) + 1  # fmt: skip
    result = []
    for label in range(classes):
        found = [
            (float(score), i, k)
            for i, scores in enumerate(data["scores"])
            for k, score in enumerate(scores)
            if data["found_labels"][i][k] == label
        ]
        found.sort(key=lambda one: -one[0])  # a stable order
        objects = {
            (i, k)
            for i, labels in enumerate(data["labels"])
            for k, each in enumerate(labels)
            if each == label
        }
        count = sum(not data["difficult"][i][k] for i, k in objects)
        if not count:
            result.append(math.nan)
            continue
        taken, points, right, wrong = set(), [], 0, 0
        for _, i, k in found:
            best, target = -1.0, None
            for j in sorted(j for image, j in objects if image == i):
                value = overlap(data["found_" + by][i][k], data[by][i][j])
                if value > best:
                    best, target = value, (i, j)
            if target is None or best < least:
                wrong += 1
            elif not data["difficult"][target[0]][target[1]]:
                right, wrong = (right, wrong + 1) if target in taken else (right + 1, wrong)
                taken.add(target)
            points.append((right / count, right / (right + wrong) if right + wrong else 0.0))
        if eleven_points:
            levels = [sum([0.1] * 0) + 0.1 * k for k in range(11)]
            total = sum(max((p for r, p in points if r >= t), default=0.0) for t in levels) / 11
        else:
            total, before = 0.0, 0.0
            for n, (r, _) in enumerate(points):
                total += (r - before) * max(p for _, p in points[n:])
                before = r
        result.append(total)
    return result


@given(eleven_points=st.booleans(), data=data_sets(size=40, masks=True))
def test_average_precisions_are_those_of_the_plain_formulation(eleven_points, data):
    options = {"difficult": data["difficult"], "eleven_points": eleven_points}
    found = vision.Instances(
        data["found_boxes"], data["found_labels"], data["scores"], data["found_masks"]
    )
    truths = vision.Truths(data["boxes"], data["labels"], data["masks"])
    for figures, by, overlap in [
        (evaluation.detection_voc(found, truths, **options), "boxes", overlap_of_boxes),
        (evaluation.instances_voc(found, truths, **options), "masks", overlap_of_masks),
    ]:
        expected = averages(data, by, overlap, 0.5, eleven_points)
        np.testing.assert_allclose(figures["ap"], expected, rtol=0, atol=1e-6)
        known = [value for value in expected if not math.isnan(value)]
        assert math.isnan(figures["map"]) == (not known)
        if known:
            assert figures["map"] == pytest.approx(sum(known) / len(known), abs=1e-6)
    padded = evaluation.detection_voc(
        vision.pad(vision.Detections(*found[:3]), 20),
        vision.pad(vision.Truths(*truths[:2]), 9),
        difficult=[np.resize(d, 9) if len(d) else np.zeros(9, bool) for d in data["difficult"]],
    )
    ragged = evaluation.detection_voc(found, truths, difficult=data["difficult"])
    np.testing.assert_array_equal(padded["ap"], ragged["ap"])


def test_curves_have_a_point_for_each_prediction():
    boxes = np.array([[0, 0, 9, 9], [20, 20, 29, 29]], np.float32)
    found = np.array([[0, 0, 9, 9], [0, 0, 9, 9], [40, 0, 49, 9], [20, 20, 29, 29]], np.float32)
    precision, recall = evaluation.detection_voc_curves(
        ([found], [np.array([1, 1, 1, 1])], [np.array([0.9, 0.8, 0.7, 0.6])]),
        ([boxes], [np.array([1, 1])]),
        classes=3,
    )
    assert precision[0] is precision[2] is recall[0] is recall[2] is None
    np.testing.assert_allclose(precision[1], [1, 1 / 2, 1 / 3, 2 / 4])
    np.testing.assert_allclose(recall[1], [1 / 2, 1 / 2, 1 / 2, 1])
    both = evaluation.voc_average_precision(precision, recall)
    np.testing.assert_allclose(both, [np.nan, 0.5 * 1 + 0.5 * 0.5, np.nan])
    old = evaluation.voc_average_precision(precision, recall, eleven_points=True)
    np.testing.assert_allclose(old[1], (6 * 1 + 5 * 0.5) / 11)


def test_difficult_objects_and_predictions_of_them_do_not_count():
    boxes = [np.array([[0, 0, 9, 9], [20, 20, 29, 29]], np.float32)]
    labels, scores = [np.array([0, 0])], [np.array([0.5, 0.9])]
    precision, recall = evaluation.detection_voc_curves(
        (boxes, labels, scores), (boxes, labels), difficult=[np.array([False, True])]
    )
    np.testing.assert_array_equal(precision[0], [np.nan, 1])
    np.testing.assert_array_equal(recall[0], [0, 1])
    figures = evaluation.detection_voc(
        (boxes, labels, scores), (boxes, labels), difficult=[np.array([True, True])]
    )
    np.testing.assert_array_equal(figures["ap"], [np.nan])


def test_boxes_include_their_last_pixels():
    # 3 of 6 pixels and, without the last ones, 1 of 3.
    found, true = np.array([[0, 0, 0, 3]]), np.array([[0, 1, 0, 4]])
    one = [np.array([0])], [np.array([0.5])]
    for iou, expected in ((0.6, 1.0), (0.61, 0.0)):
        figures = evaluation.detection_voc(([found], *one), ([true], one[0]), iou=iou)
        assert figures["map"] == expected


def test_images_and_classes_without_anything_have_nan():
    none = np.zeros((0, 4), np.float32), np.zeros(0, np.int32), np.zeros(0, np.float32)
    for images in ([], [none]):
        boxes, labels, scores = ([image[k] for image in images] for k in range(3))
        figures = evaluation.detection_voc((boxes, labels, scores), (boxes, labels))
        assert len(figures["ap"]) == 0
        assert math.isnan(figures["map"])
        three = evaluation.detection_voc((boxes, labels, scores), (boxes, labels), classes=3)
        np.testing.assert_array_equal(three["ap"], [np.nan] * 3)


def test_fields_may_be_iterators_and_pairs_of_predictions_and_examples():
    boxes = [np.array([[0.0, 0, 9, 9]])] * 5
    labels, scores = [np.array([k % 2]) for k in range(5)], [np.array([0.5])] * 5
    whole = evaluation.detection_voc((boxes, labels, scores), (boxes, labels))
    streamed = evaluation.detection_voc(
        tuple(map(iter, (boxes, labels, scores))), tuple(map(iter, (boxes, labels)))
    )
    examples = [
        {"image": np.zeros((3, 1, 1)), "boxes": b, "labels": n}
        for b, n in zip(boxes, labels, strict=True)
    ]

    def predict(images):
        predict.seen += len(images)
        some = slice(predict.seen - len(images), predict.seen)
        return vision.Detections(boxes[some], labels[some], scores[some])

    predict.seen = 0
    pairs = evaluation.predict_each(predict, iter(examples), batch=2)
    next(pairs)
    assert predict.seen == 2  # one batch is predicted at a time
    predict.seen = 0
    paired = evaluation.detection_voc(evaluation.predict_each(predict, examples, batch=2))
    np.testing.assert_array_equal(whole["ap"], streamed["ap"])
    np.testing.assert_array_equal(whole["ap"], paired["ap"])
