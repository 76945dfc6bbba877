"""Average precision as in the PASCAL VOC challenges."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from fdbr.errors.public import public
from fdbr.vision.evaluation.images import checked, measured

__all__ = [
    "VOC",
    "check_same_size",
    "detection_voc",
    "detection_voc_curves",
    "instances_voc",
    "instances_voc_curves",
    "mean",
    "voc_average_precision",
]

_ROOM = "fdbr.vision.evaluation"
_OBJECTS = ("boxes", "labels", "scores", "masks")
_TRUE, _FALSE, _IGNORED = 1, 0, -1


@attrs.frozen
class VOC:
    """The measure of VOC: which predictions are right, and average precisions of that."""

    where: str
    by: str = "boxes"
    iou: float = 0.5
    eleven_points: bool = False
    classes: int | None = None
    box_format: str = "yxyx"
    predicted: tuple[str, ...] = _OBJECTS
    truths: tuple[str, ...] = ("boxes", "labels", "masks")

    def record(self, i: int, found: Mapping[str, Any], true: Mapping[str, Any]) -> Any:
        """Return the labels, scores and outcomes of predictions, and the labels to be found."""
        form = self.classes, self.box_format
        found = checked(self, i, "predicted", found, (self.by, "labels", "scores"), (), *form)
        true = checked(self, i, "truths", true, (self.by, "labels"), ("difficult",), *form)
        check_same_size(self.where, i, found, true)
        labels, order = found["labels"], np.argsort(-found["scores"].astype(float), kind="stable")
        difficult = np.asarray(true.get("difficult", np.zeros(len(true["labels"]))), bool)
        outcomes = np.zeros(len(labels), np.int8)
        for label in np.intersect1d(labels, true["labels"]):
            own = order[labels[order] == label]
            targets = np.flatnonzero(true["labels"] == label)
            overlaps = _OVERLAPS[self.by](found[self.by][own], true[self.by][targets])
            best, hit = overlaps.argmax(axis=1), overlaps.max(axis=1) >= self.iou
            # The prediction with the largest score has the object, and further ones are wrong.
            _, first = np.unique(np.where(hit, best, -1), return_index=True)
            outcome = np.full(len(own), _FALSE, np.int8)
            outcome[first[hit[first]]] = _TRUE
            outcome[hit & difficult[targets][best]] = _IGNORED
            outcomes[own] = outcome
        return labels[order], found["scores"][order], outcomes[order], true["labels"], ~difficult

    def curves(self, records: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Return precisions and recalls of each class."""
        if not records:
            return [None] * (self.classes or 0), [None] * (self.classes or 0)
        labels, scores, outcomes, true, counted = map(np.concatenate, zip(*records, strict=True))
        count = self.classes or int(max(labels.max(initial=-1), true.max(initial=-1))) + 1
        order = np.argsort(-scores.astype(float), kind="stable")
        precision: list[Any] = [None] * count
        recall: list[Any] = [None] * count
        for label in np.union1d(labels, true).astype(int):
            outcome = outcomes[order[labels[order] == label]]
            right, wrong = np.cumsum(outcome == _TRUE), np.cumsum(outcome == _FALSE)
            with np.errstate(invalid="ignore"):  # NaN where only difficult objects were found
                precision[label] = right / (right + wrong)
            if positives := np.count_nonzero(counted[true == label]):
                recall[label] = right / positives
        return precision, recall

    def figures(self, records: Sequence[Any]) -> dict[str, Any]:
        """Return the average precision of each class and their mean."""
        ap = voc_average_precision(*self.curves(records), self.eleven_points)
        return {"ap": ap, "map": mean(ap)}


def mean(values: Any) -> float:
    """Return the mean of what is not NaN, or NaN if there is nothing."""
    values = np.asarray(values)
    values = values[~np.isnan(values)]
    return float(values.mean()) if values.size else float("nan")


def check_same_size(where: str, i: int, found: Mapping[str, Any], true: Mapping[str, Any]) -> None:
    """Refuse masks of predictions and truths that are of different sizes."""
    sizes = [side["masks"].shape[1:] for side in (found, true) if "masks" in side]
    if len(set(sizes)) > 1:
        raise ValueError(
            f"{where}: image {i}: masks of predicted and truths must have one size, got "
            f"{sizes[0]} and {sizes[1]}"
        )


def _box_overlaps(first: Any, second: Any) -> Any:
    """Return the IoU of boxes whose last row and column of pixels belong to them, as in VOC."""
    first, second = first.astype(float)[:, None], second.astype(float)
    low = np.maximum(first[..., :2], second[..., :2])
    high = np.minimum(first[..., 2:], second[..., 2:])
    common = np.prod(np.maximum(high - low + 1, 0), axis=-1)
    areas = [np.prod(boxes[..., 2:] - boxes[..., :2] + 1, axis=-1) for boxes in (first, second)]
    return common / (areas[0] + areas[1] - common)


