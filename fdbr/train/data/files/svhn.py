"""SVHN: house numbers in the format with cropped digits."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from fdbr.core.array_modules import lock
from fdbr.core.devices import scipy_of
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.train.data.files.finding import find, folder_of

__all__ = ["svhn"]


@public("fdbr.train")
def svhn(directory: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The training and test examples of SVHN, cropped digits.

    Parameters
    ----------
    directory
        The folder with ``train_32x32.mat`` and ``test_32x32.mat``
        (http://ufldl.stanford.edu/housenumbers).

    Returns
    -------
    tuple
        Two datasets ``{"image": float32[n, 3, 32, 32], "label": int64[n]}``; images lie in
        [0, 1], and labels are the digits (the files have 10 for 0).

    Raises
    ------
    FileNotFoundError
        If a file is missing.
    ValueError
        If a file is damaged, or holds something else.
    """
    folder = folder_of("svhn", directory)
    training, test = (
        _examples(find("svhn", folder, [f"{part}_32x32.mat"])) for part in ("train", "test")
    )
    return training, test


def _examples(path: Path) -> dict[str, Any]:
    where = f"fdbr.train.svhn: {path}"
    try:
        found = scipy_of(np, "io").loadmat(path, variable_names=["X", "y"])
    except Exception as error:  # SciPy's reader raises whatever it comes upon
        raise ValueError(f"{where} is no MATLAB file, or is truncated: {error}") from error
    images, labels = found.get("X"), found.get("y")
    shape: tuple[int, ...] = getattr(images, "shape", ())
    if shape[:3] != (32, 32, 3) or len(shape) != 4 or images.dtype != np.uint8:
        raise ValueError(f"{where} should hold X, uint8[32,32,3,n], but holds {describe(images)}")
    if getattr(labels, "size", 0) != shape[3] or labels.min() < 1 or labels.max() > 10:
        raise ValueError(f"{where} should hold y, {shape[3]} labels from 1 to 10")
    pixels = np.ascontiguousarray(images.transpose(3, 2, 0, 1)).astype(np.float32)
    pixels /= 255
    return {"image": lock(pixels), "label": lock(labels.reshape(-1).astype(np.int64) % 10)}
