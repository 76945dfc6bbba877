"""How a movement of a picture is applied to all fields of an example.

Coordinates are continuous: the pixel in row i and column j covers ``[i, i + 1) x [j, j + 1)``.
"""

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

from fdbr.core.array_modules import lock
from fdbr.errors.checks import describe
from fdbr.train.augment.pixels import finish
from fdbr.vision.boxes import masks_to_boxes
from fdbr.vision.transforms.fields import Example, is_of_objects

__all__ = ["Movement", "filling", "kept", "move", "placed", "shifted"]


@attrs.frozen
class Movement:
    """An affine map of the coordinates, and the same for pixels.

    Attributes
    ----------
    linear, offset
        A point ``(y, x)`` moves to ``linear @ (y, x) + offset``.
    size
        The height and width of the new picture; `None` if the example has no picture.
    pixels
        ``pixels(array, fill, nearest)``: the new pixels of an array with the axes channel, row and
        column; ``nearest`` where values must not be mixed.
    """

    linear: Any
    offset: Any
    size: tuple[int, int] | None
    pixels: Callable[[Any, Any, bool], Any]


def move(
    example: Example,
    movement: Movement,
    *,
    fill: Any = 0,
    cuts: bool = False,
    allow_outside_center: bool = True,
    swapped: Sequence[tuple[int, int]] = (),
) -> Example:
    """Apply a movement to all fields of a checked example.

    Parameters
    ----------
    example
        The example, as `checked` returns it.
    movement
        The movement.
    fill
        The colour where there was no image.
    cuts
        Whether parts of the old picture may lie outside the new one: objects are cut then.
    allow_outside_center
        Whether objects are kept whose centre lies outside.
    swapped
        Pairs of points that exchange their numbers.
    """
    new = dict(example)
    if "size" in example:
        new["size"] = movement.size
    if "image" in example:
        new["image"] = _of_dtype(movement.pixels(example["image"], fill, False), example["image"])
    if "label_map" in example:
        new["label_map"] = movement.pixels(example["label_map"][None], -1, True)[0]
    if "masks" in example:
        # NumPy's functions on pixels know integers, and not all know truth values.
        masks = example["masks"].view(np.uint8)
        new["masks"] = np.ascontiguousarray(movement.pixels(masks, 0, True)).view(bool)
    if "boxes" in example:
        boxes = example["boxes"]
        dtype = boxes.dtype if boxes.dtype.kind == "f" else np.float32
        new["boxes"] = _moved_boxes(boxes, movement).astype(dtype)
    if "points" in example:
        points = example["points"]
        dtype = points.dtype if points.dtype.kind == "f" else np.float32
        moved = points @ movement.linear.T + movement.offset
        if swapped:
            order = _order(points.shape[1], swapped)
            moved = moved[:, order]
            if "visible" in example:
                new["visible"] = example["visible"][:, order]
        new["points"] = moved.astype(dtype)
    if "areas" in example:
        factor = abs(np.linalg.det(movement.linear))
        new["areas"] = (example["areas"] * factor).astype(example["areas"].dtype)
    if cuts and movement.size is not None:
        before = _moved_boxes(_extents(example), movement)
        new = _cut(new, before, np.array(movement.size), allow_outside_center)
    return {name: _own(value, example.get(name)) for name, value in new.items()}


def _own(value: Any, given: Any) -> Any:
    """A new array, read-only, of a field that was computed; what was given stays as it is."""
    if value is given or not isinstance(value, np.ndarray):
        return value
    # A view may be one of what was given, which must not be locked.
    return lock(value.copy() if value.base is not None else np.ascontiguousarray(value))


def _of_dtype(values: Any, like: Any) -> Any:
    """Interpolated pixels in the dtype of an image; those that were only moved have it already."""
    return values if values.dtype == like.dtype else finish(values, like)


def _moved_boxes(boxes: Any, movement: Movement) -> Any:
    """The boxes around the corners of boxes, after a movement."""
    corners = boxes[:, [[0, 1], [0, 3], [2, 1], [2, 3]]] @ movement.linear.T + movement.offset
    return np.concatenate([corners.min(1), corners.max(1)], axis=1)