def _mask_overlaps(first: Any, second: Any) -> Any:
    """Return the IoU of masks; 0 for two empty ones."""
    pixels = first[0].size
    exact = np.float32 if pixels < 1 << 24 else np.float64  # counts all pixels without rounding
    rows = [masks.reshape(len(masks), pixels).astype(bool).astype(exact) for masks in
            (first, second)]  # fmt: skip
    common = (rows[0] @ rows[1].T).astype(float)
    union = rows[0].sum(axis=1, dtype=float)[:, None] + rows[1].sum(axis=1, dtype=float) - common
    return common / np.maximum(union, 1)


_OVERLAPS = {"boxes": _box_overlaps, "masks": _mask_overlaps}


@public(_ROOM)
def detection_voc(
    predicted: Any,
    truths: Any = None,
    *,
    difficult: Any = None,
    iou: float = 0.5,
    eleven_points: bool = False,
    classes: int | None = None,
    box_format: str = "yxyx",
) -> dict[str, Any]:
    """Return the average precision of a detector, as VOC measures it.

    Predictions of a class are taken in the order of their scores; of equal scores, in the order of
    images.  One is right if the object that it overlaps most is of its class, overlaps it by at
    least ``iou`` and has not been found before.  Boxes include their last row and column of pixels
    in this measure: a side is ``max - min + 1``.  Objects that are difficult do not count, and
    neither do predictions of them.

    Parameters
    ----------
    predicted
        `fdbr.vision.Detections`, or a tuple of its fields, of as many images: ragged or padded.
        Fields may be iterators: one image is held at a time.
    truths
        `fdbr.vision.Truths`, or a tuple ``(boxes, labels)``.  Without it, ``predicted`` are pairs
        ``(prediction, example)`` as `predict_each` yields.
    difficult
        For each image an array of shape ``(R,)``, bool: the objects that do not count.
    iou
        The least overlap of a right prediction, intersection over union.
    eleven_points
        Whether the average is that of 2007: the mean of the largest precisions at recalls of at
        least 0, 0.1, …, 1.  Otherwise it is the area under the curve of these precisions.
    classes
        The number of classes; by default one more than the largest label.
    box_format
        ``"yxyx"`` or ``"xyxy"``: the order of coordinates in a box.

    Returns
    -------
    dict
        ``"ap"``: an array of average precisions, NaN for a class without objects; ``"map"``: their
        mean.

    Raises
    ------
    ValueError, TypeError
        If numbers of images differ, or an array has another shape or dtype, or there are scores
        that are NaN or labels outside the classes; the message has the index of the image.

    References
    ----------
    Everingham et al., The PASCAL Visual Object Classes (VOC) Challenge, IJCV 2010.

    >>> import numpy as np
    >>> from fdbr import vision
    >>> boxes = [np.array([[0, 0, 9, 9], [20, 20, 29, 29]], "float32")]
    >>> found = vision.Detections(boxes, [np.array([0, 1])], [np.array([0.9, 0.8])])
    >>> truths = vision.Truths(boxes, [np.array([0, 0])])
    >>> vision.evaluation.detection_voc(found, truths)
    {'ap': array([0.5, nan]), 'map': 0.5}
    """
    measure = VOC(f"{_ROOM}.detection_voc", "boxes", iou, eleven_points, classes, box_format)
    return measure.figures(measured(measure, predicted, truths, difficult=difficult))


@public(_ROOM)
def detection_voc_curves(
    predicted: Any,
    truths: Any = None,
    *,
    difficult: Any = None,
    iou: float = 0.5,
    classes: int | None = None,
    box_format: str = "yxyx",
) -> tuple[list[Any], list[Any]]:
    """Return the precisions and recalls of a detector, which `detection_voc` averages.

    Parameters
    ----------
    predicted, truths, difficult, iou, classes, box_format
        As for `detection_voc`.

    Returns
    -------
    tuple
        A list of precisions and a list of recalls.  For each class they have an array, whose item
        ``k`` is that of the ``k + 1`` predictions with the largest scores, NaN where these are all
        of difficult objects.  The precisions are `None` of a class without predictions and
        objects, the recalls `None` of one without objects that count.

    Raises
    ------
    ValueError, TypeError
        As for `detection_voc`.

    >>> import numpy as np
    >>> from fdbr import vision
    >>> boxes = [np.array([[0, 0, 9, 9], [20, 20, 29, 29]], "float32")]
    >>> found = vision.Detections(boxes, [np.array([0, 0])], [np.array([0.9, 0.8])])
    >>> truths = vision.Truths([boxes[0][:1]], [np.array([0])])
    >>> vision.evaluation.detection_voc_curves(found, truths)
    ([array([1. , 0.5])], [array([1., 1.])])
    """
    measure = VOC(f"{_ROOM}.detection_voc_curves", "boxes", iou, False, classes, box_format)
    return measure.curves(measured(measure, predicted, truths, difficult=difficult))


