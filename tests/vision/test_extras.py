"""Without the libraries of the extra, what needs one says which extra to install."""

import sys

import numpy as np
import pytest

from fdbr import vision
from fdbr.vision.evaluation import coco

IMAGE = np.zeros((3, 4, 6), "float32")
LABELS, SCORES = [np.zeros(0, int)], [np.zeros(0)]
DETECTIONS = [np.zeros((0, 4))], LABELS, SCORES
CALLS = {
    "PIL.Image": [
        lambda folder: vision.read_image(folder / "a.png"),
        lambda folder: vision.write_image(IMAGE, folder / "a.png"),
        lambda folder: vision.datasets.read_label_map(folder / "a.png"),
        lambda folder: vision.datasets.box_table({
            name: [0] for name in ("label", "y_min", "x_min", "y_max", "x_max")
        } | {"image": ["a.png"]}, folder)[0],
    ],
    "matplotlib.figure": [lambda folder: vision.drawing.report(folder, len, [{"image": IMAGE}])],
    "matplotlib.pyplot": [lambda _: vision.drawing.draw_image(IMAGE)],
    "pycocotools.coco": [
        lambda _: vision.evaluation.detection_coco(DETECTIONS, DETECTIONS[:2]),
        lambda _: vision.evaluation.evaluate_keypoints_coco(len, [{}]),
    ],
    "pycocotools.mask": [
        lambda _: vision.evaluation.instances_coco(DETECTIONS, DETECTIONS[:2]),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("library", "call"), [(name, call) for name, calls in CALLS.items() for call in calls]
)
def test_a_missing_library_is_an_error_that_names_the_extra(library, call, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, library, None)
    coco._pycocotools.cache_clear()
    with pytest.raises(ImportError, match=r"fdbr\.vision\..*pip install 'fdbr\[vision\]'"):
        call(tmp_path)
    coco._pycocotools.cache_clear()


def test_masks_of_runs_are_read_without_pycocotools(monkeypatch):
    monkeypatch.setitem(sys.modules, "pycocotools", None)
    mask = np.eye(3, dtype=bool)[None]
    np.testing.assert_array_equal(vision.decode_rle(vision.encode_rle(mask)), mask)
