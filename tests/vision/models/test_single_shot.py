"""SSD, RetinaNet and FCOS: matching, losses, fixed shapes, gradients and names."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fdbr
from fdbr import nn, ops, tree, vision
from fdbr.vision import models

SMALL = {"width": 2, "depths": (1, 1, 1, 1), "channels": 4, "min_size": 64, "max_size": 96}
MODELS = {
    "SSD300_VGG16": {"width": 1},
    "SSD512_VGG16": {"width": 1, "chainer": True},
    "SSDLite320_MobileNet_V3_Large": {"width": 0.1},
    "RetinaNet_ResNet50_FPN": SMALL,
    "RetinaNet_ResNet50_FPN_V2": SMALL,
    "FCOS_ResNet50_FPN": SMALL,
}
CLASSES = 3
LONG = "SSD512_VGG16", "RetinaNet_ResNet50_FPN_V2"  # the others run what they run, too


def named(names):
    return [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in names]


@pytest.fixture(params=named(MODELS), scope="module")
def model(request):
    options = {"score_threshold": 0.0, "detections": 20, **MODELS[request.param]}
    return getattr(models, request.param).init(fdbr.random.key(0), CLASSES, **options)


def pictures():
    rng = np.random.default_rng(0)
    return [rng.uniform(0, 255, (3, *size)).astype("float32") for size in ((60, 80), (64, 64))]


def truths(*counts):
    rng = np.random.default_rng(1)
    boxes, labels = [], []
    for count in counts:
        low = rng.uniform(0, 30, (count, 2))
        boxes.append(np.concatenate([low, low + rng.uniform(4, 30, (count, 2))], 1).astype("f4"))
        labels.append(rng.integers(0, CLASSES, count).astype("i4"))
    return vision.Truths(tuple(boxes), tuple(labels))


def total(model, images, truths):
    losses, _ = model.losses(images, truths, key=fdbr.random.key(1))
    return sum(losses.values())


# --- models -----------------------------------------------------------------------------


def test_detections_lie_in_the_images_and_are_the_same_jitted(model):
    images = pictures()
    found = model.predict(images)
    for i, image in enumerate(images):
        boxes, labels, scores = (field[i] for field in found)
        assert boxes.shape == (len(labels), 4)
        assert boxes.dtype == "float32"
        assert len(labels) <= 20
        assert len(labels) > 0
        assert labels.dtype == "int32"
        assert set(labels) <= set(range(CLASSES))
        assert (np.diff(scores) <= 0).all()
        if not getattr(model, "chainer", False):
            assert (boxes >= 0).all()
            assert (boxes <= np.tile(image.shape[1:], 2) + 1e-3).all()
    # Objects with nearly equal scores may exchange their places, fewer of them in float64.
    precise = tree.map(lambda w: w.astype(float) if w.dtype.kind == "f" else w, model)
    images = [image.astype(float) for image in images]
    found, jitted = precise.predict(images), precise.predict(images, jit=True)
    for i in range(len(images)):
        np.testing.assert_allclose(jitted.scores[i], found.scores[i], rtol=1e-9)
        gaps = np.diff(found.scores[i], prepend=np.inf, append=found.scores[i][-1:])
        clear = np.minimum(-gaps[:-1], -gaps[1:]) > 1e-9
        np.testing.assert_allclose(jitted.boxes[i][clear], found.boxes[i][clear], rtol=1e-6)
        assert (jitted.labels[i][clear] == found.labels[i][clear]).all()


def test_padded_detections_have_shapes_that_depend_on_the_batch_alone(model):
    strict = tree.replace(model, score_threshold=2.0)
    prepared = strict.prepare(pictures())
    found = strict.detect(prepared.batch, prepared.sizes)
    assert found.boxes.shape == (2, 20, 4)
    assert found.labels.shape == found.scores.shape == (2, 20)
    assert (found.labels == -1).all()
    assert [len(boxes) for boxes in strict.finish(found, prepared).boxes] == [0, 0]


def test_gradients_are_the_same_jitted_and_one_trace_serves_all_numbers_of_objects(model):
    images = pictures()

    def loss(model, truths):
        return total(model, images, truths)

    jitted = fdbr.jit(fdbr.value_and_grad(loss))
    for counts in ((1, 3), (0, 0)):
        value, gradient = jitted(model, vision.pad(truths(*counts), 3))
        expected, eager = fdbr.value_and_grad(loss)(model, truths(*counts))  # ragged
        assert np.isfinite(value)
        np.testing.assert_allclose(value, expected, rtol=1e-5)
        for a, b in zip(tree.leaves(gradient), tree.leaves(eager), strict=True):
            if a is not None:
                np.testing.assert_allclose(a, b, rtol=1e-3, atol=5e-5 * (1 + np.abs(b).max()))
    assert len(jitted.report().traces) == 1


# --- the mathematics, written for one image in NumPy --------------------------------------


def iou(a, b):
    sides = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
    common = max(sides[0], 0) * max(sides[1], 0)
    return common / (np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - common)


def some_boxes(rng, count, size=12.0):
    low = rng.uniform(0, size, (count, 2))
    return np.concatenate([low, low + rng.uniform(2, size, (count, 2))], 1)


cases = given(
    seed=st.integers(0, 10**6), counts=st.lists(st.integers(0, 4), min_size=1, max_size=3)
)


def drawn(seed, counts):
    rng = np.random.default_rng(seed)
    ragged = vision.Truths(
        tuple(some_boxes(rng, n) for n in counts), tuple(rng.integers(0, 3, n) for n in counts)
    )
    return rng, ragged, vision.pad(ragged, max(counts) + 1), some_boxes(rng, 15)


@cases
@settings(max_examples=30, deadline=None)
def test_default_boxes_are_matched_as_in_the_paper(seed, counts):
    _, ragged, padded, anchors = drawn(seed, counts)
    found = models.match_default_boxes(padded.boxes, padded.labels, anchors)
    chainer = models.match_default_boxes(padded.boxes, padded.labels, anchors, chainer=True)
    for i, boxes in enumerate(ragged.boxes):
        table = np.array([[iou(a, b) for b in boxes] for a in anchors]).reshape(15, len(boxes))
        expected = [row.argmax() if len(row) and row.max() >= 0.5 else -1 for row in table]
        for j in range(len(boxes)):
            expected[table[:, j].argmax()] = j
        np.testing.assert_array_equal(found[i], expected)
        np.testing.assert_array_equal(chainer[i], one_to_one(table))


def one_to_one(table):
    """ChainerCV's matches: the largest overlap first, then those of at least a half."""
    matches = [-1] * len(table)
    left = table.copy()
    while left.size and left.max() > 1e-6:
        k, j = np.unravel_index(left.argmax(), left.shape)
        matches[k] = j
        left[k], left[:, j] = 0, 0
    for k, row in enumerate(table):
        if matches[k] < 0 and len(row) and row.max() >= 0.5:
            matches[k] = row.argmax()
    return matches


