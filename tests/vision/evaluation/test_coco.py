"""COCO's figures are those of pycocotools, and of torchmetrics, for any predictions."""

import contextlib
import io
import sys
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from vision.evaluation.data_sets import data_sets, masks_of

from fdbr import vision
from fdbr.vision import evaluation

pytest.importorskip("pycocotools", reason="the extra vision is not installed")

from pycocotools import mask as mask_tools
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

FIGURES = {"precision": "map", "recall": "mar"}
REGIONS = [
    f"m{figure}/iou={iou}/area={area}/max_dets={most}"
    for figure, iou, area, most in [
        ("ap", "0.50:0.95", "all", 100),
        ("ap", "0.50", "all", 100),
        ("ap", "0.75", "all", 100),
        ("ap", "0.50:0.95", "small", 100),
        ("ap", "0.50:0.95", "medium", 100),
        ("ap", "0.50:0.95", "large", 100),
        ("ar", "0.50:0.95", "all", 1),
        ("ar", "0.50:0.95", "all", 10),
        ("ar", "0.50:0.95", "all", 100),
        ("ar", "0.50:0.95", "small", 100),
        ("ar", "0.50:0.95", "medium", 100),
        ("ar", "0.50:0.95", "large", 100),
    ]
]
POINTS = [
    f"m{figure}/iou={iou}/area={area}/max_dets=20"
    for figure in ("ap", "ar")
    for iou, area in [
        ("0.50:0.95", "all"),
        ("0.50", "all"),
        ("0.75", "all"),
        ("0.50:0.95", "medium"),
        ("0.50:0.95", "large"),
    ]
]


def rle(masks):
    return [mask_tools.encode(np.asfortranarray(mask.astype(np.uint8))) for mask in masks]


def xywh(boxes):
    return [[float(x) for x in (b[1], b[0], b[3] - b[1], b[2] - b[0])] for b in boxes]


def triples(points, visible):
    return [
        [float(v) for (y, x), seen in zip(p, s, strict=True)
         for v in ((x, y, 2) if seen else (0, 0, 0))]
        for p, s in zip(points, visible, strict=True)
    ]  # fmt: skip


def stats_of(data, of, sigmas=None):
    """What pycocotools computes by its own path: annotations, `loadRes`, `summarize`."""
    images = [{"id": i + 1, "height": 120, "width": 120} for i in range(len(data["labels"]))]
    labels = sorted(set(np.concatenate(data["labels"] + data["found_labels"]).tolist()))
    truths, found = [], []
    for i in range(len(images)):
        for k, label in enumerate(data["labels"][i].tolist()):
            box = xywh(data["boxes"][i][k : k + 1])[0]
            truths.append(
                {
                    "id": len(truths) + 1,
                    "image_id": i + 1,
                    "category_id": label,
                    "iscrowd": int(data["crowded"][i][k]),
                    "area": float(data["areas"][i][k]),
                    "bbox": box,
                }
            )
            if of == "segm":
                truths[-1]["segmentation"] = rle(data["masks"][i][k : k + 1])[0]
            if of == "keypoints":
                seen = data["visible"][i][k]
                truths[-1]["keypoints"] = triples(data["points"][i][k : k + 1], [seen])[0]
                truths[-1]["num_keypoints"] = int(seen.sum())
        for k, label in enumerate(data["found_labels"][i].tolist()):
            one = {
                "image_id": i + 1,
                "category_id": label,
                "score": float(data["scores"][i][k]),
            }
            if of == "bbox":
                one["bbox"] = xywh(data["found_boxes"][i][k : k + 1])[0]
            elif of == "segm":
                one["segmentation"] = rle(data["found_masks"][i][k : k + 1])[0]
            else:
                points = data["found_points"][i][k : k + 1]
                one["keypoints"] = triples(points, np.ones(points.shape[:2]))[0]
            found.append(one)
    with contextlib.redirect_stdout(io.StringIO()):
        index = COCO()
        index.dataset = {
            "images": images,
            "annotations": truths,
            "categories": [{"id": label} for label in labels],
        }
        index.createIndex()
        run = COCOeval(index, index.loadRes(found), of)
        if sigmas is not None:
            run.params.kpt_oks_sigmas = sigmas
        run.evaluate()
        run.accumulate()
        run.summarize()
    return run.stats


def compared(figures, names, stats):
    mine = np.array([figures[name] for name in names])
    np.testing.assert_allclose(np.where(np.isnan(mine), -1, mine), stats, rtol=0, atol=1e-6)


def any_found(data):
    return any(len(labels) for labels in data["found_labels"])


