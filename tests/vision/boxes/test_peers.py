"""Functions on boxes agree with torchvision's and pycocotools'."""

import numpy as np
import pytest

from fdbr import vision

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")
from torchvision.models.detection import _utils, anchor_utils, roi_heads  # noqa: E402


def _boxes(rng, count, extent=100):
    low = rng.uniform(0, extent, (count, 2))
    return np.concatenate([low, low + rng.uniform(1, 30, (count, 2))], 1).astype("float32")


def _t(x):
    return torch.from_numpy(np.ascontiguousarray(x))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("threshold", [0.0, 0.1, 0.5, 0.7, 1.0])
def test_nms_keeps_the_boxes_of_torchvision(dtype, threshold):
    rng = np.random.default_rng(0)
    for count in (0, 1, 30, 3000):
        boxes = _boxes(rng, count).astype(dtype)
        scores = rng.integers(0, 50, count).astype(dtype)
        expected = torchvision.ops.nms(_t(boxes), _t(scores), threshold)
        for format in ("yxyx", "xyxy"):
            kept = vision.nms(boxes, scores, threshold, box_format=format)
            assert kept.dtype == np.int64
            np.testing.assert_array_equal(kept, expected)
        labels = rng.integers(0, 5, count)
        expected = torchvision.ops.boxes._batched_nms_vanilla(
            _t(boxes), _t(scores), _t(labels), threshold
        )
        # torchvision's last sort is not stable
        kept = vision.nms(boxes, scores, threshold, labels=labels)
        np.testing.assert_array_equal(np.sort(kept), np.sort(expected))
        np.testing.assert_array_equal(scores[kept], scores[expected])


def test_overlaps_are_those_of_torchvision():
    rng = np.random.default_rng(1)
    a, b = _boxes(rng, 20), _boxes(rng, 30)
    ours, theirs = vision.box_iou(a, b), torchvision.ops.box_iou(_t(a), _t(b))
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    ours, theirs = (
        vision.generalized_box_iou(a, b),
        torchvision.ops.generalized_box_iou(_t(a), _t(b)),
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    ours = vision.giou_loss(a, b[:20])
    theirs = torchvision.ops.generalized_box_iou_loss(_t(a), _t(b[:20]))
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(vision.box_area(a), torchvision.ops.box_area(_t(a)), rtol=1e-6)
    np.testing.assert_allclose(
        vision.clip_boxes(a, (50, 60), box_format="xyxy"),
        torchvision.ops.clip_boxes_to_image(_t(a), (50, 60)),
    )
    for source in ("xyxy", "xywh", "cxcywh"):
        for target in ("xyxy", "xywh", "cxcywh"):
            np.testing.assert_allclose(
                vision.convert_boxes(a, source, target),
                torchvision.ops.box_convert(_t(a), source, target),
                rtol=1e-6,
            )


def test_offsets_are_those_of_torchvision():
    rng = np.random.default_rng(2)
    boxes, anchors = _boxes(rng, 20), _boxes(rng, 20)
    weights = (10.0, 10.0, 5.0, 5.0)
    coder = _utils.BoxCoder(weights)
    ours = vision.encode_boxes(boxes, anchors, weights=weights, box_format="xyxy")
    np.testing.assert_allclose(ours, coder.encode_single(_t(boxes), _t(anchors)), atol=1e-5)
    offsets = rng.normal(0, 5, (20, 3, 4)).astype("float32")
    theirs = coder.decode_single(_t(offsets.reshape(20, 12)), _t(anchors)).reshape(20, 3, 4)
    ours = vision.decode_boxes(offsets, anchors[:, None], weights=weights, box_format="xyxy")
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-4)


def test_anchors_are_those_of_torchvision():
    generator = anchor_utils.AnchorGenerator(((32, 45.3),), ((0.5, 1.0, 2.0),))
    images = anchor_utils.ImageList(torch.zeros(1, 3, 40, 60), [(40, 60)])
    theirs = generator(images, [torch.zeros(1, 8, 5, 6)])[0]
    base = vision.base_anchors([32, 45.3], [0.5, 1, 2], box_format="xyxy")
    ours = vision.grid_anchors((5, 6), (8, 10), base, box_format="xyxy")
    assert ours.dtype == np.float32
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("steps", [None, [8, 16]])
@pytest.mark.parametrize("scales", [None, [0.07, 0.8, 1.05]])
def test_default_boxes_are_those_of_torchvision(steps, scales):
    ratios = [[2], [2, 3]]
    generator = anchor_utils.DefaultBoxGenerator(ratios, scales=scales, steps=steps)
    images = anchor_utils.ImageList(torch.zeros(1, 3, 40, 60), [(40, 60)])
    theirs = generator(images, [torch.zeros(1, 8, 5, 8), torch.zeros(1, 8, 3, 4)])[0]
    ours = vision.default_boxes(
        [(5, 8), (3, 4)], ratios, (40, 60), scales=scales, steps=steps, box_format="xyxy"
    )
    np.testing.assert_allclose(ours, theirs, atol=1e-4)


def test_masks_are_pasted_and_cropped_as_by_torchvision():
    rng = np.random.default_rng(3)
    masks = rng.uniform(size=(12, 7, 7)).astype("float32")
    boxes = _boxes(rng, 12, 50)
    boxes[:6, :2] -= 20
    boxes[0] = boxes[0, [2, 3, 2, 3]]
    theirs = roi_heads.paste_masks_in_image(_t(masks)[:, None], _t(boxes), (48, 61))[:, 0]
    ours = vision.paste_masks(masks, boxes, (48, 61), None, box_format="xyxy")
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    full = rng.uniform(size=(3, 48, 61)) > 0.5
    boxes = np.abs(boxes)
    index = rng.integers(0, 3, 12)
    theirs = roi_heads.project_masks_on_boxes(_t(full), _t(boxes), _t(index), 9)
    ours = vision.crop_masks(full, boxes, 9, indices=index, box_format="xyxy")
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_boxes_of_masks_end_one_after_those_of_torchvision():
    masks = np.random.default_rng(4).uniform(size=(9, 11, 13)) > 0.97
    masks[:, 3, 4] = True
    theirs = torchvision.ops.masks_to_boxes(_t(masks)) + torch.tensor([0, 0, 1, 1])
    np.testing.assert_array_equal(vision.masks_to_boxes(masks, box_format="xyxy"), theirs)


def test_run_lengths_are_those_of_pycocotools():
    coco = pytest.importorskip("pycocotools.mask")
    rng = np.random.default_rng(5)
    masks = np.concatenate([rng.uniform(size=(5, 90, 70)) > p for p in (0.0, 0.5, 0.99, 1.0)])
    masks[3, :, 20:60] = True
    theirs = coco.encode(np.asfortranarray(masks.transpose(1, 2, 0).astype("uint8")))
    assert list(vision.encode_rle(masks)) == theirs
    np.testing.assert_array_equal(vision.decode_rle(theirs), masks)
    np.testing.assert_array_equal(
        vision.decode_rle(vision.encode_rle(masks, compressed=False)), masks
    )
    iou = coco.iou(theirs, theirs, [0] * len(theirs))
    np.testing.assert_allclose(vision.mask_iou(masks, masks), np.nan_to_num(iou), rtol=1e-6)
