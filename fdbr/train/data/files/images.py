"""Images in files, read one by one through Pillow."""

import contextlib
import io
import itertools
import os
import struct
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
def read_image(
    file: Any,
    mode: str = "RGB",
    size: tuple[int, int] | None = None,
    *,
    apply_exif_orientation: bool = True,
) -> Any:
    r"""Read an image file as an array.

    Modes of 8 bits have values from 0 to 255, and ``"I;16"`` has values from 0 to 65535.  An image
    of another depth is scaled to that range: a gray value ``v`` of 16 bits becomes ``v // 256`` in
    8 bits.  Pillow reads colours of 16 bits in the same way.

    Parameters
    ----------
    file
        A path, or an object with a method ``read``.
    mode
        Pillow's name of the channels: ``"RGB"``, ``"L"`` for gray, ``"RGBA"``, ``"I;16"`` for gray
        of 16 bits, or others.  ``"I"`` and ``"F"`` give the numbers in the file unscaled, as int32
        or float32.
    size
        Height and width to resize it to, smoothly; JPEG files that are much larger are decoded
        at a smaller scale then, which is several times as fast.
    apply_exif_orientation
        Whether the image is rotated and mirrored as its EXIF data say, as viewers show it.
        Otherwise the pixels have the order of the file.  Boxes and masks usually refer to that
        order.

    Returns
    -------
    array
        Shape ``(channels, height, width)``, read-only.  The dtype is uint8, or uint16, int32,
        float32 and bool in the modes ``"I;16"``, ``"I"``, ``"F"`` and ``"1"``.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is no image, or is damaged; if its numbers have no known range, as in TIFF files of
        32 bits, and ``mode`` is neither ``"I"`` nor ``"F"``.
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
    pixels = decode("train.read_image", file, mode, size, apply_exif_orientation)
    if pixels.dtype == np.uint16 and mode != "I;16":
        pillow = optional("train.read_image", "PIL.Image", "data")
        gray = pillow.fromarray((pixels[0] >> 8).astype(np.uint8))
        pixels = _planes(gray.convert(mode))
    return lock(pixels)


def decode(
    function: str, file: Any, mode: str, size: Any = None, apply_exif_orientation: bool = True
) -> Any:
    """Return the channels of an image file; an image of 16-bit gray has one channel of uint16."""
    pillow = optional(function, "PIL.Image", "data")
    if size is not None and min(size := tuple(int(length) for length in size)) < 1:
        raise ValueError(f"fdbr.{function}: size must be height and width, got {size}")
    image, largest = load(function, file, apply_exif_orientation, size)
    name = name_of(file)
    wide = largest > 255 and mode not in ("I", "F")
    if not wide and image.mode in ("I", "F") and mode not in (image.mode, "F"):
        raise ValueError(
            f"fdbr.{function}: {name} has numbers of mode {image.mode}, which have no known range "
            f"of colours; fdbr.train.read_image with mode={image.mode!r} reads them unscaled"
        )
    sixteen = mode.startswith("I;16")
    try:
        image = image.convert("I" if wide else "L" if sixteen else mode)
    except ValueError as error:
        raise ValueError(
            f"fdbr.{function}: {name} cannot be read in the mode {mode!r}: {error}"
        ) from error
    if size is not None and image.size != size[::-1]:
        image = image.resize(size[::-1], pillow.Resampling.BILINEAR, reducing_gap=2.0)
    planes = _planes(image)
    if wide or sixteen:
        planes = (planes * (65535 / (largest if wide else 255))).round().astype(np.uint16)
    return planes


def load(
    function: str, file: Any, apply_exif_orientation: bool, size: tuple[int, int] | None = None
) -> tuple[Any, int]:
    """Return an image of Pillow in memory, and the greatest number of an image of gray.

    JPEG files are decoded at a smaller scale, of at least twice ``size``.
    """
    pillow = optional(function, "PIL.Image", "data")
    with contextlib.nullcontext(file) if hasattr(file, "read") else open(file, "rb") as opened:
        try:
            image = pillow.open(opened)
            stored = _orientation(image)
            if size is not None:
                height, width = size[::-1] if apply_exif_orientation and stored > 4 else size
                image.draft(None, (2 * width, 2 * height))
            largest = _largest(image)
            unsigned = image.format == "TIFF" and image.tag_v2.get(339, (1,))[0] == 1
            image.load()
            # Pillow rotates TIFF, and no other format, while it loads the pixels.
            rotation = _orientation(image)
            if not apply_exif_orientation:
                rotation = {6: 8, 8: 6}.get(stored, stored) if rotation != stored else 1
            if rotation > 1:
                image = image.transpose(pillow.Transpose[_TRANSPOSITIONS[rotation - 2]])
        except (OSError, SyntaxError, ValueError, pillow.DecompressionBombError) as error:
            raise ValueError(
                f"fdbr.{function}: {name_of(file)} is no image, or is damaged: {error}"
            ) from error
    # Pillow's mode I is int32 and has no sign for the greatest numbers of uint32.
    if image.mode == "I" and unsigned and image.getextrema()[0] < 0:
        raise ValueError(
            f"fdbr.{function}: {name_of(file)} has numbers of {2**31} and more, which Pillow does "
            "not read"
        )
    return image, largest


def name_of(file: Any) -> str:
    """The name of a file in a message."""
    return "the file" if hasattr(file, "read") else str(file)


def _largest(image: Any) -> int:
    """The greatest number of a gray image that is not loaded, 255 where 32 bits have no range."""
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):
        return 4095 if any("I;12" in str(tile[3]) for tile in image.tile) else 65535
    return 255


# The names of Pillow's methods for the orientations 2 to 8 of EXIF.
_TRANSPOSITIONS = (
    "FLIP_LEFT_RIGHT ROTATE_180 FLIP_TOP_BOTTOM TRANSPOSE ROTATE_270 TRANSVERSE ROTATE_90".split()
)


def _orientation(image: Any) -> int:
    """The orientation of EXIF, from 1 to 8; 1 if it is missing or damaged, as in viewers."""
    try:
        value = image.getexif().get(274, 1)
    except (OSError, SyntaxError, ValueError, TypeError, KeyError, struct.error):
        return 1
    return value if value in range(1, 9) else 1


def _planes(image: Any) -> Any:
    pixels = np.asarray(image)
    planes = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    return np.ascontiguousarray(planes)


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
    upright: bool

    def __len__(self) -> int:
        return len(self.names)

    def example(self, index: int) -> Any:
        name = self.names[index]
        path = os.path.join(self.root, name)
        try:
            file: Any = path
            if self.members is not None:
                file = io.BytesIO(self.members[index].read(self.root))
            image = read_image(file, self.mode, self.size, apply_exif_orientation=self.upright)
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
    *,
    apply_exif_orientation: bool = True,
) -> Any:
    """The images below a folder, or in a zip archive, labelled by the folders that they lie in.

    Parameters
    ----------
    path
        A folder with a folder for each class, or a zip archive of such folders.
    mode, size, apply_exif_orientation
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
        return Images(root, tuple(names), None, (), kept, mode, size, apply_exif_orientation)
    folders = [Path(name).parts[:-1] for name in names]
    depth = 0 if kept is None else _depth(folders)
    if outside := [n for n, f in zip(names, folders, strict=True) if len(f) <= depth]:
        raise ValueError(
            f"{where}: {outside[0]} lies in no folder of a class; give labels=False, or name files "
            "and labels with fdbr.train.image_files"
        )
    classes = sorted({folder[depth] for folder in folders})
    numbers = np.array([classes.index(folder[depth]) for folder in folders], np.int64)
    return Images(
        root, tuple(names), lock(numbers), tuple(classes), kept, mode, size, apply_exif_orientation
    )


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
    *,
    apply_exif_orientation: bool = True,
) -> Any:
    """Images in files that a list names, with or without labels.

    Parameters
    ----------
    files
        Paths; or pairs of a path and a label; or a text file with one of these on each line, the
        label behind the last white space.
    root
        The folder to which paths are relative, or a zip archive.
    mode, size, apply_exif_orientation
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
    return Images(str(root), names, labels, (), members, mode, size, apply_exif_orientation)


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
