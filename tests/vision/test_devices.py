"""Vision on arrays of a GPU: each function runs there, moves them, or says that it does not.

The arrays are those of the shadow module, which refuse any implicit conversion, and lie on a device
that is not the current one.  Tables have every public function, so that a new one needs a row.
"""

import functools
import inspect
import io

import numpy as np
import pytest
import shadow
from hypothesis import given, settings
from hypothesis import strategies as st

import fdbr
from fdbr import ops, tree, vision
from fdbr.core import devices
from fdbr.vision import datasets, drawing, evaluation, models, transforms

KEY = fdbr.random.key(0)
RNG = np.random.default_rng(0)
pytestmark = pytest.mark.usefixtures("two_devices")


@pytest.fixture(autouse=True, scope="module")
def _shadow_is_the_accelerator():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(devices, "accelerator", lambda: shadow.module)
        yield


def there(values):
    return fdbr.device_put(values, 1)


def check(found, expected):
    """That results lie on the device, and are those of arrays in host memory."""
    found, expected = tree.leaves(found), tree.leaves(expected)
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert a.device == shadow.Device(1)
        assert (a.shape, a.dtype) == (np.shape(b), b.dtype)
        np.testing.assert_allclose(a.get(), b, rtol=1e-5, atol=1e-5)


def boxes_of(*shape):
    low = RNG.uniform(0, 20, (*shape, 2))
    return np.concatenate([low, low + RNG.uniform(2, 20, (*shape, 2))], -1).astype("float32")


def functions_of(room):
    return {name for name in room.__all__ if inspect.isfunction(getattr(room, name))}


A, B, SCORES = boxes_of(5), boxes_of(5), RNG.random(5, "float32")
LABELS = np.array([0, 2, 1, 0, 2], "int32")
MASKS = RNG.random((5, 24, 24)) < 0.5
POINTS = RNG.uniform(0, 20, (2, 3, 2)).astype("float32")
BATCH, TWO = boxes_of(2, 6), np.array([[0, 2], [1, -1]], "int32")
TRUTHS = vision.Truths(BATCH[:, :2], TWO)
CODES, LOGITS = RNG.normal(size=(2, 6, 4)).astype("float32"), BATCH[..., :3] / 10
POSITIVE = np.array([[1, 0, -1, 2, 0, 0], [0, 1, 0, 3, -1, 0]])
OBJECTS = np.array([[0, 1, -1, -2, 1, 0], [0, -1, 0, 0, -1, 0]])
OWN = np.where(OBJECTS < 0, -1, OBJECTS)
REGIONS = models.region_targets(KEY, BATCH, BATCH[..., 0] > 0, TRUTHS, count=4)
ANCHORS = models.anchor_targets(KEY, A, TRUTHS, count=4)
MAPS = RNG.normal(size=(2, 4, 3, 14, 14)).astype("float32")
COLUMNS = REGIONS._replace(labels=np.minimum(REGIONS.labels, 2))
RAGGED = vision.Detections((A, B[:2]), (LABELS, LABELS[:2]), (SCORES, SCORES[:2]))

