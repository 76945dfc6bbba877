"""Masks as run lengths, in COCO's format."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fdbr.core.array_modules import to_numpy
from fdbr.errors.checks import describe
from fdbr.errors.public import public

__all__ = ["decode_rle", "encode_rle"]


@public("fdbr.vision")
def encode_rle(masks: Any, *, compressed: bool = True) -> tuple[dict[str, Any], ...]:
    """Return masks as run lengths.

    These are COCO's: the lengths of alternating runs of False and True, down the columns.
    Masks on a GPU are moved to host memory.

    Parameters
    ----------
    masks
        Shape ``(R, H, W)``, bool.
    compressed
        Whether the lengths are bytes, as pycocotools and files of results have them, instead of a
        list of integers, as annotations of crowds have them.

    Returns
    -------
    tuple of dicts
        ``{"size": [H, W], "counts": …}`` for each mask.

    Raises
    ------
    ValueError
        If ``masks`` has another shape.

    >>> import numpy as np
    >>> from fdbr import vision
    >>> mask = np.array([[[False, True], [True, True]]])
    >>> vision.encode_rle(mask, compressed=False)
    ({'size': [2, 2], 'counts': [1, 3]},)
    >>> vision.encode_rle(mask)
    ({'size': [2, 2], 'counts': b'13'},)
    """
    masks = to_numpy(masks)
    if masks.ndim != 3:
        raise ValueError(
            f"fdbr.vision.encode_rle: masks must have the shape (R, H, W), got {describe(masks)}"
        )
    _, height, width = masks.shape
    out = []
    for mask in masks:
        flat = np.concatenate([[False], (mask != 0).T.reshape(-1)])
        ends = np.flatnonzero(flat[1:] != flat[:-1])
        counts = np.diff(ends, prepend=0, append=height * width).tolist()
        packed = _pack(counts) if compressed else counts
        out.append({"size": [height, width], "counts": packed})
    return tuple(out)


@public("fdbr.vision")
def decode_rle(encoded: Sequence[dict[str, Any]]) -> np.ndarray[Any, Any]:
    """Return the masks of run lengths, the inverse of `encode_rle`.

    Parameters
    ----------
    encoded
        Dicts ``{"size": [H, W], "counts": …}`` of one size, whose counts are bytes, a string, or
        integers.

    Returns
    -------
    array
        Shape ``(R, H, W)``, bool.

    Raises
    ------
    ValueError
        If the sizes differ, or the lengths do not add up to the number of pixels; the message has
        the index of the mask.

    >>> from fdbr import vision
    >>> vision.decode_rle([{"size": [2, 2], "counts": [1, 3]}]).astype(int)
    array([[[0, 1],
            [1, 1]]])
    """
    sizes = [tuple(map(int, one["size"])) for one in encoded]
    if len(set(sizes)) > 1:
        raise ValueError(f"fdbr.vision.decode_rle: the masks have several sizes, {set(sizes)}")
    height, width = sizes[0] if sizes else (0, 0)
    out = np.zeros((len(sizes), width, height), bool)
    for i, one in enumerate(encoded):
        counts = one["counts"]
        try:
            counts = _unpack(counts) if isinstance(counts, str | bytes) else list(counts)
        except (IndexError, UnicodeError):
            raise ValueError(
                f"fdbr.vision.decode_rle: the counts of mask {i} are damaged"
            ) from None
        if sum(counts) != height * width or min(counts, default=0) < 0:
            raise ValueError(
                f"fdbr.vision.decode_rle: the runs of mask {i} have {sum(counts)} pixels, but its "
                f"size is ({height}, {width})"
            )
        out[i] = np.repeat(np.arange(len(counts)) % 2 == 1, counts).reshape(width, height)
    return out.transpose(0, 2, 1).copy()


def _pack(counts: list[int]) -> bytes:
    """Write integers in groups of five bits, from the fourth on as differences to two before."""
    out = bytearray()
    for i, count in enumerate(counts):
        value = count - counts[i - 2] if i > 2 else count
        while True:
            group, value = value & 31, value >> 5
            last = value == (-1 if group & 16 else 0)
            out.append(48 + (group if last else group | 32))
            if last:
                break
    return bytes(out)


def _unpack(text: str | bytes) -> list[int]:
    """Read what `_pack` wrote."""
    data = text.encode("ascii") if isinstance(text, str) else text
    counts: list[int] = []
    position = 0
    while position < len(data):
        value = shift = 0
        while True:
            group = data[position] - 48
            position += 1
            value |= (group & 31) << shift
            shift += 5
            if not group & 32:
                break
        if group & 16:
            value -= 1 << shift
        counts.append(value + counts[-2] if len(counts) > 2 else value)
    return counts
