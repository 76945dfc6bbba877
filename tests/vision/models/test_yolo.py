"""YOLO against plain NumPy: networks, decoded boxes, targets and losses."""

import numpy as np
import pytest

import fdbr
from fdbr import nn, ops, tree, vision
from fdbr.vision import models
from tests.vision.models import plain_networks as plain

WIDTH, CLASSES = 2, 3
SMALL = {"width": WIDTH, "size": 64}
THREE = {**SMALL, "depths": (1, 1, 2, 1, 1)}
ALL = [(models.YOLOv2, SMALL), (models.YOLOv2Tiny, SMALL), (models.YOLOv3, THREE)]
KEY = fdbr.random.key(0)


def model_of(cls, settings, **more):
    return cls.init(KEY, CLASSES, **settings, **more)


def images():
    rng = np.random.default_rng(0)
    shapes = [(48, 80), (64, 30), (130, 100)]
    return [rng.uniform(0, 255, (3, *shape)).astype(np.float32) for shape in shapes]


def truths():
    boxes = [[3, 4, 20, 30], [10, 10, 40, 70], [12, 12, 41, 72]], [], [[5, 6, 90, 80]]
    labels = [0, 2, 1], [], [1]
    return vision.Truths(
        tuple(np.array(b, np.float32).reshape(-1, 4) for b in boxes),
        tuple(np.array(part, np.int32) for part in labels),
    )


# --- the networks, from files under ChainerCV's names ------------------------------------


def names_of_v2():
    shapes, inputs, i = {}, 3, 0
    for stage, count in enumerate((1, 1, 3, 3, 5, 5)):
        for j in range(count):
            n, k = (WIDTH << stage, 3) if j % 2 == 0 else (WIDTH << (stage - 1), 1)
            shapes |= plain.unit_names(f"extractor/{i}", n, inputs, k)
            inputs, i = n, i + 1
    wide = WIDTH * 32
    for n, m, k in ((wide, wide, 3), (wide, wide, 3), (2 * WIDTH, WIDTH * 16, 1)):
        shapes |= plain.unit_names(f"extractor/{i}", n, m, k)
        i += 1
    shapes |= plain.unit_names("extractor/21", wide, wide + 8 * WIDTH, 3)
    return shapes | plain.layer_names("subnet", 5 * (5 + CLASSES), wide, 1, 1)