ON_DEVICE = {
    "box_area": (vision.box_area, A),
    "box_iou": (vision.box_iou, A, B),
    "clip_boxes": (lambda a: vision.clip_boxes(a, (8, 9)), A),
    "convert_boxes": (lambda a: vision.convert_boxes(a, "yxyx", "cxcywh"), A),
    "crop_masks": (lambda m, a: vision.crop_masks(m, a, 4), MASKS, A),
    "decode_boxes": (vision.decode_boxes, CODES[0, :5], A),
    "encode_boxes": (vision.encode_boxes, A, B),
    "generalized_box_iou": (vision.generalized_box_iou, A, B),
    "giou_loss": (vision.giou_loss, A, B),
    "grid_anchors": (lambda a: vision.grid_anchors((2, 3), 8, a), A),
    "mask_iou": (vision.mask_iou, MASKS, MASKS[:2]),
    "masks_to_boxes": (vision.masks_to_boxes, MASKS),
    "nms": (lambda a, s, n: vision.nms(a, s, labels=n), A, SCORES, LABELS),
    "paste_masks": (lambda m, a: vision.paste_masks(m, a, (16, 16)), MASKS[:, :4, :4] * 1.0, A),
    "resize_masks": (lambda m: vision.resize_masks(m, 7), MASKS),
    "pad": (vision.pad, RAGGED),
    "unpad": (vision.unpad, vision.pad(RAGGED)),
    "collate": (
        datasets.collate,
        [{"image": CODES, "boxes": A, "labels": LABELS}, {"image": CODES, "label_map": TWO}][:1],
    ),
    "collate of label maps": (datasets.collate, [{"image": CODES, "label_map": TWO}] * 2),
    "match": (lambda a, s: models.match(a, s, 0.5, 0.3, low_quality=True), A, A[:, 0] > 9),
    "sample": (lambda n: models.sample(KEY, n, 4, 0.5), POSITIVE),
    "match_points": (models.match_points, BATCH, POSITIVE, [A, B]),
    "match_default_boxes": (models.match_default_boxes, BATCH, POSITIVE, A),
    "one to one": (lambda *a: models.match_default_boxes(*a, chainer=True), BATCH, POSITIVE, A),
    "anchor_targets": (
        lambda a, t, n: models.anchor_targets(KEY, a, t, sizes=n, count=4), A, TRUTHS, TWO + 30,
    ),
    "region_targets": (
        lambda a, n, t: models.region_targets(KEY, a, n, t, count=4), BATCH, BATCH[..., 0] > 0,
        TRUTHS,
    ),
    "anchor_losses": (models.anchor_losses, LOGITS[:, :5, 0], CODES[:, :5], ANCHORS),
    "region_losses": (
        models.region_losses, LOGITS[:, :4], np.stack([CODES[:, :4]] * 3, 2), COLUMNS,
    ),
    "mask_losses": (models.mask_losses, MAPS, COLUMNS, np.stack([MASKS[:2] * 1.0] * 2)),
    "keypoint_losses": (
        models.keypoint_losses, MAPS, REGIONS,
        TRUTHS._replace(points=np.stack([POINTS] * 2), visible=np.ones((2, 2, 3), bool)),
    ),
    "multibox_loss": (models.multibox_loss, LOGITS, CODES, np.minimum(OWN, 1), CODES / 2),
    "retinanet_losses": (models.retinanet_losses, LOGITS, CODES, BATCH[0], OBJECTS, BATCH, OWN),
    "fcos_losses": (
        models.fcos_losses, LOGITS, CODES, CODES[..., :1], BATCH[0], np.stack([BATCH[0]] * 2), OWN,
    ),
    "yolo_targets": (
        lambda p, b, n: models.yolo_targets(
            p, b, n, size=64, strides=[32], anchors=[[(16, 16), (40, 20)]], classes=3,
            ignore_threshold=0.5,
        ), boxes_of(2, 8), BATCH[:, :2], TWO,
    ),
    "mask_voting": (
        lambda b, s, m: models.mask_voting(b, s, m, (40, 40), score_threshold=0.2),
        A, LOGITS[0, :5] / 4, MASKS[:, :7, :7] * 1.0,
    ),
}  # fmt: skip
OF_NUMBERS = {"base_anchors", "default_boxes", "decode_rle", "convolution_crop", "split_backbone"}
DIFFERENTIABLE = ("box_iou", "giou_loss", "encode_boxes", "decode_boxes", "multibox_loss")


def test_every_function_of_boxes_and_models_is_tested_here():
    public = functions_of(vision.boxes) | functions_of(models) | {"pad", "unpad"}
    assert public - OF_NUMBERS - {"encode_rle"} <= ON_DEVICE.keys()


@pytest.mark.parametrize("name", ON_DEVICE)
def test_functions_run_where_their_arrays_lie(name):
    function, *arguments = ON_DEVICE[name]
    check(function(*map(there, arguments)), function(*arguments))


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_derivatives_lie_there_too(name):
    function, *arguments = ON_DEVICE[name]

    def total(*arguments):
        return functools.reduce(ops.add, map(ops.sum, tree.leaves(function(*arguments))))

    gradient = fdbr.grad(total)
    check(gradient(*map(there, arguments)), gradient(*arguments))


# --- suppression -----------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    shape=st.sampled_from([(0,), (1,), (64,), (65,), (200,), (3, 70), (0, 5)]),
    threshold=st.sampled_from([-1.0, 0.0, 0.3, 0.5, 1.0]),
)
def test_suppression_keeps_the_boxes_that_it_keeps_in_host_memory(seed, shape, threshold):
    rng = np.random.default_rng(seed)
    low = np.round(rng.uniform(0, 30, (*shape, 2)) * 4) / 4
    high = low + np.round(rng.uniform(-1, 20, (*shape, 2)) * 4) / 4
    boxes = np.concatenate([low, high], -1).astype("float32")
    scores = rng.integers(-2, 6, shape).astype("float32")
    for values in (boxes, scores, scores):
        values[rng.random(values.shape) < 0.03] = rng.choice([np.nan, np.inf, -np.inf, -0.0])
    labels = rng.integers(-1, 3, shape).astype("int16")
    limit = int(rng.integers(0, shape[-1] + 3))
    with np.errstate(all="ignore"):
        expected = vision.nms(boxes, scores, threshold, labels=labels, limit=limit)
        found = vision.nms(*there((boxes, scores)), threshold, labels=labels, limit=limit)
    check([found], [expected])


