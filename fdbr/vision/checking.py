"""Checks of examples: that they follow the conventions of vision."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.vision.transforms.fields import checked

__all__ = ["check_dataset", "check_example"]

_ROUNDING = 1e-3
"""How far a box or a point may lie outside a picture, in pixels, as float32 is rounded."""

_DTYPES = {
    "boxes": np.float32,
    "labels": np.int32,
    "points": np.float32,
    "visible": np.bool_,
    "label_map": np.int32,
    "crowded": np.bool_,
    "difficult": np.bool_,
    "areas": np.float32,
    "scores": np.float32,
}


@public("fdbr.vision")
def check_example(example: Any, classes: int | Sequence[str] | None = None) -> None:
    """Raise an error if an example does not follow the conventions.

    They are: an image has three channels, and colours from 0 to 255; boxes and visible points lie
    within the picture, and the first corner of a box is above and left of the second; masks and
    label maps have the size of the image; labels, also the ``label`` of a whole picture, are
    numbers of classes, from 0, and -1 is the unknown class of a label map; fields of objects have
    an entry for each; and dtypes are float32 for boxes, points, areas and scores, int32 for labels
    and label maps, bool for others.

    Parameters
    ----------
    example
        A dict.  Fields that it does not have are not checked.
    classes
        The number of classes, or their names; by default labels have no upper limit.

    Raises
    ------
    TypeError
        If it is no dict, or a field has a wrong dtype.
    ValueError
        If a field has a wrong shape or wrong values; the message has the index of the object.

    >>> import numpy as np
    >>> from fdbr import vision
    >>> vision.check_example({"image": np.zeros((3, 4, 6)), "boxes": np.float32([[3, 0, 2, 6]])})
    Traceback (most recent call last):
    ...
    ValueError: fdbr.vision.check_example: box 0 must have y_min < y_max and x_min < x_max, got
    [3.0, 0.0, 2.0, 6.0]
    """
    where = "fdbr.vision.check_example"
    found, size = checked("check_example", example)
    for name, dtype in _DTYPES.items():
        if name in found and found[name].dtype != dtype:
            raise TypeError(
                f"{where}: {name} must be of dtype {np.dtype(dtype)}, got {describe(found[name])}"
            )
    image = found.get("image")
    if image is not None:
        if len(image) != 3:
            raise ValueError(
                f"{where}: image must have the channels red, green and blue, got {describe(image)}"
            )
        if not ((image >= 0) & (image <= 255)).all():
            raise ValueError(
                f"{where}: colours of the image must lie in [0, 255], got {image.min()} to "
                f"{image.max()}"
            )
    for name in ("boxes", "points", "areas", "scores"):
        values = found.get(name, np.zeros((0, 1)))
        rows = np.isfinite(values).all(axis=tuple(range(1, values.ndim)))
        if not rows.all():
            raise ValueError(
                f"{where}: {name} must be finite, those of object {_first(rows)} are not"
            )
    boxes = found.get("boxes", np.zeros((0, 4)))
    _check_each(
        where, "box", boxes, (boxes[:, :2] < boxes[:, 2:]).all(1), "y_min < y_max and x_min < x_max"
    )
    if size is not None:
        limits = np.array(size) + _ROUNDING
        shown = f"its corners within the picture of {size[0]} x {size[1]}"
        inside = ((boxes[:, :2] >= -_ROUNDING) & (boxes[:, 2:] <= limits)).all(1)
        _check_each(where, "box", boxes, inside, shown)
        points = found.get("points", np.zeros((0, 0, 2)))
        inside = ((points >= -_ROUNDING) & (points <= limits)).all(2)
        inside |= ~found.get("visible", np.ones(inside.shape, bool))
        shown = f"its visible points within the picture of {size[0]} x {size[1]}"
        _check_each(where, "object", points, inside.all(1), shown)
    count = np.inf if classes is None else classes if isinstance(classes, int) else len(classes)
    limit = "" if classes is None else f" below {count}"
    for name, least in (("labels", 0), ("label", 0), ("label_map", -1)):
        values = np.atleast_1d(found.get(name, np.zeros(0, int)))
        if name == "label" and values.dtype.kind not in "iu":
            continue  # a mixture of classes, as of datasets.mix_up, has weights
        wrong = values[(values < least) | (values >= count)]
        if wrong.size:
            at = np.argwhere((values < least) | (values >= count))[0]
            raise ValueError(
                f"{where}: {name} must be at least {least}{' and' * bool(limit)}{limit}, got "
                f"{wrong[0]} at index {', '.join(map(str, at))}"
            )


def _first(rows: Any) -> int:
    return int(np.argmin(rows))


def _check_each(where: str, what: str, values: Any, rows: Any, wanted: str) -> None:
    if not rows.all():
        i = _first(rows)
        raise ValueError(f"{where}: {what} {i} must have {wanted}, got {values[i].tolist()}")


@public("fdbr.vision")
def check_dataset(dataset: Any, classes: int | Sequence[str] | None = None) -> None:
    """Raise an error if an example of a data set does not follow the conventions.

    Parameters
    ----------
    dataset
        A sequence of dicts.
    classes
        As for `check_example`.

    Raises
    ------
    TypeError, ValueError
        As for `check_example`; the message has the index of the example.  If there is no example.

    >>> import numpy as np
    >>> from fdbr import vision
    >>> vision.check_dataset([{"image": np.zeros((3, 4, 6))}, {"image": np.zeros((1, 4, 6))}])
    Traceback (most recent call last):
    ...
    ValueError: fdbr.vision.check_dataset: example 1: image must have the channels red, green and
    blue, got float64[1,4,6]
    """
    where = "fdbr.vision.check_dataset"
    if not len(dataset):
        raise ValueError(f"{where}: the data set must have an example")
    for i in range(len(dataset)):
        try:
            check_example(dataset[i], classes)
        except (TypeError, ValueError) as error:
            text = str(error).removeprefix("fdbr.vision.check_example: ")
            raise type(error)(f"{where}: example {i}: {text}") from error
