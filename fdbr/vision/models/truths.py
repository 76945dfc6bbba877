"""Checks of the truths that models are trained with."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fdbr.errors.checks import describe
from fdbr.ops.devices import beside
from fdbr.vision.models.base import check_device
from fdbr.vision.results import PADDING, Truths, pad

__all__ = ["padded_truths"]


def padded_truths(
    name: str, truths: Any, images: Any, classes: int, *, needs: Sequence[str] = ()
) -> Truths:
    """Return the padded truths of a call of `losses`, or raise an error with an image's index.

    In `fdbr.jit`, what is checked of elements is a guard of the trace.  Boxes may extend over the
    edges of their image.

    Parameters
    ----------
    name
        The class of the model.
    truths
        `Truths`, ragged or padded.
    images
        The images, on whose device floating fields must lie; others are moved there.
    classes
        The number of classes.
    needs
        The names of further fields that the model needs.
    """
    where = f"fdbr.vision.models.{name}.losses"
    count = len(images)
    for field in needs:
        if getattr(truths, field) is None:
            raise ValueError(
                f"{where}: truths must have {field}, got None; give Truths(…, {field}={field})"
            )
    if isinstance(truths.labels, tuple | list):
        truths = pad(truths, max(1, *map(len, truths.labels), 0))
    labels, boxes = truths.labels, truths.boxes
    if getattr(labels, "ndim", None) != 2 or labels.shape[0] != count:
        raise ValueError(
            f"{where}: truths must have labels for each of the {count} images, got "
            f"{describe(labels)}"
        )
    if boxes.shape != (*labels.shape, 4):
        raise ValueError(
            f"{where}: boxes must have the shape {(*labels.shape, 4)} of the labels and four "
            f"corners, got {describe(boxes)}"
        )
    for field in needs:
        if getattr(truths, field).shape[:2] != labels.shape:
            raise ValueError(
                f"{where}: {field} must begin with the axes {labels.shape} of the labels, got "
                f"{describe(getattr(truths, field))}"
            )
    if np.dtype(labels.dtype).kind not in "iu":
        raise TypeError(f"{where}: labels must be integers, got {describe(labels)}")
    if np.dtype(boxes.dtype).kind != "f":
        raise TypeError(f"{where}: boxes must be floating, got {describe(boxes)}")
    if isinstance(labels, np.ndarray):
        _checked_labels(where, labels, classes)
        if isinstance(boxes, np.ndarray):
            _checked_boxes(where, boxes, labels)
    return truths if not count else _beside(where, truths, images[0])


def _beside(where: str, truths: Any, image: Any) -> Truths:
    """Return truths on the device of an image."""
    fields = {}
    for name, field in truths._asdict().items():
        if field is not None:
            field = beside(field, image) if np.dtype(field.dtype).kind in "biu" else field
            check_device(f"{where}: {name}", field, image, "the images")
        fields[name] = field
    return Truths(**fields)


def _checked_labels(where: str, labels: Any, classes: int) -> None:
    wrong = np.argwhere((labels < PADDING) | (labels >= classes))
    if len(wrong):
        i, j = wrong[0]
        raise ValueError(
            f"{where}: labels of image {i} must be from 0 to {classes - 1}, got {labels[i, j]} at "
            f"{j}; build the model for more classes"
        )


def _checked_boxes(where: str, boxes: Any, labels: Any) -> None:
    proper = np.isfinite(boxes).all(axis=-1) & (boxes[..., :2] < boxes[..., 2:]).all(axis=-1)
    wrong = np.argwhere(~proper & (labels != PADDING))
    if len(wrong):
        i, j = wrong[0]
        raise ValueError(
            f"{where}: boxes of image {i} must be finite with y_min < y_max and x_min < x_max, got "
            f"{boxes[i, j].tolist()} at {j}; leave boxes without pixels out"
        )
