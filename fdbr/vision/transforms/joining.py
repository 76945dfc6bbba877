"""Several examples in one."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from fdbr import random
from fdbr.core.array_modules import lock
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.train.augment.geometry import corner
from fdbr.train.augment.pixels import draws, finish, pair, within
from fdbr.vision.transforms.fields import Example, is_of_objects, objects_of
from fdbr.vision.transforms.geometry import expand, part_at, resize, sized

__all__ = ["mixup", "mosaic"]


@public("fdbr.vision.transforms")
def mosaic(
    key: Any, examples: Sequence[Any], size: Any, *, allow_outside_center: bool = True
) -> Example:
    """Put four pictures together, around a random point in the middle half of a canvas.

    Each picture is resized, with its aspect ratio, so that it covers its part of the canvas, and
    cut to it at a random position.

    Parameters
    ----------
    key
        A key.
    examples
        Four dicts with the same fields: for top left, top right, bottom left and bottom right.
    size
        Height and width of the canvas, at least 4, or one number for both.
    allow_outside_center
        As for `crop`.

    Returns
    -------
    dict
        A new example with the objects of all four, in their order.  Fields that belong neither to
        the picture nor to objects are those of the first.

    Raises
    ------
    TypeError, ValueError
        If there are not four examples, their fields or the dtypes of their images differ, or do not
        fit together.

    Notes
    -----
    Bochkovskiy et al., *YOLOv4: Optimal speed and accuracy of object detection*, 2020.

    >>> import numpy as np
    >>> from fdbr import random
    >>> from fdbr.vision import transforms
    >>> example = {"image": np.zeros((3, 20, 30)), "boxes": np.array([[0.0, 0, 20, 30]])}
    >>> joined = transforms.mosaic(random.key(0), [example] * 4, 32)
    >>> joined["image"].shape, joined["boxes"].shape
    ((3, 32, 32), (4, 4))
    """
    canvas = pair("mosaic", "size", size)
    if len(examples) != 4 or min(canvas) < 4:
        raise ValueError(
            "fdbr.vision.transforms.mosaic: there must be four examples and a canvas of at least 4 "
            f"x 4, got {len(examples)} examples and {canvas[0]} x {canvas[1]}"
        )
    first, *rest = random.split(key, 5)
    middle = [
        round(length * (0.25 + 0.5 * at))
        for length, at in zip(canvas, draws(first, 2), strict=True)
    ]
    parts = []
    for i, (one, example) in enumerate(zip(rest, examples, strict=True)):
        found, old = sized("mosaic", example)
        row, column = divmod(i, 2)
        spaces = [
            (length - cut, cut) if second else (cut, 0)
            for length, cut, second in zip(canvas, middle, (row, column), strict=True)
        ]
        (rows, top), (columns, left) = spaces
        factor = max(rows / old[0], columns / old[1])
        new = max(rows, round(old[0] * factor)), max(columns, round(old[1] * factor))
        where = functools.partial(corner, where=draws(one, 2))
        found = resize(found, new)
        part = part_at("mosaic", found, (rows, columns), where, allow_outside_center)
        parts.append(
            (expand(part, canvas, top, left), slice(top, top + rows), slice(left, left + columns))
        )
    joined = _joined("mosaic", [part for part, _, _ in parts])
    for name in ("image", "label_map"):
        if name in joined:
            pixels = np.empty_like(joined[name])
            for part, rows_, columns_ in parts:
                pixels[..., rows_, columns_] = part[name][..., rows_, columns_]
            joined[name] = lock(pixels)
    return joined


def _joined(function: str, examples: Sequence[Example]) -> Example:
    """The first of some examples with the objects of all."""
    first = examples[0]
    new = dict(first)
    for i, example in enumerate(examples[1:], 1):
        if example.keys() != first.keys():
            raise ValueError(
                f"fdbr.vision.transforms.{function}: examples must have the same fields; example 0 "
                f"has {', '.join(first)}, example {i} has {', '.join(example)}"
            )
        if "image" in first and (
            example["image"].dtype != first["image"].dtype
            or len(example["image"]) != len(first["image"])
        ):
            raise ValueError(
                f"fdbr.vision.transforms.{function}: images must have one dtype and number of "
                f"channels, got {describe(first['image'])} and {describe(example['image'])} in "
                f"example {i}"
            )
    for name in filter(is_of_objects, first):
        try:
            new[name] = lock(np.concatenate([example[name] for example in examples]))
        except ValueError as error:
            raise ValueError(
                f"fdbr.vision.transforms.{function}: {name} cannot be joined: {error}"
            ) from error
    return new


@public("fdbr.vision.transforms")
def mixup(key: Any, first: Any, second: Any, alpha: float = 1.5) -> Example:
    """Blend two pictures, at their sizes, and put their objects together.

    The image is ``m * first + (1 - m) * second``, where m is drawn from the distribution
    Beta(alpha, alpha), and images are extended with 0 at the bottom and on the right to one size.

    Parameters
    ----------
    key
        A key.
    first, second
        Dicts with the same fields, with an image and without a label map.
    alpha
        The parameter of the distribution, above 0.

    Returns
    -------
    dict
        A new example with the objects of both, and their weights m and 1 - m in the field
        ``object_weights``, float32.  Fields that belong neither to the picture nor to objects are
        those of the first.

    Raises
    ------
    TypeError, ValueError
        If fields are missing, differ, or do not fit together.

    Notes
    -----
    Zhang et al., *Bag of freebies for training object detection neural networks*, 2019, section
    3.1.

    >>> import numpy as np
    >>> from fdbr import random
    >>> from fdbr.vision import transforms
    >>> a = {"image": np.zeros((3, 4, 2)), "boxes": np.zeros((1, 4))}
    >>> b = {"image": np.ones((3, 2, 4)), "boxes": np.zeros((2, 4))}
    >>> mixed = transforms.mixup(random.key(0), a, b)
    >>> mixed["image"].shape, mixed["boxes"].shape, mixed["object_weights"].shape
    ((3, 4, 4), (3, 4), (3,))
    """
    if not 0 < alpha < np.inf:
        raise ValueError(f"fdbr.vision.transforms.mixup: alpha must be above 0, got {alpha}")
    checked = [sized("mixup", example) for example in (first, second)]
    for i, (found, _) in enumerate(checked):
        if "image" not in found or "label_map" in found:
            raise ValueError(
                "fdbr.vision.transforms.mixup: examples must have an image and no label map, "
                f"example {i} has {', '.join(found)}"
            )
    height, width = np.max([size for _, size in checked], axis=0).tolist()
    both = [expand(found, (height, width)) for found, _ in checked]
    share = float(random.beta(key, alpha, alpha))
    new = _joined("mixup", both)
    images = [
        example["image"].astype(np.result_type(example["image"], np.float32)) for example in both
    ]
    blend = images[0] * images[0].dtype.type(share) + images[1] * images[1].dtype.type(1 - share)
    new["image"] = finish(within(blend, *images), both[0]["image"])
    counts = [objects_of("mixup", example) or 0 for example in both]
    new["object_weights"] = lock(np.repeat(np.array([share, 1 - share], np.float32), counts))
    return new