def test_suppression_waits_once_however_many_boxes_there_are():
    boxes, scores = there((boxes_of(300), RNG.random(300, "float32")))
    with shadow.counting() as tally:
        vision.nms(boxes, scores, limit=100)
    assert tally.waits == 1 or not hasattr(shadow.module, "ElementwiseKernel")


# --- what runs in host memory ----------------------------------------------------------------

EXAMPLE = {
    "image": np.zeros((3, 24, 24), "float32"), "boxes": A, "labels": LABELS, "masks": MASKS,
}  # fmt: skip
TRANSFORMS = {
    "center_crop": ((8, 8),), "crop": (slice(8),), "expand": ((30, 30),), "flip": (),
    "pca_lighting": (1.0,), "random_crop": ((8, 8),), "random_expand": (), "random_flip": (),
    "random_rotate": (), "resize": (9,), "resize_contain": ((9, 9),), "rotate": (10,),
    "resize_with_random_interpolation": ((9, 9),), "scale": (9,), "ten_crop": ((8, 8),),
    "translate": (), "random_crop_with_constraints": (), "random_distort": (),
    "random_sized_crop": ((8, 8),),
}  # fmt: skip


def test_transforms_refuse_arrays_of_a_gpu_and_say_how_to_move_them():
    assert TRANSFORMS.keys() | {"mosaic", "mixup"} == functions_of(transforms)
    example = there(EXAMPLE)
    pair = there({"image": EXAMPLE["image"], "label": 1})
    calls = [
        lambda: vision.check_example(example),
        lambda: transforms.mosaic(KEY, [example] * 4, (16, 16)),
        lambda: transforms.mixup(KEY, example, example),
        lambda: datasets.mix_up(KEY, pair, pair, 3),
        lambda: datasets.pair_indices(KEY, there(LABELS), LABELS, 3),
    ]
    for name, arguments in TRANSFORMS.items():
        function = getattr(transforms, name)
        first = () if next(iter(inspect.signature(function).parameters)) == "example" else (KEY,)
        calls.append(lambda f=function, first=first, a=arguments: f(*first, example, *a))
    for call in calls:
        with pytest.raises(TypeError, match=r"must lie in host memory.* fdbr\.device_get"):
            call()


def measures():
    instances = vision.Instances((A,), (LABELS,), (SCORES,), (MASKS,))
    true = vision.Truths((A,), (LABELS,), (MASKS,))
    yield evaluation.detection_voc, ((A,), (LABELS,), (SCORES,)), ((B,), (LABELS,))
    yield evaluation.instances_voc, instances, true
    yield evaluation.segmentation, (abs(TWO), TWO * 0), (TWO * 0, TWO)
    padded = vision.pad(RAGGED)
    yield evaluation.detection_voc, padded, padded[:2]


def test_measures_move_arrays_to_host_memory():
    for measure, found, true in measures():
        expected = measure(found, true)
        np.testing.assert_equal(measure(there(found), there(true)), expected)


def test_measures_of_coco_move_arrays_to_host_memory():
    pytest.importorskip("pycocotools")
    arguments = (vision.Detections((A,), (LABELS,), (SCORES,)), ((B,), (LABELS,)))
    found, expected = (evaluation.detection_coco(*a) for a in (there(arguments), arguments))
    assert (
        found["map/iou=0.50:0.95/area=all/max_dets=100"]
        == (expected["map/iou=0.50:0.95/area=all/max_dets=100"])
    )


def test_run_lengths_pictures_and_files_are_made_in_host_memory():
    assert vision.encode_rle(there(MASKS)) == vision.encode_rle(MASKS)
    np.testing.assert_array_equal(drawing.label_colors(there(LABELS)), drawing.label_colors(LABELS))
    tiles = [np.zeros((3, 2, 2)), np.ones((3, 2, 2))]
    np.testing.assert_array_equal(
        drawing.tile_images(there(tiles), 2), drawing.tile_images(tiles, 2)
    )
    pytest.importorskip("PIL")
    files = [io.BytesIO(), io.BytesIO()]
    vision.write_image(there(EXAMPLE["image"]), files[0])
    vision.write_image(EXAMPLE["image"], files[1])
    assert files[0].getvalue() == files[1].getvalue()


def test_drawing_moves_arrays_to_host_memory():
    pytest.importorskip("matplotlib")
    ax = drawing.draw_image(there(EXAMPLE["image"]))
    drawing.draw_boxes(None, *there((A, LABELS, SCORES)), names="abc", ax=ax)
    drawing.draw_instances(None, there(MASKS), ax=ax)
    drawing.draw_label_map(None, there(TWO), ax=ax)
    drawing.draw_points(None, there(POINTS), ax=ax)