@cases
@settings(max_examples=20, deadline=None)
def test_the_multibox_loss_has_the_hardest_negatives(seed, counts):
    rng = np.random.default_rng(seed)
    shape = len(counts), 15
    labels = np.where(rng.random(shape) < 0.15, rng.integers(0, 3, shape), -1)
    logits, codes, true = (rng.normal(0, 2, (*shape, n)) for n in (4, 4, 4))
    found = models.multibox_loss(logits, codes, labels, true)
    boxes = classes = 0.0
    for i in range(shape[0]):
        entropy = [
            np.log(np.exp(x).sum()) - x[n + 1] for x, n in zip(logits[i], labels[i], strict=True)
        ]
        positive = [k for k in range(15) if labels[i, k] >= 0]
        negative = sorted((entropy[k] for k in range(15) if labels[i, k] < 0), reverse=True)
        classes += sum(entropy[k] for k in positive) + sum(negative[: 3 * len(positive)])
        for k in positive:
            error = np.abs(codes[i, k] - true[i, k])
            boxes += np.where(error < 1, error**2 / 2, error - 0.5).sum()
    count = max((labels >= 0).sum(), 1)
    np.testing.assert_allclose(found["classification"], classes / count)
    np.testing.assert_allclose(found["bbox_regression"], boxes / count)