@public(_ROOM)
def instances_voc(
    predicted: Any,
    truths: Any = None,
    *,
    difficult: Any = None,
    iou: float = 0.5,
    eleven_points: bool = False,
    classes: int | None = None,
) -> dict[str, Any]:
    """Return the average precision of instance masks, as VOC measures that of boxes.

    Parameters
    ----------
    predicted
        `fdbr.vision.Instances`, or a tuple of its fields; the boxes are not read and may be `None`.
    truths
        `fdbr.vision.Truths`, or a tuple ``(boxes, labels, masks)``, or `None`, as for
        `detection_voc`.
    difficult, iou, eleven_points, classes
        As for `detection_voc`; overlaps are those of masks.

    Returns
    -------
    dict
        As from `detection_voc`.

    Raises
    ------
    ValueError, TypeError
        As for `detection_voc`, and if masks of an image differ in size.

    References
    ----------
    Hariharan et al., Simultaneous Detection and Segmentation, ECCV 2014.

    >>> import numpy as np
    >>> from fdbr import vision
    >>> masks, labels = [np.eye(3, dtype=bool)[None]], [np.array([0])]
    >>> found = vision.Instances(None, labels, [np.array([0.9])], masks)
    >>> vision.evaluation.instances_voc(found, vision.Truths(None, labels, masks))["map"]
    1.0
    """
    measure = VOC(f"{_ROOM}.instances_voc", "masks", iou, eleven_points, classes)
    return measure.figures(measured(measure, predicted, truths, difficult=difficult))


@public(_ROOM)
def instances_voc_curves(
    predicted: Any,
    truths: Any = None,
    *,
    difficult: Any = None,
    iou: float = 0.5,
    classes: int | None = None,
) -> tuple[list[Any], list[Any]]:
    """Return the precisions and recalls of instance masks, which `instances_voc` averages.

    Parameters
    ----------
    predicted, truths, difficult, iou, classes
        As for `instances_voc`.

    Returns
    -------
    tuple
        As from `detection_voc_curves`.

    Raises
    ------
    ValueError, TypeError
        As for `instances_voc`.

    >>> import numpy as np
    >>> from fdbr import vision
    >>> masks, labels = [np.eye(3, dtype=bool)[None]], [np.array([0])]
    >>> found = vision.Instances(None, labels, [np.array([0.9])], masks)
    >>> vision.evaluation.instances_voc_curves(found, vision.Truths(None, labels, masks))
    ([array([1.])], [array([1.])])
    """
    measure = VOC(f"{_ROOM}.instances_voc_curves", "masks", iou, False, classes)
    return measure.curves(measured(measure, predicted, truths, difficult=difficult))


@public(_ROOM)
def voc_average_precision(precision: Any, recall: Any, eleven_points: bool = False) -> Any:
    """Return the average precision of each class from its precisions and recalls.

    Parameters
    ----------
    precision, recall
        As from `detection_voc_curves`: for each class an array, or `None`.
    eleven_points
        As for `detection_voc`.

    Returns
    -------
    array
        float64, of shape ``(classes,)``; NaN where ``precision`` or ``recall`` is `None`.

    Raises
    ------
    ValueError
        If the two differ in their number of classes, or in their shapes for a class.

    >>> import numpy as np
    >>> from fdbr.vision.evaluation import voc_average_precision
    >>> voc_average_precision([np.array([1.0, 0.5, 2 / 3])], [np.array([0.5, 0.5, 1.0])])
    array([0.83333333])
    """
    if len(precision) != len(recall):
        raise ValueError(
            f"{_ROOM}.voc_average_precision: precision and recall must have as many classes, got "
            f"{len(precision)} and {len(recall)}"
        )
    averages = np.full(len(precision), np.nan)
    for label, (p, r) in enumerate(zip(precision, recall, strict=True)):
        if p is None or r is None:
            continue
        if np.shape(p) != np.shape(r) or np.ndim(p) != 1:
            raise ValueError(
                f"{_ROOM}.voc_average_precision: precision and recall of class {label} must have "
                f"one axis and one length, got {np.shape(p)} and {np.shape(r)}"
            )
        r = np.concatenate([[0.0], r, [1.0]])
        p = np.concatenate([[0.0], np.nan_to_num(p), [0.0]])
        best = np.maximum.accumulate(p[::-1])[::-1]  # the largest precision at this recall or more
        if eleven_points:
            reached = np.searchsorted(r[1:-1], np.linspace(0, 1, 11))
            averages[label] = best[1 + reached].mean()
        else:
            averages[label] = np.sum(np.diff(r) * best[1:])
    return averages
