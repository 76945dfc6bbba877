"""Faster R-CNN over VGG16, Light-head R-CNN and FCIS against plain NumPy."""

import itertools

import numpy as np
import pytest

import fdbr
from fdbr import nn, ops, tree, vision
from fdbr.vision import models
from fdbr.vision.models import fcis, proposals
from tests.vision.models import plain_networks as plain

WIDTH, CLASSES = 2, 3
KEY = fdbr.random.key(0)
COMMON = {
    "width": WIDTH, "min_size": 48, "max_size": 64, "anchor_sizes": (16, 32, 64), "post_train": 20,
    "post_test": 12, "proposal_size": 4, "score_threshold": 0.1,
}  # fmt: skip
VGG = {**COMMON, "hidden": 8}
RESNET = {**COMMON, "depths": (1, 2, 1, 2)}
ALL = [
    (models.FasterRCNN_VGG16, VGG),
    (models.LightHeadRCNN_ResNet101, {**RESNET, "hard_examples": 8}),
    (models.FCIS_ResNet101, {**RESNET, "region_count": 6, "post_train": 8, "post_test": 6}),
]


def model_of(cls, settings):
    return cls.init(KEY, CLASSES, **settings)


def images():
    rng = np.random.default_rng(0)
    shapes = [(48, 60), (52, 50), (64, 48)]
    return [rng.uniform(0, 255, (3, *shape)).astype(np.float32) for shape in shapes]


def truths():
    boxes = [[3, 4, 20, 30], [10, 10, 40, 50]], [], [[5, 6, 60, 40]]
    labels = [0, 2], [], [1]
    masks = []
    for image, own in zip(images(), boxes, strict=True):
        mask = np.zeros((len(own), *image.shape[1:]), bool)
        for m, (a, b, c, d) in zip(mask, own, strict=True):
            m[a:c, b:d] = True
            m[a : a + 4, b : b + 4] = False
        masks.append(mask)
    return vision.Truths(
        tuple(np.array(b, np.float32).reshape(-1, 4) for b in boxes),
        tuple(np.array(part, np.int32) for part in labels),
        tuple(masks),
    )


# --- the networks, from files under ChainerCV's names ------------------------------------


def names_of_rpn(inputs, hidden):
    return {
        **plain.layer_names("rpn/conv1", hidden, inputs, 3, 3),
        **plain.layer_names("rpn/score", 9 * 2, hidden, 1, 1),
        **plain.layer_names("rpn/loc", 9 * 4, hidden, 1, 1),
    }


def names_of_vgg():
    shapes, inputs = {}, 3
    for stage, depth in enumerate((2, 2, 3, 3, 3), 1):
        n = WIDTH * min(2 ** (stage - 1), 8)
        for i in range(1, depth + 1):
            shapes |= plain.layer_names(f"extractor/conv{stage}_{i}/conv", n, inputs, 3, 3)
            inputs = n
    shapes |= names_of_rpn(inputs, inputs)
    for name, n, m in (
        ("fc6", 8, inputs * 49), ("fc7", 8, 8), ("cls_loc", 16, 8), ("score", 4, 8),
    ):  # fmt: skip
        shapes |= plain.layer_names(f"head/{name}", n, m)
    return shapes


def names_of_body():
    shapes = plain.unit_names("extractor/conv1", WIDTH, 3, 7)
    inputs = WIDTH
    for stage, depth in enumerate(RESNET["depths"]):
        n = WIDTH << stage
        for i in range(depth):
            name = f"extractor/res{stage + 2}/{f'b{i}' if i else 'a'}"
            shapes |= plain.unit_names(f"{name}/conv1", n, inputs, 1)
            shapes |= plain.unit_names(f"{name}/conv2", n, n, 3)
            shapes |= plain.unit_names(f"{name}/conv3", 4 * n, n, 1)
            if not i:
                shapes |= plain.unit_names(f"{name}/residual_conv", 4 * n, inputs, 1)
            inputs = 4 * n
    return shapes | names_of_rpn(16 * WIDTH, 8 * WIDTH)