@given(data_sets())
def test_figures_of_boxes_are_those_of_pycocotools(data):
    found = vision.Detections(data["found_boxes"], data["found_labels"], data["scores"])
    truths = vision.Truths(data["boxes"], data["labels"])
    figures = evaluation.detection_coco(found, truths, crowded=data["crowded"], areas=data["areas"])
    if any_found(data):  # loadRes cannot load no results
        compared(figures, REGIONS, stats_of(data, "bbox"))


@given(data_sets(masks=True))
def test_figures_of_masks_are_those_of_pycocotools(data):
    found = vision.Instances(None, data["found_labels"], data["scores"], data["found_masks"])
    truths = vision.Truths(None, data["labels"], data["masks"])
    figures = evaluation.instances_coco(found, truths, crowded=data["crowded"], areas=data["areas"])
    if any_found(data):
        compared(figures, REGIONS, stats_of(data, "segm"))


@given(sigmas=st.sampled_from([None, np.linspace(0.05, 0.5, 5)]), data=data_sets(points=17))
def test_figures_of_keypoints_are_those_of_pycocotools(sigmas, data):
    if sigmas is not None:
        data = data | {
            name: [array[:, :5] for array in data[name]]
            for name in ("points", "visible", "found_points")
        }
    found = vision.Keypoints(
        data["found_boxes"], data["found_labels"], data["scores"], data["found_points"], None
    )
    truths = vision.Truths(data["boxes"], data["labels"], None, data["points"], data["visible"])
    figures = evaluation.keypoints_coco(
        found, truths, crowded=data["crowded"], areas=data["areas"], sigmas=sigmas
    )
    if any_found(data):
        compared(figures, POINTS, stats_of(data, "keypoints", sigmas))


TORCHMETRICS = dict(
    zip(
        REGIONS,
        ["map", "map_50", "map_75", "map_small", "map_medium", "map_large",
         "mar_1", "mar_10", "mar_100", "mar_small", "mar_medium", "mar_large"],
        strict=True,
    )
)  # fmt: skip


@given(data_sets(masks=True))
def test_figures_are_those_of_torchmetrics(data):
    torch = pytest.importorskip("torch", reason="torchmetrics is not installed")
    detection = pytest.importorskip(
        "torchmetrics.detection", reason="torchmetrics is not installed"
    )
    if not any_found(data):  # torchmetrics has -1 for no predictions at all, even of recalls
        return
    # With masks alone, torchmetrics leaves out images without truths, and what is found there.
    metric = detection.MeanAveragePrecision(
        iou_type=("bbox", "segm"),
        backend="pycocotools",
        # Its own are float32, and 0.6 of them is larger than a recall of 3 / 5.
        iou_thresholds=np.linspace(0.5, 0.95, 10).tolist(),
        rec_thresholds=np.linspace(0, 1, 101).tolist(),
    )
    for i in range(len(data["labels"])):
        sides = [
            {
                "boxes": torch.tensor(data[mark + "boxes"][i][:, [1, 0, 3, 2]]),
                "masks": torch.tensor(data[mark + "masks"][i]),
                "labels": torch.tensor(data[mark + "labels"][i]).long(),
            }
            for mark in ("found_", "")
        ]
        sides[0]["scores"] = torch.tensor(data["scores"][i])
        sides[1]["iscrowd"] = torch.tensor(data["crowded"][i]).int()
        metric.update([sides[0]], [sides[1]])
    theirs = metric.compute()
    found = data["found_boxes"], data["found_labels"], data["scores"], data["found_masks"]
    truths = data["boxes"], data["labels"], data["masks"]
    for by, function in [("bbox", "detection_coco"), ("segm", "instances_coco")]:
        figures = getattr(evaluation, function)(found, truths, crowded=data["crowded"])
        compared(figures, REGIONS, [float(theirs[f"{by}_{TORCHMETRICS[n]}"]) for n in REGIONS])


def test_figures_of_a_small_data_set_are_those_that_were_computed_by_hand():
    # Of two objects one is found exactly, after a wrong prediction with a larger score: precision
    # is 1/2 up to recall 1/2, at 51 of 101 points, and 0 beyond.
    boxes = np.array([[0, 0, 10, 10], [50, 50, 90, 90]], np.float32)
    found = np.array([[20, 0, 30, 10], [0, 0, 10, 10]], np.float32)
    figures = evaluation.detection_coco(
        ([found], [np.array([2, 2])], [np.array([0.9, 0.8])]), ([boxes], [np.array([2, 2])])
    )
    key = "/iou=0.50:0.95/area={}/max_dets={}"
    assert figures["map" + key.format("all", 100)] == pytest.approx(51 / 101 / 2)
    assert figures["mar" + key.format("all", 1)] == 0
    assert figures["mar" + key.format("all", 10)] == 0.5
    assert figures["mar" + key.format("small", 100)] == 1
    assert figures["mar" + key.format("medium", 100)] == 0
    assert np.isnan(figures["mar" + key.format("large", 100)])
    np.testing.assert_array_equal(
        np.isnan(figures["ap" + key.format("all", 100)]), [True, True, False]
    )
    assert figures["existent_labels"].tolist() == [2]


