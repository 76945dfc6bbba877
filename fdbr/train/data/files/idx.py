"""The idx files of MNIST and its relatives.

The format is that of http://yann.lecun.com/exdb/mnist: two zero bytes, a code for the dtype,
the number of axes, the length of each as a big-endian 32-bit integer, and the elements.
"""

import math
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np

from fdbr.core.array_modules import lock
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.train.data.files.finding import content_of, find, folder_of

__all__ = ["fashion_mnist_labels", "kuzushiji_mnist_labels", "mnist", "read_idx"]

fashion_mnist_labels = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
"""The names of Fashion-MNIST's classes, by their labels."""

kuzushiji_mnist_labels = (
    *(("o", "お"), ("ki", "き"), ("su", "す"), ("tsu", "つ"), ("na", "な")),
    *(("ha", "は"), ("ma", "ま"), ("ya", "や"), ("re", "れ"), ("wo", "を")),
)
"""The names of Kuzushiji-MNIST's classes, by their labels: as they are read, and written."""

_DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


@public("fdbr.train")
def read_idx(path: str | os.PathLike[str]) -> Any:
    """The array in an idx file.

    Parameters
    ----------
    path
        The file, compressed with gzip or not; its content tells, not its name.

    Returns
    -------
    array
        Read-only, of the file's shape and dtype (uint8, int8, int16, int32, float32 or
        float64) in native byte order.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is no idx file, is truncated or has bytes left over; the message names the path
        and the sizes.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "labels")
    ...     _ = path.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9]))
    ...     read_idx(path)
    array([7, 8, 9], dtype=uint8)
    """
    content = content_of("read_idx", Path(path))
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in _DTYPES:
        raise ValueError(
            f"fdbr.train.read_idx: {path} is no idx file: it begins with {content[:4].hex(' ')!r} "
            "where 00 00, a dtype code (08, 09, 0b … 0e) and the number of axes should be"
        )
    dtype, axes = np.dtype(_DTYPES[content[2]]), content[3]
    header = 4 + 4 * axes
    if len(content) < header:
        raise ValueError(
            f"fdbr.train.read_idx: {path} is truncated: it has {len(content)} bytes, and the "
            f"header of {axes} axes alone takes {header}"
        )
    shape = struct.unpack(f">{axes}I", content[4:header])
    expected = header + math.prod(shape) * dtype.itemsize
    if len(content) != expected:
        state = "is truncated" if len(content) < expected else "has bytes left over"
        raise ValueError(
            f"fdbr.train.read_idx: {path} {state}: {dtype.newbyteorder('=')} of shape {shape} "
            f"takes {expected} bytes with the header, the file has {len(content)}"
        )
    array = np.frombuffer(content, dtype, offset=header).reshape(shape)
    return lock(array.astype(dtype.newbyteorder("=")))


@public("fdbr.train")
def mnist(directory: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The training and test examples of MNIST, or of a data set laid out like it.

    Fashion-MNIST and Kuzushiji-MNIST are; `fashion_mnist_labels` and `kuzushiji_mnist_labels` name
    their classes.

    Parameters
    ----------
    directory
        The folder with the four files ``train-images-idx3-ubyte``, ``train-labels-idx1-ubyte``,
        ``t10k-images-idx3-ubyte`` and ``t10k-labels-idx1-ubyte``, each of them with or without
        ``.gz`` (and with ``.idx`` for ``-idx``, as some write it).

    Returns
    -------
    tuple
        Two datasets ``{"image": float32[n, height * width], "label": int64[n]}``; images lie
        in [0, 1].

    Raises
    ------
    FileNotFoundError
        If a file is missing.
    ValueError
        If a file is damaged, holds something else than its name says, or has another number of
        examples than its companion.
    """
    folder = folder_of("mnist", directory)
    return _examples(folder, "train"), _examples(folder, "t10k")


def _examples(directory: Path, part: str) -> dict[str, Any]:
    image_path = _find(directory, f"{part}-images", "idx3-ubyte")
    label_path = _find(directory, f"{part}-labels", "idx1-ubyte")
    images, labels = read_idx(image_path), read_idx(label_path)
    _check(image_path, "images", images, 3)
    _check(label_path, "labels", labels, 1)
    if len(images) != len(labels):
        raise ValueError(
            f"fdbr.train.mnist: {image_path} holds {len(images)} images, but {label_path} holds "
            f"{len(labels)} labels; they do not belong together"
        )
    pixels = images.reshape(len(images), -1).astype(np.float32)
    pixels /= 255
    return {"image": lock(pixels), "label": lock(labels.astype(np.int64))}


def _check(path: Path, what: str, array: Any, axes: int) -> None:
    if array.ndim != axes or array.dtype != np.uint8:
        raise ValueError(
            f"fdbr.train.mnist: {path} should hold {what}, uint8 with {axes} axes, but holds "
            f"{describe(array)}; is it another file under the wrong name?"
        )


def _find(directory: Path, stem: str, kind: str) -> Path:
    return find("mnist", directory, [f"{stem}{d}{kind}{end}" for d in "-." for end in ("", ".gz")])
