"""Laws of functions on boxes and masks, drawn by hypothesis, and their derivatives."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fdbr
from fdbr import ops, vision
from fdbr.ops.nn.suppression import suppress
from fdbr.testing import check_grads

SEEDS = st.integers(0, 2**32 - 1)


def boxes_of(rng, count, extent=20.0):
    """Boxes with sides from 1, on a grid of quarters so that sums are exact."""
    low = np.round(rng.uniform(-extent, extent, (count, 2)) * 4) / 4
    return np.concatenate([low, low + np.round(rng.uniform(1, extent, (count, 2)) * 4) / 4], 1)


def greedy(boxes, scores, threshold, labels, fits=np.less_equal):
    """Keep one box after another."""
    kept, threshold = [], boxes.dtype.type(threshold)
    for i in np.argsort(-scores, kind="stable"):
        if not scores[i] > -np.inf or labels[i] == -1:
            continue
        rivals = [j for j in kept if labels[j] == labels[i]]
        if all(
            fits(vision.box_iou(boxes[i : i + 1], boxes[j : j + 1])[0, 0], threshold)
            for j in rivals
        ):
            kept.append(i)
    return kept


@settings(max_examples=30, deadline=None)
@given(SEEDS)
def test_overlaps_are_symmetric_from_0_to_1_and_invariant_to_translation(seed):
    rng = np.random.default_rng(seed)
    a, b = boxes_of(rng, 5), boxes_of(rng, 7)
    iou = vision.box_iou(a, b)
    assert (iou >= 0).all()
    assert (iou <= 1).all()
    np.testing.assert_array_equal(iou, vision.box_iou(b, a).T)
    np.testing.assert_array_equal(iou, vision.box_iou(a + 8, b + 8))
    np.testing.assert_array_equal(np.diag(vision.box_iou(a, a)), 1)
    generalized = vision.generalized_box_iou(a, b)
    assert (generalized <= iou).all()
    assert (generalized >= -1).all()
    loss = vision.giou_loss(a, b[:5], eps=0)
    np.testing.assert_allclose(loss, 1 - np.diag(generalized), rtol=1e-12)


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.sampled_from(["yxyx", "xyxy"]))
def test_decoding_inverts_encoding(seed, box_format):
    rng = np.random.default_rng(seed)
    boxes, anchors = boxes_of(rng, 6), boxes_of(rng, 6)
    more = {
        "weights": rng.uniform(0.5, 10, 4),
        "means": rng.normal(size=4),
        "box_format": box_format,
    }
    offsets = vision.encode_boxes(boxes, anchors, **more)
    np.testing.assert_allclose(vision.decode_boxes(offsets, anchors, **more), boxes, atol=1e-9)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", "int32", "int64"])
def test_boxes_of_integers_of_all_lengths_have_the_areas_and_formats_of_long_ones(dtype):
    most = min(np.iinfo(dtype).max, 40000)
    boxes = np.array([[0, 1, most - 1, most], [most, most, 1, 2], [most - 9, 3, most, 7]])
    short, size = boxes.astype(dtype), (most * 2, 5)
    np.testing.assert_array_equal(vision.box_area(short), vision.box_area(boxes))
    for source in ("yxyx", "yxhw"):
        for target in ("xyxy", "xywh", "cycxhw"):
            expected = vision.convert_boxes(boxes, source, target)
            np.testing.assert_array_equal(vision.convert_boxes(short, source, target), expected)
    clipped = vision.clip_boxes(short, size)
    np.testing.assert_array_equal(clipped, vision.clip_boxes(boxes, size))
    assert clipped.dtype == dtype


@settings(max_examples=25, deadline=None)
@given(SEEDS, st.sampled_from([0.0, 0.3, 0.5, 1.0]), st.integers(0, 25))
def test_nms_keeps_what_a_greedy_loop_keeps(seed, threshold, count):
    rng = np.random.default_rng(seed)
    boxes, scores = boxes_of(rng, count, 6.0), rng.integers(0, 6, count).astype(float)
    scores[rng.uniform(size=count) < 0.1] = rng.choice([-np.inf, np.nan])
    labels = rng.integers(-1, 2, count)
    kept = vision.nms(boxes, scores, threshold, labels=labels)
    assert kept.tolist() == greedy(boxes, scores, threshold, labels)
    again = vision.nms(boxes[kept], scores[kept], threshold, labels=labels[kept])
    assert again.tolist() == list(range(len(kept)))
    for limit in (0, 3, count + 2):
        padded = vision.nms(boxes, scores, threshold, labels=labels, limit=limit)
        expected = np.concatenate([kept, np.full(limit, -1)])[:limit]
        np.testing.assert_array_equal(padded, expected)
    single = vision.nms(boxes, scores, threshold)
    iou = vision.box_iou(boxes[single], boxes[single])
    assert (iou[~np.eye(len(single), dtype=bool)] <= threshold).all()


@settings(max_examples=25, deadline=None)
@given(SEEDS, st.sampled_from(["float32", "float64"]), st.sampled_from([0.0, 1 / 3, 0.7, 1.0]))
def test_nms_of_chainer_leaves_out_boxes_that_reach_the_threshold(seed, dtype, threshold):
    rng = np.random.default_rng(seed)
    low = rng.integers(0, 5, (12, 2))  # of so few sizes that overlaps equal the threshold
    boxes = np.concatenate([low, low + rng.integers(1, 11, (12, 2))], 1).astype(dtype)
    scores, labels = rng.normal(size=12), rng.integers(-1, 2, 12)
    kept = vision.nms(boxes, scores, threshold, labels=labels, chainer=True)
    assert kept.tolist() == greedy(boxes, scores, threshold, labels, np.less)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_kernel_of_nms_keeps_what_its_definition_keeps(dtype):
    rng = np.random.default_rng(0)
    boxes = boxes_of(rng, 2 * 1100).astype(dtype).reshape(2, 1100, 4)
    scores = rng.integers(0, 90, (2, 1100)).astype(dtype)
    labels = rng.integers(-1, 3, (2, 1100))
    for names, limit in ((labels, 1100), (labels * 0, 10)):
        found = vision.nms(boxes, scores, 0.3, labels=names, limit=limit)
        definition = suppress.primitive.value(np, boxes, scores, names, threshold=0.3, limit=limit)
        np.testing.assert_array_equal(found, definition)
        for b, s, n, row in zip(boxes, scores, names, found, strict=True):
            np.testing.assert_array_equal(vision.nms(b, s, 0.3, labels=n, limit=limit), row)


def test_nms_has_one_trace_for_all_numbers_of_boxes():
    f = fdbr.jit(lambda b, s, n: vision.nms(b, s, 0.5, labels=n, limit=6))
    rng = np.random.default_rng(1)
    for count in (0, 1, 9, 20):
        boxes, scores = boxes_of(rng, 20).astype("float32"), rng.normal(size=20).astype("float32")
        labels = np.where(np.arange(20) < count, rng.integers(0, 2, 20), -1).astype("int32")
        found = f(boxes, scores, labels)
        expected = vision.nms(boxes[:count], scores[:count], 0.5, labels=labels[:count], limit=6)
        np.testing.assert_array_equal(found, expected)
    assert len(f.report().traces) == 1


def test_nms_of_a_batch_is_that_of_each_image():
    rng = np.random.default_rng(2)
    boxes, scores = np.stack([boxes_of(rng, 9) for _ in range(4)]), rng.normal(size=(4, 9))
    single = [vision.nms(b, s, limit=4) for b, s in zip(boxes, scores, strict=True)]
    np.testing.assert_array_equal(vision.nms(boxes, scores, limit=4), single)
    batched = fdbr.vmap(lambda b, s: vision.nms(b, s, limit=4))(boxes, scores)
    np.testing.assert_array_equal(batched, single)


def test_boxes_without_area_nan_and_reversed_corners():
    boxes = np.array([[1.0, 1, 1, 1], [1, 1, 1, 1], [4, 4, 2, 2], [2, 2, 4, 4], [0, 0, np.nan, 9]])
    assert vision.nms(boxes, np.arange(5.0), 0.0).tolist() == [4, 3, 2, 1, 0]
    np.testing.assert_array_equal(vision.box_area(boxes[:4]), [0, 0, 0, 4])
    np.testing.assert_array_equal(vision.box_iou(boxes[:4], boxes[:4]), np.diag([0, 0, 0, 1.0]))
    np.testing.assert_array_equal(
        vision.clip_boxes(np.array([[-5.0, -5, -1, -1], [8, 8, 9, 9]]), (4, 6)),
        [[0, 0, 0, 0], [4, 6, 4, 6]],
    )
    sizes = np.array([[4, 6], [2, 3]])
    found = vision.clip_boxes(np.full((2, 1, 4), 9.0), sizes)
    np.testing.assert_array_equal(found[:, 0], [[4, 6, 4, 6], [2, 3, 2, 3]])
    assert np.isfinite(vision.encode_boxes(np.zeros((1, 4)), np.zeros((1, 4)))).all()
    assert np.isfinite(vision.decode_boxes(np.full((1, 4), 1e3), np.ones((1, 4)))).all()


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.booleans())
def test_run_lengths_give_the_masks_back(seed, compressed):
    rng = np.random.default_rng(seed)
    shape = rng.integers(0, 4), *rng.integers(1, 60, 2)
    masks = rng.uniform(size=shape) < rng.choice([0, 0.01, 0.5, 1])
    encoded = vision.encode_rle(masks, compressed=compressed)
    if len(masks):
        np.testing.assert_array_equal(vision.decode_rle(encoded), masks)
    texts = [{**e, "counts": e["counts"].decode()} for e in encoded] if compressed else encoded
    assert len(vision.decode_rle(texts)) == len(masks)


@settings(max_examples=20, deadline=None)
@given(SEEDS)
def test_masks_overlap_as_their_elements_do(seed):
    rng = np.random.default_rng(seed)
    a, b = rng.uniform(size=(3, 5, 6)) < 0.3, rng.uniform(size=(2, 5, 6)) < 0.3
    common = (a[:, None] & b).sum((2, 3))
    union = (a[:, None] | b).sum((2, 3))
    np.testing.assert_allclose(vision.mask_iou(a, b), common / np.maximum(union, 1), rtol=1e-6)
    for mask, box in zip(a, vision.masks_to_boxes(a), strict=True):
        y, x = mask.nonzero()
        expected = [y.min(), x.min(), y.max() + 1, x.max() + 1] if len(y) else [0] * 4
        assert box.tolist() == expected


def test_masks_are_resized_pasted_and_cropped():
    mask = np.zeros((1, 8, 12), bool)
    mask[:, 2:6, 4:10] = True
    doubled = vision.resize_masks(mask, 16)
    assert doubled.shape == (1, 16, 24)
    np.testing.assert_array_equal(vision.masks_to_boxes(doubled), [[4, 8, 12, 20]])
    boxes = vision.masks_to_boxes(mask)
    cropped = vision.crop_masks(mask, boxes, 14)
    assert cropped.shape == (1, 14, 14)
    assert cropped.max() == 1
    pasted = vision.paste_masks(cropped, boxes, (8, 12), chainer=True)
    assert vision.mask_iou(pasted, mask)[0, 0] > 0.6
    assert vision.resize_masks(mask[:0], 4).shape == (0, 4, 6)
    assert vision.crop_masks(mask[:0], boxes[:0], 4).shape == (0, 4, 4)
    assert vision.paste_masks(cropped[:0], boxes[:0], (3, 4)).shape == (0, 3, 4)
    assert vision.paste_masks(cropped, boxes, (0, 4)).shape == (len(boxes), 0, 4)
    assert vision.crop_masks(mask, boxes, (0, 4)).shape == (1, 0, 4)
    for empty in (mask[:, :0], mask[:, :, :0]):
        assert not vision.crop_masks(empty, boxes, 3).any()
        assert not vision.paste_masks(empty, boxes, (3, 4)).any()
    for size in ((3, 5), np.array([3, 5])):
        assert vision.resize_masks(mask, size).shape == (1, 3, 5)
        assert vision.grid_anchors(2, size, boxes)[-1, 0] == boxes[0, 0] + 3


def test_masks_are_cropped_as_by_chainercv():
    rng = np.random.default_rng(5)
    mask = np.kron(rng.random((1, 5, 6)) > 0.3, np.ones((4, 5), bool))
    low, size = rng.uniform(-6, 14, (12, 2)), 6
    boxes = np.concatenate([low, low + rng.uniform(1, 14, (12, 2))], axis=1)
    found = vision.crop_masks(mask, boxes, size, indices=np.zeros(12, int), chainer=True)
    for box, ours in zip(boxes, found, strict=True):
        half, centre = (box[2:] - box[:2]) / 2 * (size + 2) / size, (box[2:] + box[:2]) / 2
        low, high = np.round(centre - half).astype(int), np.round(centre + half).astype(int)
        padded = np.pad(mask[0], 40)[low[0] + 40 : high[0] + 40, low[1] + 40 : high[1] + 40]
        ends = []
        for length in padded.shape:
            at = np.clip((np.arange(size + 2) + 0.5) * length / (size + 2) - 0.5, 0, length - 1)
            ends.append((np.floor(at).astype(int), np.ceil(at).astype(int)))
        whole = np.all([padded[np.ix_(y, x)] for y in ends[0] for x in ends[1]], axis=0)
        np.testing.assert_array_equal(ours, whole[1:-1, 1:-1])


@pytest.mark.parametrize("sides", [(0.02, 30), (30, 0.02), (0, 0), (-9, 4)])
def test_boxes_whose_rounded_sides_are_not_positive_have_no_masks_in_chainercv(sides):
    low = np.array([3.2, 4.2])
    boxes = np.concatenate([low, low + sides])[None]
    assert not vision.paste_masks(np.ones((1, 4, 4)), boxes, (20, 40), chainer=True).any()
    assert not vision.crop_masks(np.ones((1, 20, 40)), boxes, 4, chainer=True).any()


def test_derivatives_agree_with_differences():
    rng = np.random.default_rng(3)
    a, b = boxes_of(rng, 3) + 0.1, boxes_of(rng, 3) + rng.uniform(0.01, 0.05, (3, 4))
    for f in (vision.box_iou, vision.generalized_box_iou, vision.giou_loss):
        check_grads(f, a, b, order=1)
    check_grads(vision.encode_boxes, a, b, order=1)
    check_grads(vision.decode_boxes, rng.normal(size=(3, 4)), b, order=1)
    masks = rng.uniform(size=(3, 4, 4))
    check_grads(lambda m: vision.paste_masks(m, b, (9, 9), None), masks, order=1)
    gradient = fdbr.grad(lambda a: ops.sum(vision.box_iou(a, a * 0)))(a * 0)
    np.testing.assert_array_equal(gradient, np.zeros((3, 4)))


def test_derivatives_at_kinks_are_those_of_torchvision():
    a, b = np.array([[0.0, 0, 2, 4]]), np.array([[2.0, 0, 4, 4]])
    gradient = fdbr.grad(lambda a: ops.sum(vision.box_iou(a, b)))(a)
    np.testing.assert_allclose(gradient, [[0, 0, 0.25, 0]])  # they touch
    gradient = fdbr.grad(lambda a: ops.sum(vision.giou_loss(a, b, eps=0)))(a)
    np.testing.assert_allclose(gradient, [[0, 0, -0.25, 0]])
    line = np.array([1.0, 1, 1, 4])
    np.testing.assert_array_equal(fdbr.grad(vision.box_area)(line), [-3, 0, 3, 0])
    border = np.array([[0.0, -1, 5, 7], [2, 0, 9, 6]])
    gradient = fdbr.grad(lambda a: ops.sum(vision.clip_boxes(a, (5, 6))))(border)
    np.testing.assert_array_equal(gradient, [[1, 0, 1, 0], [1, 1, 0, 1]])


def test_a_single_box_and_boxes_of_other_byte_orders_are_boxes():
    box = np.array([-1.0, 2, 9, 8])
    np.testing.assert_array_equal(vision.clip_boxes(box, np.array([5, 6])), [0, 2, 5, 6])
    assert vision.clip_boxes(box.astype("float16"), (5.0, 6.0)).dtype == "float16"
    boxes, scores = boxes_of(np.random.default_rng(8), 20, 5.0), np.arange(20.0) % 7
    for dtype in ("f4", "f8"):
        expected = vision.nms(boxes.astype(dtype), scores, 0.3)
        swapped = vision.nms(boxes.astype(">" + dtype), scores.astype(">f8"), 0.3)
        np.testing.assert_array_equal(swapped, expected)


def test_ssds_default_boxes_are_those_of_chainercv():
    found = vision.default_boxes([2], [[2]], 300, scales=[0.1, 0.2], steps=[150], clip=False)
    side, mean = 15, 150 * 0.02**0.5
    half = [(side, side), (mean, mean), (side / 2**0.5, side * 2**0.5)]
    centres = [(75, 75), (75, 225), (225, 75), (225, 225)]
    for k, (y, x) in enumerate(centres):
        for i, (h, w) in enumerate(half):
            expected = [y - h, x - w, y + h, x + w]
            np.testing.assert_allclose(found[4 * k + i], expected, rtol=1e-6)


def test_chainercvs_anchors_surround_the_centre_of_a_square():
    found = vision.base_anchors([128, 256], [0.5, 1], chainer=True)
    np.testing.assert_allclose(found[2], [8 - 64, 8 - 64, 8 + 64, 8 + 64])
    height, width = 128 * 0.5**0.5 / 2, 128 * 2**0.5 / 2
    np.testing.assert_allclose(found[0], [8 - height, 8 - width, 8 + height, 8 + width], rtol=1e-6)


B, S = np.zeros((2, 4)), np.zeros(2)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: vision.nms(B, S[:1]), ValueError, r"nms: boxes float64\[2,4\]"),
        (lambda: vision.nms(B[None], S[None]), ValueError, "leading axes need a limit"),
        (lambda: vision.nms(B, S, limit=-1), ValueError, "limit must be at least 0, got -1"),
        (lambda: vision.nms(B, S, np.nan), ValueError, "threshold must be a number"),
        (lambda: vision.nms(B, S > 0), TypeError, r"scores must be real numbers, got bool\[2\]"),
        (lambda: vision.nms(B, S, labels=S), TypeError, "labels must be integers"),
        (lambda: vision.nms(B, S, box_format="xywh"), ValueError, "box_format must be"),
        (lambda: vision.box_iou(B[:, :3], B), ValueError, r"a must have the shape \(…, 4\)"),
        (lambda: vision.box_iou(B, B[0]), ValueError, "b must have the shape"),
        (lambda: vision.box_area(B * 1j), TypeError, "boxes must be of real numbers"),
        (lambda: vision.clip_boxes(B, (1, 2, 3)), ValueError, "size must have two numbers"),
        (lambda: vision.convert_boxes(B, "yxyx", "polar"), ValueError, "target must be one of"),
        (lambda: vision.encode_boxes(B, B, weights=(1, 1)), ValueError, "weights must be four"),
        (lambda: vision.base_anchors([0], [1]), ValueError, "lists of positive numbers"),
        (lambda: vision.default_boxes([3], [], 9), ValueError, "1 grids need as many ratios"),
        (lambda: vision.mask_iou(B[None], S[None, None]), ValueError, "differ in size"),
        (lambda: vision.masks_to_boxes(B), ValueError, r"shape \(…, R, H, W\)"),
        (lambda: vision.crop_masks(B[None], B, 3), ValueError, "equally many"),
        (lambda: vision.paste_masks(B[None], B, (3, 3)), ValueError, "need boxes"),
        (lambda: vision.paste_masks(B[None], B[:1], (3, -3)), ValueError, "size must be a height"),
        (lambda: vision.encode_rle(B), ValueError, r"shape \(R, H, W\)"),
        (
            lambda: vision.decode_rle([{"size": [1, 2], "counts": [3]}]),
            ValueError,
            r"the runs of mask 0 have 3 pixels",
        ),
        (
            lambda: vision.decode_rle([{"size": [1, 2], "counts": b"o"}]),
            ValueError,
            "counts of mask 0 are damaged",
        ),
    ],
)
def test_bad_arguments_are_named(call, error, match):
    with pytest.raises(error, match=match):
        call()