def plain_v2(w, x):
    for i in range(13):
        x = plain.unit(x, w, f"extractor/{i}")
        fine = x
        if i in (0, 1, 4, 7, 12):
            x = plain.pool(x, 2, 2)
    for i in range(13, 20):
        x = plain.unit(x, w, f"extractor/{i}")
    fine = plain.unit(fine, w, "extractor/20")
    n, c, h, v = fine.shape
    fine = fine.reshape(n, c // 4, h, 2, v, 2).transpose(0, 3, 5, 1, 2, 4)
    x = np.concatenate([fine.reshape(n, 4 * c, h // 2, v // 2), x], axis=1)
    x = plain.unit(x, w, "extractor/21")
    return [plain.conv(x, w["subnet/W"], w["subnet/b"])]


def names_of_tiny():
    shapes, inputs = {}, 3
    for i in range(8):
        n = WIDTH << min(i, 6)
        shapes |= plain.unit_names(f"extractor/{i}", n, inputs, 3)
        inputs = n
    return shapes | plain.layer_names("subnet", 5 * (5 + CLASSES), inputs, 1, 1)


def plain_tiny(w, x):
    for i in range(8):
        x = plain.unit(x, w, f"extractor/{i}")
        if i < 5:
            x = plain.pool(x, 2, 2)
        elif i == 5:
            x = plain.pool(x, 2, 1, after=1)
    return [plain.conv(x, w["subnet/W"], w["subnet/b"])]


def names_of_v3():
    shapes = plain.unit_names("extractor/0", WIDTH, 3, 3)
    i = 1
    for stage, depth in enumerate(THREE["depths"]):
        narrow, wide = WIDTH << stage, WIDTH << (stage + 1)
        shapes |= plain.unit_names(f"extractor/{i}", wide, narrow, 3)
        i += 1
        for _ in range(depth):
            shapes |= plain.unit_names(f"extractor/{i}/0", narrow, wide, 1)
            shapes |= plain.unit_names(f"extractor/{i}/1", wide, narrow, 3)
            i += 1
    inputs = WIDTH * 32
    for scale, n in enumerate((WIDTH * 16, WIDTH * 8, WIDTH * 4)):
        if scale:
            shapes |= plain.unit_names(f"extractor/{i}", n, 2 * n, 1)
            i, inputs = i + 1, 3 * n
        for m, k in ((n, 1), (2 * n, 3), (n, 1), (2 * n, 3), (n, 1)):
            shapes |= plain.unit_names(f"extractor/{i}", m, inputs, k)
            i, inputs = i + 1, m
        shapes |= plain.unit_names(f"subnet/{scale}/0", 2 * n, n, 3)
        shapes |= plain.layer_names(f"subnet/{scale}/1", 3 * (5 + CLASSES), 2 * n, 1, 1)
    return shapes


def plain_v3(w, x):
    x = plain.unit(x, w, "extractor/0")
    i, stages, maps = 1, [], []
    for depth in THREE["depths"]:
        x = plain.unit(x, w, f"extractor/{i}", stride=2)
        i += 1
        for _ in range(depth):
            x = x + plain.unit(plain.unit(x, w, f"extractor/{i}/0"), w, f"extractor/{i}/1")
            i += 1
        stages.append(x)
    for scale in range(3):
        if scale:
            x = plain.unit(x, w, f"extractor/{i}").repeat(2, axis=2).repeat(2, axis=3)
            x, i = np.concatenate([x, stages[4 - scale]], axis=1), i + 1
        for _ in range(5):
            x, i = plain.unit(x, w, f"extractor/{i}"), i + 1
        y = plain.unit(x, w, f"subnet/{scale}/0")
        maps.append(plain.conv(y, w[f"subnet/{scale}/1/W"], w[f"subnet/{scale}/1/b"]))
    return maps


def plain_boxes(model, maps):
    """Decode one cell after the other: boxes ``(N, K, 4)`` and all numbers ``(N, K, 5 + C)``."""
    boxes, rows = [], []
    for y, stride, anchors in zip(maps, model.extractor.strides, model.anchors, strict=True):
        for v in range(y.shape[2]):
            for u in range(y.shape[3]):
                for a, (h, w) in enumerate(anchors):
                    row = y[:, a * (5 + CLASSES) : (a + 1) * (5 + CLASSES), v, u]
                    cy, cx = (plain.sigmoid(row[:, k]) + (v, u)[k] for k in (0, 1))
                    cy, cx = cy * stride, cx * stride
                    hh, hw = h * np.exp(row[:, 2]) / 2, w * np.exp(row[:, 3]) / 2
                    boxes.append(np.stack([cy - hh, cx - hw, cy + hh, cx + hw], axis=-1))
                    rows.append(row)
    return np.stack(boxes, axis=1), np.stack(rows, axis=1)


@pytest.mark.parametrize(
    ("case", "names", "network"),
    [(ALL[0], names_of_v2, plain_v2), (ALL[1], names_of_tiny, plain_tiny),
     (ALL[2], names_of_v3, plain_v3)],
    ids=["v2", "tiny", "v3"],
)  # fmt: skip
def test_a_file_of_chainercv_gives_the_network_and_the_objects_of_plain_numpy(
    case, names, network, tmp_path
):
    w = plain.write_npz(tmp_path / "w.npz", names())
    model = nn.load_chainer_npz(model_of(*case, score_threshold=0.3), tmp_path / "w.npz")
    prepared = model.prepare(images())
    maps = network({k: np.float64(v) for k, v in w.items()}, np.float64(prepared.batch))
    boxes, rows = plain_boxes(model, maps)
    locs, objs, confs = model(prepared.batch)
    np.testing.assert_allclose(locs, rows[..., :4], atol=2e-4)
    np.testing.assert_allclose(objs, rows[..., 4], atol=2e-4)
    np.testing.assert_allclose(confs, rows[..., 5:], atol=2e-4)
    np.testing.assert_allclose(model.boxes(locs), boxes, rtol=1e-3, atol=1e-2)
    act = plain.sigmoid if case[0] is models.YOLOv3 else plain.softmax
    scores = plain.sigmoid(rows[..., 4:5]) * act(rows[..., 5:])
    found = model.predict(images())
    for i in range(3):
        wanted = plain.best(boxes[i], scores[i], 0.3, 0.45)[: model.limit]
        assert len(found.scores[i]) == len(wanted)
        np.testing.assert_allclose(found.scores[i], [s for s, _, _ in wanted], atol=1e-4)
        scale = prepared.sizes[i] / prepared.originals[i]
        offset = (64 - prepared.sizes[i]) / 2
        shown = np.array([b for *_, b in wanted]).reshape(-1, 4)
        shown = (shown - np.tile(offset, 2)) / np.tile(scale, 2)
        np.testing.assert_allclose(found.boxes[i], shown, rtol=1e-3, atol=2e-2)


# --- targets and losses --------------------------------------------------------------------


def plain_targets(model, predicted, boxes, labels):
    """Assign one object after the other."""
    truths = np.full(predicted.shape[:2], -1)
    classes = np.zeros((*predicted.shape[:2], CLASSES))
    ignored = np.zeros(predicted.shape[:2], bool)
    shapes = [
        (h, w, s, a) for s, sizes in enumerate(model.anchors) for a, (h, w) in enumerate(sizes)
    ]
    strides = model.extractor.strides
    counts = [(64 // s) ** 2 * len(sizes) for s, sizes in zip(strides, model.anchors, strict=True)]
    for i in range(len(boxes)):
        for t, (box, label) in enumerate(zip(boxes[i], labels[i], strict=True)):
            if label < 0:
                continue
            ignored[i] |= [plain.iou(p, box) > model._ignore_threshold for p in predicted[i]]
            size = box[2:] - box[:2]
            fits = [plain.iou((0, 0, *size), (0, 0, h, w)) for h, w, _, _ in shapes]
            _, _, scale, a = shapes[int(np.argmax(fits))]
            stride = model.extractor.strides[scale]
            v, u = ((box[:2] + box[2:]) / 2 // stride).astype(int)
            k = sum(counts[:scale]) + (v * (64 // stride) + u) * len(model.anchors[scale]) + a
            truths[i, k] = t
            classes[i, k, label] = 1
    return truths, classes, ignored


def plain_losses(model, outputs, boxes, labels, prior_weight):
    locs, objs, confs = (np.float64(part) for part in outputs)
    predicted = np.float64(model.boxes(outputs[0]))
    assigned, classes, ignored = plain_targets(model, predicted, boxes, labels)
    grid = model.grid()
    third = isinstance(model, models.YOLOv3)

    def entropy(x, t):
        return np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0) - x * t

    loc = obj = conf = 0.0
    for i, k in np.ndindex(assigned.shape):
        t, o = assigned[i, k], objs[i, k]
        xy, hw = locs[i, k, :2], locs[i, k, 2:]
        if t < 0:
            away = entropy(xy, 0.5) if third else (plain.sigmoid(xy) - 0.5) ** 2 / 2
            loc += prior_weight * (away + hw**2 / 2).sum()
            obj += 0 if ignored[i, k] else entropy(o, 0) if third else plain.sigmoid(o) ** 2 / 2
            continue
        box = np.float64(boxes[i][t])
        size = box[2:] - box[:2]
        centre = (box[:2] + box[2:]) / 2 / grid.steps[k] - grid.cells[k]
        first = entropy(xy, centre) if third else (plain.sigmoid(xy) - centre) ** 2 / 2
        second = (hw - np.log(size / grid.priors[k])) ** 2 / 2
        loc += (2 - size.prod() / 64**2) * (first + second).sum()
        overlap = plain.iou(predicted[i, k], box)
        obj += entropy(o, 1) if third else 2.5 * (plain.sigmoid(o) - overlap) ** 2
        if third:
            conf += entropy(confs[i, k], classes[i, k]).sum()
        else:
            conf -= np.log(plain.softmax(confs[i, k])[labels[i][t]])
    return {"loc_loss": loc / 3, "obj_loss": obj / 3, "conf_loss": conf / 3}


@pytest.mark.parametrize(("cls", "settings"), ALL)
def test_targets_and_losses_are_those_of_a_loop_over_objects(cls, settings):
    model = model_of(cls, settings)
    prepared = model.prepare(images())
    padded = vision.pad(truths(), 4)
    scale = np.tile(prepared.sizes / prepared.originals, 2)[:, None]
    offset = np.tile((64 - prepared.sizes) / 2, 2)[:, None]
    boxes = np.float32(padded.boxes * scale + offset)
    outputs, _ = model.train(prepared.batch, key=KEY)
    weight = 0 if cls is models.YOLOv3 else 0.01
    wanted = plain_losses(model, outputs, boxes, padded.labels, weight)
    found, successor = model.losses(images(), truths(), key=KEY, prior_weight=np.float64(weight))
    assert found.keys() == wanted.keys()
    for name, value in found.items():
        assert value.dtype == np.float32
        np.testing.assert_allclose(value, wanted[name], rtol=2e-4, atol=1e-6)
    before, after = (m.extractor.layers[0].layers[1].running_mean for m in (model, successor))
    assert not np.array_equal(before, after)


@pytest.mark.slow
@pytest.mark.parametrize(("cls", "settings"), ALL)
def test_losses_and_gradients_are_equal_in_jit_with_one_trace_for_all_numbers(cls, settings):
    model = model_of(cls, settings)
    batch = np.random.default_rng(1).uniform(0, 255, (2, 3, 64, 64)).astype(np.float32)

    def loss(model, batch, truths):
        losses, _ = model.losses(batch, truths, key=KEY)
        return sum(losses.values())

    eager = fdbr.value_and_grad(loss)
    jitted = fdbr.jit(eager)
    for labels in ([[1, 0], [2, -1]], [[1, -1], [-1, -1]], [[-1, -1], [-1, -1]]):
        boxes = np.array([[[3, 4, 20, 30], [10, 10, 40, 60]]] * 2, np.float32)
        some = vision.Truths(boxes, np.array(labels, np.int32))
        (value, grads), (value_j, grads_j) = eager(model, batch, some), jitted(model, batch, some)
        np.testing.assert_allclose(value_j, value, rtol=1e-4)
        for a, b in zip(tree.leaves(grads), tree.leaves(grads_j), strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-2, atol=1e-3 * (1 + np.abs(a).max()))
    assert len(jitted.report().traces) == 1


@pytest.mark.parametrize(("cls", "settings"), ALL)
def test_prediction_is_equal_in_jit_and_empty_without_images(cls, settings):
    model = model_of(cls, settings, score_threshold=0.1)
    found, jitted = model.predict(images()), model.predict(images(), jit=True)
    for a, b in zip(tree.leaves(found), tree.leaves(jitted), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-3)
    assert [part[0].dtype for part in found] == [np.float32, np.int32, np.float32]
    assert model.predict([]) == ((), (), ())


def test_a_centre_outside_the_picture_belongs_to_the_last_cell():
    boxes = np.array([[[60, 60, 90, 90]]], np.float32)
    targets = models.yolo_targets(
        np.zeros((1, 4, 4), np.float32), boxes, np.array([[0]]), size=64, strides=[32],
        anchors=[[(30, 30)]], classes=1, ignore_threshold=0.5,
    )  # fmt: skip
    np.testing.assert_array_equal(targets.truths, [[-1, -1, -1, 0]])


def test_arguments_that_make_no_model_are_named():
    for cls, settings in ALL:
        with pytest.raises(ValueError, match="size must be a multiple of 32, got 65"):
            cls.init(KEY, 3, **{**settings, "size": 65})
        with pytest.raises(ValueError, match="anchors must be"):
            cls.init(KEY, 3, **settings, anchors=())
        with pytest.raises(ValueError, match="classes"):
            cls.init(KEY, 0, **settings)


def test_layers_in_between_can_be_extracted():
    model = model_of(models.YOLOv2, SMALL)
    found = model.extract(ops.ones((1, 3, 64, 64), dtype="float32"), ["extractor.layers.12"])
    assert found["extractor.layers.12"].shape == (1, WIDTH * 16, 4, 4)
