"""Colours of examples; those of `fdbr.train.augment` take an image alone."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr import random
from fdbr.core.array_modules import lock
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.train.augment.pixels import draws, finish, floating, span, within
from fdbr.vision.transforms.fields import Example, checked

__all__ = ["pca_lighting", "random_distort"]

# Of the colours in ImageNet, in [0, 1]: the square roots of the eigenvalues, and the eigenvectors
# as columns, as in the code that trained Facebook's ResNets.
_VALUES = (0.2175, 0.0188, 0.0045)
_VECTORS = ((-0.5675, -0.5808, -0.5836), (0.7192, -0.0045, -0.6948), (0.4009, -0.814, 0.4203))


def _image(function: str, example: Any) -> tuple[Example, Any]:
    found, _ = checked(f"transforms.{function}", example)
    image = found.get("image")
    if image is None or len(image) != 3:
        raise ValueError(
            f"fdbr.vision.transforms.{function}: the example must have an image of red, green and "
            f"blue, got {describe(image)}"
        )
    return found, image


@public("fdbr.vision.transforms")
def pca_lighting(
    key: Any,
    example: Any,
    sigma: float = 25.5,
    eigenvalues: Any = _VALUES,
    eigenvectors: Any = _VECTORS,
) -> Example:
    """Add a random colour to an image, along the principal components of a data set's colours.

    The colour is ``eigenvectors @ (eigenvalues * a)``, where the three elements of ``a`` are drawn
    from a normal distribution.

    Parameters
    ----------
    key
        A key.
    example
        A dict with an image of three channels.
    sigma
        The standard deviation of ``a``; a tenth of the range of colours in the paper.
    eigenvalues
        Three numbers, by default ImageNet's.
    eigenvectors
        Of shape ``(3, 3)``, in columns, by default ImageNet's.

    Returns
    -------
    dict
        A new example.  Colours are clipped to [0, 255], extended by the range of the image's
        values.

    Raises
    ------
    TypeError, ValueError
        If there is no image of three channels, or a setting has another shape.

    Notes
    -----
    Krizhevsky et al., *ImageNet classification with deep convolutional neural networks*, NeurIPS
    2012, section 4.1.

    >>> import numpy as np
    >>> from fdbr import random
    >>> from fdbr.vision import transforms
    >>> image = np.full((3, 1, 1), 100.0)
    >>> transforms.pca_lighting(random.key(0), {"image": image}, sigma=0.0)["image"].ravel()
    array([100., 100., 100.])
    """
    found, image = _image("pca_lighting", example)
    values, vectors = np.asarray(eigenvalues, float), np.asarray(eigenvectors, float)
    if values.shape != (3,) or vectors.shape != (3, 3) or not 0 <= sigma < np.inf:
        raise ValueError(
            "fdbr.vision.transforms.pca_lighting: eigenvalues must have the shape (3,), "
            f"eigenvectors (3, 3), and sigma must be at least 0, got {describe(values)}, "
            f"{describe(vectors)} and {sigma}"
        )
    colour = vectors @ (values * sigma * random.normal(key, (3,)))
    values = floating(image)
    values = values + colour.astype(np.result_type(values, np.float32)).reshape(3, 1, 1)
    if image.dtype.kind == "f":
        values = within(values, image, least=0.0, greatest=255.0)
    return {**found, "image": finish(values, image)}


@public("fdbr.vision.transforms")
def random_distort(
    key: Any,
    example: Any,
    brightness: float = 32.0,
    contrast: tuple[float, float] = (0.5, 1.5),
    saturation: tuple[float, float] = (0.5, 1.5),
    hue: float = 36.0,
) -> Example:
    """Change brightness, contrast, saturation and hue, each with probability one half.

    Brightness comes first; contrast comes, with equal probabilities, before saturation and hue or
    behind them.  Colours are clipped to [0, 255] after each step.

    Parameters
    ----------
    key
        A key.
    example
        A dict with an image of three channels, with colours from 0 to 255.
    brightness
        The greatest number that is added or subtracted.
    contrast
        The least and the greatest factor of the colours.
    saturation
        The least and the greatest factor of the saturation, in the colour space HSV.
    hue
        The greatest angle by which the hue is changed, in degrees, in the colour space HSV.

    Returns
    -------
    dict
        A new example.

    Raises
    ------
    TypeError, ValueError
        If there is no image of three channels, or a setting is out of its range.

    Notes
    -----
    Liu et al., *SSD: Single shot multibox detector*, ECCV 2016, in its authors' code.

    >>> import numpy as np
    >>> from fdbr import random
    >>> from fdbr.vision import transforms
    >>> image = np.full((3, 2, 2), 100, "uint8")
    >>> transforms.random_distort(random.key(0), {"image": image})["image"].shape
    (3, 2, 2)
    """
    function = "random_distort"
    found, image = _image(function, example)
    for name, value in (("brightness", brightness), ("hue", hue)):
        if not 0 <= value < np.inf:
            raise ValueError(
                f"fdbr.vision.transforms.{function}: {name} must be at least 0, got {value}"
            )
    least, most = np.array(
        [
            (-brightness, brightness),
            span(function, "contrast", contrast, 0.0),
            span(function, "saturation", saturation, 0.0),
            (-hue, hue),
        ]
    ).T
    *coins, late = np.less(draws(random.fold_in(key, 0), 5), 0.5)
    amounts = least + (most - least) * draws(random.fold_in(key, 1), 4)
    steps: list[Callable[[Any, Any], Any]] = [np.add, np.multiply, saturated, hue_shifted]
    values = image.astype(np.result_type(image, np.float32))
    for i in (0, 2, 3, 1) if late else (0, 1, 2, 3):
        if coins[i]:
            values = np.clip(steps[i](values, values.dtype.type(amounts[i])), 0, 255)
    return {
        **found,
        "image": lock(values) if values.dtype == image.dtype else finish(values, image),
    }


def saturated(image: Any, factor: Any) -> Any:
    """Multiply the saturation in HSV, which is at most 1, and keep hue and value."""
    value, low = image.max(0), image.min(0)
    chroma = np.where(value > low, value - low, 1)
    # The saturation is chroma / value, and colours lie at fixed ratios between value and low.
    return value - (value - image) * np.minimum(factor, value / chroma)


def hue_shifted(image: Any, degrees: Any) -> Any:
    """Add an angle to the hue in HSV, and keep saturation and value."""
    red, green, blue = image
    value, low = image.max(0), image.min(0)
    chroma = value - low
    parts = np.stack([green - blue, blue - red, red - green]) / np.where(chroma > 0, chroma, 1)
    # In sixths of the circle, from red.
    largest = image.argmax(0)
    hue = np.take_along_axis(parts, largest[None], 0)[0] + 2 * largest + degrees / 60
    at = (np.array([5, 3, 1], image.dtype)[:, None, None] + hue) % 6
    return value - chroma * np.clip(np.minimum(at, 4 - at), 0, 1)
