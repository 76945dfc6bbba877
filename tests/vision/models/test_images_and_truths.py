"""All detectors check images and truths alike, before the network runs."""

import numpy as np
import pytest

import fdbr
from fdbr import tree, vision
from fdbr.vision import models
from fdbr.vision.models.region_losses import RegionTargets
from fdbr.vision.models.resizing import Prepared, in_batch
from fdbr.vision.models.truths import padded_truths

KEY = fdbr.random.key(0)
_SMALL = {"width": 2, "depths": (1, 1, 1, 1), "min_size": 48, "max_size": 64}
_DENSE = {**_SMALL, "channels": 4}
_ONE_MAP = {"anchor_sizes": (16, 32), "post_test": 8, "proposal_size": 4, "score_threshold": 0.1}
_YOLO = {"width": 2, "size": 64}
DETECTORS = {
    "FCIS_ResNet101": {**_SMALL, **_ONE_MAP},
    "FCOS_ResNet50_FPN": _DENSE,
    "FasterRCNN_ResNet101_FPN": _SMALL,
    "FasterRCNN_ResNet50_FPN": _SMALL,
    "FasterRCNN_VGG16": {"width": 2, "hidden": 8, "min_size": 48, "max_size": 64, **_ONE_MAP},
    "KeypointRCNN_ResNet50_FPN": {**_SMALL, "num_keypoints": 2},
    "LightHeadRCNN_ResNet101": {**_SMALL, **_ONE_MAP},
    "MaskRCNN_ResNet101_FPN": _SMALL,
    "MaskRCNN_ResNet50_FPN": _SMALL,
    "RetinaNet_ResNet50_FPN": _DENSE,
    "RetinaNet_ResNet50_FPN_V2": _DENSE,
    "SSD300_VGG16": {"width": 1},
    "SSD512_VGG16": {"width": 1},
    "SSDLite320_MobileNet_V3_Large": {"width": 0.1},
    "YOLOv2": _YOLO,
    "YOLOv2Tiny": _YOLO,
    "YOLOv3": {**_YOLO, "depths": (1,) * 5},
}
CHAINERCV_ONLY = "FasterRCNN_VGG16", "YOLOv2Tiny"
IMAGES = np.random.default_rng(0).uniform(0, 255, (2, 3, 20, 30)).astype("float32")


def truths():
    """Two objects in the first image, and none in the second."""
    boxes = np.array([[1, 2, 9, 12], [4, 4, 16, 28]], "float32")
    masks = np.zeros((2, 20, 30), bool)
    masks[0, 1:9, 2:12] = masks[1, 4:16, 4:28] = True
    whole = boxes, np.array([0, 2], "int32"), masks, boxes.reshape(2, 2, 2), np.ones((2, 2), bool)
    return vision.Truths(*((part, part[:0]) for part in whole))


NEEDS = ("masks", "points", "visible")


@tree.frozen
class Model:
    """A model without parameters."""


def checked(changed=None, images=IMAGES, needs=NEEDS):
    given = truths() if changed is None else changed
    return padded_truths(Model(), images, given, 3, needs=needs)


def test_the_table_has_all_detectors():
    classes = (getattr(models, name) for name in models.__all__)
    found = {c.__name__ for c in classes if isinstance(c, type) and issubclass(c, models.Detector)}
    assert found - {"Detector", "DenseDetector", "FasterRCNN", "SSD"} == set(DETECTORS)


@pytest.mark.parametrize("name", DETECTORS)
def test_images_are_checked_and_no_images_have_empty_results(name):
    model = getattr(models, name).init(KEY, 3, **DETECTORS[name])
    result = model.predict([])
    assert all(field == () for field in result)
    assert isinstance(result, vision.Detections | vision.Instances | vision.Keypoints)
    nan = np.full_like(IMAGES[0], np.nan)
    for wrong in (
        IMAGES[0, :1],
        IMAGES[0].transpose(1, 2, 0),
        IMAGES[0] > 9,
        nan,
        IMAGES[0, :, :0],
    ):
        for call in (model.predict, lambda images: model.losses(images, truths(), key=KEY)):
            with pytest.raises((TypeError, ValueError), match=rf"{name}\.\w+: image 1"):
                call([IMAGES[0], wrong])
    with pytest.raises(TypeError, match="images must be a sequence"):
        model.predict(image for image in IMAGES)
    labels = np.array([0, 3], "int32"), truths().labels[1]
    with pytest.raises(ValueError, match=rf"{name}\.losses: labels of image 0 .* got 3 at 1"):
        model.losses(IMAGES, truths()._replace(labels=labels), key=KEY)


def replaced(name, change):
    """The truths whose field of the first image is changed."""
    given = truths()
    first, second = getattr(given, name)
    return given._replace(**{name: (change(first), second)})