def focal(logits, label):
    loss = 0.0
    for n, x in enumerate(logits):
        p = 1 / (1 + np.exp(-x))
        loss += -0.25 * (1 - p) ** 2 * np.log(p) if n == label else -0.75 * p**2 * np.log(1 - p)
    return loss


def giou(a, b):
    hull = np.prod(np.maximum(a[2:], b[2:]) - np.minimum(a[:2], b[:2]))
    union = (np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2])) / (1 + iou(a, b))
    return iou(a, b) - (hull - union) / hull


@cases
@settings(max_examples=20, deadline=None)
def test_the_losses_of_retinanet_are_means_over_images(seed, counts):
    rng, ragged, padded, anchors = drawn(seed, counts)
    is_object = padded.labels >= 0
    matches = models.match(
        vision.box_iou(padded.boxes, anchors), is_object, 0.5, 0.4, low_quality=True
    )
    logits, codes = (rng.normal(0, 1, (len(counts), 15, n)) for n in (3, 4))
    boxes = np.stack([anchors] * len(counts))
    labels = np.full(matches.shape, -1)
    for i, k in np.argwhere(matches >= 0):
        boxes[i, k], labels[i, k] = ragged.boxes[i][matches[i, k]], ragged.labels[i][matches[i, k]]
    for overlap in (False, True):
        found = models.retinanet_losses(
            logits, codes, anchors, matches, boxes, labels, giou=overlap
        )
        expected = {"classification": 0.0, "bbox_regression": 0.0}
        for i in range(len(counts)):
            positive = np.flatnonzero(matches[i] >= 0)
            weight = 1 / max(len(positive), 1) / len(counts)
            for k in np.flatnonzero(matches[i] != -2):
                expected["classification"] += weight * focal(logits[i, k], labels[i, k])
            for k in positive:
                size = anchors[k, 2:] - anchors[k, :2]
                middle = anchors[k, :2] + size / 2
                if overlap:
                    centre, half = (
                        codes[i, k, :2] * size + middle,
                        np.exp(codes[i, k, 2:]) * size / 2,
                    )
                    error = 1 - giou(np.concatenate([centre - half, centre + half]), boxes[i, k])
                else:
                    goal = boxes[i, k, 2:] - boxes[i, k, :2]
                    moved = (boxes[i, k, :2] + goal / 2 - middle) / size
                    error = np.abs(codes[i, k] - [*moved, *np.log(goal / size)]).sum()
                expected["bbox_regression"] += weight * error
        for name, loss in expected.items():
            np.testing.assert_allclose(found[name], loss, rtol=1e-5)


