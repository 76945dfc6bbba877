"""Images in files, read one by one through Pillow."""

import io
import itertools
import os
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from fdbr.core.array_modules import lock
from fdbr.core.devices import optional
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.train.data.files.archives import Member, members_of
from fdbr.train.data.sequences import View

__all__ = ["image_files", "image_folder", "read_image"]

_SUFFIXES = frozenset(".jpg .jpeg .png .bmp .gif .webp .tif .tiff .ppm .pgm .pbm".split())


@public("fdbr.train")
def read_image(file: Any, mode: str = "RGB", size: tuple[int, int] | None = None) -> Any:
    r"""An image file as an array.

    Parameters
    ----------
    file
        A path, or what has ``read``.
    mode
        Pillow's name of the channels: ``"RGB"``, ``"L"`` for gray, ``"RGBA"``, or others.
    size
        Height and width to resize it to, smoothly; JPEG files that are much larger are decoded
        at a smaller scale then, which is several times as fast.

    Returns
    -------
    array
        uint8 of shape ``(channels, height, width)``, read-only.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is no image, or is damaged.
    ImportError
        If Pillow is not installed (``pip install 'fdbr[data]'``).

    >>> import pathlib, tempfile
    >>> from fdbr import train
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "white.ppm")
    ...     _ = path.write_bytes(b"P6 2 1 255 " + 6 * b"\xff")
    ...     train.read_image(path).shape
    (3, 1, 2)
    """
    pillow = optional("train.read_image", "PIL.Image", "data")
    if not hasattr(file, "read"):
        with open(file, "rb") as opened:
            return _decoded(pillow, opened, mode, size, str(file))
    return _decoded(pillow, file, mode, size, "the file")


def _decoded(pillow: Any, file: Any, mode: str, size: Any, name: str) -> Any:
    if size is not None:
        height, width = (int(length) for length in size)
        if height < 1 or width < 1:
            raise ValueError(f"fdbr.train.read_image: size must be height and width, got {size}")
    try:
        with pillow.open(file) as image:
            if size is not None:
                image.draft(None, (2 * width, 2 * height))
            if image.mode != mode:
                image = image.convert(mode)
            if size is not None and image.size != (width, height):
                image = image.resize((width, height), pillow.Resampling.BILINEAR, reducing_gap=2.0)
            pixels = np.asarray(image)
    except (OSError, SyntaxError, ValueError, pillow.DecompressionBombError) as error:
        raise ValueError(
            f"fdbr.train.read_image: {name} is no image, or is damaged: {error}"
        ) from error
    planes = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    return lock(np.ascontiguousarray(planes))


@attrs.frozen(eq=False)
class Images(View):
    """Images in files or in an archive, read when they are asked for."""

    root: str
    names: tuple[str, ...] = attrs.field(repr=lambda names: f"{len(names)} of them")
    labels: Any = attrs.field(repr=False)
    classes: tuple[str, ...]
    members: tuple[Member, ...] | None = attrs.field(repr=False)
    mode: str
    size: tuple[int, int] | None

    def __len__(self) -> int:
        return len(self.names)

    def example(self, index: int) -> Any:
        name = self.names[index]
        path = os.path.join(self.root, name)
        try:
            file: Any = path
            if self.members is not None:
                file = io.BytesIO(self.members[index].read(self.root))
            image = read_image(file, self.mode, self.size)
        except FileNotFoundError as error:
            gone = path if self.members is None else self.root
            raise FileNotFoundError(
                f"fdbr.train: the image {gone} is not there (any more): it is example {index} of "
                "the dataset"
            ) from error
        except ValueError as error:
            raise ValueError(f"fdbr.train: the image {path} cannot be read: {error}") from error
        return image if self.labels is None else {"image": image, "label": self.labels[index]}


