"""Detectors with regions: shapes, targets, losses, compilation and files."""

from typing import Any

import numpy as np
import pytest

import fdbr
from fdbr import ops, tree, vision
from fdbr.vision import models
from fdbr.vision.models.region_features import (
    join_levels,
    levels_of,
    of_real,
    pool_levels,
)

SMALL = {
    "width": 2,
    "depths": (1, 1, 1, 1),
    "min_size": 64,
    "max_size": 96,
    "rpn_pre_nms_top_n_train": 40,
    "rpn_post_nms_top_n_train": 30,
    "rpn_pre_nms_top_n_test": 40,
    "rpn_post_nms_top_n_test": 20,
    "rpn_batch_size_per_image": 32,
    "box_batch_size_per_image": 16,
    "box_detections_per_img": 5,
    "box_score_thresh": 0.05,
}
CLASSES = (
    models.FasterRCNN_ResNet50_FPN,
    models.MaskRCNN_ResNet50_FPN,
    models.KeypointRCNN_ResNet50_FPN,
)
all_classes = pytest.mark.parametrize("cls", CLASSES)


def model(cls: Any = CLASSES[0], **settings: Any) -> Any:
    """Return a small model of 3 classes."""
    return cls.init(fdbr.random.key(0), 3, **{**SMALL, **settings})


def pictures(*sizes: tuple[int, int]) -> list[Any]:
    """Return random images."""
    rng = np.random.default_rng(0)
    return [rng.uniform(0, 255, (3, *size)).astype(np.float32) for size in sizes]


def objects(*counts: int, size: tuple[int, int] = (64, 80)) -> vision.Truths:
    """Return ragged truths with that many objects in each image."""
    rng = np.random.default_rng(1)
    boxes, masks = [], []
    for count in counts:
        low = rng.uniform(0, 20, (count, 2))
        each = np.concatenate([low, low + rng.uniform(20, 40, (count, 2))], axis=1)
        boxes.append(each.astype(np.float32))
        mask = np.zeros((count, *size), bool)
        for i, (top, left, bottom, right) in enumerate(each.astype(int)):
            mask[i, top:bottom, left:right] = True
        masks.append(mask)
    return vision.Truths(
        tuple(boxes),
        tuple(rng.integers(0, 3, count).astype(np.int32) for count in counts),
        tuple(masks),
        tuple(rng.uniform(10, 40, (count, 17, 2)).astype(np.float32) for count in counts),
        tuple(rng.random((count, 17)) > 0.2 for count in counts),
    )


@all_classes
@pytest.mark.parametrize("chainer", [False, True])
def test_predictions_are_the_same_compiled_and_not(cls: Any, chainer: bool) -> None:
    detector, images = model(cls, chainer=chainer), pictures((64, 80), (72, 60))
    plain, compiled = detector.predict(images), detector.predict(images, jit=True)
    for name, parts in plain._asdict().items():
        for got, want, image in zip(getattr(compiled, name), parts, images, strict=True):
            assert got.shape == want.shape
            assert got.dtype == want.dtype
            if name == "masks":
                assert want.shape[1:] == image.shape[1:]
                assert (got != want).mean() < 1e-3
            else:
                np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)
    for boxes, scores, image in zip(plain.boxes, plain.scores, images, strict=True):
        assert boxes.dtype == np.float32
        assert (np.diff(scores) <= 0).all()
        assert (boxes >= 0).all()
        assert (boxes[:, 2:] <= np.array(image.shape[1:]) + 1e-3).all()


def test_detect_has_shapes_of_the_batch_alone() -> None:
    for cls, last in zip(CLASSES, ((), (28, 28), (17, 56, 56)), strict=True):
        detector = model(cls)
        prepared = detector.prepare(pictures((64, 80)) * 2)
        found = detector.detect(prepared.batch, prepared.sizes)
        assert found.boxes.shape == (2, 5, 4)
        assert found.labels.dtype == np.int32
        assert not last or found[3].shape == (2, 5, *last)
        assert found.labels.min() >= -1


def test_images_without_detections_give_empty_results() -> None:
    for cls in CLASSES:
        found = model(cls, box_score_thresh=0.999).predict(pictures((64, 70)))
        assert [len(part[0]) for part in found] == [0] * len(found)
        assert found.boxes[0].shape == (0, 4)
        assert cls is not CLASSES[1] or found.masks[0].shape == (0, 64, 70)
        assert cls is not CLASSES[2] or found.points[0].shape == (0, 17, 2)