@cases
@settings(max_examples=20, deadline=None)
def test_the_losses_of_fcos_are_those_of_matched_points(seed, counts):
    rng, ragged, padded, _ = drawn(seed, counts)
    centres = [
        np.stack(np.meshgrid(*[np.arange(0, 24, s)] * 2, indexing="ij"), -1).reshape(-1, 2)
        for s in (4, 8)
    ]
    anchors = [
        np.concatenate([c - s / 2, c + s / 2], 1) for c, s in zip(centres, (4.0, 8.0), strict=True)
    ]
    matches = models.match_points(padded.boxes, padded.labels, anchors)
    whole = np.concatenate(anchors)
    logits, codes, central = (rng.normal(0, 1, (len(counts), len(whole), n)) for n in (3, 4, 1))
    codes = np.abs(codes)
    boxes, labels = np.stack([whole] * len(counts)), np.full(matches.shape, -1)
    expected = {"classification": 0.0, "bbox_regression": 0.0, "bbox_ctrness": 0.0}
    for i in range(len(counts)):
        for k, anchor in enumerate(whole):
            stride = 4 if k < len(anchors[0]) else 8
            middle = (anchor[:2] + anchor[2:]) / 2
            fitting = []
            for j, box in enumerate(ragged.boxes[i]):
                sides = np.concatenate([middle - box[:2], box[2:] - middle])
                near = np.abs(middle - (box[:2] + box[2:]) / 2).max() < 1.5 * stride
                if (
                    near
                    and sides.min() > 0
                    and (sides.max() < 32 if stride == 4 else sides.max() > 32)
                ):
                    fitting.append((np.prod(box[2:] - box[:2]), j))
            assert matches[i, k] == (min(fitting)[1] if fitting else -1)
            if fitting:
                j = min(fitting)[1]
                boxes[i, k], labels[i, k] = ragged.boxes[i][j], ragged.labels[i][j]
                low, high = codes[i, k, :2] * stride, codes[i, k, 2:] * stride
                box = np.concatenate([middle - low, middle + high])
                expected["bbox_regression"] += 1 - giou(box, boxes[i, k])
                low, high = middle - boxes[i, k, :2], boxes[i, k, 2:] - middle
                goal = np.sqrt(np.prod(np.minimum(low, high) / np.maximum(low, high)))
                p = 1 / (1 + np.exp(-central[i, k, 0]))
                expected["bbox_ctrness"] -= goal * np.log(p) + (1 - goal) * np.log(1 - p)
            expected["classification"] += focal(logits[i, k], labels[i, k])
    found = models.fcos_losses(logits, codes, central, whole, boxes, labels)
    for name, loss in expected.items():
        count = max((labels >= 0).sum(), 1)
        np.testing.assert_allclose(found[name], loss / count, rtol=1e-4, err_msg=name)


# --- ChainerCV's SSD ----------------------------------------------------------------------


def numpy_default_boxes(grids, steps, sizes, ratios):
    """Centres and sizes of ChainerCV's default boxes."""
    rows = []
    for k, grid in enumerate(grids):
        for v in range(grid):
            for u in range(grid):
                sides = [(sizes[k],) * 2, ((sizes[k] * sizes[k + 1]) ** 0.5,) * 2]
                for ratio in ratios[k]:
                    root = ratio**0.5
                    sides += [
                        (sizes[k] / root, sizes[k] * root),
                        (sizes[k] * root, sizes[k] / root),
                    ]
                rows += [((v + 0.5) * steps[k], (u + 0.5) * steps[k], *side) for side in sides]
    return np.array(rows)


CHAINER = {
    "SSD300_VGG16": (
        (38, 19, 10, 5, 3, 1),
        (8, 16, 32, 64, 100, 300),
        (30, 60, 111, 162, 213, 264, 315),
        ((2,), (2, 3), (2, 3), (2, 3), (2,), (2,)),
    ),
    "SSD512_VGG16": (
        (64, 32, 16, 8, 4, 2, 1),
        (8, 16, 32, 64, 128, 256, 512),
        (35.84, 76.8, 153.6, 230.4, 307.2, 384.0, 460.8, 537.6),
        ((2,), (2, 3), (2, 3), (2, 3), (2, 3), (2,), (2,)),
    ),
}


