"""Images in other colours, and with parts erased."""

import math
from typing import Any

import numpy as np

from fdbr import random
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.train.augment.pixels import draws, finish, floating, image_of, span, within

__all__ = ["color_jitter", "grayscale", "normalize", "random_erasing", "to_float"]

_LUMA = np.array([0.299, 0.587, 0.114], np.float32)
_YIQ = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.321], [0.211, -0.523, 0.311]])


@public("fdbr.train.augment")
def to_float(image: Any, dtype: Any = "float32") -> Any:
    """An image of integers as one of numbers in [0, 1].

    Parameters
    ----------
    image
        Channels, rows and columns.
    dtype
        A floating dtype.

    Returns
    -------
    array
        Of that dtype; what is floating is not scaled.

    Raises
    ------
    TypeError
        If it is no image, or the dtype is not floating.

    >>> import numpy as np
    >>> from fdbr.train import augment
    >>> augment.to_float(np.array([[[0, 51, 255]]], "uint8"))
    array([[[0. , 0.2, 1. ]]], dtype=float32)
    """
    array = image_of("to_float", image)
    kind = np.dtype(dtype)
    if kind.kind != "f":
        raise TypeError(f"fdbr.train.augment.to_float: dtype must be floating, got {kind}")
    values = array.astype(kind)
    if array.dtype.kind == "u":
        values /= kind.type(np.iinfo(array.dtype).max)
    return finish(values, values)


@public("fdbr.train.augment")
def normalize(image: Any, mean: Any, std: Any) -> Any:
    """An image in units of a standard deviation from a mean, ``(image - mean) / std``.

    Parameters
    ----------
    image
        Channels, rows and columns.  Integers become float32 in [0, 1] first.
    mean, std
        A number for each channel, or one for all.

    Returns
    -------
    array
        Of the image's dtype if that is floating, else float32.

    Raises
    ------
    TypeError, ValueError
        If it is no image, there is another number of means, or a ``std`` is not above 0.

    >>> import numpy as np
    >>> from fdbr.train import augment
    >>> augment.normalize(np.array([[[0, 255]]], "uint8"), 0.5, 0.5)
    array([[[-1.,  1.]]], dtype=float32)
    """
    array = to_float(image) if image_of("normalize", image).dtype.kind == "u" else np.asarray(image)
    parts = []
    for name, value in (("mean", mean), ("std", std)):
        part = np.asarray(value, dtype=array.dtype)
        if part.shape not in ((), (1,), (len(array),)) or not np.isfinite(part).all():
            raise ValueError(
                f"fdbr.train.augment.normalize: {name} must be a finite number, or one for each of "
                f"the {len(array)} channels, got {describe(part)}"
            )
        parts.append(part.reshape(-1, 1, 1))
    if (parts[1] <= 0).any():
        raise ValueError("fdbr.train.augment.normalize: std must be above 0")
    values = (array - parts[0]) / parts[1]
    return finish(values, values)


@public("fdbr.train.augment")
def grayscale(image: Any) -> Any:
    """An image of three equal channels: how bright it is (ITU-R BT.601).

    Parameters
    ----------
    image
        Red, green and blue, rows and columns.

    Returns
    -------
    array
        Of the image's shape and dtype.

    Raises
    ------
    TypeError, ValueError
        If it is no image of three channels.

    >>> import numpy as np
    >>> from fdbr.train import augment
    >>> augment.grayscale(np.array([[[255]], [[0]], [[0]]], "uint8")).ravel()
    array([76, 76, 76], dtype=uint8)
    """
    array = image_of("grayscale", image, channels=True)
    gray = _gray(floating(array))
    gray = within(gray, array) if array.dtype.kind == "f" else gray
    return finish(np.broadcast_to(gray, array.shape), array)


def _gray(values: Any) -> Any:
    return np.tensordot(_LUMA.astype(values.dtype), values, 1)


