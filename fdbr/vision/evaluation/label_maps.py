"""Measures of label maps: the confusion of classes, overlaps and accuracies."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from fdbr.core.array_modules import to_numpy
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.vision.evaluation.images import checked, measured
from fdbr.vision.evaluation.voc import mean

__all__ = ["Segmentation", "segmentation", "segmentation_confusion", "segmentation_iou"]

_ROOM = "fdbr.vision.evaluation"


@attrs.frozen
class Segmentation:
    """The measure of label maps: the confusion of each image, and figures of their sum."""

    where: str
    classes: int | None = None
    predicted: tuple[str, ...] = ("label_map",)
    truths: tuple[str, ...] = ("label_map",)

    def record(self, i: int, found: Mapping[str, Any], true: Mapping[str, Any]) -> Any:
        """Return the pairs of classes of an image, true and predicted, and how often they are."""
        sides = {
            side: checked(self, i, side, values, ("label_map",))["label_map"]
            for side, values in (("predicted", found), ("truths", true))
        }
        if sides["predicted"].shape != sides["truths"].shape:
            raise ValueError(
                f"{self.where}: image {i}: predicted and truths must have the same shape, got "
                f"{describe(sides['predicted'])} and {describe(sides['truths'])}"
            )
        count = 0
        for side, least in (("predicted", 0), ("truths", -1)):
            labels = sides[side]
            low, high = map(int, (labels.min(), labels.max())) if labels.size else (0, -1)
            if low < least or (self.classes is not None and high >= self.classes):
                limit = f"from {least}" if self.classes is None else (
                    f"from {least} to {self.classes - 1}"
                )  # fmt: skip
                raise ValueError(
                    f"{self.where}: image {i}: {side} must have labels {limit}, got "
                    f"{low if low < least else high}"
                )
            count = max(count, high + 1)
        known = sides["truths"] >= 0
        codes = sides["truths"][known].astype(int) * count
        np.add(codes, sides["predicted"][known], out=codes, casting="unsafe")  # uint64, too
        numbers = np.bincount(codes, minlength=count * count)
        (present,) = numbers.nonzero()
        return count, *divmod(present, max(count, 1)), numbers[present]

    def confusion(self, records: Sequence[Any]) -> Any:
        """Return how many pixels of each class are predicted as each class."""
        count = self.classes or max((record[0] for record in records), default=0)
        total = np.zeros((count, count), np.int64)
        for _, true, found, numbers in records:
            total[true, found] += numbers
        return total

    def figures(self, records: Sequence[Any]) -> dict[str, Any]:
        """Return the overlaps and accuracies of classes and their means."""
        confusion = self.confusion(records)
        iou = segmentation_iou(confusion)
        right, all_ = np.diag(confusion), confusion.sum(axis=1)
        accuracy = _ratio(right, all_)
        return {
            "iou": iou,
            "miou": mean(iou),
            "pixel_accuracy": float(_ratio(right.sum(), all_.sum())),
            "class_accuracy": accuracy,
            "mean_class_accuracy": mean(accuracy),
        }


def _ratio(part: Any, whole: Any) -> Any:
    with np.errstate(invalid="ignore"):  # NaN is 0 / 0: of classes without pixels
        return np.true_divide(part, whole)


@public(_ROOM)
def segmentation(
    predicted: Any, truths: Any = None, *, classes: int | None = None
) -> dict[str, Any]:
    """Return the overlaps and accuracies of label maps.

    With ``n[i, j]``, the number of pixels of class i that are predicted as class j, the overlap of
    a class is ``n[i, i] / (Σⱼ n[i, j] + Σⱼ n[j, i] - n[i, i])``, its accuracy
    ``n[i, i] / Σⱼ n[i, j]``, and the accuracy of pixels ``Σᵢ n[i, i] / Σᵢⱼ n[i, j]``.

    Parameters
    ----------
    predicted
        For each image an array of shape ``(H, W)`` of integers from 0, such as `predict` of a
        segmenter returns.
    truths
        For each image an array of shape ``(H, W)`` of integers; pixels of -1 do not count.  Without
        it, ``predicted`` are pairs ``(prediction, example)`` as `predict_each` yields.
    classes
        The number of classes; by default one more than the largest label.

    Returns
    -------
    dict
        ``"iou"`` and ``"class_accuracy"``: arrays of shape ``(classes,)``, NaN for a class without
        pixels; ``"miou"`` and ``"mean_class_accuracy"``: their means; ``"pixel_accuracy"``.

    Raises
    ------
    ValueError, TypeError
        If numbers of images differ, or an array has another shape or dtype, or there are labels
        outside the classes; the message has the index of the image.

    References
    ----------
    Long, Shelhamer and Darrell, Fully Convolutional Networks for Semantic Segmentation, CVPR 2015.

    >>> import numpy as np
    >>> from fdbr import vision
    >>> found, true = np.array([[0, 1], [1, 1]]), np.array([[0, 0], [1, -1]])
    >>> vision.evaluation.segmentation([found], [true])["miou"]
    0.5
    """
    measure = Segmentation(f"{_ROOM}.segmentation", classes)
    return measure.figures(measured(measure, predicted, truths))


@public(_ROOM)
def segmentation_confusion(
    predicted: Any, truths: Any = None, *, classes: int | None = None
) -> Any:
    """Return how many pixels of each class are predicted as each class.

    Parameters
    ----------
    predicted, truths, classes
        As for `segmentation`.

    Returns
    -------
    array
        int64, of shape ``(classes, classes)``; item ``[i, j]`` is the number of pixels of class i
        that are predicted as class j.

    Raises
    ------
    ValueError, TypeError
        As for `segmentation`.

    >>> import numpy as np
    >>> from fdbr.vision.evaluation import segmentation_confusion
    >>> segmentation_confusion([np.array([[0, 1], [1, 1]])], [np.array([[0, 0], [1, -1]])])
    array([[1, 1],
           [0, 1]])
    """
    measure = Segmentation(f"{_ROOM}.segmentation_confusion", classes)
    return measure.confusion(measured(measure, predicted, truths))


@public(_ROOM)
def segmentation_iou(confusion: Any) -> Any:
    """Return the overlap of each class, intersection over union, from a confusion of classes.

    Parameters
    ----------
    confusion
        As from `segmentation_confusion`.

    Returns
    -------
    array
        float64, of shape ``(classes,)``; NaN for a class without pixels.

    Raises
    ------
    ValueError
        If ``confusion`` is not a square matrix.

    >>> import numpy as np
    >>> from fdbr.vision.evaluation import segmentation_iou
    >>> segmentation_iou(np.array([[1, 1], [0, 1]]))
    array([0.5, 0.5])
    """
    confusion = to_numpy(confusion)
    if confusion.ndim != 2 or confusion.shape[0] != confusion.shape[1]:
        raise ValueError(
            f"{_ROOM}.segmentation_iou: confusion must be a square matrix, got "
            f"{describe(confusion)}"
        )
    right = np.diag(confusion)
    return _ratio(right, confusion.sum(axis=0) + confusion.sum(axis=1) - right)
