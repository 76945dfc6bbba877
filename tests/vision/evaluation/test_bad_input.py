"""Wrong predictions and truths are errors with the index of the image."""

import numpy as np
import pytest

from fdbr import vision
from fdbr.vision import evaluation

BOX, LABEL, SCORE = np.array([[0.0, 0.0, 5.0, 5.0]]), np.array([0]), np.array([0.5])
MASK = np.ones((1, 4, 4), bool)
GOOD = {"boxes": BOX, "labels": LABEL, "scores": SCORE, "masks": MASK}

WRONG = [
    ("scores", np.array([np.nan]), ValueError, "predicted.scores must not be NaN"),
    ("scores", np.array([0.5, 0.5]), ValueError, r"must have the shape \(R\), with R=1"),
    ("labels", np.array([2]), ValueError, "predicted.labels must be from 0 to 1, got 2"),
    ("labels", np.array([-1]), ValueError, "predicted.labels must be from 0 to 1, got -1"),
    ("labels", np.array([0.0]), TypeError, "predicted.labels must have a dtype of integers"),
    ("boxes", np.zeros((1, 5)), ValueError, r"predicted.boxes must have the shape \(R, 4\)"),
    ("boxes", np.array([[0, 0, np.inf, 1]]), ValueError, "predicted.boxes must be finite"),
    ("boxes", np.array([[5.0, 0, 1, 1]]), ValueError, "each min at most max"),
]
BY_BOXES = (evaluation.detection_voc, evaluation.detection_coco)
BY_MASKS = (evaluation.instances_voc, evaluation.instances_coco)


def images(**changed):
    """Two good images, the second with a change, as predictions and truths."""
    both = [GOOD, GOOD | changed]
    columns = {name: [image[name] for image in both] for name in GOOD}
    found = vision.Instances(*(columns[name] for name in vision.Instances._fields))
    return found, vision.Truths([BOX] * 2, [LABEL] * 2, [MASK] * 2)


@pytest.fixture(autouse=True)
def _library():
    pytest.importorskip("pycocotools", reason="the extra vision is not installed")


@pytest.mark.parametrize(("name", "value", "error", "text"), WRONG)
@pytest.mark.parametrize("function", BY_BOXES)
def test_a_wrong_prediction_is_named(function, name, value, error, text):
    with pytest.raises(error, match=rf"{function.__name__}: image 1: .*{text}"):
        function(*images(**{name: value}), classes=2)


@pytest.mark.parametrize("function", BY_MASKS)
def test_wrong_masks_are_named(function):
    for masks, error, text in [
        (np.ones((1, 4, 5), bool), ValueError, "masks of predicted and truths must have one size"),
        (np.ones((1, 4, 4)), TypeError, "predicted.masks must have a dtype of booleans"),
        (np.ones((4, 4), bool), ValueError, r"predicted.masks must have the shape \(R, H, W\)"),
    ]:
        with pytest.raises(error, match=rf"{function.__name__}: image 1: {text}"):
            function(*images(masks=masks))


@pytest.mark.parametrize("function", BY_BOXES + BY_MASKS)
def test_numbers_of_images_that_differ_are_an_error(function):
    found, truths = images()
    truths = truths._replace(labels=[LABEL])
    with pytest.raises(ValueError, match=r"there is no image 1 in truths\.labels"):
        function(found, truths)


def test_a_missing_field_is_named():
    found, truths = images()
    with pytest.raises(ValueError, match=r"instances_voc: image 0: truths\.masks is needed"):
        evaluation.instances_voc(found, truths._replace(masks=None))
    with pytest.raises(ValueError, match=r"detection_voc: image 0: predicted\.scores is needed"):
        evaluation.detection_voc(found._replace(scores=None), truths)
    with pytest.raises(TypeError, match="detection_voc: predicted must be a named tuple"):
        evaluation.detection_voc(3, truths)
    with pytest.raises(TypeError, match="without truths, predicted must be pairs"):
        evaluation.detection_voc(found)
    with pytest.raises(ValueError, match=r"detection_coco: image 0: truths\.areas must be at"):
        evaluation.detection_coco(found, truths, areas=[np.array([-1.0])] * 2)


def test_wrong_points_are_named():
    points, visible = np.zeros((1, 17, 2)), np.ones((1, 17), bool)
    found = vision.Keypoints([BOX], [LABEL], [SCORE], [points], None)
    truths = vision.Truths([BOX], [LABEL], None, [points], [visible])
    for changed, text in [
        ((found._replace(points=[points[:, :5]]), truths), "must have 17 points of each object"),
        ((found._replace(points=[points * np.nan]), truths), "predicted.points must be finite"),
        ((found, truths._replace(points=[points * np.nan])), "must be finite where visible"),
        ((found, truths._replace(visible=[visible[:, :5]])), r"\(R, K\), with R=1, with K=17"),
    ]:
        with pytest.raises(ValueError, match=f"keypoints_coco: image 0: .*{text}"):
            evaluation.keypoints_coco(*changed)


def test_wrong_label_maps_are_named():
    good = np.zeros((2, 3), int)
    for found, true, error, text in [
        (good[:1], good, ValueError, "predicted and truths must have the same shape"),
        (good - 1, good, ValueError, "predicted must have labels from 0 to 1, got -1"),
        (good + 2, good, ValueError, "predicted must have labels from 0 to 1, got 2"),
        (good, good - 2, ValueError, "truths must have labels from -1 to 1, got -2"),
        (good * 1.0, good, TypeError, "predicted.label_map must have a dtype of integers"),
        (good[0], good, ValueError, r"predicted.label_map must have the shape \(H, W\)"),
    ]:
        with pytest.raises(error, match=rf"segmentation: image 1: {text}"):
            evaluation.segmentation([good, found], [good, true], classes=2)
    with pytest.raises(ValueError, match="there is no image 0 in truths"):
        evaluation.segmentation([good], [])


def test_predict_each_names_the_example():
    predict_each = evaluation.predict_each
    image = {"image": np.zeros((3, 1, 1))}
    with pytest.raises(TypeError, match="example 1 must be a dict with the key 'image'"):
        list(predict_each(lambda images: images, [image, {"boxes": 0}]))
    with pytest.raises(ValueError, match="an item for each of 2 images, from 0 on, got 1"):
        list(predict_each(lambda images: images[:1], [image, image], batch=2))
    with pytest.raises(ValueError, match="batch must be at least 1"):
        predict_each(lambda images: images, [], batch=0)
    assert list(predict_each(lambda images: images, [])) == []