@public("fdbr.train")
def image_folder(
    path: str | os.PathLike[str],
    mode: str = "RGB",
    size: tuple[int, int] | None = None,
    labels: bool = True,
) -> Any:
    """The images below a folder, or in a zip archive, labelled by the folders that they lie in.

    Parameters
    ----------
    path
        A folder with a folder for each class, or a zip archive of such folders.
    mode, size
        As for `read_image`.
    labels
        Whether there are labels.  Otherwise images may lie anywhere below the folder.

    Returns
    -------
    sequence
        A dataset of ``{"image": uint8[channels, height, width], "label": int64}``, or of images
        alone, in the order of their names.  Files are read when they are asked for.  The names of
        the classes, sorted, are its ``classes``, those of the files its ``names``.

    Raises
    ------
    FileNotFoundError
        If there is no such folder or archive; when an image is asked for, if its file has
        vanished.
    ValueError
        If there is no image in it, an image lies outside of the classes' folders, or the archive
        is damaged; when an image is asked for, if it is damaged.
    """
    where = f"fdbr.train.image_folder: {path}"
    root = str(path)
    members: dict[str, Member] | None = None
    if os.path.isdir(root):
        names = [
            os.path.relpath(os.path.join(folder, name), root)
            for folder, _, files in os.walk(root, followlinks=True)
            for name in files
        ]
    else:
        try:
            members = members_of(root)
        except (zipfile.BadZipFile, ValueError, EOFError) as error:
            raise ValueError(f"{where} is no folder, and no whole zip archive: {error}") from error
        names = list(members)
    names = sorted(name for name in names if Path(name).suffix.lower() in _SUFFIXES)
    if not names:
        raise ValueError(f"{where} has no images in it")
    kept = None if members is None else tuple(members[name] for name in names)
    if not labels:
        return Images(root, tuple(names), None, (), kept, mode, size)
    folders = [Path(name).parts[:-1] for name in names]
    depth = 0 if kept is None else _depth(folders)
    if outside := [n for n, f in zip(names, folders, strict=True) if len(f) <= depth]:
        raise ValueError(
            f"{where}: {outside[0]} lies in no folder of a class; give labels=False, or name files "
            "and labels with fdbr.train.image_files"
        )
    classes = sorted({folder[depth] for folder in folders})
    numbers = np.array([classes.index(folder[depth]) for folder in folders], np.int64)
    return Images(root, tuple(names), lock(numbers), tuple(classes), kept, mode, size)


def _depth(folders: list[tuple[str, ...]]) -> int:
    """The number of an archive's own folders, around those of the classes."""
    if len(set(folders)) == 1:
        return max(0, len(folders[0]) - 1)
    levels = zip(*folders, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda level: len(set(level)) == 1, levels))


@public("fdbr.train")
def image_files(
    files: str | os.PathLike[str] | Iterable[Any],
    root: str | os.PathLike[str] = ".",
    mode: str = "RGB",
    size: tuple[int, int] | None = None,
) -> Any:
    """Images in files that a list names, with or without labels.

    Parameters
    ----------
    files
        Paths; or pairs of a path and a label; or a text file with one of these on each line, the
        label behind the last white space.
    root
        The folder to which paths are relative, or a zip archive.
    mode, size
        As for `read_image`.

    Returns
    -------
    sequence
        A dataset of images, or of ``{"image": …, "label": …}``; see `image_folder`.

    Raises
    ------
    FileNotFoundError
        If the list or the archive is not there; when an image is asked for, if its file is not.
    ValueError
        If the list is empty, some of its lines have labels and some not, or a label is no integer;
        if the archive has no such file; when an image is asked for, if it is damaged.
    """
    where = "fdbr.train.image_files"
    if isinstance(files, str | os.PathLike):
        text = Path(files).read_text(encoding="utf-8")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        entries = [_entry(line) for line in lines]
        where = f"{where}: {files}"
    else:
        try:
            entries = [entry if isinstance(entry, tuple) else (entry,) for entry in files]
        except TypeError:
            raise TypeError(
                f"{where}: files must be paths, pairs of path and label, or a text file of them, "
                f"not {describe(files)}"
            ) from None
    if not entries or len({len(entry) for entry in entries}) > 1 or len(entries[0]) > 2:
        raise ValueError(f"{where}: there must be paths, all of them with a label or none")
    try:
        names = tuple(os.fspath(entry[0]) for entry in entries)
        labels = None
        if len(entries[0]) == 2:
            labels = lock(np.array([int(entry[1]) for entry in entries], np.int64))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}; paths must be strings, and labels integers") from None
    members = None
    if os.path.isfile(root):
        members = _members(where, str(root), names)
    return Images(str(root), names, labels, (), members, mode, size)


def _entry(line: str) -> tuple[Any, ...]:
    """The path on a line, and the label where its last word is a number."""
    path, _, label = line.rpartition(" ") if " " in line else line.rpartition("\t")
    return (path.strip(), label) if path and label.lstrip("-").isdigit() else (line,)


def _members(where: str, root: str, names: Sequence[str]) -> tuple[Member, ...]:
    try:
        known = members_of(root)
    except (zipfile.BadZipFile, ValueError, EOFError) as error:
        raise ValueError(f"{where}: {root} is no whole zip archive: {error}") from error
    if missing := [name for name in names if name not in known]:
        raise ValueError(f"{where}: {root} has no {missing[0]}")
    return tuple(known[name] for name in names)