@public("fdbr.train.augment")
def color_jitter(
    key: Any,
    image: Any,
    brightness: float = 0.0,
    contrast: float = 0.0,
    saturation: float = 0.0,
    hue: float = 0.0,
) -> Any:
    """An image with random brightness, contrast, saturation and hue.

    Parameters
    ----------
    key
        A key.
    image
        Red, green and blue, rows and columns: integers, or numbers in [0, 1].
    brightness, contrast, saturation
        The image is multiplied by a factor, blended by one with its mean brightness, and by one
        with its grayscale; factors are drawn from [1 - value, 1 + value], from 0 on.
    hue
        Colours are turned by a part of the circle, drawn from [-hue, hue], in the plane of I and Q
        of the colour space YIQ.

    Returns
    -------
    array
        Of the image's dtype; integers and numbers are clipped to their range after each step.

    Raises
    ------
    TypeError, ValueError
        If it is no image of three channels, or a setting is negative; if ``hue`` is above 0.5.

    >>> import numpy as np
    >>> from fdbr import random
    >>> from fdbr.train import augment
    >>> image = np.full((3, 4, 4), 0.5)
    >>> augment.color_jitter(random.key(0), image, brightness=0.2).shape
    (3, 4, 4)
    """
    array = image_of("color_jitter", image, channels=True)
    settings = {"brightness": brightness, "contrast": contrast, "saturation": saturation}
    for name, value in (*settings.items(), ("hue", hue)):
        if not 0 <= value < np.inf or (name == "hue" and value > 0.5):
            raise ValueError(
                f"fdbr.train.augment.color_jitter: {name} must be at least 0"
                f"{', and at most 0.5' if name == 'hue' else ''}, got {value}"
            )
    top = float(np.iinfo(array.dtype).max) if array.dtype.kind == "u" else 1.0
    values = floating(array)
    *drawn, iteration = draws(key, 4)
    kind = values.dtype.type
    factors = [
        max(0.0, 1 - value + 2 * value * draw)
        for value, draw in zip(settings.values(), drawn, strict=True)
    ]
    for value, factor, base in zip(
        settings.values(),
        factors,
        (lambda x: kind(0), lambda x: _gray(x).mean(), _gray),
        strict=True,
    ):
        if value:
            rest = base(values)
            values = np.clip(rest + kind(factor) * (values - rest), 0, kind(top))
    if hue:
        angle = 2 * math.pi * hue * (2 * iteration - 1)
        cos, sin = math.cos(angle), math.sin(angle)
        turned = np.linalg.inv(_YIQ) @ np.array([[1, 0, 0], [0, cos, -sin], [0, sin, cos]]) @ _YIQ
        values = np.clip(np.tensordot(turned.astype(values.dtype), values, 1), 0, kind(top))
    return finish(values, array)


@public("fdbr.train.augment")
def random_erasing(
    key: Any,
    image: Any,
    p: float = 0.5,
    scale: tuple[float, float] = (0.02, 0.33),
    ratio: tuple[float, float] = (0.3, 3.3),
    value: float = 0.0,
) -> Any:
    """An image, or one of which a random rectangle is erased.

    Parameters
    ----------
    key
        A key.
    image
        Channels, rows and columns.
    p
        The probability that something is erased.
    scale
        The least and the greatest area, as a fraction of the image's.
    ratio
        The least and the greatest width over height.
    value
        For what is erased.

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
    Zhong et al., *Random erasing data augmentation*, AAAI 2020.

    >>> import numpy as np
    >>> from fdbr import random
    >>> from fdbr.train import augment
    >>> erased = augment.random_erasing(random.key(0), np.ones((1, 20, 20)), p=1.0)
    >>> bool(0.01 < (erased == 0).mean() < 0.34)
    True
    """
    name = "random_erasing"
    array = image_of(name, image)
    if not 0 <= p <= 1:
        raise ValueError(f"fdbr.train.augment.{name}: p must lie in [0, 1], got {p}")
    small, large = span(name, "scale", scale, 0.0)
    low, high = span(name, "ratio", ratio, 1e-6)
    first, second = random.split(key)
    chance, area, shape = draws(first, 3)
    if chance >= p:
        return finish(array.copy(), array)
    height, width = array.shape[1:]
    wanted = (small + (large - small) * area) * height * width
    aspect = math.exp(math.log(low) + math.log(high / low) * shape)
    rows = max(1, min(height, round(math.sqrt(wanted / aspect))))
    columns = max(1, min(width, round(math.sqrt(wanted * aspect))))
    top, left = (
        min(int(draw * (room + 1)), room)
        for draw, room in zip(draws(second, 2), (height - rows, width - columns), strict=True)
    )
    values = array.copy()
    values[:, top : top + rows, left : left + columns] = value
    return finish(values, array)
