"""Colours of classes."""

from typing import Any

import numpy as np

from fdbr.core.array_modules import to_numpy
from fdbr.errors.checks import describe
from fdbr.errors.public import public

__all__ = ["label_colors"]


@public("fdbr.vision.drawing")
def label_colors(labels: Any) -> Any:
    """Return the colours of labels in PASCAL VOC.

    The bits of a label, from the lowest, are dealt to the high bits of red, green and blue.

    Parameters
    ----------
    labels
        Integers of at least 0, shape ``(R,)``.

    Returns
    -------
    array
        Shape ``(R, 3)``, uint8: red, green and blue.

    Raises
    ------
    ValueError
        If labels are negative, or no integers.

    >>> from fdbr.vision import drawing
    >>> drawing.label_colors([0, 1, 2, 15]).tolist()
    [[0, 0, 0], [128, 0, 0], [0, 128, 0], [192, 128, 128]]
    """
    numbers = to_numpy(labels)
    if numbers.size == 0:
        return np.zeros((0, 3), np.uint8)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or numbers.min() < 0:
        raise ValueError(
            "fdbr.vision.drawing.label_colors: labels must be integers of at least 0, got "
            f"{describe(numbers)}"
        )
    bits = numbers[:, None, None] >> (3 * np.arange(8)[:, None] + np.arange(3)) & 1
    return (bits << np.arange(7, -1, -1)[:, None]).sum(1).astype(np.uint8)
