"""Many images in one."""

import math
from typing import Any

import numpy as np

from fdbr.core.array_modules import to_numpy
from fdbr.errors.checks import describe
from fdbr.errors.public import public

__all__ = ["tile_images"]


@public("fdbr.vision.drawing")
def tile_images(images: Any, columns: int, pad: int | tuple[int, int] = 2, fill: Any = 0) -> Any:
    """Put images of one size side by side, in rows.

    Parameters
    ----------
    images
        Shape ``(N, C, H, W)``, or a sequence of arrays of shape ``(C, H, W)``.
    columns
        The number of images in a row; fewer if there are fewer images.
    pad
        Pixels between rows and between columns, or one number for both.  Half of them are also at
        the borders.
    fill
        The colour between images: a number, or one for each channel.

    Returns
    -------
    array
        Shape ``(C, rows * (H + pad), columns * (W + pad))``, of the dtype of the images.

    Raises
    ------
    ValueError
        If there are no images, their shapes differ, or a setting is out of its range.

    >>> import numpy as np
    >>> from fdbr.vision import drawing
    >>> drawing.tile_images(np.arange(3).reshape(3, 1, 1, 1), 2, pad=0)
    array([[[0, 1],
            [2, 0]]])
    """
    where = "fdbr.vision.drawing.tile_images"
    images = [to_numpy(image) for image in images]
    shapes = {image.shape for image in images}
    if len(shapes) != 1 or len(next(iter(shapes))) != 3:
        raise ValueError(
            f"{where}: images must have one shape (C, H, W), got {sorted(shapes) or 'none'}"
        )
    stacked = np.asarray(images)
    pads = (pad, pad) if isinstance(pad, int) else pad
    if columns < 1 or len(pads) != 2 or min(pads) < 0:
        raise ValueError(
            f"{where}: columns must be at least 1, and pad at least 0, got {columns} and {pad}"
        )
    count, channels, height, width = stacked.shape
    colour = np.asarray(fill)
    if colour.size not in (1, channels):
        raise ValueError(
            f"{where}: fill must be a number, or one for each of {channels} channels, got "
            f"{describe(colour)}"
        )
    across = min(columns, count)
    down = math.ceil(count / across)
    steps = height + pads[0], width + pads[1]
    tiles = np.empty((channels, down * steps[0], across * steps[1]), stacked.dtype)
    tiles[:] = colour.reshape(-1, 1, 1)
    for i, image in enumerate(stacked):
        top, left = (
            at * step + space // 2
            for at, step, space in zip(divmod(i, across), steps, pads, strict=True)
        )
        tiles[:, top : top + height, left : left + width] = image
    return tiles
