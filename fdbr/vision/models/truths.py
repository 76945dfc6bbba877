"""Checks of the truths that models are trained with."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fdbr.core.array_modules import array_module
from fdbr.errors.checks import describe
from fdbr.ops.devices import beside
from fdbr.vision.models.base import check_device, checked_images
from fdbr.vision.results import PADDING, Truths, pad

__all__ = ["padded_truths"]


def padded_truths(
    model: Any, images: Any, truths: Any, classes: int, *, needs: Sequence[str] = ()
) -> Truths:
    """Return the padded truths of a call of `losses`, or raise an error with an image's index.

    There is an entry for each image at least, and no field that the model does not need.  The
    images are checked, too.  In `fdbr.jit`, what is checked of elements is a guard of the trace.
    Boxes may extend over the edges of their image.

    Parameters
    ----------
    model
        The model.
    images
        The images of the call.  Floating fields must lie on their device; others are moved there.
    truths
        `Truths`, ragged or padded.
    classes
        The number of classes.
    needs
        The names of further fields that the model needs.
    """
    where = f"fdbr.vision.models.{type(model).__name__}.losses"
    count = len(checked_images(model, images, "losses"))
    if not count:
        raise ValueError(f"{where}: images must have an image at least, got none")
    if not isinstance(truths, Truths):
        raise TypeError(f"{where}: truths must be fdbr.vision.Truths, got {describe(truths)}")
    for field in needs:
        if getattr(truths, field) is None:
            raise ValueError(
                f"{where}: truths must have {field}, got None; give Truths(…, {field}={field})"
            )
    truths = Truths(
        truths.boxes, truths.labels, **{field: getattr(truths, field) for field in needs}
    )
    if truths.masks is not None:
        _check_sizes(where, images, truths.masks)
    if isinstance(truths.labels, tuple | list):
        truths = pad(truths)
    labels, boxes = truths.labels, truths.boxes
    if getattr(labels, "ndim", None) != 2 or labels.shape[0] != count:
        raise ValueError(
            f"{where}: truths must have labels for each of the {count} images, got "
            f"{describe(labels)}"
        )
    if getattr(boxes, "shape", None) != (*labels.shape, 4):
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
    if not labels.shape[1]:
        return _beside(where, _one_entry(truths), images[0])
    if isinstance(labels, np.ndarray):
        _checked_labels(where, labels, classes)
        if isinstance(boxes, np.ndarray):
            _checked_boxes(where, boxes, labels)
        if isinstance(truths.points, np.ndarray):
            _checked_points(where, truths)
    return _beside(where, truths, images[0])


def _beside(where: str, truths: Truths, image: Any) -> Truths:
    """Return truths on the device of an image."""
    fields = {}
    for name, field in truths._asdict().items():
        if field is not None:
            field = beside(field, image) if np.dtype(field.dtype).kind in "biu" else field
            check_device(f"{where}: {name}", field, image, "the images")
        fields[name] = field
    return Truths(**fields)


def _one_entry(truths: Truths) -> Truths:
    """Return padded truths without entries with one of padding, as reductions need."""
    return Truths(
        *(
            None
            if value is None
            else array_module(value).full(
                (value.shape[0], 1, *value.shape[2:]),
                PADDING if name == "labels" else 0,
                dtype=value.dtype,
            )
            for name, value in truths._asdict().items()
        )
    )


def _check_sizes(where: str, images: Any, masks: Any) -> None:
    """Refuse masks that do not cover their image; padded ones may be larger."""
    is_padded = hasattr(masks, "ndim")
    for i, (image, own) in enumerate(zip(images, masks, strict=False)):
        size, found = tuple(image.shape[1:]), tuple(getattr(own, "shape", ()))
        fits = len(found) == 3 and (
            found[1:] == size or (is_padded and found[1] >= size[0] and found[2] >= size[1])
        )
        if not fits:
            raise ValueError(
                f"{where}: masks of image {i} must have the shape (R, {size[0]}, {size[1]}) with "
                f"its height and width, got {describe(own)}"
            )


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


def _checked_points(where: str, truths: Truths) -> None:
    proper = np.isfinite(truths.points).all(axis=-1) | (truths.visible == 0)
    wrong = np.argwhere(~proper & (truths.labels != PADDING)[:, :, None])
    if len(wrong):
        i, j, k = wrong[0]
        raise ValueError(
            f"{where}: visible points of image {i} must be finite, got "
            f"{truths.points[i, j, k].tolist()} at {j}, {k}"
        )
