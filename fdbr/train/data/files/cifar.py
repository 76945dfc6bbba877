"""CIFAR-10 and CIFAR-100, in the binary version and in that for Python.

https://www.cs.toronto.edu/~kriz/cifar.html.  A row of the binary version is one byte for each
label, and 3,072 bytes of red, green and blue.
"""

import os
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from fdbr.core.array_modules import lock
from fdbr.errors.public import public
from fdbr.train.data.files.finding import folder_of, from_archive
from fdbr.train.data.files.pickles import plain_data

__all__ = ["cifar10", "cifar100"]

_PIXELS = 3 * 32 * 32


@attrs.frozen
class _Layout:
    """The files of one of the data sets."""

    function: str
    training: tuple[str, ...]
    test: tuple[str, ...]
    folders: tuple[str, str]
    archives: tuple[str, str]
    labels: tuple[str, ...]
    classes: int


_TEN = _Layout(
    "cifar10",
    tuple(f"data_batch_{i}" for i in range(1, 6)),
    ("test_batch",),
    ("cifar-10-batches-py", "cifar-10-batches-bin"),
    ("cifar-10-python.tar.gz", "cifar-10-binary.tar.gz"),
    ("labels",),
    10,
)
_HUNDRED = _Layout(
    "cifar100",
    ("train",),
    ("test",),
    ("cifar-100-python", "cifar-100-binary"),
    ("cifar-100-python.tar.gz", "cifar-100-binary.tar.gz"),
    ("coarse_labels", "fine_labels"),
    100,
)


@public("fdbr.train")
def cifar10(directory: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The training and test examples of CIFAR-10.

    Parameters
    ----------
    directory
        The folder with the files of the binary version (``data_batch_1.bin`` …) or of that for
        Python (``data_batch_1`` …), or with the folder or the ``.tar.gz`` archive of either.
        Pickles are read without running them.

    Returns
    -------
    tuple
        Two datasets ``{"image": float32[n, 3, 32, 32], "label": int64[n]}``; images lie in
        [0, 1].

    Raises
    ------
    FileNotFoundError
        If a file is missing.
    ValueError
        If a file is damaged, or holds something else than its name says.
    """
    return _both(_TEN, directory)


@public("fdbr.train")
def cifar100(directory: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The training and test examples of CIFAR-100.

    Parameters
    ----------
    directory
        As for `cifar10`: the folder with ``train.bin`` and ``test.bin``, or ``train`` and
        ``test``, or the folder or the archive of either.

    Returns
    -------
    tuple
        Two datasets as those of `cifar10`, where ``"label"`` is one of the 100 classes; beside it
        ``"coarse_label"`` is one of the 20 that they belong to.

    Raises
    ------
    FileNotFoundError
        If a file is missing.
    ValueError
        If a file is damaged, or holds something else than its name says.
    """
    return _both(_HUNDRED, directory)


def _both(layout: _Layout, directory: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    names = [*layout.training, *layout.test]
    parts = [_rows(layout, path, content) for path, content in _contents(layout, directory, names)]
    split = len(layout.training)
    return _dataset(parts[:split]), _dataset(parts[split:])


def _contents(layout: _Layout, directory: Any, names: list[str]) -> list[tuple[str, bytes]]:
    """The files, whichever version of them is there."""
    folder = folder_of(layout.function, directory)
    for end, inner, archive in zip(("", ".bin"), layout.folders, layout.archives, strict=True):
        for place in (folder, folder / inner):
            paths = [place / f"{name}{end}" for name in names]
            if any(path.is_file() for path in paths):
                return [(str(path), _present(layout, path)) for path in paths]
        if (folder / archive).is_file():
            members = [f"{name}{end}" for name in names]
            contents = from_archive(layout.function, folder / archive, members)
            found = [f"{folder / archive}: {member}" for member in members]
            return list(zip(found, contents, strict=True))
    raise FileNotFoundError(
        f"fdbr.train.{layout.function}: {folder} has neither {names[0]} … nor {names[0]}.bin …, "
        f"nor {', '.join((*layout.folders, *layout.archives))}; fdbr does not download them"
    )


def _present(layout: _Layout, path: Path) -> bytes:
    if not path.is_file():
        raise FileNotFoundError(
            f"fdbr.train.{layout.function}: {path} is missing, though others of its kind are there"
        )
    return path.read_bytes()


def _rows(layout: _Layout, path: str, content: bytes) -> tuple[Any, ...]:
    """The pixels and the labels in a file."""
    where = f"fdbr.train.{layout.function}: {path}"
    if path.endswith(".bin"):
        row = len(layout.labels) + _PIXELS
        if not content or len(content) % row:
            raise ValueError(
                f"{where} has {len(content)} bytes, which is no multiple of {row}, the size of an "
                "example: it is truncated, or another file under that name"
            )
        table = np.frombuffer(content, np.uint8).reshape(-1, row)
        pixels, labels = table[:, len(layout.labels) :], table[:, : len(layout.labels)].T
    else:
        try:
            found = plain_data(content)
            pixels = np.asarray(found["data"])
            labels = np.array([found[name] for name in layout.labels])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{where} is no file of this data set, or is damaged: {error}"
            ) from error
        if (
            pixels.ndim != 2
            or pixels.shape[1] != _PIXELS
            or pixels.dtype != np.uint8
            or labels.shape != (len(layout.labels), len(pixels))
            or labels.dtype.kind not in "iu"
        ):
            raise ValueError(f"{where} does not hold images of 3 x 32 x 32 bytes with their labels")
    if labels.min() < 0 or labels[-1].max() >= layout.classes:
        raise ValueError(f"{where} has labels that are not below {layout.classes}")
    return (pixels, *labels)


def _dataset(parts: list[tuple[Any, ...]]) -> dict[str, Any]:
    pixels, *labels = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    images = pixels.reshape(-1, 3, 32, 32).astype(np.float32)
    images /= 255
    numbers = [lock(label.astype(np.int64)) for label in labels]
    dataset = {"image": lock(images), "label": numbers[-1]}
    return dataset if len(numbers) == 1 else {**dataset, "coarse_label": numbers[0]}
