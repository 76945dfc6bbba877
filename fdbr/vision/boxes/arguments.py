"""Checks of arguments that functions on boxes share."""

from typing import Any

import numpy as np

from fdbr import ops
from fdbr.errors.checks import describe, index
from fdbr.pytrees.dtypes import dtype_kind

__all__ = [
    "at_least_0",
    "checked_boxes",
    "checked_format",
    "checked_size",
    "corners",
    "from_corners",
    "is_pair",
    "without_wrapping",
]


def checked_boxes(function: str, name: str, boxes: Any) -> Any:
    """Return boxes as an array of shape ``(…, 4)`` of real numbers, or raise an error."""
    boxes = ops.asarray(boxes)
    if dtype_kind(boxes.dtype) not in "fiu":
        raise TypeError(
            f"fdbr.vision.{function}: {name} must be of real numbers, got {describe(boxes)}"
        )
    if boxes.ndim < 1 or boxes.shape[-1] != 4:
        raise ValueError(
            f"fdbr.vision.{function}: {name} must have the shape (…, 4), got {describe(boxes)}"
        )
    return boxes


def without_wrapping(boxes: Any) -> Any:
    """Return boxes of short or unsigned integers as int64, whose sums and products fit."""
    dtype = np.dtype(boxes.dtype)
    return ops.astype(boxes, np.int64) if dtype in _NARROW else boxes


_NARROW = {np.dtype(name) for name in ("int8", "int16", "uint8", "uint16", "uint32")}


def checked_format(function: str, box_format: Any) -> bool:
    """Return whether boxes begin with x, or raise an error."""
    if box_format not in ("xyxy", "yxyx"):
        raise ValueError(
            f"fdbr.vision.{function}: box_format must be 'yxyx' or 'xyxy', got {box_format!r}"
        )
    return bool(box_format == "xyxy")


def at_least_0(x: Any) -> Any:
    """Return the larger of x and 0, whose derivative at 0 is 1, as that of torch's ``clamp``."""
    return ops.clip(x, 0)


def corners(boxes: Any) -> tuple[Any, Any]:
    """Return the first and the last corners of boxes, each of shape ``(…, 2)``."""
    return boxes[..., :2], boxes[..., 2:]


def from_corners(low: Any, high: Any) -> Any:
    """Return the boxes of two corners."""
    return ops.concat([low, high], axis=-1)


def is_pair(value: Any) -> bool:
    """Whether a value has items: a sequence, or an array with an axis."""
    return hasattr(value, "__len__") and getattr(value, "ndim", 1) > 0


def checked_size(function: str, name: str, value: Any) -> tuple[int, int]:
    """Return a height and a width, which an integer gives both, or raise an error."""
    try:
        height, width = map(index, value if is_pair(value) else (value, value))
    except (TypeError, ValueError):
        height = width = -1
    if height < 0 or width < 0:
        raise ValueError(
            f"fdbr.vision.{function}: {name} must be a height and a width, not negative, got "
            f"{value!r}"
        )
    return height, width
