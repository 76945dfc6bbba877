"""Results of models of vision, and the truths that they are trained with."""

from typing import Any, NamedTuple

import numpy as np

from fdbr import ops
from fdbr.core.array_modules import array_module, on_device
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.ops.devices import to_device
from fdbr.pytrees.dtypes import dtype_kind

__all__ = ["Detections", "Instances", "Keypoints", "Truths", "pad", "unpad"]

PADDING = -1
"""The label of an entry that only fills an array."""


class Detections(NamedTuple):
    """The objects found in images, which `predict` of a detector returns.

    A result is *ragged* or *padded*.  Fields of a ragged one are tuples with an array for each
    image, of R objects, where R differs between images.  Fields of a padded one are arrays with
    the axes ``(N, D, …)``, in which entries with the label -1 are padding; their sizes do not
    depend on what is found, so that `fdbr.jit` has one trace for all.  `pad` and `unpad` convert.

    Attributes
    ----------
    boxes
        Shape ``(R, 4)``, float32: ``(y_min, x_min, y_max, x_max)`` in pixels of the image.
    labels
        Shape ``(R,)``, int32: the class of each object, from 0.
    scores
        Shape ``(R,)``, float32: how certain the model is, from 0 to 1, in decreasing order.
    """

    boxes: Any
    labels: Any
    scores: Any


class Instances(NamedTuple):
    """The objects found in images, with their masks: `Detections` and one more field.

    Attributes
    ----------
    boxes, labels, scores
        As for `Detections`.
    masks
        Shape ``(R, H, W)``, bool: the pixels of each object.
    """

    boxes: Any
    labels: Any
    scores: Any
    masks: Any


class Keypoints(NamedTuple):
    """The objects found in images, with their points: `Detections` and two more fields.

    Attributes
    ----------
    boxes, labels, scores
        As for `Detections`.
    points
        Shape ``(R, K, 2)``, float32: ``(y, x)`` of each point, in pixels of the image.
    point_scores
        Shape ``(R, K)``, float32: how certain the model is of each point.
    """

    boxes: Any
    labels: Any
    scores: Any
    points: Any
    point_scores: Any


class Truths(NamedTuple):
    """The objects that are in images, for the losses of models; ragged or padded.

    Attributes
    ----------
    boxes
        Shape ``(R, 4)``, float32: ``(y_min, x_min, y_max, x_max)``.
    labels
        Shape ``(R,)``, int32, from 0.
    masks
        Shape ``(R, H, W)``, bool, or `None`.
    points
        Shape ``(R, K, 2)``, float32, or `None`.
    visible
        Shape ``(R, K)``, bool: which points are marked, or `None`.
    """

    boxes: Any
    labels: Any
    masks: Any = None
    points: Any = None
    visible: Any = None


@public("fdbr.vision")
def pad(ragged: Any, size: int | None = None) -> Any:
    """Return the padded form of a ragged result or of ragged truths.

    Parameters
    ----------
    ragged
        `Detections`, `Instances`, `Keypoints` or `Truths`, whose fields are sequences of arrays.
        Masks of images with different sizes are extended with False.
    size
        The number of entries of an image; by default the largest.

    Returns
    -------
    the type of ``ragged``
        Its fields are arrays of shape ``(N, size, …)``, with the label -1 where there is no object
        and 0 in the other fields.

    Raises
    ------
    ValueError
        If an image has more than ``size`` objects, or the fields differ in length; the message has
        its index.

    >>> import numpy as np
    >>> from fdbr import vision
    >>> boxes = np.zeros((2, 4), "float32"), np.zeros((0, 4), "float32")
    >>> truths = vision.Truths(boxes, (np.array([3, 1], "int32"), np.array([], "int32")))
    >>> vision.pad(truths).labels
    array([[ 3,  1],
           [-1, -1]], dtype=int32)
    """
    counts = [len(labels) for labels in ragged.labels]
    most = max(counts, default=0) if size is None else size
    for i, count in enumerate(counts):
        if count > most:
            raise ValueError(
                f"fdbr.vision.pad: image {i} has {count} objects, more than size={most}"
            )
    fields: dict[str, Any] = {}
    for name, arrays in ragged._asdict().items():
        if arrays is None:
            fields[name] = None
            continue
        if len(arrays) != len(counts):
            raise ValueError(
                f"fdbr.vision.pad: {name} must have an array for each of the {len(counts)} images, "
                f"got {len(arrays)}"
            )
        axes = max((getattr(array, "ndim", 0) for array in arrays), default=0)
        for i, (array, count) in enumerate(zip(arrays, counts, strict=True)):
            if getattr(array, "ndim", None) != axes:
                raise ValueError(
                    f"fdbr.vision.pad: {name} must have as many axes in each image as in others, "
                    f"{axes}, got {describe(array)} of image {i}"
                )
            if len(array) != count:
                raise ValueError(
                    f"fdbr.vision.pad: {name} must have as many entries as labels in each image, "
                    f"{count} of image {i}, got {describe(array)}"
                )
        fields[name] = _padded(arrays, most, PADDING if name == "labels" else 0)
    return type(ragged)(**fields)


def _padded(arrays: Any, count: int, fill: int) -> Any:
    """Join arrays in one with another first axis, of the largest sizes."""
    if not len(arrays):
        return np.zeros((0, count), np.int32)
    xp = array_module(arrays[0])
    shape = tuple(max(sizes) for sizes in zip(*(a.shape[1:] for a in arrays), strict=True))
    # Arrays without entries, such as np.array([]), often have NumPy's default dtype.
    dtype = xp.result_type(*([a.dtype for a in arrays if a.size] or [arrays[0].dtype]))
    if fill < 0 and dtype_kind(dtype) == "u":
        dtype = np.dtype(np.int32)
    with on_device(*arrays):
        out = xp.full((len(arrays), count, *shape), fill, dtype=dtype)
        for i, array in enumerate(arrays):
            out[(i, *map(slice, array.shape))] = array
    return out


@public("fdbr.vision")
def unpad(padded: Any) -> Any:
    """Return the ragged form of a padded result, without the entries whose label is -1.

    Parameters
    ----------
    padded
        `Detections`, `Instances`, `Keypoints` or `Truths`, whose fields are arrays of shape
        ``(N, D, …)``.

    Returns
    -------
    the type of ``padded``
        Its fields are tuples with an array for each image.

    Raises
    ------
    ValueError
        If ``labels`` is no array of two axes.

    >>> import numpy as np
    >>> from fdbr import vision
    >>> found = vision.Detections(np.zeros((1, 3, 4)), np.array([[3, -1, 1]]), np.ones((1, 3)))
    >>> vision.unpad(found).labels
    (array([3, 1]),)
    """
    labels = ops.asarray(padded.labels)
    if labels.ndim != 2:
        raise ValueError(
            "fdbr.vision.unpad: labels must have the axes image and object, got "
            f"{describe(padded.labels)}"
        )
    kept = [ops.nonzero(row >= 0)[0] for row in to_device(labels, "cpu")]  # one wait for a GPU
    return type(padded)(
        *(
            None
            if field is None
            else tuple(ops.take(f, k, axis=0) for f, k in zip(field, kept, strict=True))
            for field in padded
        )
    )
