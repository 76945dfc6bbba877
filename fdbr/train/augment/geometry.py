"""Images cropped, flipped, resized and turned."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr import ops
from fdbr.core.devices import scipy_of
from fdbr.errors.public import public
from fdbr.train.augment.pixels import draws, finish, floating, image_of, pair, span, within

__all__ = [
    "center_crop",
    "random_crop",
    "random_flip",
    "random_resized_crop",
    "random_rotation",
    "resize",
    "rotate",
]

MODES = ("linear", "cubic", "lanczos", "area", "nearest")


@public("fdbr.train.augment")
def resize(image: Any, size: Any, mode: str = "linear") -> Any:
    """An image at another size, smoothed where it becomes smaller.

    Parameters
    ----------
    image
        Channels, rows and columns.
    size
        Height and width, or one number for both.
    mode
        ``"linear"``, ``"cubic"``, ``"lanczos"``, ``"area"`` or ``"nearest"``, as for
        `ops.interpolate`.  Results of ``"cubic"`` and ``"lanczos"`` are clipped to [0, 1], extended
        by the range of the image's values.  Other modes never leave the range of these values.

    Returns
    -------
    array
        Of the image's dtype.

    Raises
    ------
    TypeError, ValueError
        If it is no image, or a setting is out of its range.

    >>> import numpy as np
    >>> from fdbr.train import augment
    >>> augment.resize(np.array([[[0, 0, 90, 90]]], "uint8"), (1, 2))
    array([[[13, 77]]], dtype=uint8)
    """
    return resized(image_of("resize", image), size, mode, 1.0)


def resized(array: Any, size: Any, mode: str, top: float) -> Any:
    """Resize an image; ``top`` is the greatest value of floating images."""
    shape = pair("resize", "size", size)
    if mode not in MODES:
        raise ValueError(f"fdbr.train.augment.resize: mode must be one of {MODES}, got {mode!r}")
    if shape == array.shape[1:]:
        return finish(array.copy(), array)
    if mode == "nearest":
        return finish(ops.interpolate(array[None], shape, mode="nearest-exact")[0], array)
    smooth = mode != "area"
    values = ops.interpolate(floating(array)[None], shape, mode=mode, antialias=smooth)[0]
    if array.dtype.kind == "f":
        values = within(values, array, **_overshooting(mode in ("cubic", "lanczos"), top))
    return finish(values, array)


def _overshooting(weights_below_0: bool, top: float) -> dict[str, float]:
    return {"least": 0.0, "greatest": top} if weights_below_0 else {}


@public("fdbr.train.augment")
def center_crop(image: Any, size: Any) -> Any:
    """The middle of an image.

    The number of rows above it, half of those that are left out, is rounded to an even number
    where it is no integer, as in torchvision; so is that of columns.

    Parameters
    ----------
    image
        Channels, rows and columns.
    size
        Height and width, or one number for both.

    Returns
    -------
    array
        Of the image's dtype.

    Raises
    ------
    TypeError, ValueError
        If it is no image, or is smaller than ``size``.

    >>> import numpy as np
    >>> from fdbr.train import augment
    >>> augment.center_crop(np.arange(5.0).reshape(1, 1, 5), (1, 3))
    array([[[1., 2., 3.]]])
    """
    array = image_of("center_crop", image)
    return _cut("center_crop", array, pair("center_crop", "size", size), middle)


def middle(free: tuple[int, int]) -> tuple[int, int]:
    """Return the first row and column of a part in the middle."""
    return round(free[0] / 2), round(free[1] / 2)


def _cut(
    function: str,
    array: Any,
    size: tuple[int, int],
    where: Callable[[tuple[int, int]], tuple[int, int]],
) -> Any:
    room = (array.shape[1] - size[0], array.shape[2] - size[1])
    if min(room) < 0:
        raise ValueError(
            f"fdbr.train.augment.{function}: an image of {array.shape[1]} x {array.shape[2]} has "
            f"no part of {size[0]} x {size[1]}; resize or pad it first"
        )
    top, left = where(room)
    return finish(array[:, top : top + size[0], left : left + size[1]].copy(), array)


@public("fdbr.train.augment")
def random_crop(key: Any, image: Any, size: Any, padding: int = 0, mode: str = "constant") -> Any:
    """A part of an image, at a random place.

    Parameters
    ----------
    key
        A key.
    image
        Channels, rows and columns.
    size
        Height and width, or one number for both.
    padding
        Rows and columns to be added first, on each side.
    mode
        Their elements: ``"constant"`` zeros, ``"reflect"``, ``"edge"``, as for `numpy.pad`.

    Returns
    -------
    array
        Of the image's dtype.

    Raises
    ------
    TypeError, ValueError
        If it is no image, or is smaller than ``size``, or a setting is out of its range.

    >>> import numpy as np
    >>> from fdbr import random
    >>> from fdbr.train import augment
    >>> augment.random_crop(random.key(0), np.zeros((3, 32, 32)), 32, padding=4).shape
    (3, 32, 32)
    """
    array = image_of("random_crop", image)
    if padding:
        array = np.pad(array, ((0, 0), (padding, padding), (padding, padding)), mode=mode)  # type: ignore[call-overload]
    where = draws(key, 2)
    return _cut(
        "random_crop", array, pair("random_crop", "size", size), lambda free: corner(free, where)
    )


@public("fdbr.train.augment")
def random_resized_crop(
    key: Any,
    image: Any,
    size: Any,
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
) -> Any:
    """A part of an image of random area, shape and place, at a given size.

    Parameters
    ----------
    key
        A key.
    image
        Channels, rows and columns.
    size
        Height and width of the result, or one number for both.
    scale
        The least and the greatest area, as a fraction of the image's; it is smaller where the
        image has no part of that area and shape.
    ratio
        The least and the greatest width over height.

    Returns
    -------
    array
        Of the image's dtype.

    Raises
    ------
    TypeError, ValueError
        If it is no image, or a setting is out of its range.

    Notes
    -----
    Szegedy et al., *Going deeper with convolutions*, CVPR 2015.

    >>> import numpy as np
    >>> from fdbr import random
    >>> from fdbr.train import augment
    >>> augment.random_resized_crop(random.key(0), np.zeros((3, 40, 60)), 32).shape
    (3, 32, 32)
    """
    name = "random_resized_crop"
    array = image_of(name, image)
    shape = pair(name, "size", size)
    top, left, rows, columns = drawn_part(name, key, array.shape[1:], scale, ratio)
    return resize(array[:, top : top + rows, left : left + columns], shape)


def drawn_part(
    function: str, key: Any, shape: Any, scale: tuple[float, float], ratio: tuple[float, float]
) -> tuple[int, int, int, int]:
    """Draw a part of a picture: its first row and column, and its numbers of rows and columns."""
    height, width = shape
    small, large = span(function, "scale", scale, 1e-6)
    low, high = span(function, "ratio", ratio, 1e-6)
    area, form, *where = draws(key, 4)
    wanted = (small + (large - small) * area) * height * width
    aspect = math.exp(math.log(low) + math.log(high / low) * form)
    # The largest part of this shape, where the picture has none of this area.
    wanted = min(wanted, height * height * aspect, width * width / aspect)
    rows = max(1, min(height, round(math.sqrt(wanted / aspect))))
    columns = max(1, min(width, round(math.sqrt(wanted * aspect))))
    top, left = corner((height - rows, width - columns), where)
    return top, left, rows, columns


def corner(free: tuple[int, int], where: Any) -> tuple[int, int]:
    """Return the first row and column of a part, from numbers in [0, 1)."""
    top, left = (min(int(at * (f + 1)), f) for at, f in zip(where, free, strict=True))
    return top, left


@public("fdbr.train.augment")
def random_flip(key: Any, image: Any, axis: int = -1, p: float = 0.5) -> Any:
    """An image, or its mirror image.

    Parameters
    ----------
    key
        A key.
    image
        Channels, rows and columns.
    axis
        The axis to be turned around: the last for left and right, the one before for top and
        bottom.
    p
        The probability of the mirror image.

    Returns
    -------
    array
        Of the image's dtype.

    Raises
    ------
    TypeError, ValueError
        If it is no image, or has no such axis.

    >>> import numpy as np
    >>> from fdbr import random
    >>> from fdbr.train import augment
    >>> augment.random_flip(random.key(0), np.array([[[1.0, 2.0]]]), p=1.0)
    array([[[2., 1.]]])
    """
    array = image_of("random_flip", image)
    if axis not in (-2, -1, 1, 2):
        raise ValueError(
            f"fdbr.train.augment.random_flip: axis must be -1 (columns) or -2 (rows), got {axis}"
        )
    if not 0 <= p <= 1:
        raise ValueError(f"fdbr.train.augment.random_flip: p must lie in [0, 1], got {p}")
    return finish(np.flip(array, axis) if draws(key, 1)[0] < p else array.copy(), array)


@public("fdbr.train.augment")
def rotate(image: Any, degrees: float, fill: float = 0.0) -> Any:
    """An image turned around its middle, counterclockwise, at its size.

    Parameters
    ----------
    image
        Channels, rows and columns.
    degrees
        The angle.
    fill
        For elements that lie outside of the image.

    Returns
    -------
    array
        Of the image's dtype; elements are interpolated linearly.

    Raises
    ------
    TypeError, ValueError
        If it is no image, or the angle is not finite.

    >>> import numpy as np
    >>> from fdbr.train import augment
    >>> augment.rotate(np.array([[[1.0, 2.0], [3.0, 4.0]]]), 90).round(6)
    array([[[2., 4.],
            [1., 3.]]])
    """
    array = image_of("rotate", image)
    if not math.isfinite(degrees):
        raise ValueError(f"fdbr.train.augment.rotate: degrees must be finite, got {degrees}")
    return finish(rotated(array, degrees, array.shape[1:], fill), array)


def rotated(
    image: Any,
    degrees: float,
    size: tuple[int, int],
    fill: Any,
    order: int = 1,
    top: float = 1.0,
) -> Any:
    """Rotate channels around their middle, which becomes that of the result.

    ``fill`` is a number, or one for each channel; ``order`` is that of the splines between the
    elements: 1 for linear interpolation, 3 for cubic splines, 0 for the nearest element.  ``top``
    is the greatest value of floating images.
    """
    angle = math.radians(degrees)
    rotation = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    middle, new_middle = ((np.array(shape) - 1) / 2 for shape in (image.shape[1:], size))
    values = floating(image) if order else image
    if image.dtype == np.float16:  # SciPy has no splines of it
        values = image.astype(np.float32)
    out = np.empty((len(values), *size), values.dtype)
    for channel, result, value in zip(values, out, np.broadcast_to(fill, len(values)), strict=True):
        scipy_of(np, "ndimage").affine_transform(
            channel,
            rotation,
            middle - rotation @ new_middle,
            output=result,
            order=order,
            mode="grid-constant",
            cval=value,
        )
    if order and image.dtype.kind == "f" and len(image):
        colours = np.asarray(fill, out.dtype)
        return within(out, image, colours, **_overshooting(order > 1, top))
    return out


@public("fdbr.train.augment")
def random_rotation(key: Any, image: Any, degrees: float, fill: float = 0.0) -> Any:
    """An image turned by a random angle.

    Parameters
    ----------
    key
        A key.
    image
        Channels, rows and columns.
    degrees
        The greatest angle, in either direction.
    fill
        For elements that lie outside of the image.

    Returns
    -------
    array
        Of the image's dtype.

    Raises
    ------
    TypeError, ValueError
        If it is no image, or the angle is not finite.

    >>> import numpy as np
    >>> from fdbr import random
    >>> from fdbr.train import augment
    >>> augment.random_rotation(random.key(0), np.zeros((1, 8, 8)), 10).shape
    (1, 8, 8)
    """
    image_of("random_rotation", image)
    return rotate(image, degrees * (2 * draws(key, 1)[0] - 1), fill)