def names_of_light_head():
    shapes, hidden = names_of_body(), 4 * WIDTH
    for name in ("col", "row"):
        across, along = ((15, 1), (1, 15)) if name == "col" else ((1, 15), (15, 1))
        module = f"head/global_context_module/{name}"
        shapes |= plain.layer_names(f"{module}_max", hidden, 32 * WIDTH, *across)
        shapes |= plain.layer_names(module, 490, hidden, *along)
    shapes |= plain.layer_names("head/fc1", 32 * WIDTH, 490)
    shapes |= plain.layer_names("head/score", 4, 32 * WIDTH)
    return shapes | plain.layer_names("head/cls_loc", 16, 32 * WIDTH)


def names_of_fcis():
    shapes, hidden = names_of_body(), 16 * WIDTH
    shapes |= plain.layer_names("head/conv1", hidden, 2 * hidden, 1, 1)
    shapes |= plain.layer_names("head/cls_seg", 49 * 8, hidden, 1, 1)
    return shapes | plain.layer_names("head/ag_loc", 49 * 8, hidden, 1, 1)


def relu(x):
    return np.maximum(x, 0)


def plain_conv(w, name, x, padding=0):
    return plain.conv(x, w[f"{name}/W"], w[f"{name}/b"], padding=padding)


def plain_vgg(w, x):
    for stage, depth in enumerate((2, 2, 3, 3, 3), 1):
        for i in range(1, depth + 1):
            x = relu(plain_conv(w, f"extractor/conv{stage}_{i}/conv", x, 1))
        if stage < 5:
            x = plain.pool(x, 2, 2)
    return x