@all_classes
def test_gradients_are_the_same_compiled_and_not(cls: Any) -> None:
    detector, key = model(cls), fdbr.random.key(2)
    batch, truths = np.stack(pictures((64, 80), (64, 80))), vision.pad(objects(2, 0), 3)

    def total(detector: Any, truths: Any) -> Any:
        return sum(detector.losses(batch, truths, key=key)[0].values())

    plain, compiled = fdbr.grad(total), fdbr.jit(fdbr.grad(total))
    want, got = plain(detector, truths), compiled(detector, truths)
    assert want.backbone.body.bn1.weight is None
    for path, a, b in zip(tree.paths(want), tree.leaves(want), tree.leaves(got), strict=True):
        assert np.isfinite(a).all(), path
        np.testing.assert_allclose(b, a, rtol=1e-3, atol=1e-5, err_msg=path)


def test_a_training_step_has_one_trace_for_all_numbers_of_objects() -> None:
    detector, traces = model(CLASSES[1]), []
    batch = np.stack(pictures((64, 80)))

    @fdbr.jit
    def step(detector: Any, truths: Any, key: Any) -> Any:
        traces.append(1)
        return sum(detector.losses(batch, truths, key=key)[0].values())

    for count in (0, 1, 3):
        truths = vision.pad(objects(count), 3)
        value = step(detector, truths, fdbr.random.key(count))
        assert np.isfinite(value)
    assert len(traces) == 1


def test_ragged_and_padded_truths_have_the_same_losses() -> None:
    detector, key = model(CLASSES[1]), fdbr.random.key(2)
    images, truths = pictures((64, 80), (64, 80)), objects(2, 1)
    ragged, successor = detector.losses(images, truths, key=key)
    padded, _ = detector.losses(np.stack(images), vision.pad(truths), key=key)
    assert successor is detector
    assert set(ragged) == {
        "loss_objectness",
        "loss_rpn_box_reg",
        "loss_classifier",
        "loss_box_reg",
        "loss_mask",
    }
    for name, value in ragged.items():
        np.testing.assert_allclose(padded[name], value, rtol=1e-5)


def overlap(a: Any, b: Any) -> float:
    """Return the intersection over union of two boxes."""
    sides = np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0)
    area = [np.prod(np.maximum(box[2:] - box[:2], 0)) for box in (a, b)]
    return float(sides.prod() / max(area[0] + area[1] - sides.prod(), 1e-9))


def test_anchor_targets_are_those_of_loops() -> None:
    rng = np.random.default_rng(3)
    low = rng.uniform(0, 60, (80, 2))
    anchors = np.concatenate([low, low + rng.uniform(5, 40, (80, 2))], axis=1).astype(np.float32)
    truth = np.concatenate([anchors[:2] + 1, [[0, 0, 90, 90]]]).astype(np.float32)
    for count in range(4):
        iou = np.array([[overlap(t, a) for a in anchors] for t in truth[:count]]).reshape(-1, 80)
        want = np.full(80, -1)
        for i in range(80):
            best = iou[:, i].max() if count else 0.0
            at_peak = any(iou[j, i] == iou[j].max() for j in range(count))
            if count and (best >= 0.7 or at_peak):
                want[i] = iou[:, i].argmax()
            elif best >= 0.3:
                want[i] = -2
        matched = models.match(
            vision.box_iou(truth, anchors), np.arange(3) < count, 0.7, 0.3, low_quality=True
        )
        np.testing.assert_array_equal(matched, want)
        truths = vision.Truths(truth[None], np.where(np.arange(3) < count, 1, -1)[None])
        targets = models.anchor_targets(
            fdbr.random.key(count), anchors, truths, count=20, positive_fraction=0.5
        )
        index, positive, chosen = (part[0] for part in targets.sample)
        assert chosen.all()
        assert len(set(index)) == 20
        assert positive.sum() == min((want >= 0).sum(), 10)
        assert (want[index[positive]] >= 0).all()
        assert (want[index[~positive]] == -1).all()
        for i, code in zip(index[positive], targets.codes[0][positive], strict=True):
            anchor, box = anchors[i], truth[want[i]]
            sides, others = anchor[2:] - anchor[:2], box[2:] - box[:2]
            shift = ((box[2:] + box[:2]) - (anchor[2:] + anchor[:2])) / 2 / sides
            np.testing.assert_allclose(
                code, np.concatenate([shift, np.log(others / sides)]), rtol=1e-4, atol=1e-5
            )