def test_no_images_and_no_objects_have_figures_that_are_nan():
    none = np.zeros((0, 4), np.float32), np.zeros(0, np.int32), np.zeros(0, np.float32)
    for images in ([], [none]):
        boxes, labels, scores = ([image[k] for image in images] for k in range(3))
        masks = [np.zeros((0, 5, 5), bool) for _ in images]
        points = [np.zeros((0, 17, 2)) for _ in images], [np.zeros((0, 17), bool) for _ in images]
        for figures in (
            evaluation.detection_coco((boxes, labels, scores), (boxes, labels), classes=3),
            evaluation.instances_coco(
                (boxes, labels, scores, masks), (boxes, labels, masks), classes=3
            ),
            evaluation.keypoints_coco(
                (boxes, labels, scores, points[0]), (boxes, labels, None, *points), classes=3
            ),
        ):
            numbers = {k: v for k, v in figures.items() if k.startswith(("map", "mar"))}
            assert len(numbers) in (10, 12)
            assert np.isnan(list(numbers.values())).all()
            assert all(len(v) == 3 for k, v in figures.items() if k.startswith(("ap", "ar")))


def test_areas_of_objects_with_points_are_those_of_masks_or_boxes_by_default():
    boxes = [np.array([[0, 0, 64, 64]], np.float32)]
    labels, scores = [np.array([0])], [np.array([0.5])]
    points, visible = [np.full((1, 17, 2), 30.0)], [np.ones((1, 17), bool)]
    masks = [masks_of(boxes[0], 200)]
    wide = [np.array([[0, 0, 150, 150]], np.float32)]
    for truths, area in [
        (vision.Truths(boxes, labels, None, points, visible), "medium"),
        (vision.Truths(wide, labels, None, points, visible), "large"),
        (vision.Truths(wide, labels, masks, points, visible), "medium"),
    ]:
        figures = evaluation.keypoints_coco(
            vision.Keypoints(boxes, labels, scores, points, None), truths
        )
        for each in ("medium", "large"):
            value = figures[f"mar/iou=0.50:0.95/area={each}/max_dets=20"]
            assert np.isnan(value) == (each != area)


def test_padded_results_are_measured_like_ragged_ones():
    boxes = [np.array([[0, 0, 9, 9], [5, 5, 30, 30]], np.float32), np.zeros((0, 4), np.float32)]
    labels = [np.array([1, 0], np.int32), np.zeros(0, np.int32)]
    scores = [np.array([0.5, 0.5]), np.zeros(0)]
    found, truths = vision.Detections(boxes, labels, scores), vision.Truths(boxes, labels)
    ragged = evaluation.detection_coco(found, truths)
    padded = evaluation.detection_coco(vision.pad(found, 5), vision.pad(truths))
    assert [ragged[name] for name in REGIONS[:3]] == [padded[name] for name in REGIONS[:3]]


def test_boxes_may_begin_with_x():
    boxes, labels = [np.array([[0, 0, 9, 20], [5, 5, 30, 50]], np.float32)], [np.array([1, 0])]
    found, scores = [boxes[0] + [[0, 4, 0, 4], [3, 0, 3, 0]]], [np.array([0.5, 0.7])]
    flipped = [[array[:, [1, 0, 3, 2]] for array in part] for part in (found, boxes)]
    figures = evaluation.detection_coco((found, labels, scores), (boxes, labels))
    again = evaluation.detection_coco(
        (flipped[0], labels, scores), (flipped[1], labels), box_format="xyxy"
    )
    np.testing.assert_array_equal([figures[n] for n in REGIONS], [again[n] for n in REGIONS])
    assert 0 < figures[REGIONS[0]] < 1


def test_output_of_other_threads_is_not_lost(capsys):
    boxes, labels, scores = [np.ones((1, 4))], [np.array([0])], [np.array([0.5])]
    out = sys.stdout
    threads = [
        threading.Thread(
            target=lambda: evaluation.detection_coco((boxes, labels, scores), (boxes, labels))
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    print("heard")
    for thread in threads:
        thread.join()
    assert sys.stdout is out
    assert capsys.readouterr().out == "heard\n"
