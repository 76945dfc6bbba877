"""Data sets of one's own: boxes in a table, and label maps beside pictures."""

import csv
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fdbr.core.array_modules import lock
from fdbr.errors.public import public
from fdbr.vision.datasets.base import (
    Examples,
    Folder,
    FromFiles,
    LabelMap,
    Rows,
    lookup,
    read_picture,
)

__all__ = ["box_table", "map_folder"]

_COLUMNS = ("image", "label", "y_min", "x_min", "y_max", "x_max")


@public("fdbr.vision.datasets")
def box_table(
    table: Folder | Mapping[str, Sequence[Any]],
    images: Folder = ".",
    classes: Sequence[str] | None = None,
    columns: Sequence[str] = _COLUMNS,
) -> Any:
    r"""Return boxes that a table has, one on each row, for pictures in a folder.

    Parameters
    ----------
    table
        A file of CSV, whose first line names the columns; or a dict of columns, such as
        `fdbr.train.read_table` returns.  A row whose label is empty is a picture without an
        object.
    images
        The folder to which the paths of pictures are relative.
    classes
        The names of the classes; by default those in the table, sorted.
    columns
        The names of the table's columns for ``image`` (a path), ``label`` (a name), ``y_min``,
        ``x_min``, ``y_max`` and ``x_max``.

    Returns
    -------
    sequence
        Examples with ``image`` (3, H, W), ``boxes`` (R, 4) and ``labels`` (R,), one for each
        picture, in the order of the table.  The names of the classes are its ``classes``.

    Raises
    ------
    FileNotFoundError
        If there is no such table; when an example is read, if its picture is missing.
    ValueError
        If the table is empty or has no such column, a number is none, or a label is not among
        ``classes``; when an example is read, if its picture is damaged, or a box lies outside of
        it.

    >>> import pathlib, tempfile
    >>> from fdbr import vision
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "boxes.csv")
    ...     _ = path.write_text("image,label,y_min,x_min,y_max,x_max\na.jpg,cat,0,1,5,6\n")
    ...     cats = vision.datasets.box_table(path, images=folder)
    >>> cats.classes, vision.datasets.select(cats, "boxes")[0]["boxes"]
    (('cat',), array([[0., 1., 5., 6.]], dtype=float32))
    """
    function = "fdbr.vision.datasets.box_table"
    path = "" if isinstance(table, Mapping) else os.fspath(table)
    where = f"{function}: {path or 'the table'}"
    rows = _rows(where, table, columns)
    labels = [str(row[1]).strip() for row in rows]
    names = sorted(set(labels) - {""}) if classes is None else list(classes)
    numbers = []
    for i, (row, label) in enumerate(zip(rows, labels, strict=True)):
        if label and label not in names:
            raise ValueError(f"{where}: row {i} has the label {label!r}, not one of {names}")
        try:
            numbers.append([float(value) for value in row[2:]] if label else [0.0] * 4)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{where}: row {i} has no box: {error}") from None
    pictures = list(dict.fromkeys(os.fspath(row[0]) for row in rows))
    position = {name: i for i, name in enumerate(pictures)}
    owners = np.array([position[os.fspath(row[0])] for row in rows])
    kept = np.flatnonzero([bool(label) for label in labels])
    order = kept[np.argsort(owners[kept], kind="stable")]
    bounds = np.searchsorted(owners[order], np.arange(len(pictures) + 1))
    boxes = np.array(numbers, np.float32)[order]
    found = np.array([names.index(labels[i]) for i in order], np.int32)
    files = FromFiles(function, os.fspath(images), (tuple(pictures),), read_picture)
    rows_of = Rows((lock(boxes), lock(found)), lock(bounds), path)
    readers = (("image",), files), (("boxes", "labels"), rows_of)
    return Examples(function, readers, len(pictures), tuple(names))


def _rows(where: str, table: Any, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """The values of six columns of a table, by row."""
    if len(columns) != len(_COLUMNS):
        raise ValueError(
            f"{where}: columns must be the names for {', '.join(_COLUMNS)}, got {columns}"
        )
    if isinstance(table, Mapping):
        listed = {name: list(table[name]) for name in columns if name in table}
        known = list(table)
    else:
        with open(table, encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            lines = list(reader)
        known = list(reader.fieldnames or ())
        listed = {name: [line[name] for line in lines] for name in columns if name in known}
    if missing := [name for name in columns if name not in listed]:
        raise ValueError(f"{where} has no column {missing[0]!r}, but {known}; give columns=")
    rows = list(zip(*(listed[name] for name in columns), strict=True))
    if not rows:
        raise ValueError(f"{where} has no rows")
    return [tuple("" if value is None else value for value in row) for row in rows]


@public("fdbr.vision.datasets")
def map_folder(
    images: Folder, maps: Folder, classes: Sequence[str], ignored: Sequence[int] = (255,)
) -> Any:
    """Return label maps in a folder, beside the pictures of another one that have their names.

    Parameters
    ----------
    images
        The folder of pictures, ``NAME.jpg``, ``.jpeg`` or ``.png``.
    maps
        The folder of label maps, ``NAME.png``, whose pixels are numbers of classes; see
        `read_label_map`.
    classes
        The names of the classes, from number 0 on.
    ignored
        The numbers of pixels whose class is unknown.

    Returns
    -------
    sequence
        Examples with ``image`` (3, H, W) and ``label_map`` (H, W), -1 where the class is unknown,
        in the order of their names.

    Raises
    ------
    FileNotFoundError
        If there is no such folder, or a map has no picture; when an example is read, if its file
        is missing.
    ValueError
        If there is no map; when an example is read, if a file is damaged, a map has another size
        than its picture, or a pixel that belongs to no class.

    >>> from fdbr import vision
    >>> def own_data(folder):
    ...     names = ("background", "road")
    ...     return vision.datasets.map_folder(folder + "/photos", folder + "/maps", names)
    """
    function = "fdbr.vision.datasets.map_folder"
    for folder in (images, maps):
        if not Path(folder).is_dir():
            raise FileNotFoundError(f"{function}: {folder} is no folder")
    names = sorted(path.stem for path in Path(maps).glob("*.png"))
    if not names:
        raise ValueError(f"{function}: {maps} has no files *.png")
    endings = (".jpg", ".jpeg", ".png")
    beside = {p.stem: p.name for p in sorted(Path(images).iterdir()) if p.suffix.lower() in endings}
    if missing := [name for name in names if name not in beside]:
        raise FileNotFoundError(f"{function}: {images} has no picture for {missing[0]}.png")
    pictures = tuple(beside[name] for name in names)
    listed = tuple(f"{name}.png" for name in names)
    parse = LabelMap(lookup(range(len(classes)), ignored))
    readers = (
        (("image",), FromFiles(function, os.fspath(images), (pictures,), read_picture)),
        (("label_map",), FromFiles(function, os.fspath(maps), (listed,), parse)),
    )
    return Examples(function, readers, len(names), tuple(classes))
