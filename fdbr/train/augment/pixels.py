"""Checks of images, and random numbers for them."""

import math
from typing import Any

import numpy as np

from fdbr import random
from fdbr.core.array_modules import lock
from fdbr.errors.checks import describe

__all__ = ["draws", "finish", "floating", "image_of", "pair", "span", "within"]


def image_of(function: str, image: Any, channels: bool = False) -> Any:
    """An argument as an image of channels, rows and columns."""
    array = np.asarray(image)
    if array.ndim != 3 or array.dtype.kind not in "fu" or 0 in array.shape:
        raise TypeError(
            f"fdbr.train.augment.{function}: image must be an array of channels, rows and columns, "
            f"of floating numbers or unsigned integers, got {describe(array)}"
        )
    if channels and array.shape[0] != 3:
        raise ValueError(
            f"fdbr.train.augment.{function}: image must have the three channels red, green and "
            f"blue, got {describe(array)}"
        )
    return array


def draws(key: Any, count: int) -> list[float]:
    """Numbers that are uniformly distributed in [0, 1)."""
    return ((random.bits(key, (count,)) >> np.uint64(11)) * 2.0**-53).tolist()


def finish(values: Any, like: Any) -> Any:
    """Computed values as an image of the dtype of another; integers are rounded and clipped."""
    if values.dtype != like.dtype:
        if like.dtype.kind == "u":
            top = values.dtype.type(np.iinfo(like.dtype).max)
            if int(top) > np.iinfo(like.dtype).max:  # uint32 in float32 and uint64 in float64
                top = np.nextafter(top, 0, dtype=values.dtype)
            values = np.clip(np.rint(values), 0, top)
        values = values.astype(like.dtype)
    return lock(np.ascontiguousarray(values))


def floating(image: Any) -> Any:
    """An image as floating numbers, with all levels of up to 32 bits."""
    if image.dtype.kind == "f":
        return image
    return image.astype(np.float32 if image.dtype.itemsize <= 2 else np.float64)


def within(values: Any, *images: Any, least: float = math.inf, greatest: float = -math.inf) -> Any:
    """Clip computed values to the range of the images they were computed of.

    ``least`` and ``greatest`` extend that range.  NaN stays, and does not change the range.
    """
    for image in images:
        # Python's functions keep their first argument if the second one is NaN.
        least = min(least, float(np.fmin.reduce(image, axis=None)))
        greatest = max(greatest, float(np.fmax.reduce(image, axis=None)))
    return np.clip(values, values.dtype.type(least), values.dtype.type(greatest))


def pair(function: str, name: str, value: Any) -> tuple[int, int]:
    """An argument as height and width."""
    parts = (value, value) if hasattr(value, "__index__") else value
    if not isinstance(parts, tuple | list) or len(parts) != 2:
        parts = ()
    if not parts or not all(hasattr(p, "__index__") and p.__index__() > 0 for p in parts):
        raise ValueError(
            f"fdbr.train.augment.{function}: {name} must be height and width, or one positive "
            f"integer for both, got {value!r}"
        )
    return parts[0].__index__(), parts[1].__index__()


def span(function: str, name: str, value: Any, least: float) -> tuple[float, float]:
    """An argument as the ends of an interval above some number."""
    try:
        low, high = (float(end) for end in value)
    except (TypeError, ValueError):
        low, high = np.nan, np.nan
    if not least <= low <= high < np.inf:
        raise ValueError(
            f"fdbr.train.augment.{function}: {name} must be two rising numbers of at least "
            f"{least}, got {value!r}"
        )
    return low, high