def _order(count: int, swapped: Sequence[tuple[int, int]]) -> Any:
    order = np.arange(count)
    for a, b in swapped:
        if not 0 <= a < count or not 0 <= b < count:
            raise ValueError(
                f"fdbr.vision.transforms.flip: pairs must be numbers of points below {count}, got "
                f"({a}, {b})"
            )
        order[[a, b]] = b, a
    return order


# --- objects at the border ----------------------------------------------------------


def _extents(example: Example) -> Any:
    """The boxes of the objects of an example: its boxes, or those around masks or points."""
    if "boxes" in example:
        return example["boxes"]
    if "masks" in example:
        return masks_to_boxes(example["masks"])
    if "points" in example:
        points = example["points"]
        shown = example.get("visible", np.ones(points.shape[:2], bool))[:, :, None]
        low, high = (np.where(shown, points, end) for end in (np.inf, -np.inf))
        ends = low.min(1, initial=np.inf), high.max(1, initial=-np.inf)
        boxes = np.concatenate(ends, axis=1)
        return np.where(np.isfinite(boxes), boxes, -1)
    return np.zeros((0, 4))


def _cut(example: Example, before: Any, size: Any, allow_outside_center: bool) -> Example:
    """Cut the objects of a moved example at the border of its picture.

    ``before`` are their boxes, which may reach over the border.
    """
    low, high = np.split(before, 2, axis=1)
    inner_low, inner_high = np.maximum(low, 0), np.minimum(high, size)
    stays = np.ones(len(before), bool)
    if "boxes" in example or "masks" in example:
        stays &= (inner_low < inner_high).all(1)
    if "boxes" in example:
        boxes = example["boxes"]
        example["boxes"] = np.concatenate([inner_low, inner_high], axis=1).astype(boxes.dtype)
    if "masks" in example:
        stays &= example["masks"].any(axis=(1, 2))
    if "points" in example:
        points = example["points"]
        inside = ((points >= 0) & (points <= size)).all(-1)
        example["visible"] = inside & example.get("visible", True)
        if "boxes" not in example and "masks" not in example:
            stays &= example["visible"].any(1)
    if not allow_outside_center:
        center = (low + high) / 2
        stays &= ((center >= 0) & (center < size)).all(1)
    if "areas" in example and len(before):
        whole = (high - low).prod(1)
        part = np.maximum(inner_high - inner_low, 0).prod(1) / np.where(whole > 0, whole, 1)
        example["areas"] = (example["areas"] * part).astype(example["areas"].dtype)
    return kept(example, stays) if len(before) else example


def kept(example: Example, stays: Any) -> Example:
    """Return an example with some of its objects."""
    return {name: value[stays] if is_of_objects(name) else value for name, value in example.items()}


# --- movements ----------------------------------------------------------------------


def shifted(size: tuple[int, int] | None, top: float, left: float) -> Movement:
    """A picture put on a canvas of another size, at a row and a column, which may be negative."""
    return Movement(
        np.eye(2),
        np.array([top, left], float),
        size,
        # Without a size there are no pixels.
        lambda array, fill, _: placed(array, size or (0, 0), int(top), int(left), fill),
    )


def placed(array: Any, size: tuple[int, int], top: int, left: int, fill: Any) -> Any:
    """Put rows and columns on a canvas, and leave out what does not fit."""
    inner = []
    outer = []
    for length, new, start in zip(array.shape[1:], size, (top, left), strict=True):
        first, last = max(start, 0), max(start, 0, min(start + length, new))
        outer.append(slice(first, last))
        inner.append(slice(first - start, last - start))
    part = array[:, inner[0], inner[1]]
    if part.shape[1:] == size:  # nothing is to be filled
        return part
    out = np.empty((len(array), *size), array.dtype)
    out[:] = filling(fill, array)
    out[:, outer[0], outer[1]] = part
    return out


def filling(fill: Any, array: Any) -> Any:
    """A colour that broadcasts to an array, in its dtype: a number, or one for each channel."""
    colour = np.asarray(fill)
    if colour.size not in (1, len(array)):
        raise ValueError(
            f"fdbr.vision.transforms: fill must be a number, or one for each of {len(array)} "
            f"channels, got {describe(colour)}"
        )
    return finish(colour.reshape(-1, 1, 1), array)
