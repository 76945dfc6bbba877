"""The published face detector, beside its original."""

import importlib.util
import runpy
from pathlib import Path

import numpy as np
import pytest

from fdbr import random

PATH = Path(__file__).parents[2] / "examples" / "face_detector.py"


@pytest.fixture(scope="module")
def example():
    return runpy.run_path(str(PATH))


def test_without_the_weights_the_example_says_what_to_install(example, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="pip install --no-deps facenet-pytorch"):
        example["main"]([])


def test_images_without_faces_and_small_ones_have_empty_results(example):
    model = example["FaceDetector"].init(random.key(0))
    images = [np.zeros((3, 40, 30), "uint8"), np.zeros((3, 10, 10), "uint8")]
    found = model.predict(images)
    assert [boxes.shape for boxes in found.boxes] == [(0, 4), (0, 4)]
    assert [points.shape for points in found.points] == [(0, 5, 2), (0, 5, 2)]


@pytest.mark.slow
def test_boxes_and_points_are_those_of_the_original(example, tmp_path):
    original = pytest.importorskip("facenet_pytorch").MTCNN()
    data = pytest.importorskip("skimage.data")
    whole = np.ascontiguousarray(data.astronaut())
    half = whole[::2, ::2]
    pictures = [
        whole,
        np.concatenate([half, half[:, ::-1]], axis=1)[:200],
        np.concatenate([half[::-1], np.roll(half, 40, 1)]),
        data.coffee()[:150, :200],
    ]
    model = example["published"]()
    found = model.predict([picture.transpose(2, 0, 1) for picture in pictures])
    faces = 0
    for i, picture in enumerate(pictures):
        boxes, scores, points = original.detect(picture, landmarks=True)
        if boxes is None:
            assert len(found.boxes[i]) == 0
            continue
        faces += len(boxes)
        boxes, scores, points = (a.astype(float) for a in (boxes, scores, points))
        order = np.lexsort(boxes.round().T)
        same = np.lexsort(found.boxes[i][:, [1, 0, 3, 2]].round().T)
        assert found.boxes[i].shape == boxes.shape
        for ours, theirs in (
            (found.boxes[i], boxes[:, [1, 0, 3, 2]]),
            (found.points[i], points[..., ::-1]),
        ):
            np.testing.assert_allclose(ours[same], theirs[order], atol=0.1)
        np.testing.assert_allclose(found.scores[i][same], scores[order], atol=1e-3)
    assert faces >= 4
    example["main"](["--out", str(tmp_path)])
    assert (tmp_path / "faces_0.png").read_bytes()[1:4] == b"PNG"
