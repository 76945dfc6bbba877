"""Examples in files: one class for all data sets, and the readers that they are made of.

A data set is an `Examples`: a table that says which fields of an example which reader reads.  A
reader is a function of the example's number that can go to other processes: `FromFiles` for what
an example has in files of its own, `Rows` for what an index has told about all examples.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from fdbr.core.array_modules import lock
from fdbr.core.devices import optional
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.train.data.files.images import load
from fdbr.train.data.sequences import View
from fdbr.vision.boxes.masks import masks_to_boxes
from fdbr.vision.files import read_image

__all__ = [
    "Examples",
    "Folder",
    "FromFiles",
    "LabelMap",
    "Layout",
    "Rows",
    "choice",
    "examples_of",
    "instances_of",
    "lines_of",
    "lookup",
    "read_label_map",
    "read_photograph",
    "read_picture",
]

Fields = tuple[str, ...]
Folder = str | os.PathLike[str]
Reader = Callable[[int], tuple[Any, ...]]

_SLACK = 1
"""How many pixels a box may lie outside of its picture: publishers count and round differently."""


@attrs.frozen(eq=False)
class Examples(View):
    """A data set of dicts whose fields are read when an example is asked for.

    Attributes
    ----------
    function
        The public function that made it, for the messages of errors.
    readers
        Pairs of the names of fields and the reader that returns their values.
    count
        How many examples there are.
    fields
        The fields of an example.
    classes
        The names of the classes, by their labels; empty if they have none.
    """

    function: str
    readers: tuple[tuple[Fields, Reader], ...] = attrs.field(repr=False)
    count: int
    classes: tuple[str, ...] = attrs.field(repr=lambda names: f"{len(names)} names")
    fields: Fields = attrs.field()

    @fields.default
    def _all_fields(self) -> Fields:
        return tuple(name for names, _ in self.readers for name in names)

    def __len__(self) -> int:
        return self.count

    def example(self, index: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for names, read in self.readers:
            if not set(names).isdisjoint(self.fields):
                values.update(zip(names, read(index), strict=True))
        example = {name: values[name] for name in self.fields}
        if wrong := _inconsistency(example, len(self.classes)):
            raise ValueError(f"{self.function}: {self._described(index)}: {wrong}")
        return example

    def _described(self, index: int) -> str:
        """An example and its files, for the message of an error."""
        files = [f for _, read in self.readers for f in getattr(read, "paths", _no_paths)(index)]
        return f"example {index}" + (f" ({', '.join(files)})" if files else "")

    def select(self, fields: Fields) -> "Examples":
        """The same examples with some of their fields; no file of the others is read."""
        known = self.fields
        if unknown := [name for name in fields if name not in known]:
            raise KeyError(
                f"fdbr.vision.datasets.select: the examples of {self.function} have no "
                f"{unknown[0]!r}, but {', '.join(known)}"
            )
        return attrs.evolve(self, fields=fields)


def _no_paths(_: int) -> tuple[str, ...]:
    return ()


# --- readers ------------------------------------------------------------------------


@attrs.frozen(eq=False)
class FromFiles:
    """A reader of what an example has in files of its own.

    Attributes
    ----------
    function
        The public function that made the data set, for the messages of errors.
    root
        The folder to which the files are relative.
    files
        For each argument of ``parse`` the names of all examples' files.
    parse
        Returns the values of the fields from the paths of an example's files, and from what
        ``given`` has of it.
    given
        A reader of further arguments of ``parse``.
    """

    function: str
    root: str
    files: tuple[Sequence[str], ...] = attrs.field(repr=False)
    parse: Callable[..., tuple[Any, ...]]
    given: Reader | None = None

    def paths(self, index: int) -> tuple[str, ...]:
        return tuple(os.path.join(self.root, names[index]) for names in self.files)

    def __call__(self, index: int) -> tuple[Any, ...]:
        paths = self.paths(index)
        given = () if self.given is None else self.given(index)
        try:
            return tuple(lock(value) for value in self.parse(*paths, *given))
        except (ImportError, MemoryError):
            raise
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"{self.function}: {error.filename or paths[0]} is missing; example {index} "
                "needs it"
            ) from error
        except Exception as error:  # damaged files raise all types of exceptions
            raise ValueError(
                f"{self.function}: example {index} ({', '.join(paths)}) is damaged: {error}"
            ) from error


def examples_of(
    function: str,
    root: str,
    names: Sequence[str],
    classes: Sequence[str],
    fields: Mapping[Any, tuple[Any, ...]],
) -> Examples:
    """A data set of files that have an example's name.

    ``fields`` has for some fields their parser, and for each of its arguments the folder and the
    suffix of the files.
    """
    readers = []
    for keys, (parse, *places) in fields.items():
        files = tuple(tuple(os.path.join(at, name + end) for name in names) for at, end in places)
        readers.append((keys, FromFiles(function, root, files, parse)))
    return Examples(function, tuple(readers), len(names), tuple(classes))


@attrs.frozen(eq=False)
class Rows:
    """A reader of rows of columns; ``bounds`` has the first row of each example and the end.

    Without ``bounds`` each example has one row, which has one axis less than the column.
    """

    columns: tuple[Any, ...] = attrs.field(repr=False)
    bounds: Any = attrs.field(default=None, repr=False)
    path: str = ""

    def paths(self, index: int) -> tuple[str, ...]:
        return (self.path,) if self.path else ()

    def __call__(self, index: int) -> tuple[Any, ...]:
        if self.bounds is None:
            return tuple(column[index] for column in self.columns)
        begin, end = self.bounds[index : index + 2].tolist()
        return tuple(column[begin:end] for column in self.columns)


@attrs.frozen(eq=False)
class LabelMap:
    """A parser of label maps: it looks pixels up in the table that `lookup` makes."""

    table: Any = attrs.field(repr=False)

    def __call__(self, path: str) -> tuple[Any]:
        values = read_label_map(path)
        if values.size and not 0 <= values.min() <= values.max() < len(self.table):
            raise ValueError(f"it has the pixel values {values.min()} to {values.max()}")
        labels = self.table[values]
        if (labels == _NO_CLASS).any():
            wrong = values[labels == _NO_CLASS][0]
            raise ValueError(f"its pixel value {wrong} belongs to no class")
        return (labels,)


_NO_CLASS = -2


def lookup(ids: Sequence[int], ignored: Sequence[int] = ()) -> Any:
    """Return the labels of pixel values: the position in ``ids``, -1 for those ignored.

    >>> lookup([1, 2], ignored=[0])[:4]
    array([-1,  0,  1, -2], dtype=int32)
    """
    table = np.full(max(256, *ids, *ignored) + 1, _NO_CLASS, np.int32)
    table[list(ids)] = np.arange(len(ids))
    table[list(ignored)] = -1
    return lock(table)


def read_picture(path: str) -> tuple[Any]:
    """Return a picture as the field ``image``: red, green and blue, float32 from 0 to 255.

    The pixels have the order of the file: boxes, points and maps refer to it.
    """
    return (read_image(path, apply_exif_orientation=False),)


def read_photograph(path: str) -> tuple[Any]:
    """Return a picture without annotations of its pixels, rotated as its EXIF data say."""
    return (read_image(path),)


@public("fdbr.vision.datasets")
def read_label_map(path: Any) -> Any:
    """Return the numbers in a picture of one channel, such as the class of each pixel.

    The pixels have the order of the file: a label map and its picture are not rotated as EXIF data
    say.

    Parameters
    ----------
    path
        A file that Pillow reads: PNG with a palette, whose colours are not used, or with grey
        values of 1, 8, 16 or 32 bits; or an object that has ``read``.

    Returns
    -------
    array
        Shape ``(H, W)``, int32.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is damaged, or has colours and no palette.
    ImportError
        If Pillow is not installed (``pip install 'fdbr[vision]'``).

    >>> import pathlib, tempfile
    >>> from fdbr import vision
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "labels.pgm")
    ...     _ = path.write_bytes(b"P5 3 1 255 " + bytes([0, 1, 255]))
    ...     vision.datasets.read_label_map(path)
    array([[  0,   1, 255]], dtype=int32)
    """
    optional("vision.datasets.read_label_map", "PIL.Image", "vision")
    image, _ = load("vision.datasets.read_label_map", path, apply_exif_orientation=False)
    if image.mode not in _ONE_CHANNEL:
        raise ValueError(
            f"{path} has channels of colour ({image.mode}), where a label map has one number for "
            "each pixel"
        )
    return np.asarray(image).astype(np.int32)


_ONE_CHANNEL = ("1", "P", "L", "I", "I;16", "I;16B", "I;16L")


# --- objects ------------------------------------------------------------------------


def instances_of(label_map: Any, object_map: Any) -> tuple[Any, Any, Any]:
    """Return the boxes, labels and masks of the objects that a map numbers from 1.

    An object's class is the one of most of its pixels in the map of classes, in which 0 is no
    object and 255, as in the map of objects, is unknown.
    """
    if label_map.shape != object_map.shape:
        raise ValueError(
            f"the map of classes has the shape {label_map.shape}, that of objects "
            f"{object_map.shape}"
        )
    numbers = np.unique(object_map)
    numbers = numbers[(numbers != 0) & (numbers != 255)]
    masks = object_map == numbers[:, None, None]
    labels = [np.bincount(label_map[mask]).argmax() for mask in masks]
    for number, label in zip(numbers, labels, strict=True):
        if label in (0, 255):
            raise ValueError(f"the map of classes has no class for object {number}")
    return masks_to_boxes(masks), np.array(labels, np.int32) - 1, masks


def _inconsistency(example: Mapping[str, Any], classes: int) -> str:
    """Describe the first contradiction in an example; return an empty string if there is none."""
    sizes = {
        name: example[name].shape[-2:]
        for name in ("image", "masks", "label_map", "segment_map")
        if name in example
    }
    if len(set(sizes.values())) > 1:
        return "its pictures differ in size: " + ", ".join(
            f"{name} is {height} pixels high and {width} wide"
            for name, (height, width) in sizes.items()
        )
    labels = np.atleast_1d(example.get("labels", example.get("label", 0)))
    if classes and (wrong := labels[(labels < 0) | (labels >= classes)]).size:
        return f"the label {wrong[0]} is none of the {classes} classes from 0 on"
    boxes = example.get("boxes")
    if boxes is None or not boxes.size:
        return ""
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        return f"boxes must have the shape (R, 4), got {describe(boxes)}"
    good = (boxes[:, :2] <= boxes[:, 2:]).all(axis=1) & np.isfinite(boxes).all(axis=1)
    if not good.all():
        return (
            f"box {np.flatnonzero(~good)[0]} is {boxes[~good][0].tolist()}, but y_min <= y_max and "
            "x_min <= x_max must hold"
        )
    for height, width in sizes.values():
        limits = np.array([height, width, height, width]) + _SLACK
        if not (good := ((boxes >= -_SLACK) & (boxes <= limits)).all(axis=1)).all():
            return (
                f"box {np.flatnonzero(~good)[0]} is {boxes[~good][0].tolist()}, outside of its "
                f"picture, {height} pixels high and {width} wide"
            )
    return ""


# --- folders ------------------------------------------------------------------------


@attrs.frozen
class Layout:
    """The folders in which a data set has its files.

    Attributes
    ----------
    name
        The data set's name.
    parents
        Folders of the publisher's archive, relative to a folder in which it was unpacked.
    tree
        What the folder must hold, for the message of an error.
    source
        Where to get it.
    """

    name: str
    parents: tuple[str, ...]
    tree: str
    source: str

    def find(self, function: str, folder: str | os.PathLike[str], *needed: str) -> str:
        """Return the folder that has the files or folders that are needed."""
        base = Path(folder)
        for parent in ("", *self.parents):
            if all((base / parent / name).exists() for name in needed):
                return str(base / parent)
        missing = next((n for n in needed if not (base / n).exists()), needed[0])
        state = f"has no {missing}" if base.is_dir() else "is no folder"
        below = f" (nor have {', '.join(self.parents)} in it)" if self.parents else ""
        raise FileNotFoundError(
            f"{function}: {base} {state}{below}.  The folder of {self.name} holds {self.tree}; "
            f"fdbr downloads nothing, get it from {self.source}"
        )


def lines_of(function: str, path: str) -> list[str]:
    """Return the lines of a list in a file that are not empty."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        beside = sorted(file.stem for file in Path(path).parent.glob("*.txt"))
        raise FileNotFoundError(
            f"{function}: {path} is missing; the lists beside it are {', '.join(beside) or 'none'}"
        ) from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{function}: {path} is damaged: {error}") from error
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise ValueError(f"{function}: {path} is empty")
    return lines


def choice(function: str, name: str, value: Any, allowed: Sequence[Any]) -> Any:
    """Return a value if it is one of those allowed."""
    if value not in allowed:
        raise ValueError(
            f"{function}: {name} must be one of {', '.join(map(repr, allowed))}, got {value!r}"
        )
    return value