@pytest.mark.parametrize("name", named(CHAINER))
def test_detections_of_chainer_are_decoded_and_suppressed_class_by_class(name):
    options = {"width": 1, "chainer": True, "score_threshold": 0.3, "candidates": 30000}
    model = getattr(models, name).init(fdbr.random.key(2), 2, **options)
    images = pictures()[:1]
    batch = model.prepare(images).batch
    logits, codes, _ = model(batch)
    defaults = numpy_default_boxes(*CHAINER[name])
    assert len(defaults) == codes.shape[1] == {"SSD300_VGG16": 8732, "SSD512_VGG16": 24564}[name]
    centre = defaults[:, :2] + 0.1 * codes[0, :, :2] * defaults[:, 2:]
    half = defaults[:, 2:] * np.exp(0.2 * codes[0, :, 2:]) / 2
    boxes = np.concatenate([centre - half, centre + half], 1)
    weights = np.exp(logits[0] - logits[0].max(1, keepdims=True))
    scores = weights / weights.sum(1, keepdims=True)
    expected = []
    for label in (0, 1):
        order = np.argsort(-scores[:, label + 1], kind="stable")[:200]
        kept = []
        for k in order:
            if scores[k, label + 1] > 0.3 and all(iou(boxes[k], boxes[j]) <= 0.45 for j in kept):
                kept.append(k)
        expected += [(-scores[k, label + 1], label, k) for k in kept]
    expected = sorted(expected)[:30]
    found = model.predict(images)
    scale = np.array(images[0].shape[1:] * 2) / model.size
    assert len(expected) == 30
    np.testing.assert_allclose(found.scores[0][:30], [-e[0] for e in expected], rtol=1e-4)
    np.testing.assert_array_equal(found.labels[0][:30], [e[1] for e in expected])
    np.testing.assert_allclose(
        found.boxes[0][:30], [boxes[e[2]] * scale for e in expected], rtol=1e-3, atol=1e-3
    )


@pytest.mark.parametrize("name", CHAINER)
def test_files_of_chainercv_are_loaded_by_its_names(name, tmp_path):
    model = getattr(models, name).init(fdbr.random.key(0), 20, width=2, chainer=True)
    last = 11 if name == "SSD300_VGG16" else 12
    layers = [f"conv{i}_{j}" for i, n in enumerate((2, 2, 3, 3, 3), 1) for j in range(1, n + 1)]
    layers += ["conv6", "conv7", *(f"conv{i}_{j}" for i in range(8, last + 1) for j in (1, 2))]
    names = [f"extractor/{layer}/{part}" for layer in layers for part in "Wb"]
    names += ["extractor/norm4/scale"]
    maps = len(CHAINER[name][0])
    names += [f"multibox/{p}/{i}/{q}" for p in ("conf", "loc") for i in range(maps) for q in "Wb"]
    nn.save_chainer_npz(model, tmp_path / "ssd.npz")
    with np.load(tmp_path / "ssd.npz") as file:
        assert sorted(file.files) == sorted(names)
        assert file["extractor/conv6/W"].shape == (32, 16, 3, 3)
        assert file["multibox/conf/1/W"].shape == (6 * 21, 32, 3, 3)
    other = getattr(models, name).init(fdbr.random.key(1), 20, width=2, chainer=True)
    loaded = nn.load_chainer_npz(other, tmp_path / "ssd.npz")
    for a, b in zip(tree.leaves(loaded), tree.leaves(model), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_first_map_of_ssd_is_normalised_with_the_epsilon_of_each_library():
    image = np.zeros((1, 3, 300, 300), "f4")
    image[..., 150] = 1.0
    for chainer in (False, True):
        net = models.VGG16Extractor.init(fdbr.random.key(0), width=1, chainer=chainer)
        (first, *_), before = net(image), net.features(image)
        norm = np.sqrt((before**2).sum(1, keepdims=True))
        expected = before / (norm + 1e-5 if chainer else np.maximum(norm, 1e-12))
        np.testing.assert_allclose(first, 20 * expected, rtol=1e-5)


def test_ssd_takes_a_backbone_of_ones_own():
    class Halves(nn.Layer):
        def __call__(self, x):
            return [ops.avg_pool(x, 8), ops.avg_pool(x, 16)]

    ratios = ((2.0,), (2.0,))
    head = models.SSDHead.init(fdbr.random.key(0), (3, 3), CLASSES, ratios)
    model = models.SSD(Halves(), head, 64, ratios, (0.2, 0.5, 0.9))
    assert [len(n) <= 200 for n in model.predict(pictures()).labels] == [True, True]
    assert model.losses(pictures(), truths(2, 0))[0].keys() == {"bbox_regression", "classification"}
