"""Detectors with regions compute what torchvision's do."""

from typing import Any

import numpy as np
import pytest

import fdbr
from fdbr import ops, vision
from tests.vision.models.rcnn_of_torchvision import SIZES, images, pair

pytest.importorskip("torchvision", reason="torchvision is the reference")
pytestmark = pytest.mark.slow

KINDS = ("Faster", "Mask", "Keypoint")


def yx(values: Any) -> Any:
    """Return coordinates with rows before columns."""
    array = values.numpy()
    return array[..., [1, 0, 3, 2] if array.shape[-1] == 4 else [1, 0]]


@pytest.mark.parametrize("kind", KINDS)
def test_predictions_are_those_of_torchvision(kind: str) -> None:
    import torch

    theirs, ours = pair(kind, box_detections_per_img=20)
    pictures = images(kind == "Keypoint")
    with torch.no_grad():
        wanted = theirs([torch.tensor(picture) / 255 for picture in pictures])
    found = ours.predict(pictures, jit=kind == "Mask")
    for i, want in enumerate(wanted):
        assert len(want["scores"]) == len(found.scores[i]) == 20
        np.testing.assert_array_equal(want["labels"].numpy() - 1, found.labels[i])
        np.testing.assert_allclose(want["scores"].numpy(), found.scores[i], atol=1e-4)
        np.testing.assert_allclose(yx(want["boxes"]), found.boxes[i], atol=1e-4, rtol=1e-5)
        if kind == "Mask":
            masks = want["masks"].numpy()[:, 0]
            assert (np.abs(masks - 0.5)[(masks > 0.5) != found.masks[i]] < 1e-4).all()
        if kind == "Keypoint":
            points, scores = yx(want["keypoints"][..., :2]), want["keypoints_scores"].numpy()
            np.testing.assert_allclose(scores, found.point_scores[i], atol=1e-4, rtol=1e-4)
            # Where a map has two maxima that differ less than rounding errors, either is found.
            is_other = ~np.isclose(points, found.points[i], atol=1e-4, rtol=1e-5).all(axis=-1)
            assert is_other.mean() < 0.01


def truths(points: int = 17) -> vision.Truths:
    """Return objects for each picture, none in the last."""
    rng = np.random.default_rng(5)
    found: list[Any] = [[], [], [], [], []]
    for i, (height, width) in enumerate(SIZES):
        count = 2 - i
        low = rng.uniform(0, 0.4, (count, 2)) * (height, width)
        high = low + rng.uniform(0.3, 0.55, (count, 2)) * (height, width)
        masks = np.zeros((count, height, width), bool)
        for mask, (top, left), (bottom, right) in zip(masks, low, high, strict=True):
            mask[int(top) : int(bottom), int(left) : int(right)] = True
            mask[int(top) : int((top + bottom) / 2), int(left) : int((left + right) / 2)] = False
        at = low[:, None] + rng.uniform(-0.1, 1.1, (count, points, 2)) * (high - low)[:, None]
        for part, value in zip(
            found,
            (
                np.concatenate([low, high], axis=1).astype(np.float32),
                rng.integers(0, 5, count).astype(np.int32),
                masks,
                at.astype(np.float32),
                rng.random((count, points)) > 0.3,
            ),
            strict=True,
        ):
            part.append(value)
    return vision.Truths(*map(tuple, found))


def theirs_of(given: vision.Truths) -> list[dict[str, Any]]:
    """Return truths as torchvision takes them."""
    import torch

    targets = []
    for boxes, labels, masks, points, visible in zip(*given, strict=True):
        seen = visible[..., None].astype(np.float32)
        targets.append(
            {
                "boxes": torch.tensor(boxes[:, [1, 0, 3, 2]]),
                "labels": torch.tensor(labels.astype(np.int64) + 1),
                "masks": torch.tensor(masks.astype(np.uint8)),
                "keypoints": torch.tensor(np.concatenate([points[..., ::-1], seen], axis=-1)),
            }
        )
    return targets


@pytest.mark.parametrize("kind", KINDS)
def test_losses_of_the_same_samples_are_those_of_torchvision(kind: str, monkeypatch: Any) -> None:
    import torch
    from torchvision.models.detection import _utils

    numbers = {"rpn_post_nms_top_n_train": 300, "box_batch_size_per_image": 64}
    theirs, ours = pair(kind, **numbers)
    pictures, given, key = images(), truths(), fdbr.random.key(1)
    found, _ = ours.losses(pictures, given, key=key)

    # The same functions with the same keys give the samples, which torchvision then takes.
    prepared = ours.prepare(pictures)
    inside = vision.models.resizing.in_batch(vision.pad(given), prepared)
    levels = ours.backbone(prepared.batch)
    anchors, _, _, rois, is_roi = ours._proposals(levels, prepared.batch, prepared.sizes, "train")
    first, second = fdbr.random.split(key)
    of_anchors = ours.anchor_targets(first, ops.concat(anchors), inside, prepared.sizes)
    of_regions = ours.region_targets(second, rois, is_roi, inside)
    most, counts = rois.shape[1], np.asarray(is_roi).sum(axis=1)
    samples = [of_anchors.sample, of_regions.sample]

    def chosen(self: Any, labels: Any) -> Any:
        index, positive, counted = map(np.asarray, samples.pop(0))
        masks: tuple[list[Any], list[Any]] = ([], [])
        for i, label in enumerate(labels):
            at = index[i]
            if not samples:  # proposals have padding before the true boxes
                at = np.where(at >= most, at - most + counts[i], at)
            for part, which in zip(masks, (positive[i], counted[i] & ~positive[i]), strict=True):
                mask = np.zeros(len(label), np.uint8)
                mask[at[which]] = 1
                part.append(torch.tensor(mask))
        return masks

    monkeypatch.setattr(_utils.BalancedPositiveNegativeSampler, "__call__", chosen)
    theirs.train()
    wanted = theirs([torch.tensor(picture) / 255 for picture in pictures], theirs_of(given))
    assert set(wanted) == set(found)
    for name, want in wanted.items():
        np.testing.assert_allclose(
            found[name], float(want.detach()), rtol=1e-5, atol=1e-5, err_msg=name
        )


def test_old_and_new_names_of_torchvision_fit(tmp_path: Any) -> None:
    import torch

    theirs, ours = pair("Mask")
    state = theirs.state_dict()
    old = {
        name.replace("blocks.0.0", "blocks.0").replace("head.conv.0.0", "head.conv"): value
        for name, value in state.items()
    }
    for i in range(4):
        for end in ("weight", "bias"):
            old[f"roi_heads.mask_head.mask_fcn{i + 1}.{end}"] = old.pop(
                f"roi_heads.mask_head.{i}.0.{end}"
            )
    torch.save(old, tmp_path / "old.pth")
    assert fdbr.nn.load_torch_state(ours, tmp_path / "old.pth") == ours
    assert set(fdbr.nn.save_torch_state(ours)) >= set(state)
