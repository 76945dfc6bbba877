"""The fields of an example: which belong to its objects, and whether they fit together."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fdbr.core.array_modules import array_module
from fdbr.core.devices import is_host
from fdbr.errors.checks import describe

__all__ = [
    "OBJECT_AXES",
    "Example",
    "checked",
    "example_of",
    "host_array",
    "is_of_objects",
    "objects_of",
]

Example = dict[str, Any]

OBJECT_AXES: dict[str, tuple[Any, ...]] = {
    "boxes": (4,),
    "labels": (),
    "masks": ("H", "W"),
    "points": ("K", 2),
    "visible": ("K",),
    "crowded": (),
    "difficult": (),
    "areas": (),
    "scores": (),
}
"""The fields with an entry for each object, and the axes behind the first."""


def is_of_objects(name: str) -> bool:
    """Whether a field has an entry for each object."""
    return name in OBJECT_AXES or name.startswith("object_")


def example_of(function: str, example: Any) -> Example:
    """Return an example as a dict of its own, with arrays, or raise an error that says why not."""
    if not isinstance(example, Mapping):
        raise TypeError(
            f"fdbr.vision.{function}: example must be a dict with the keys image, boxes, …, got "
            f"{describe(example)}"
        )
    found = dict(example)
    for name in found:
        if name in ("image", "label_map") or is_of_objects(name):
            found[name] = host_array(f"fdbr.vision.{function}: {name}", found[name])
    return found


def host_array(what: str, value: Any) -> Any:
    """Return a value as a NumPy array, or raise an error if it lies on a GPU."""
    if not is_host(array_module(value)):
        raise TypeError(
            f"{what} must lie in host memory, where examples are read and transformed, got "
            f"{describe(value)} on a GPU; fdbr.device_get moves it"
        )
    return np.asarray(value)


def checked(function: str, example: Any) -> tuple[Example, tuple[int, int] | None]:
    """Return an example as a dict of arrays, and the height and width of its picture.

    The size is that of the image, the label map or the masks, or the field ``size``; `None` if the
    example has none of them.

    Raises
    ------
    TypeError, ValueError
        If it is no dict, fields have other shapes, or other numbers of objects.
    """
    found = example_of(function, example)
    sizes: dict[str, tuple[int, int]] = {}
    if "image" in found:
        image = found["image"]
        if image.ndim != 3 or image.dtype.kind not in "fu" or 0 in image.shape:
            raise TypeError(
                f"fdbr.vision.{function}: image must have the axes channel, row and column, and "
                f"floating numbers or unsigned integers, got {describe(image)}"
            )
        sizes["image"] = image.shape[1:]
    if "label_map" in found:
        label_map = found["label_map"]
        if label_map.ndim != 2 or label_map.dtype.kind != "i" or 0 in label_map.shape:
            raise TypeError(
                f"fdbr.vision.{function}: label_map must be of signed integers, with the axes row "
                f"and column, got {describe(label_map)}"
            )
        sizes["label_map"] = label_map.shape
    if "size" in found:
        height, width = found["size"]
        sizes["size"] = int(height), int(width)
    objects_of(function, found)
    if "masks" in found:
        if found["masks"].dtype != bool:
            raise TypeError(
                f"fdbr.vision.{function}: masks must be of dtype bool, got "
                f"{describe(found['masks'])}"
            )
        sizes["masks"] = found["masks"].shape[1:]
    if len(set(sizes.values())) > 1:
        shown = ", ".join(f"{name} {h} x {w}" for name, (h, w) in sizes.items())
        raise ValueError(
            f"fdbr.vision.{function}: image, label_map, masks and size must have one height and "
            f"width, got {shown}"
        )
    return found, next(iter(sizes.values()), None)


def objects_of(function: str, example: Example) -> int | None:
    """Return the number of objects, or raise an error if fields differ; `None` without fields."""
    counts = {}
    for name in filter(is_of_objects, example):
        array, tail = example[name], OBJECT_AXES.get(name)
        if array.ndim == 0 or (tail is not None and not _has(array.shape[1:], tail)):
            axes = ", ".join(map(str, ("R", *(tail or ("…",)))))
            raise ValueError(
                f"fdbr.vision.{function}: {name} must have the shape ({axes}), got "
                f"{describe(array)}"
            )
        counts[name] = len(array)
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise ValueError(
            f"fdbr.vision.{function}: fields must have an entry for each object, got {shown}"
        )
    if {"points", "visible"} <= counts.keys() and (
        example["points"].shape[:2] != example["visible"].shape
    ):
        raise ValueError(
            f"fdbr.vision.{function}: visible must have an entry for each point of "
            f"{describe(example['points'])}, got {describe(example['visible'])}"
        )
    return next(iter(counts.values()), None)


def _has(shape: tuple[int, ...], tail: tuple[Any, ...]) -> bool:
    return len(shape) == len(tail) and all(
        type(wanted) is str or size == wanted for size, wanted in zip(shape, tail, strict=True)
    )