def test_proposals_are_those_of_loops() -> None:
    rng, detector = np.random.default_rng(4), model()
    batch = np.zeros((1, 3, 64, 96), np.float32)
    levels = [np.zeros((1, 1, 64 // 2**i, 96 // 2**i)) for i in range(2, 7)]
    anchors = detector.anchors(levels, batch)
    logits = [rng.normal(size=(1, len(a))).astype(np.float32) for a in anchors]
    codes = [rng.normal(0, 0.2, (1, len(a), 4)).astype(np.float32) for a in anchors]
    boxes, is_box = detector.propose(logits, codes, anchors, np.array([[60, 90]]), 30, 15)
    found = []
    for level, (logit, code, anchor) in enumerate(zip(logits, codes, anchors, strict=True)):
        kept: list[Any] = []
        for i in np.argsort(-logit[0], kind="stable")[:30]:
            dx, dy, dw, dh = code[0, i]
            sides = anchor[i, 2:] - anchor[i, :2]
            centre = anchor[i, :2] + sides / 2 + np.array([dy, dx]) * sides
            half = np.exp([dh, dw]) * sides / 2
            box = np.clip(np.concatenate([centre - half, centre + half]), 0, [60, 90, 60, 90])
            if min(box[2:] - box[:2]) >= 1e-3 and all(overlap(box, b) <= 0.7 for _, _, b in kept):
                kept.append((logit[0, i], level, box))
        found += kept
    want = np.array([box for _, _, box in sorted(found, key=lambda f: -f[0])[:15]])
    assert is_box.all()
    np.testing.assert_allclose(boxes[0], want, rtol=1e-4, atol=1e-3)


def test_proposals_of_chainer_are_ordered_where_probabilities_are_one() -> None:
    anchors = [np.array([[0, 0, 8, 8]], np.float32), np.array([[8, 8, 16, 16]], np.float32)]
    logits = [np.full((1, 1), value, np.float32) for value in (30, 40)]
    codes = [np.zeros((1, 1, 4), np.float32)] * 2
    boxes, _ = model(chainer=True).propose(logits, codes, anchors, np.array([[16, 16]]), 1, 1)
    np.testing.assert_array_equal(boxes[0], anchors[1])


def test_levels_are_those_of_areas() -> None:
    sides = np.array([10.0, 111.9, 112, 223.9, 224, 447.9, 448, 5000])
    boxes = np.stack([0 * sides, 0 * sides, sides, sides], axis=1).astype(np.float32)
    np.testing.assert_array_equal(levels_of(boxes, 4), [0, 0, 1, 1, 2, 2, 3, 3])
    np.testing.assert_array_equal(levels_of(boxes, 4, chainer=True), [0, 0, 1, 1, 2, 2, 3, 3])


def test_features_of_levels_are_those_of_each_level_alone() -> None:
    rng = np.random.default_rng(5)
    levels = [rng.normal(size=(2, 3, -(-200 // s), -(-312 // s))) for s in (4, 8, 16, 32)]
    levels = [x.astype(np.float32) for x in levels]
    low = rng.uniform(-5, 150, (2, 30, 2))
    boxes = np.concatenate([low, low + rng.uniform(1, 600, (2, 30, 2))], axis=-1)
    boxes = boxes.astype(np.float32)
    level = np.asarray(levels_of(boxes, 4))
    assert set(level.ravel()) >= {0, 1, 2}
    found = pool_levels(join_levels(levels), boxes.reshape(-1, 4), np.repeat([0, 1], 30), 7)
    found = found.reshape(2, 30, 3, 7, 7)
    for i, x in enumerate(levels):
        for n in range(2):
            want = ops.roi_average_align(
                x[n : n + 1], boxes[n], 7, 0.25 / 2**i, 2, box_format="yxyx"
            )
            np.testing.assert_allclose(
                found[n][level[n] == i], want[level[n] == i], rtol=1e-4, atol=1e-4
            )


def test_rows_that_are_real_are_computed_in_one_trace_for_all_numbers_of_them() -> None:
    x = np.random.default_rng(7).normal(size=(23, 3)).astype(np.float32)

    def squares(is_real: Any, x: Any) -> Any:
        zeros = np.zeros((23, 3), np.float32), np.zeros(23, np.float32)
        return of_real(
            lambda index: (x[index] ** 2, ops.sum(x[index], axis=1)),
            is_real,
            zeros,
            (8, 3, 1),
        )

    compiled = fdbr.jit(squares)
    for count in (0, 1, 2, 6, 7, 22, 23):
        is_real = np.random.default_rng(count).permutation(23) < count
        want = x**2 * is_real[:, None], x.sum(axis=1) * is_real
        for function in (squares, compiled):
            for found, each in zip(function(is_real, x), want, strict=True):
                np.testing.assert_allclose(found, each, rtol=1e-5, atol=1e-6)
    assert "squares: 1 trace\n" in str(compiled.report())


def test_layers_that_are_frozen_do_not_change() -> None:
    detector, key = model(), fdbr.random.key(2)
    images, truths = pictures((64, 80)), objects(2)
    for layers, names in ((0, 4), (2, 2), (5, 0)):
        trained, fixed = models.split_backbone(detector, layers)

        def total(part: Any, fixed: Any = fixed) -> Any:
            whole = tree.combine(part, fixed)
            return sum(whole.losses(images, truths, key=key)[0].values())

        gradients = fdbr.grad(total)(trained)
        after = tree.combine(
            tree.map(lambda p, g: p if g is None else p - g, trained, gradients), fixed
        )
        for i in range(1, 5):
            before, now = (getattr(m.backbone.body, f"layer{i}") for m in (detector, after))
            assert (before == now) == (i <= names), (layers, i)
        assert after.rpn != detector.rpn
    with pytest.raises(ValueError, match="trainable_layers must be from 0 to 5, got 6"):
        models.split_backbone(detector, 6)


def test_files_of_chainer_fit(tmp_path: Any) -> None:
    detector = model(CLASSES[1], chainer=True)
    fdbr.nn.save_chainer_npz(detector, tmp_path / "model.npz")
    with np.load(tmp_path / "model.npz") as file:
        names = set(file)
    for name in (
        "extractor/base/conv1/conv/W",
        "extractor/base/conv1/conv/b",
        "extractor/base/res2/a/conv1/bn/avg_mean",
        "extractor/base/res5/a/residual_conv/conv/W",
        "extractor/inner/3/W",
        "extractor/outer/0/b",
        "rpn/conv/W",
        "rpn/loc/b",
        "rpn/conf/W",
        "bbox_head/fc1/W",
        "bbox_head/loc/W",
        "bbox_head/conf/b",
        "mask_head/conv4/conv/W",
        "mask_head/conv5/W",
        "mask_head/seg/b",
    ):
        assert name in names
    empty = tree.map(np.zeros_like, detector)
    assert fdbr.nn.load_chainer_npz(empty, tmp_path / "model.npz") == detector


def test_chainer_anchors_are_centred_at_elements() -> None:
    batch = np.zeros((1, 3, 64, 64), np.float32)
    levels = [np.zeros((1, 1, 64 // 2**i, 64 // 2**i)) for i in range(2, 7)]
    ours, theirs = (model(chainer=c).anchors(levels, batch) for c in (False, True))
    np.testing.assert_array_equal(ours[0][1], [-16, -16, 16, 16])
    np.testing.assert_array_equal(
        theirs[0][:3], [[-10, -22, 14, 26], [-14, -14, 18, 18], [-22, -10, 26, 14]]
    )
    assert [a.shape for a in ours] == [a.shape for a in theirs]


def test_unknown_settings_and_wrong_sizes_raise() -> None:
    with pytest.raises(TypeError, match="there is no setting 'min_sizes', only min_size"):
        model(min_sizes=3)
    with pytest.raises(ValueError, match="classes"):
        models.FasterRCNN_ResNet50_FPN.init(fdbr.random.key(0), 0)
    with pytest.raises(ValueError, match="image 1 must have the shape"):
        model().predict([np.zeros((3, 8, 8)), np.zeros((1, 8, 8))])


def test_anchors_that_touch_the_border_are_ignored_in_pyramids_of_chainer() -> None:
    anchors = np.array([[0, 0, 8, 8], [0, 8, 8, 15.5], [0, 8, 8, 16]], np.float32)
    truths = vision.Truths(anchors[None, :1], np.array([[0]]))
    key, sizes = fdbr.random.key(0), np.array([[9, 16]])
    for whole in (sizes, sizes + np.float32([0, 0.5])):  # images have integer sizes in training
        found = model(chainer=True).anchor_targets(key, anchors, truths, whole)
        index, _, chosen = found.sample
        assert set(index[chosen]) == {0, 1}
    index, _, chosen = models.anchor_targets(key, anchors, truths, sizes=sizes).sample
    assert set(index[chosen]) == {0, 1, 2}
