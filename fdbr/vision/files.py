"""Images in files, in the conventions of vision."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from fdbr.core.array_modules import lock, to_numpy
from fdbr.core.devices import optional
from fdbr.core.util.atomic_write import replacing
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.train.data.files.images import decode

__all__ = ["read_image", "write_image"]

_BACKGROUNDS = {"white": 255.0, "black": 0.0}


@public("fdbr.vision")
def read_image(
    file: Any, *, color: bool = True, alpha: str = "ignore", apply_exif_orientation: bool = True
) -> Any:
    r"""Read an image file as floating numbers from 0 to 255.

    A gray value ``v`` of 16 bits becomes ``v / 257``, so all levels remain.  Pillow reads colours
    of 16 bits as their upper 8 bits.  `train.read_image` reads integers.

    Parameters
    ----------
    file
        A path, or an object that has ``read``.
    color
        Whether there are the channels red, green and blue, or one of gray.
    alpha
        What is done with transparent pixels: ``"ignore"`` takes their colours, ``"white"`` and
        ``"black"`` blend them with a background.
    apply_exif_orientation
        Whether the image is rotated and mirrored as its EXIF data say, as for `train.read_image`.

    Returns
    -------
    array
        Shape ``(3, H, W)`` or ``(1, H, W)``, float32, read-only.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is no image, or is damaged; if its numbers have no known range, as in TIFF files of
        32 bits; if ``alpha`` is something else.
    ImportError
        If Pillow is not installed (``pip install 'fdbr[vision]'``).

    >>> import io
    >>> from fdbr import vision
    >>> vision.read_image(io.BytesIO(b"P6 1 1 255 \x01\x02\x03")).ravel()
    array([1., 2., 3.], dtype=float32)
    """
    optional("vision.read_image", "PIL.Image", "vision")
    if alpha not in ("ignore", *_BACKGROUNDS):
        raise ValueError(
            f"fdbr.vision.read_image: alpha must be 'ignore', 'white' or 'black', got {alpha!r}"
        )
    mode = ("RGB" if color else "L") if alpha == "ignore" else "RGBA" if color else "LA"
    pixels = decode("vision.read_image", file, mode, None, apply_exif_orientation)
    if pixels.dtype == np.uint16:  # gray without transparency
        return lock(np.repeat(pixels / np.float32(257), 3 if color else 1, axis=0))
    pixels = pixels.astype(np.float32)
    if alpha == "ignore":
        return lock(pixels)
    opacity = pixels[-1:] / 255
    return lock(pixels[:-1] * opacity + np.float32(_BACKGROUNDS[alpha]) * (1 - opacity))


@public("fdbr.vision")
def write_image(image: Any, file: Any, format: str | None = None) -> None:
    """Write an image, or a label map, to a file.

    A file with a path is replaced as a whole: readers find the old one or the new one.

    Parameters
    ----------
    image
        Shape ``(3, H, W)`` or ``(1, H, W)``: colours from 0 to 255, which are rounded and clipped;
        or a label map of shape ``(H, W)``, integers from -1 to 254, with 255 for -1.
    file
        A path, or an object that has ``write``.
    format
        Pillow's name of the format, such as ``"png"``; by default the path's suffix says it.

    Raises
    ------
    OSError
        If the file cannot be written.
    ValueError
        If the image has another shape, or the format is not known.
    ImportError
        If Pillow is not installed (``pip install 'fdbr[vision]'``).

    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> from fdbr import vision
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "red.png")
    ...     vision.write_image(np.array([[[255]], [[0]], [[0]]], "uint8"), path)
    ...     vision.read_image(path).ravel()
    array([255.,   0.,   0.], dtype=float32)
    """
    pillow = optional("vision.write_image", "PIL.Image", "vision")
    pixels = to_numpy(image)
    label_map = pixels.ndim == 2 and pixels.dtype.kind in "iu"
    if 0 in pixels.shape or not (
        label_map or (pixels.ndim == 3 and len(pixels) in (1, 3) and pixels.dtype.kind in "fiu")
    ):
        raise ValueError(
            "fdbr.vision.write_image: image must have the shape (3, H, W) or (1, H, W), or (H, W) "
            f"for a label map of integers, got {describe(image)}"
        )
    if label_map:
        if pixels.min() < -1 or pixels.max() > 254 + (pixels.dtype.kind == "u"):
            raise ValueError(
                "fdbr.vision.write_image: labels must lie in [-1, 254], got "
                f"{pixels.min()} to {pixels.max()}"
            )
        values = np.where(pixels < 0, 255, pixels).astype(np.uint8)
    else:
        values = np.clip(np.rint(np.nan_to_num(pixels)), 0, 255).astype(np.uint8)
        values = values[0] if len(values) == 1 else values.transpose(1, 2, 0)
    picture = pillow.fromarray(values)
    if hasattr(file, "write"):
        picture.save(file, format=format or "png")
        return
    path = Path(os.fspath(file))
    pillow.init()
    found = format or pillow.EXTENSION.get(path.suffix.lower())
    if found is None or found.upper() not in {*pillow.SAVE, "JPG"}:
        raise ValueError(
            f"fdbr.vision.write_image: {str(path)!r} has no suffix of an image, such as .png; give "
            "one, or a format"
        )
    with replacing(path) as written:
        picture.save(written, format="JPEG" if found.upper() == "JPG" else found)