# --- models ----------------------------------------------------------------------------------

SMALL = {"width": 1, "depths": (1, 1, 1, 1), "min_size": 32, "max_size": 40}
PYRAMID = {
    **SMALL, "rpn_pre_nms_top_n_test": 20, "rpn_post_nms_top_n_test": 4, "box_score_thresh": 0.05,
    "rpn_pre_nms_top_n_train": 20, "rpn_post_nms_top_n_train": 8, "box_detections_per_img": 2,
    "box_batch_size_per_image": 8,
}  # fmt: skip
ONE_MAP = {
    "width": 1, "min_size": 32, "max_size": 40, "anchor_sizes": (8, 16), "post_train": 6,
    "post_test": 3, "proposal_size": 2, "score_threshold": 0.1,
}  # fmt: skip
MODELS = {
    "YOLOv2Tiny": {"width": 1, "size": 32},
    "YOLOv3": {"width": 1, "size": 32, "depths": (1, 1, 1, 1, 1)},
    "RetinaNet_ResNet50_FPN": {**SMALL, "channels": 4, "score_threshold": 0.0},
    "SSD300_VGG16": {"width": 1, "score_threshold": 0.1},
    "MaskRCNN_ResNet50_FPN": PYRAMID,
    "KeypointRCNN_ResNet50_FPN": PYRAMID,
    "FasterRCNN_VGG16": {**ONE_MAP, "hidden": 4},
    "LightHeadRCNN_ResNet101": {**ONE_MAP, "depths": (1, 1, 1, 1), "hard_examples": 4},
    "FCIS_ResNet101": {**ONE_MAP, "depths": (1, 1, 1, 1), "region_count": 4},
    "PSPNet_ResNet50": {"width": 1, "depths": (1, 1, 1, 1), "input_size": (24, 24)},
    "DeepLabV3Plus_Xception65": {
        "width": 1, "depth": 1, "channels": 4, "rates": (1, 2, 3), "min_input_size": (24, 24),
    },
    "FCN_ResNet50": {"width": 1, "depths": (1, 1, 1, 1), "size": 24},
}  # fmt: skip
FAST = "YOLOv2Tiny", "RetinaNet_ResNet50_FPN", "FCN_ResNet50", "FasterRCNN_VGG16"


def model_of(name):
    return getattr(models, name).init(KEY, 3, **MODELS[name])


def pictures():
    rng = np.random.default_rng(0)
    return [rng.uniform(0, 255, (3, 32, 32)).astype("float32") for _ in range(2)]


def truths():
    boxes = np.array([[2, 3, 20, 28], [8, 8, 30, 30]], "float32"), np.zeros((0, 4), "float32")
    labels = tuple(np.arange(len(b), dtype="int32") for b in boxes)
    masks = tuple(np.ones((len(b), 32, 32), bool) for b in boxes)
    points = tuple(np.full((len(b), 17, 2), 15, "float32") for b in boxes)
    return vision.Truths(boxes, labels, masks, points, tuple(p[..., 0] > 0 for p in points))


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n not in FAST)) for n in MODELS]
)
def test_models_predict_and_train_on_their_device(name):
    model, images = model_of(name), pictures()
    moved = there(model)
    check(moved.predict(there(images)), model.predict(images))
    is_segmenter = isinstance(model, models.Segmenter)
    true = [np.zeros((32, 32), "int32")] * 2 if is_segmenter else truths()
    found, expected = (
        m.losses(i, t, key=KEY)[0]
        for m, i, t in ((moved, there(images), there(true)), (model, images, true))
    )
    check(found, expected)


def test_arrays_on_another_device_than_the_model_are_refused_with_their_name():
    model, images = model_of("YOLOv2Tiny"), pictures()
    moved = there(model)
    with pytest.raises(ValueError, match=r"predict: image 0 lies in host memory, .*put\(x, 1\)"):
        moved.predict(images)
    with pytest.raises(ValueError, match=r"image 0 lies on GPU 1, but the model in host memory"):
        model.predict(there(images))
    with pytest.raises(ValueError, match=r"losses: boxes lies in host memory, but the images on"):
        moved.losses(there(images), truths(), key=KEY)
    mixed = truths()._replace(boxes=there(truths().boxes))  # labels are moved
    assert set(moved.losses(there(images), mixed, key=KEY)[0]) == {
        "loc_loss", "obj_loss", "conf_loss",
    }  # fmt: skip
    assert moved.predict([]).boxes == ()