@pytest.mark.parametrize(
    ("changed", "error", "match"),
    [
        (tuple(truths()), TypeError, r"truths must be fdbr\.vision\.Truths, got tuple"),
        (truths()._replace(masks=None), ValueError, "truths must have masks, got None"),
        (replaced("boxes", lambda b: b[:, [2, 1, 0, 3]]), ValueError, "image 0 .* y_min < y_max"),
        (replaced("boxes", lambda b: b * np.nan), ValueError, "boxes of image 0 must be finite"),
        (replaced("boxes", lambda b: b[:1]), ValueError, "boxes must .* 2 of image 0, got float32"),
        (vision.pad(replaced("boxes", lambda b: b.astype(int))), TypeError, "must be floating"),
        (replaced("labels", lambda b: b - 2), ValueError, "labels of image 0 must be from 0"),
        (replaced("labels", lambda b: b * 1.0), TypeError, "labels must be integers"),
        (replaced("masks", lambda m: m[:, :9]), ValueError, r"masks of image 0 .* \(R, 20, 30\)"),
        (replaced("masks", lambda m: m[:, 0]), ValueError, "masks of image 0 must have the shape"),
        (replaced("points", lambda p: p * np.inf), ValueError, "visible points of image 0"),
        (vision.pad(truths())._replace(boxes=np.zeros((2, 1, 4))), ValueError, "boxes must have"),
        (vision.Truths((), (), (), (), ()), ValueError, "labels for each of the 2 images"),
    ],
)
def test_truths_that_are_not_proper_are_named(changed, error, match):
    with pytest.raises(error, match=match) as caught:
        checked(changed)
    assert "fdbr.vision.models.Model.losses" in str(caught.value) or "fdbr.vision.pad" in str(
        caught.value
    )


def test_losses_need_an_image():
    with pytest.raises(ValueError, match="images must have an image at least"):
        checked(images=[])


def test_truths_without_objects_have_an_entry_of_padding_and_only_what_is_needed():
    none = vision.Truths(*(np.zeros((2, 0, *f[0].shape[1:]), f[0].dtype) for f in truths()))
    for given in (none, vision.Truths(*(field[1:] * 2 for field in truths()))):
        found = checked(given, needs=("masks",))
        assert found.labels.tolist() == [[-1], [-1]]
        assert found.boxes.shape == (2, 1, 4)
        assert found.masks.shape == (2, 1, 20, 30)
        assert found.points is found.visible is None


def test_masks_and_visible_points_are_what_is_not_zero():
    prepared = Prepared(IMAGES, *(np.array([[20, 30]] * 2),) * 2)
    plain = in_batch(checked(needs=("masks",)), prepared)
    shown = in_batch(checked(replaced("masks", lambda m: m * np.uint8(255))), prepared)
    np.testing.assert_array_equal(plain.masks, shown.masks)
    logits = np.random.default_rng(1).normal(size=(2, 2, 2, 7, 7))
    every = np.ones((2, 2), bool)
    sample = models.Sample(np.array([[0, 1]] * 2), every, every)
    found = vision.pad(truths())
    zeros = np.zeros((2, 2), int)
    targets = RegionTargets(sample, found.boxes, zeros, found.boxes, np.array([[0, 1]] * 2))
    losses = [
        models.keypoint_losses(logits, targets, found._replace(visible=found.visible * number))
        for number in (True, np.int32(2), np.float32(1))
    ]
    assert losses[0] == losses[1] == losses[2]
    assert losses[0]["loss_keypoint"] > 0
    with pytest.raises(ValueError, match="each object must have 3 points as the logits"):
        models.keypoint_losses(np.zeros((2, 2, 3, 7, 7)), targets, found)


@pytest.mark.parametrize("name", ["FasterRCNN_VGG16", "FCIS_ResNet101"])
def test_detectors_of_chainercv_predict_images_of_other_sizes_alone(name):
    model = getattr(models, name).init(KEY, 3, **DETECTORS[name])
    images = [IMAGES[0], IMAGES[1, :, :, :24], IMAGES[1], IMAGES[0, :, :1]]
    together = model.predict(images)
    for i, image in enumerate(images):
        for some, (alone,) in zip(together, model.predict([image]), strict=True):
            np.testing.assert_allclose(some[i], alone, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("name", ["FasterRCNN_VGG16", "FasterRCNN_ResNet50_FPN", "SSD300_VGG16",
                                  "YOLOv2Tiny"])  # fmt: skip
def test_models_of_chainercv_resize_images_as_opencv(name):
    settings = {**DETECTORS[name], **({} if name in CHAINERCV_ONLY else {"chainer": True})}
    model = getattr(models, name).init(KEY, 3, **settings)
    wanted = np.random.default_rng(1).uniform(0, 255, (3, 499, 499)).astype("float32")
    zeros, given = (model.prepare([image]) for image in (0 * wanted, wanted))
    size = int(given.sizes[0, 0])
    at = (np.arange(size) + 0.5) * 499 / size - 0.5
    for axis in (1, 2):  # positions in float64, unlike PyTorch's
        wanted = np.apply_along_axis(lambda x: np.interp(at, np.arange(499), x), axis, wanted)
    found = (given.batch - zeros.batch)[0, :, :size, :size] * (255 if "YOLO" in name else 1)
    np.testing.assert_allclose(found, wanted, atol=2e-4)


@pytest.mark.parametrize("name", ["SSD300_VGG16", "YOLOv2Tiny"])
def test_a_score_equal_to_the_threshold_is_kept_as_in_chainercv(name):
    settings = {**DETECTORS[name], **({} if name in CHAINERCV_ONLY else {"chainer": True})}
    model = getattr(models, name).init(KEY, 3, **settings, score_threshold=0.01)
    (scores,) = model.predict(IMAGES[:1]).scores
    least = float(scores[len(scores) // 2])
    (kept,) = tree.replace(model, score_threshold=least).predict(IMAGES[:1]).scores
    assert kept[-1] == least
