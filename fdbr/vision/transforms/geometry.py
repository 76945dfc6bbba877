"""Crops, flips, sizes and angles of examples."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.train.augment import geometry
from fdbr.train.augment.geometry import middle, rotated
from fdbr.train.augment.pixels import pair
from fdbr.vision.transforms.fields import Example, checked
from fdbr.vision.transforms.moving import Movement, filling, move, placed, shifted

__all__ = [
    "center_crop",
    "crop",
    "expand",
    "flip",
    "resize",
    "resize_contain",
    "rotate",
    "scale",
    "ten_crop",
    "translate",
]


# --- parts --------------------------------------------------------------------------


@public("fdbr.vision.transforms")
def crop(
    example: Any,
    y_slice: slice = slice(None),
    x_slice: slice = slice(None),
    *,
    allow_outside_center: bool = True,
) -> Example:
    """Cut a part out of a picture, with its objects.

    Boxes and masks are cut at the border of the part.  An object is removed, from all fields, if
    nothing of its box and nothing of its mask is left.  Points outside are marked as not visible in
    the field ``visible``, which is added if it is missing; an object with neither a box nor a mask
    is removed if no visible point is left.  ``areas`` shrink as the boxes do.

    Parameters
    ----------
    example
        A dict.
    y_slice, x_slice
        Rows and columns, as ``image[:, y_slice, x_slice]`` takes them, without a step.
    allow_outside_center
        Whether objects are kept whose centre lies outside the part.

    Returns
    -------
    dict
        A new example.

    Raises
    ------
    TypeError, ValueError
        If the fields do not fit together, or the part has no pixels.

    >>> import numpy as np
    >>> from fdbr.vision import transforms
    >>> example = {"size": (10, 10), "boxes": np.array([[2.0, 2, 8, 8], [0, 0, 3, 3]])}
    >>> transforms.crop(example, slice(4, 9), slice(1, 6))
    {'size': (5, 5), 'boxes': array([[0., 1., 4., 5.]])}
    """
    found, size = checked("transforms.crop", example)
    if size is None:
        starts, stops = zip(*(_ends(s) for s in (y_slice, x_slice)), strict=True)
        # Without a picture, only the slices bound the part.
        bounds = np.subtract(stops, starts)
        moved = shifted(tuple(bounds), -starts[0], -starts[1])
    else:
        (top, bottom), (left, right) = (
            _within(s, length) for s, length in zip((y_slice, x_slice), size, strict=True)
        )
        moved = shifted((bottom - top, right - left), -top, -left)
    return move(found, moved, cuts=True, allow_outside_center=allow_outside_center)


def _ends(part: slice) -> tuple[float, float]:
    start = 0 if part.start is None else part.start
    stop = math.inf if part.stop is None else part.stop
    if not 0 <= start < stop or part.step not in (None, 1):
        raise ValueError(
            "fdbr.vision.transforms.crop: slices of an example without image and size must rise "
            f"from at least 0, got {part}"
        )
    return start, stop


def _within(part: slice, length: int) -> tuple[int, int]:
    start, stop, step = part.indices(length)
    if step != 1 or start >= stop:
        raise ValueError(
            f"fdbr.vision.transforms.crop: {part} is no part of {length} rows or columns; slices "
            "must have a pixel, and no step"
        )
    return start, stop


@public("fdbr.vision.transforms")
def center_crop(example: Any, size: Any, *, allow_outside_center: bool = True) -> Example:
    """Cut the middle out of a picture, as `train.augment.center_crop` does.

    Parameters
    ----------
    example
        A dict that has an image, or another field with a height and a width.
    size
        Height and width, or one number for both.
    allow_outside_center
        As for `crop`.

    Returns
    -------
    dict
        A new example; `crop` says what becomes of its objects.

    Raises
    ------
    TypeError, ValueError
        If the fields do not fit together, or the picture is smaller than ``size``.

    >>> import numpy as np
    >>> from fdbr.vision import transforms
    >>> transforms.center_crop({"size": (4, 6), "boxes": np.array([[0.0, 0, 4, 6]])}, 2)
    {'size': (2, 2), 'boxes': array([[0., 0., 2., 2.]])}
    """
    return part_at("center_crop", example, size, middle, allow_outside_center)


def part_at(
    function: str,
    example: Any,
    size: Any,
    where: Callable[[tuple[int, int]], tuple[int, int]],
    centers: bool,
) -> Example:
    """Cut a part of a size, at a row and column that depend on how many are left out."""
    found, (height, width) = sized(function, example)
    rows, columns = pair(function, "size", size)
    if rows > height or columns > width:
        raise ValueError(
            f"fdbr.vision.transforms.{function}: a picture of {height} x {width} has no part of "
            f"{rows} x {columns}; resize or expand it first"
        )
    top, left = where((height - rows, width - columns))
    moved = shifted((rows, columns), -top, -left)
    return move(found, moved, cuts=True, allow_outside_center=centers)


def sized(function: str, example: Any) -> tuple[Example, tuple[int, int]]:
    """Return a checked example that must have a height and a width."""
    found, size = checked(f"transforms.{function}", example)
    if size is None:
        raise ValueError(
            f"fdbr.vision.transforms.{function}: the example must have an image, or the height and "
            f"width of one as size=(H, W), got the fields {', '.join(found) or '(none)'}"
        )
    return found, size


@public("fdbr.vision.transforms")
def ten_crop(
    example: Any, size: Any, *, allow_outside_center: bool = True, chainer: bool = False
) -> tuple[Example, ...]:
    """Cut the middle and the four corners out of a picture, and out of its mirror image.

    Parameters
    ----------
    example
        A dict that has an image, or another field with a height and a width.
    size
        Height and width of the parts, or one number for both.
    allow_outside_center
        As for `crop`.
    chainer
        Whether the first row and column of the middle are rounded down, as in ChainerCV;
        torchvision rounds them as `center_crop` does.

    Returns
    -------
    tuple
        Ten examples: the middle, the corners at top left, bottom left, top right and bottom right,
        and the mirror images of these five.

    Raises
    ------
    TypeError, ValueError
        If the fields do not fit together, or the picture is smaller than ``size``.

    >>> import numpy as np
    >>> from fdbr.vision import transforms
    >>> crops = transforms.ten_crop({"image": np.zeros((3, 32, 48), "uint8")}, 24)
    >>> np.stack([crop["image"] for crop in crops]).shape
    (10, 3, 24, 24)
    """
    parts = [
        part_at("ten_crop", example, size, where, allow_outside_center)
        for where in (
            (lambda free: (free[0] // 2, free[1] // 2)) if chainer else middle,
            lambda free: (0, 0),
            lambda free: (free[0], 0),
            lambda free: (0, free[1]),
            lambda free: free,
        )
    ]
    return (*parts, *(flip(part) for part in parts))


# --- other canvases -----------------------------------------------------------------


@public("fdbr.vision.transforms")
def expand(example: Any, size: Any, y_offset: int = 0, x_offset: int = 0, fill: Any = 0) -> Example:
    """Put a picture on a larger canvas.

    Parameters
    ----------
    example
        A dict.
    size
        Height and width of the canvas, or one number for both.
    y_offset, x_offset
        The row and the column at which the picture begins.
    fill
        The colour around the image: a number, or one for each channel.  The label map is -1 there.

    Returns
    -------
    dict
        A new example.

    Raises
    ------
    TypeError, ValueError
        If the fields do not fit together, or the canvas does not hold the picture.

    >>> import numpy as np
    >>> from fdbr.vision import transforms
    >>> transforms.expand({"image": np.ones((1, 1, 2))}, (2, 3), 1, 0, fill=5)["image"]
    array([[[5., 5., 5.],
            [1., 1., 5.]]])
    """
    found, inner = sized("expand", example)
    outer = pair("expand", "size", size)
    offsets = (y_offset, x_offset)
    if any(not 0 <= o <= new - old for o, new, old in zip(offsets, outer, inner, strict=True)):
        raise ValueError(
            f"fdbr.vision.transforms.expand: a canvas of {outer[0]} x {outer[1]} does not hold a "
            f"picture of {inner[0]} x {inner[1]} at ({y_offset}, {x_offset})"
        )
    return move(found, shifted(outer, y_offset, x_offset), fill=fill)


@public("fdbr.vision.transforms")
def translate(
    example: Any,
    y_offset: float = 0,
    x_offset: float = 0,
    fill: Any = 0,
    *,
    allow_outside_center: bool = True,
) -> Example:
    """Move a picture within its borders, or boxes and points that have no picture.

    Parameters
    ----------
    example
        A dict.  Without an image, a label map, masks and ``size`` there are no borders: boxes and
        points are moved, and none is cut.
    y_offset, x_offset
        Pixels downwards and to the right; integers, where there are pixels to be moved.
    fill
        The colour where no image is: a number, or one for each channel.  The label map is -1 there.
    allow_outside_center
        As for `crop`.

    Returns
    -------
    dict
        A new example; `crop` says what becomes of objects outside.

    Raises
    ------
    TypeError, ValueError
        If the fields do not fit together, or an offset is not finite, or no integer.

    >>> import numpy as np
    >>> from fdbr.vision import transforms
    >>> transforms.translate({"boxes": np.array([[0.0, 0, 2, 2]])}, 1, -0.5)
    {'boxes': array([[ 1. , -0.5,  3. ,  1.5]])}
    """
    found, size = checked("transforms.translate", example)
    pixels = [name for name in ("image", "label_map", "masks") if name in found]
    for offset in (y_offset, x_offset):
        if not math.isfinite(offset) or (pixels and offset != int(offset)):
            raise ValueError(
                "fdbr.vision.transforms.translate: offsets must be finite, and integers for an "
                f"example with {pixels[0] if pixels else 'no pixels'}, got {offset}"
            )
    moved = shifted(size, y_offset, x_offset)
    return move(found, moved, fill=fill, cuts=True, allow_outside_center=allow_outside_center)


@public("fdbr.vision.transforms")
def flip(
    example: Any, y: bool = False, x: bool = True, *, pairs: Sequence[tuple[int, int]] = ()
) -> Example:
    """Mirror a picture with its objects.

    Parameters
    ----------
    example
        A dict that has an image, or another field with a height and a width.
    y, x
        Whether top and bottom, and left and right, change sides.
    pairs
        Numbers of points that exchange their numbers in a mirror image, such as that of the left
        and that of the right eye.  They do not if both axes are mirrored: that is a rotation.

    Returns
    -------
    dict
        A new example.

    Raises
    ------
    TypeError, ValueError
        If the fields do not fit together, or there is no such point.

    >>> import numpy as np
    >>> from fdbr.vision import transforms
    >>> transforms.flip({"size": (10, 20), "boxes": np.array([[1.0, 2, 3, 5]])})["boxes"]
    array([[ 1., 15.,  3., 18.]])
    """
    found, (height, width) = sized("flip", example)
    signs = np.where([y, x], -1.0, 1.0)
    axes = tuple(axis for axis, flipped in ((1, y), (2, x)) if flipped)
    movement = Movement(
        np.diag(signs),
        np.where([y, x], [height, width], 0.0),
        (height, width),
        lambda array, fill, nearest: np.flip(array, axes),
    )
    return move(found, movement, swapped=pairs if y != x else ())


# --- other sizes --------------------------------------------------------------------


@public("fdbr.vision.transforms")
def resize(example: Any, size: Any, mode: str = "linear") -> Example:
    """Resize a picture with its objects.

    Parameters
    ----------
    example
        A dict that has an image, or another field with a height and a width.
    size
        Height and width, or one number for both.
    mode
        For the image, as for `train.augment.resize`: ``"linear"``, ``"cubic"``, ``"lanczos"``,
        ``"area"`` or ``"nearest"``.  Masks and label maps take the nearest pixel.  Results of
        ``"cubic"`` and ``"lanczos"`` are clipped to [0, 255], extended by the range of the image's
        values.

    Returns
    -------
    dict
        A new example.

    Raises
    ------
    TypeError, ValueError
        If the fields do not fit together, or a setting is out of its range.

    >>> import numpy as np
    >>> from fdbr.vision import transforms
    >>> transforms.resize({"size": (10, 20), "points": np.ones((1, 1, 2))}, (5, 40))
    {'size': (5, 40), 'points': array([[[0.5, 2. ]]])}
    """
    found, old = sized("resize", example)
    return move(found, _resizing(old, pair("resize", "size", size), mode))


def _resizing(old: tuple[int, int], new: tuple[int, int], mode: str) -> Movement:
    return Movement(
        np.diag(np.divide(new, old)),
        np.zeros(2),
        new,
        lambda array, fill, nearest: resized(array, new, "nearest" if nearest else mode),
    )


def resized(array: Any, size: tuple[int, int], mode: str) -> Any:
    """Resize channels; there may be none."""
    if not len(array):
        return np.empty((0, *size), array.dtype)
    if array.dtype.kind != "i":
        return geometry.resized(array, size, mode, 255.0)
    # The labels of a map are not mixed, so they may pass for unsigned integers.
    return resized(array.view(f"u{array.itemsize}"), size, mode).view(array.dtype)


@public("fdbr.vision.transforms")
def scale(
    example: Any,
    size: int,
    limit: int | None = None,
    *,
    fit_short: bool = True,
    mode: str = "linear",
) -> Example:
    """Resize a picture so that its shorter side has a length.

    The other side keeps the aspect ratio; it is rounded down.

    Parameters
    ----------
    example
        A dict that has an image, or another field with a height and a width.
    size
        The length of the shorter side.
    limit
        The greatest length of the longer side: where it would become longer, it has this length,
        and the shorter side is shorter than ``size``.
    fit_short
        False for a longer side of length ``size``.
    mode
        As for `resize`.

    Returns
    -------
    dict
        A new example.

    Raises
    ------
    TypeError, ValueError
        If the fields do not fit together, or a setting is out of its range.

    >>> import numpy as np
    >>> from fdbr.vision import transforms
    >>> transforms.scale({"image": np.zeros((3, 20, 30))}, 10)["image"].shape
    (3, 10, 15)
    >>> transforms.scale({"image": np.zeros((3, 20, 30))}, 10, limit=12)["image"].shape
    (3, 8, 12)
    """
    found, old = sized("scale", example)
    if size < 1 or (limit is not None and limit < 1):
        raise ValueError(
            f"fdbr.vision.transforms.scale: size and limit must be at least 1, got {size} and "
            f"{limit}"
        )
    side, length = (min(old) if fit_short else max(old)), size
    if limit is not None and length * max(old) > limit * side:
        side, length = max(old), limit
    new = [max(1, length * whole // side) for whole in old]
    return move(found, _resizing(old, (new[0], new[1]), mode))


@public("fdbr.vision.transforms")
def resize_contain(
    example: Any, size: Any, fill: Any = 0, *, enlarge: bool = False, mode: str = "linear"
) -> Example:
    """Shrink a picture until a canvas holds it, and put it in the middle: a letterbox.

    The aspect ratio is kept.

    Parameters
    ----------
    example
        A dict that has an image, or another field with a height and a width.
    size
        Height and width of the canvas, or one number for both.
    fill
        The colour around the image: a number, or one for each channel.  The label map is -1 there.
    enlarge
        Whether a smaller picture is enlarged.
    mode
        As for `resize`.

    Returns
    -------
    dict
        A new example.

    Raises
    ------
    TypeError, ValueError
        If the fields do not fit together, or a setting is out of its range.

    >>> import numpy as np
    >>> from fdbr.vision import transforms
    >>> example = {"image": np.zeros((3, 20, 40)), "boxes": np.array([[0.0, 0, 20, 40]])}
    >>> transforms.resize_contain(example, 20)["boxes"]
    array([[ 5.,  0., 15., 20.]])
    """
    found, old = sized("resize_contain", example)
    canvas = pair("resize_contain", "size", size)
    # Integers: the size is exact where the quotient of floating numbers is not.
    (height, width), (rows, columns) = old, canvas
    if rows * width < columns * height:
        new = (rows, max(1, rows * width // height))
    else:
        new = (max(1, columns * height // width), columns)
    if not enlarge and new > old:
        new = old
    top, left = ((outer - inner) // 2 for outer, inner in zip(canvas, new, strict=True))

    def pixels(array: Any, fill: Any, nearest: bool) -> Any:
        inner = resized(array, new, "nearest" if nearest else mode)
        return placed(inner, canvas, top, left, fill)

    linear = np.diag(np.divide(new, old))
    return move(found, Movement(linear, np.array([top, left], float), canvas, pixels), fill=fill)


# --- other angles -------------------------------------------------------------------

_ORDERS = {"linear": 1, "cubic": 3, "nearest": 0}
"""The orders of the splines that interpolate rotated images."""


@public("fdbr.vision.transforms")
def rotate(
    example: Any,
    degrees: float,
    fill: Any = 0,
    *,
    expand: bool = True,
    allow_outside_center: bool = True,
    mode: str = "linear",
) -> Example:
    """Rotate a picture with its objects, counterclockwise.

    Multiples of 90 degrees only move pixels, if the canvas may change.  At other angles the image
    is interpolated, masks and label maps take the nearest pixel, and a box becomes the one around
    its four corners.

    Parameters
    ----------
    example
        A dict that has an image, or another field with a height and a width.
    degrees
        The angle.
    fill
        The colour where no image is: a number, or one for each channel.  The label map is -1 there.
    expand
        Whether the canvas becomes as large as the rotated picture; otherwise it keeps its size.
    allow_outside_center
        As for `crop`, if the canvas keeps its size.
    mode
        For the image: ``"linear"``, ``"cubic"`` (splines, clipped as by `resize`) or
        ``"nearest"``.

    Returns
    -------
    dict
        A new example; `crop` says what becomes of objects outside.

    Raises
    ------
    TypeError, ValueError
        If the fields do not fit together, the angle is not finite, or there is no such mode.

    >>> import numpy as np
    >>> from fdbr.vision import transforms
    >>> transforms.rotate({"size": (10, 20), "boxes": np.array([[1.0, 2, 3, 5]])}, 90)
    {'size': (20, 10), 'boxes': array([[15.,  1., 18.,  3.]])}
    """
    found, size = sized("rotate", example)
    if not math.isfinite(degrees):
        raise ValueError(
            f"fdbr.vision.transforms.rotate: degrees must be finite, got {describe(degrees)}"
        )
    if mode not in _ORDERS:
        raise ValueError(
            f"fdbr.vision.transforms.rotate: mode must be one of {(*_ORDERS,)}, got {mode!r}"
        )
    quarters, rest = divmod(degrees, 90)
    if rest == 0:
        cos, sin = [(1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.0, -1.0)][int(quarters) % 4]
    else:
        cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    # A point (y, x), whose y points downwards.
    linear = np.array([[cos, -sin], [sin, cos]], float)
    # The rounding keeps a side of a whole length from becoming one pixel longer.
    room = np.ceil((np.abs(linear) @ size).round(6)).astype(int)
    new = (int(room[0]), int(room[1])) if expand else size
    offset = np.divide(new, 2) - linear @ np.divide(size, 2)

    def pixels(array: Any, fill: Any, nearest: bool) -> Any:
        if rest == 0 and tuple(room) == new:
            return np.rot90(array, int(quarters) % 4, (1, 2))
        colours = filling(fill, array).ravel() if len(array) else 0
        return rotated(array, degrees, new, colours, 0 if nearest else _ORDERS[mode], 255.0)

    movement = Movement(linear, offset, new, pixels)
    cuts = not expand
    return move(found, movement, fill=fill, cuts=cuts, allow_outside_center=allow_outside_center)
