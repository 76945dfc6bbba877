"""Random crops, canvases, flips and angles of examples: the key comes first."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fdbr.errors.public import public
from fdbr.train.augment.geometry import MODES, corner, drawn_part
from fdbr.train.augment.pixels import draws, span
from fdbr.vision.boxes import box_iou
from fdbr.vision.transforms.fields import Example
from fdbr.vision.transforms.geometry import crop, expand, flip, part_at, resize, rotate, sized

__all__ = [
    "random_crop",
    "random_crop_with_constraints",
    "random_expand",
    "random_flip",
    "random_rotate",
    "random_sized_crop",
    "resize_with_random_interpolation",
]


@public("fdbr.vision.transforms")
def random_crop(key: Any, example: Any, size: Any, *, allow_outside_center: bool = True) -> Example:
    """Cut a part of a given size out of a picture, at a random position.

    Parameters
    ----------
    key
        A key.
    example
        A dict that has an image, or another field with a height and a width.
    size
        Height and width, or one number for both.
    allow_outside_center
        As for `crop`.

    Returns
    -------
    dict
        A new example; its image is that of `train.augment.random_crop` with the same key.

    Raises
    ------
    TypeError, ValueError
        If the fields do not fit together, or the picture is smaller than ``size``.

    >>> import numpy as np
    >>> from fdbr import random
    >>> from fdbr.vision import transforms
    >>> example = {"image": np.zeros((3, 40, 60)), "boxes": np.array([[0.0, 0, 40, 60]])}
    >>> transforms.random_crop(random.key(0), example, 32)["boxes"]
    array([[ 0.,  0., 32., 32.]])
    """
    where = draws(key, 2)
    return part_at(
        "random_crop", example, size, lambda free: corner(free, where), allow_outside_center
    )


@public("fdbr.vision.transforms")
def random_sized_crop(
    key: Any,
    example: Any,
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
    *,
    allow_outside_center: bool = True,
) -> Example:
    """Cut a part of random area, shape and position out of a picture.

    `resize` gives the parts one size: then the image is that of
    `train.augment.random_resized_crop` with the same key.

    Parameters
    ----------
    key
        A key.
    example
        A dict that has an image, or another field with a height and a width.
    scale
        The least and the greatest area, as a fraction of the picture's; it is smaller where the
        picture has no part of that area and shape.
    ratio
        The least and the greatest width over height, up to the rounding of both.
    allow_outside_center
        As for `crop`.

    Returns
    -------
    dict
        A new example.

    Raises
    ------
    TypeError, ValueError
        If the fields do not fit together, or a setting is out of its range.

    Notes
    -----
    Szegedy et al., *Going deeper with convolutions*, CVPR 2015.

    >>> import numpy as np
    >>> from fdbr import random
    >>> from fdbr.vision import transforms
    >>> part = transforms.random_sized_crop(random.key(0), {"image": np.zeros((3, 40, 60))})
    >>> transforms.resize(part, 32)["image"].shape
    (3, 32, 32)
    """
    found, size = sized("random_sized_crop", example)
    top, left, rows, columns = drawn_part("random_sized_crop", key, size, scale, ratio)
    return crop(
        found,
        slice(top, top + rows),
        slice(left, left + columns),
        allow_outside_center=allow_outside_center,
    )


_CONSTRAINTS = ((0.1, None), (0.3, None), (0.5, None), (0.7, None), (0.9, None), (None, 1.0))


@public("fdbr.vision.transforms")
def random_crop_with_constraints(
    key: Any,
    example: Any,
    scale: tuple[float, float] = (0.3, 1.0),
    max_aspect_ratio: float = 2.0,
    constraints: Sequence[tuple[float | None, float | None]] = _CONSTRAINTS,
    trials: int = 50,
    *,
    allow_outside_center: bool = False,
) -> Example:
    """Cut a random part that overlaps with the boxes as one of some constraints says.

    For each constraint, parts are drawn until one fulfils it.  One of the parts that were found,
    or the whole picture, is chosen, each with the same probability.

    Parameters
    ----------
    key
        A key.
    example
        A dict that has an image, or another field with a height and a width.
    scale
        The least and the greatest side of a part, as a fraction of the picture's; the sides of
        parts that are not similar to the picture have this geometric mean.
    max_aspect_ratio
        How much higher or wider a part is at most, compared with the picture.
    constraints
        Pairs of the least and the greatest intersection over union of the part with every box;
        `None` for 0 and 1.  An example without boxes keeps its whole picture.
    trials
        The number of parts that are drawn for each constraint.
    allow_outside_center
        As for `crop`.

    Returns
    -------
    dict
        A new example.

    Raises
    ------
    TypeError, ValueError
        If the fields do not fit together, or a setting is out of its range.

    Notes
    -----
    Liu et al., *SSD: Single shot multibox detector*, ECCV 2016, section 2.2.

    >>> import numpy as np
    >>> from fdbr import random
    >>> from fdbr.vision import transforms
    >>> example = {"size": (100, 100), "boxes": np.array([[20.0, 20, 80, 80]])}
    >>> part = transforms.random_crop_with_constraints(random.key(3), example)
    >>> min(part["size"]) >= 21
    True
    """
    function = "random_crop_with_constraints"
    found, (height, width) = sized(function, example)
    low, high = span(function, "scale", scale, 1e-6)
    if high > 1 or max_aspect_ratio < 1 or trials < 1:
        raise ValueError(
            f"fdbr.vision.transforms.{function}: scale must be at most 1, max_aspect_ratio and "
            f"trials at least 1, got {scale}, {max_aspect_ratio} and {trials}"
        )
    boxes = found.get("boxes", ())
    if not len(boxes):
        return found
    chance, *numbers = draws(key, 1 + 4 * trials * len(constraints))
    drawn = np.reshape(numbers, (4, len(constraints), trials))
    sides = low + (high - low) * drawn[0]
    # A part that is as wide as the picture allows only some shapes.
    narrowest = np.maximum(1 / max_aspect_ratio, sides**2)
    shapes = narrowest + (np.minimum(max_aspect_ratio, 1 / sides**2) - narrowest) * drawn[1]
    rows = np.clip(height * sides / np.sqrt(shapes), 1, height).astype(int)
    columns = np.clip(width * sides * np.sqrt(shapes), 1, width).astype(int)
    top = (drawn[2] * (height - rows + 1)).astype(int)
    left = (drawn[3] * (width - columns + 1)).astype(int)
    parts = np.stack([top, left, top + rows, left + columns], axis=-1)
    overlaps = box_iou(parts.reshape(-1, 4).astype(float), boxes.astype(float))
    overlaps = overlaps.reshape(len(constraints), trials, -1)
    least, most = overlaps.min(-1), overlaps.max(-1)
    choices = [(0, 0, height, width)]
    for i, (lower, upper) in enumerate(constraints):
        fits = (least[i] >= (lower or 0)) & (most[i] <= (1 if upper is None else upper))
        if fits.any():
            choices.append(parts[i, fits.argmax()].tolist())
    top, left, bottom, right = choices[int(chance * len(choices))]
    return crop(
        found,
        slice(top, bottom),
        slice(left, right),
        allow_outside_center=allow_outside_center,
    )


@public("fdbr.vision.transforms")
def random_expand(key: Any, example: Any, max_ratio: float = 4.0, fill: Any = 0) -> Example:
    """Put a picture at a random position on a larger canvas of its shape.

    Parameters
    ----------
    key
        A key.
    example
        A dict that has an image, or another field with a height and a width.
    max_ratio
        How much longer the sides of the canvas are at most.
    fill
        The colour around the image, as for `expand`.

    Returns
    -------
    dict
        A new example.

    Raises
    ------
    TypeError, ValueError
        If the fields do not fit together, or ``max_ratio`` is below 1.

    Notes
    -----
    Liu et al., *SSD: Single shot multibox detector*, ECCV 2016.

    >>> import numpy as np
    >>> from fdbr import random
    >>> from fdbr.vision import transforms
    >>> larger = transforms.random_expand(random.key(0), {"size": (10, 20)})["size"]
    >>> (10, 20) <= larger <= (40, 80)
    True
    """
    found, size = sized("random_expand", example)
    if not 1 <= max_ratio < math.inf:
        raise ValueError(
            f"fdbr.vision.transforms.random_expand: max_ratio must be at least 1, got {max_ratio}"
        )
    ratio, *where = draws(key, 3)
    canvas = [int(length * (1 + (max_ratio - 1) * ratio)) for length in size]
    top, left = (
        int(at * (new - old + 1)) for at, new, old in zip(where, canvas, size, strict=True)
    )
    return expand(found, canvas, top, left, fill)


@public("fdbr.vision.transforms")
def random_flip(
    key: Any,
    example: Any,
    y: bool = False,
    x: bool = True,
    p: float = 0.5,
    *,
    pairs: Sequence[tuple[int, int]] = (),
) -> Example:
    """Mirror a picture with its objects, or do not.

    Parameters
    ----------
    key
        A key.
    example
        A dict that has an image, or another field with a height and a width.
    y, x
        Whether top and bottom, and left and right, may change sides.
    p
        The probability that they do, for each axis by itself.
    pairs
        As for `flip`.

    Returns
    -------
    dict
        A new example.

    Raises
    ------
    TypeError, ValueError
        If the fields do not fit together, or a setting is out of its range.

    >>> import numpy as np
    >>> from fdbr import random
    >>> from fdbr.vision import transforms
    >>> example = {"size": (10, 20), "boxes": np.array([[1.0, 2, 3, 5]])}
    >>> transforms.random_flip(random.key(0), example, p=1.0)["boxes"]
    array([[ 1., 15.,  3., 18.]])
    """
    if not 0 <= p <= 1:
        raise ValueError(f"fdbr.vision.transforms.random_flip: p must lie in [0, 1], got {p}")
    first, second = draws(key, 2)
    return flip(example, y and first < p, x and second < p, pairs=pairs)


@public("fdbr.vision.transforms")
def random_rotate(
    key: Any,
    example: Any,
    degrees: float | None = None,
    fill: Any = 0,
    *,
    expand: bool = True,
    allow_outside_center: bool = True,
    mode: str = "linear",
) -> Example:
    """Rotate a picture with its objects by a random angle.

    Parameters
    ----------
    key
        A key.
    example
        A dict that has an image, or another field with a height and a width.
    degrees
        The greatest angle in either direction; by default the angle is 0, 90, 180 or 270.
    fill, expand, allow_outside_center, mode
        As for `rotate`.

    Returns
    -------
    dict
        A new example.

    Raises
    ------
    TypeError, ValueError
        If the fields do not fit together, or the angle is not finite.

    >>> import numpy as np
    >>> from fdbr import random
    >>> from fdbr.vision import transforms
    >>> size = transforms.random_rotate(random.key(0), {"size": (10, 20)})["size"]
    >>> size in [(10, 20), (20, 10)]
    True
    """
    chance = draws(key, 1)[0]
    angle = 90 * int(4 * chance) if degrees is None else degrees * (2 * chance - 1)
    settings = {"expand": expand, "allow_outside_center": allow_outside_center}
    return rotate(example, angle, fill, **settings, mode=mode)


@public("fdbr.vision.transforms")
def resize_with_random_interpolation(
    key: Any, example: Any, size: Any, modes: Sequence[str] = ("linear", "cubic", "nearest")
) -> Example:
    """Resize a picture with its objects, with an interpolation that is drawn from several.

    Parameters
    ----------
    key
        A key.
    example
        A dict that has an image, or another field with a height and a width.
    size
        Height and width, or one number for both.
    modes
        Modes of `resize`, which have equal probabilities.  Those of SSD's and ChainerCV's code are
        ``("linear", "area", "nearest", "cubic", "lanczos")``.

    Returns
    -------
    dict
        A new example.

    Raises
    ------
    TypeError, ValueError
        If the fields do not fit together, or ``size`` or one of ``modes`` is none.

    Notes
    -----
    Liu et al., *SSD: Single shot multibox detector*, ECCV 2016, in its authors' code.

    >>> import numpy as np
    >>> from fdbr import random
    >>> from fdbr.vision import transforms
    >>> example = {"image": np.zeros((3, 8, 8), "uint8")}
    >>> transforms.resize_with_random_interpolation(random.key(0), example, 4)["image"].shape
    (3, 4, 4)
    """
    if not modes or not set(modes) <= set(MODES):
        raise ValueError(
            "fdbr.vision.transforms.resize_with_random_interpolation: modes must be some of "
            f"{MODES}, got {modes!r}"
        )
    return resize(example, size, modes[int(len(modes) * draws(key, 1)[0])])