def plain_body(w, x, cover):
    x = plain.unit(x, w, "extractor/conv1", stride=2, negative_slope=0)
    if cover:
        x = plain.pool(x, 3, 2)
    else:
        x = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        x = plain.pool(
            x[:, :, : (x.shape[2] - 3) // 2 * 2 + 3, : (x.shape[3] - 3) // 2 * 2 + 3], 3, 2
        )
    outputs = []
    for stage, depth in enumerate(RESNET["depths"]):
        for i in range(depth):
            name = f"extractor/res{stage + 2}/{f'b{i}' if i else 'a'}"
            stride = 2 if stage in (1, 2) and not i else 1
            dilation = 2 if stage == 3 else 1
            of = {"eps": 1e-5, "negative_slope": 0}
            h = plain.unit(x, w, f"{name}/conv1", stride=stride, **of)
            h = plain.unit(h, w, f"{name}/conv2", dilation=dilation, padding=dilation, **of)
            h = plain.unit(h, w, f"{name}/conv3", act=False, **of)
            if not i:
                x = plain.unit(x, w, f"{name}/residual_conv", stride=stride, act=False, **of)
            x = relu(h + x)
        outputs.append(x)
    return outputs[2:]


def plain_rpn(w, x):
    h = relu(plain_conv(w, "rpn/conv1", x, 1))
    return [
        plain_conv(w, f"rpn/{name}", h).transpose(0, 2, 3, 1).reshape(len(x), -1, n)
        for name, n in (("loc", 4), ("score", 2))
    ]


def plain_decoded(codes, boxes, std=(1, 1, 1, 1)):
    size = boxes[..., 2:] - boxes[..., :2]
    centre = boxes[..., :2] + size / 2 + codes[..., :2] * std[:2] * size
    half = np.exp(codes[..., 2:] * std[2:]) * size / 2
    return np.concatenate([centre - half, centre + half], axis=-1)


def plain_clipped(boxes, size):
    return np.clip(boxes, 0, np.tile(size, 2))


def plain_anchors(shape):
    anchors = []
    for v, u in np.ndindex(*shape):
        for ratio, side in itertools.product((0.5, 1, 2), COMMON["anchor_sizes"]):
            h, w = side * np.sqrt(ratio), side / np.sqrt(ratio)
            y, x = 16 * v + 8, 16 * u + 8
            anchors.append([y - h / 2, x - w / 2, y + h / 2, x + w / 2])
    return np.array(anchors)


def plain_proposals(codes, scores, anchors, size, pre, post, least):
    boxes = plain_clipped(plain_decoded(codes, anchors), size)
    large = np.flatnonzero((boxes[:, 2:] - boxes[:, :2] >= least).all(axis=1))
    order = large[np.argsort(-scores[large], kind="stable")][:pre]
    return boxes[order][plain.suppressed(boxes[order], scores[order], 0.7)][:post]


def plain_roi_pool(x, box):
    """Pool 7x7 maxima of a box with rounded, inclusive corners."""
    start, end = np.round(box[:2] / 16).astype(int), np.round(box[2:] / 16).astype(int)
    size = np.maximum(end - start + 1, 1)
    out = np.zeros((len(x), 7, 7))
    for i, j in np.ndindex(7, 7):
        low = np.clip(np.floor(np.array([i, j]) * size / 7).astype(int) + start, 0, x.shape[1:])
        high = np.clip(
            np.ceil(np.array([i + 1, j + 1]) * size / 7).astype(int) + start, 0, x.shape[1:]
        )
        part = x[:, low[0] : high[0], low[1] : high[1]]
        if part.size:
            out[:, i, j] = part.max(axis=(1, 2))
    return out


def plain_ps_max_align(x, box, size=7):
    """Take the maxima of 2x2 interpolated samples, each window in its own channels."""
    start = box[:2] / 16
    step = np.maximum(box[2:] / 16 - start, 0.1) / size
    channels = len(x) // size**2
    x = x.reshape(channels, size, size, *x.shape[1:])
    out = np.zeros((channels, size, size))
    for i, j in np.ndindex(size, size):
        samples = []
        for a, b in np.ndindex(2, 2):
            y, u = start + (np.array([i, j]) + (np.array([a, b]) + 0.5) / 2) * step
            if not (-1 <= y <= x.shape[3] and -1 <= u <= x.shape[4]):
                continue
            y, u = np.clip(y, 0, x.shape[3] - 1), np.clip(u, 0, x.shape[4] - 1)
            low, left = int(y), int(u)
            high, right = min(low + 1, x.shape[3] - 1), min(left + 1, x.shape[4] - 1)
            part = x[:, i, j]
            top = part[:, low, left] * (1 - u + left) + part[:, low, right] * (u - left)
            bottom = part[:, high, left] * (1 - u + left) + part[:, high, right] * (u - left)
            samples.append(top * (1 - y + low) + bottom * (y - low))
        if samples:
            out[:, i, j] = np.max(samples, axis=0)
    return out


def plain_ps_average(x, box, size=21, groups=7):
    """Take means over windows, each in its own group of channels."""
    start = box[:2] / 16
    step = np.maximum(box[2:] / 16 - start, 0.1) / size
    x = x.reshape(-1, groups, groups, *x.shape[1:])
    out = np.zeros((len(x), size, size))
    for i, j in np.ndindex(size, size):
        low = np.clip(np.floor(start + step * [i, j]).astype(int), 0, x.shape[3:])
        high = np.clip(np.ceil(start + step * [i + 1, j + 1]).astype(int), 0, x.shape[3:])
        part = x[:, i * groups // size, j * groups // size, low[0] : high[0], low[1] : high[1]]
        if part.size:
            out[:, i, j] = part.mean(axis=(1, 2))
    return out


def plain_of_vgg(w, x):
    features = plain_vgg(w, x)

    def head(i, box):
        h = plain_roi_pool(features[i], box).reshape(-1)
        for name in ("fc6", "fc7"):
            h = relu(w[f"head/{name}/W"] @ h + w[f"head/{name}/b"])
        return [w[f"head/{name}/W"] @ h + w[f"head/{name}/b"] for name in ("cls_loc", "score")]

    return features, head


def plain_of_light_head(w, x):
    proposing, features = plain_body(w, x, cover=False)
    name = "head/global_context_module"
    col = plain_conv(w, f"{name}/col", plain_conv(w, f"{name}/col_max", features, (7, 0)), (0, 7))
    row = plain_conv(w, f"{name}/row", plain_conv(w, f"{name}/row_max", features, (0, 7)), (7, 0))
    maps = relu(col + row)

    def head(i, box):
        h = plain_ps_max_align(maps[i], box).reshape(-1)
        h = relu(w["head/fc1/W"] @ h + w["head/fc1/b"])
        return [w[f"head/{name}/W"] @ h + w[f"head/{name}/b"] for name in ("cls_loc", "score")]

    return proposing, head


@pytest.mark.parametrize(
    ("case", "names", "network", "nms_threshold"),
    [
        (ALL[0], names_of_vgg, plain_of_vgg, 0.3),
        (ALL[1], names_of_light_head, plain_of_light_head, 0.5),
    ],
    ids=["vgg", "light head"],
)  # fmt: skip
def test_a_file_of_chainercv_gives_the_objects_of_plain_numpy(
    case, names, network, nms_threshold, tmp_path
):
    w = plain.write_npz(tmp_path / "w.npz", names())
    for name in w:
        if name.startswith(("rpn/loc", "head/cls_loc")):  # boxes of moderate sizes
            w[name] = w[name] * np.float32(0.2 if case is ALL[0] else 0.01)
    np.savez(tmp_path / "w.npz", **w)
    model = nn.load_chainer_npz(model_of(*case), tmp_path / "w.npz")
    w = {name: np.float64(array) for name, array in w.items()}
    image = np.random.default_rng(0).uniform(0, 255, (3, 57, 70)).astype(np.float32)
    found = model.predict([image])
    prepared = model.prepare([image])
    proposing, head = network(w, np.float64(prepared.batch))
    codes, logits = plain_rpn(w, proposing)
    (size,), (original,) = prepared.sizes, prepared.originals
    scale = size[1] / original[1]  # ChainerCV's, for both axes
    assert abs(size[0] / original[0] - scale) > 1e-3
    boxes = plain_proposals(
        codes[0], logits[0, :, 1], plain_anchors(proposing.shape[2:]), size, 6000, 12, 4 * scale
    )
    decoded, scores = [], []
    for box in boxes:
        offsets, logit = head(0, box)
        std = np.array([0.1, 0.1, 0.2, 0.2])
        whole = plain_decoded(offsets.reshape(-1, 4)[1:], box / scale, std)
        decoded.append(plain_clipped(whole, original))
        scores.append(plain.softmax(logit)[1:])
    wanted = plain.best(np.array(decoded), np.array(scores), 0.1, nms_threshold)
    assert len(wanted) == len(found.scores[0]) > 0
    np.testing.assert_allclose(found.scores[0], [s for s, *_ in wanted], atol=1e-4)
    np.testing.assert_array_equal(found.labels[0], [label for _, label, _ in wanted])
    np.testing.assert_allclose(found.boxes[0], [b for *_, b in wanted], atol=1e-2)


def test_a_file_of_chainercv_gives_the_regions_of_fcis_of_plain_numpy(tmp_path):
    w = plain.write_npz(tmp_path / "w.npz", names_of_fcis())
    for name in w:
        if name.startswith(("rpn/loc", "head/ag_loc")):  # boxes of moderate sizes
            w[name] = w[name] * np.float32(0.02)
    np.savez(tmp_path / "w.npz", **w)
    model = nn.load_chainer_npz(model_of(*ALL[2]), tmp_path / "w.npz")
    w = {name: np.float64(array) for name, array in w.items()}
    prepared = model.prepare(images()[:1])
    proposing, features = plain_body(w, np.float64(prepared.batch), cover=True)
    h = relu(plain_conv(w, "head/conv1", features))
    maps = plain_conv(w, "head/cls_seg", h), plain_conv(w, "head/ag_loc", h)
    codes, logits = plain_rpn(w, proposing)
    (size,) = prepared.sizes
    boxes = plain_proposals(
        codes[0], logits[0, :, 1], plain_anchors(proposing.shape[2:]), size, 6000, 6, 4
    )
    found = model.detect(prepared.batch, prepared.sizes)
    np.testing.assert_allclose(found.boxes[0, : len(boxes)], boxes, atol=1e-3)
    for k, box in enumerate(boxes):
        seg = plain_ps_average(maps[0][0], box).reshape(CLASSES + 1, 2, 21, 21)
        loc = plain_ps_average(maps[1][0], box).mean(axis=(1, 2)).reshape(2, 4)
        score = seg.max(axis=1).mean(axis=(1, 2))
        np.testing.assert_allclose(found.scores[0, k], plain.softmax(score)[1:], atol=1e-4)
        np.testing.assert_allclose(
            found.masks[0, k], plain.softmax(seg[score.argmax()], 0)[1], atol=1e-3
        )
        second = plain_clipped(plain_decoded(loc[1], box, np.array([0.2, 0.2, 0.5, 0.5])), size)
        np.testing.assert_allclose(found.boxes[0, 6 + k], second, atol=1e-2)


# --- parts -----------------------------------------------------------------------------------


def test_position_sensitive_pooling_is_that_of_loops():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 2 * 9, 6, 7))
    boxes = np.array([[-20.0, 3, 70, 90], [10, 20, 40, 60], [33, 30, 34, 31], [90, 5, 200, 9]])
    index = np.array([1, 0, 1, 0])
    of = {"batch_index": index, "box_format": "yxyx", "chainer": True, "group_size": 3}
    pooled = ops.ps_roi_average_pool(x, boxes, 6, 1 / 16, **of)
    aligned = ops.ps_roi_max_align(x, boxes, 3, 1 / 16, 2, empty=0.0, **of)
    for k, i in enumerate(index):
        np.testing.assert_allclose(pooled[k], plain_ps_average(x[i], boxes[k], 6, 3), atol=1e-6)
        np.testing.assert_allclose(aligned[k], plain_ps_max_align(x[i], boxes[k], 3), atol=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_proposals_are_those_of_a_loop(seed):
    rng = np.random.default_rng(seed)
    anchors = plain_anchors((3, 4))
    codes = rng.standard_normal((2, len(anchors), 4)) * 0.3
    scores = rng.standard_normal((2, len(anchors)))
    sizes = np.array([[48, 64], [40, 50]], np.float32)
    boxes, real = proposals.propose_boxes(
        codes, scores, anchors, sizes, pre=40, post=10, threshold=0.7, least=5
    )
    for i in range(2):
        wanted = plain_proposals(codes[i], scores[i], anchors, sizes[i], 40, 10, 5)
        assert real[i].sum() == len(wanted)
        np.testing.assert_allclose(boxes[i][real[i]], wanted, atol=1e-4)
        assert not boxes[i][~real[i]].any()


@pytest.mark.parametrize("seed", range(3))
def test_anchor_targets_are_those_of_a_loop(seed):
    rng = np.random.default_rng(seed)
    anchors = np.float32(plain_anchors((4, 4)))
    low = rng.uniform(0, 40, (3, 2))
    boxes = np.float32(np.concatenate([low, low + rng.uniform(8, 24, (3, 2))], axis=1))
    inside = ((anchors[:, :2] >= 0) & (anchors[:, 2:] <= 64)).all(axis=1)
    overlaps = np.array([[plain.iou(a, b) for b in boxes] for a in anchors])
    overlaps[~inside] = -1
    largest = overlaps.max(axis=1)
    positive = inside & ((largest >= 0.7) | (overlaps == overlaps.max(axis=0)).any(axis=1))
    negative = inside & ~positive & (largest < 0.3)
    targets = models.anchor_targets(
        KEY, anchors, vision.Truths(boxes[None], np.array([[0, 1, 2]])), sizes=np.array([[64, 64]])
    )
    index, is_positive, chosen = (part[0] for part in targets.sample)
    assert set(index[is_positive]) == set(np.flatnonzero(positive))
    assert set(index[chosen & ~is_positive]) == set(np.flatnonzero(negative))
    for k, code in zip(index[is_positive], targets.codes[0][is_positive], strict=True):
        aim = boxes[overlaps[k].argmax()]
        np.testing.assert_allclose(plain_decoded(code, anchors[k]), aim, atol=1e-3)


def test_the_hardest_regions_are_trained():
    rng = np.random.default_rng(0)
    model = model_of(*ALL[1])
    scores, codes = rng.standard_normal((2, 9, 4)), rng.standard_normal((2, 9, 4, 4))
    labels = rng.integers(0, 4, (2, 9))
    chosen = rng.uniform(size=(2, 9)) < 0.9
    sample = models.Sample(None, chosen & (labels > 0), chosen)
    aims = rng.standard_normal((2, 9, 4))
    targets = models.RegionTargets(sample, None, labels, aims, None)
    losses = []
    for i, k in np.ndindex(2, 9):
        if chosen[i, k]:
            label = labels[i, k]
            d = abs(codes[i, k, label] - aims[i, k])
            box = np.where(d < 1, d**2 / 2, d - 0.5).sum() if label else 0
            losses.append((-np.log(plain.softmax(scores[i, k])[label]), box))
    losses.sort(key=lambda pair: -sum(pair))
    hardest = np.array(losses[:16])
    found = model.head_losses(scores, codes, targets)
    np.testing.assert_allclose(found["loss_classifier"], hardest[:, 0].mean(), rtol=1e-5)
    np.testing.assert_allclose(found["loss_box_reg"], 2 * hardest[:, 1].mean(), rtol=1e-5)


def plain_resized(x, shape):
    """Interpolate linearly, with pixels as squares."""
    out = np.zeros(shape)
    for i, j in np.ndindex(*shape):
        y = np.clip((i + 0.5) * x.shape[0] / shape[0] - 0.5, 0, x.shape[0] - 1)
        u = np.clip((j + 0.5) * x.shape[1] / shape[1] - 0.5, 0, x.shape[1] - 1)
        low, left = int(y), int(u)
        high, right = min(low + 1, x.shape[0] - 1), min(left + 1, x.shape[1] - 1)
        top = x[low, left] * (1 - u + left) + x[low, right] * (u - left)
        bottom = x[high, left] * (1 - u + left) + x[high, right] * (u - left)
        out[i, j] = top * (1 - y + low) + bottom * (y - low)
    return out


def test_masks_vote_as_in_a_loop_over_whole_images():
    rng = np.random.default_rng(0)
    low = rng.uniform(0, 16, (12, 2))
    boxes = np.clip(
        np.concatenate([low, low + rng.uniform(4, 16, (12, 2))], axis=1), 0, (30, 28, 30, 28)
    )
    scores = rng.uniform(0, 1, (12, 2))
    masks = rng.uniform(0, 1, (12, 7, 7))
    found = models.mask_voting(boxes, scores, masks, (30, 28), score_threshold=0.4, limit=6)
    canvases = np.zeros((12, 30, 28))
    for canvas, box, mask in zip(canvases, boxes, masks, strict=True):
        a, b, c, d = np.round(box).astype(int)
        canvas[a:c, b:d] = plain_resized(mask, (c - a, d - b)) >= 0.4
    chosen = [
        (scores[i, label], label, i)
        for label in range(2)
        for i in plain.suppressed(boxes, scores[:, label], 0.3)
        if scores[i, label] >= 0.4
    ]
    chosen = sorted(chosen, reverse=True)[:6]
    k = 0
    for score, label, i in chosen:
        voters = [j for j in range(12) if plain.iou(boxes[i], boxes[j]) >= 0.5]
        weights = scores[voters, label] / scores[voters, label].sum()
        voted = np.tensordot(weights, canvases[voters], 1)
        ys, xs = np.nonzero(voted >= 0.4)
        if not len(ys):
            continue
        box = [ys.min(), xs.min(), ys.max() + 1, xs.max() + 1]
        np.testing.assert_array_equal(found.boxes[k], box)
        assert (found.labels[k], found.scores[k]) == (label, np.float32(score))
        inside = voted[box[0] : box[2], box[1] : box[3]]
        small = plain_resized(inside, (7, 7))
        mask = np.zeros((30, 28), bool)
        mask[box[0] : box[2], box[1] : box[3]] = plain_resized(small, inside.shape) > 0.4
        assert (found.masks[k] != mask).mean() < 0.002  # values at the threshold
        k += 1
    assert k == len(found.labels) > 1


def test_masks_of_regions_are_those_cut_out_and_resized():
    rng = np.random.default_rng(0)
    masks = rng.uniform(size=(1, 2, 30, 40)) < 0.6
    boxes = np.array([[[2.2, 3, 20.7, 30.1], [5, 5, 29.9, 39]]], np.float32)
    objects = np.array([[1, 0]])
    targets = models.RegionTargets(None, boxes, None, None, objects)
    found = fcis.instance_masks(targets, masks)
    for k in range(2):
        a, b, c, d = np.round(boxes[0, k]).astype(int)
        wanted = plain_resized(np.float32(masks[0, objects[0, k], a:c, b:d]), (21, 21)) >= 0.4
        assert (found[0, k] != wanted).mean() < 0.01  # values at the threshold


# --- training ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("cls", "settings"), ALL)
def test_losses_and_gradients_are_equal_in_jit_for_all_numbers_of_objects(cls, settings):
    model = model_of(cls, settings)
    batch = np.random.default_rng(1).uniform(0, 255, (2, 3, 48, 64)).astype(np.float32)
    masks = np.zeros((2, 2, 48, 64), bool)
    masks[:, 0, 3:20, 4:30] = masks[:, 1, 10:40, 10:60] = True

    def loss(model, batch, truths):
        losses, _ = model.losses(batch, truths, key=KEY)
        return sum(losses.values())

    eager = fdbr.value_and_grad(loss)
    jitted = fdbr.jit(eager)
    for labels in ([[1, 0], [2, -1]], [[-1, -1], [-1, -1]]):
        boxes = np.array([[[3, 4, 20, 30], [10, 10, 40, 60]]] * 2, np.float32)
        some = vision.Truths(boxes, np.array(labels, np.int32), masks)
        (value, grads), (value_j, grads_j) = eager(model, batch, some), jitted(model, batch, some)
        assert np.isfinite(value)
        np.testing.assert_allclose(value_j, value, rtol=1e-4)
        for a, b in zip(tree.leaves(grads), tree.leaves(grads_j), strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-2, atol=1e-3 * (1 + np.abs(a).max()))
    assert len(jitted.report().traces) == 1


@pytest.mark.parametrize(("cls", "settings"), ALL)
def test_ragged_truths_have_the_losses_of_padded_ones(cls, settings):
    model = model_of(cls, settings)
    found, successor = model.losses(images(), truths(), key=KEY)
    padded, _ = model.losses(images(), vision.pad(truths(), 2), key=KEY)
    names = {"loss_objectness", "loss_rpn_box_reg", "loss_classifier", "loss_box_reg"}
    assert found.keys() == names | ({"loss_mask"} if cls is models.FCIS_ResNet101 else set())
    for name, value in found.items():
        assert np.isfinite(value)
        np.testing.assert_allclose(padded[name], value, rtol=1e-6)
    assert tree.structure(successor) == tree.structure(model)


@pytest.mark.parametrize(("cls", "settings"), ALL)
def test_prediction_is_equal_in_jit(cls, settings):
    model = model_of(cls, settings)
    found, jitted = model.predict(images()), model.predict(images(), jit=True)
    for a, b in zip(tree.leaves(found[:3]), tree.leaves(jitted[:3]), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-2)
    assert [part[0].dtype for part in found[:3]] == [np.float32, np.int32, np.float32]
    if cls is models.FCIS_ResNet101:
        for image, masks in zip(images(), found.masks, strict=True):
            assert masks.shape[1:] == image.shape[1:]
            assert masks.dtype == bool


def test_settings_that_make_no_model_are_named():
    for cls, _ in ALL:
        with pytest.raises(TypeError, match="there is no setting 'colour'"):
            cls.init(KEY, 3, colour=1)
        with pytest.raises(ValueError, match="width"):
            cls.init(KEY, 3, width=0)


def test_regions_before_the_first_stage_are_not_trained():
    model = model_of(*ALL[2])
    x = ops.ones((1, 3, 64, 64), dtype="float32")
    grads = fdbr.grad(lambda body: ops.sum(body(x)[1]))(model.extractor)
    assert not grads.conv1.weight.any()
    assert grads.layer2.layers[0].conv1.weight.any()


@pytest.mark.parametrize(("cls", "settings"), ALL)
def test_anchors_lie_on_the_grid_of_the_feature_map(cls, settings):
    model = model_of(cls, settings)
    for height in (17, 32, 33, 34, 49, 50, 51, 63):  # which the layers round in several forms
        features, codes, _ = model(np.zeros((1, 3, height, 40), np.float32))
        rows, columns = tree.leaves(features)[0].shape[2:]
        anchors = model.anchors(features)
        assert anchors.shape == codes.shape[1:]
        anchors = anchors.reshape(rows, columns, 9, 4)
        steps = 16 * np.indices((rows, columns)).transpose(1, 2, 0)[:, :, None]
        np.testing.assert_allclose(
            anchors, anchors[:1, :1] + np.concatenate([steps, steps], -1), atol=1e-3
        )
