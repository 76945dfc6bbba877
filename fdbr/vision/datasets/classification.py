"""Pictures with a class each: CUB-200-2011, Stanford Online Products, and folders of classes."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from fdbr.core.array_modules import lock
from fdbr.core.devices import optional
from fdbr.errors.public import public
from fdbr.train.data.files.images import image_folder
from fdbr.vision.datasets.base import (
    Examples,
    Folder,
    FromFiles,
    Layout,
    Rows,
    choice,
    lines_of,
    read_label_map,
    read_photograph,
    read_picture,
)
from fdbr.vision.datasets.labels import cub_label_names
from fdbr.vision.files import read_image

__all__ = ["cub", "label_folder", "online_products"]


def _table(function: str, path: str, columns: int) -> list[list[str]]:
    """The words of the lines of a text file, which must be as many on each."""
    rows = [line.split() for line in lines_of(function, path)]
    for i, row in enumerate(rows):
        if len(row) != columns:
            raise ValueError(
                f"{function}: {path} must have {columns} columns, but line {i + 1} has {len(row)}"
            )
    return rows


def _numbers(function: str, root: str, name: str, columns: int, rows: int) -> Any:
    """The numbers in a table, float64."""
    path = os.path.join(root, name)
    table = _table(function, path, columns)
    if len(table) != rows:
        raise ValueError(f"{function}: {path} must have {rows} rows, but has {len(table)}")
    try:
        return np.array(table, np.float64)
    except ValueError as error:
        raise ValueError(f"{function}: {path} is damaged: {error}") from None


# --- CUB-200-2011 -------------------------------------------------------------------

_CUB = Layout(
    "CUB-200-2011",
    ("CUB_200_2011",),
    "images.txt, image_class_labels.txt, train_test_split.txt, bounding_boxes.txt, "
    "parts/part_locs.txt and images/CLASS/*.jpg",
    "https://www.vision.caltech.edu/datasets/cub_200_2011/",
)
_POINTS = 15


@public("fdbr.vision.datasets")
def cub(folder: Folder, split: str = "all", segmentations: Folder | None = None) -> Any:
    """Return the birds of CUB-200-2011: classes, boxes, points, and masks if they are there.

    Parameters
    ----------
    folder
        The folder ``CUB_200_2011``, or one that holds it.
    split
        ``"all"``, ``"train"`` or ``"test"``.
    segmentations
        The folder of the second archive, ``segmentations.tgz``; by default the folder
        ``segmentations`` in or beside ``CUB_200_2011``, if there is one.

    Returns
    -------
    sequence
        Examples of one bird, with ``image`` (3, H, W); ``label``, int32; ``labels`` (1,), the same
        as the label of a box; ``boxes`` (1, 4); ``points`` (1, 15, 2) and ``visible`` (1, 15),
        False where a point is hidden or lies outside of the picture; and where there are
        segmentations ``prob_map`` (H, W), float32, the share of annotators who saw the bird at a
        pixel, and ``masks`` (1, H, W), where more than half of them did.  `cub_label_names` and
        `cub_point_names` have the names.

    Raises
    ------
    FileNotFoundError
        If the folder has no such layout; when an example is read, if its file is missing.
    ValueError
        If a table is damaged, or another has as many rows; when an example is read, if a file is
        damaged, or a box lies outside of its picture.  The message has the file and the example's
        number.

    Notes
    -----
    Wah et al., "The Caltech-UCSD Birds-200-2011 Dataset", 2011.

    >>> from fdbr import vision
    >>> def birds_with_points(folder):
    ...     return vision.datasets.select(vision.datasets.cub(folder), "image", "points", "visible")
    """
    function = "fdbr.vision.datasets.cub"
    root = _CUB.find(function, folder, "images.txt", "images")
    names = [row[1] for row in _table(function, os.path.join(root, "images.txt"), 2)]
    chosen = np.arange(len(names))
    if choice(function, "split", split, ("all", "train", "test")) != "all":
        training = _numbers(function, root, "train_test_split.txt", 2, len(names))
        chosen = np.flatnonzero(training[:, 1] == (split == "train"))
    labels = _numbers(function, root, "image_class_labels.txt", 2, len(names))[chosen, 1:]
    labels = lock(labels.astype(np.int32) - 1)
    boxes = _numbers(function, root, "bounding_boxes.txt", 5, len(names))[chosen, 1:]
    boxes[:, 2:] += boxes[:, :2]
    boxes = lock(boxes[:, None, [1, 0, 3, 2]].astype(np.float32))
    parts = _numbers(function, root, "parts/part_locs.txt", 5, _POINTS * len(names))
    parts = parts.reshape(len(names), 1, _POINTS, 5)[chosen]
    points, visible = lock(parts[..., 3:1:-1].astype(np.float32)), lock(parts[..., 4] > 0)
    names = [names[i] for i in chosen]
    pictures = tuple(f"images/{name}" for name in names)

    def rows(file: str, *columns: Any) -> Rows:
        return Rows(columns, None, os.path.join(root, file))

    readers: list[Any] = [
        (("image",), FromFiles(function, root, (pictures,), read_picture)),
        (("label", "labels"), rows("image_class_labels.txt", labels[:, 0], labels)),
        (("boxes",), rows("bounding_boxes.txt", boxes)),
        (
            ("points", "visible"),
            FromFiles(function, root, (pictures,), _in_picture, Rows((points, visible))),
        ),
    ]
    places = [segmentations] if segmentations is not None else _SEGMENTATIONS
    found = [place for place in places if Path(root, place).is_dir()]
    if segmentations is not None and not found:
        _CUB.find(function, root, os.fspath(segmentations))
    if found:
        files = tuple(os.path.splitext(name)[0] + ".png" for name in names)
        masks = FromFiles(function, os.path.join(root, found[0]), (files,), _shares)
        readers.append((("prob_map", "masks"), masks))
    return Examples(function, tuple(readers), len(names), cub_label_names)


_SEGMENTATIONS: tuple[Folder, ...] = ("segmentations", "../segmentations")


def _in_picture(path: str, points: Any, visible: Any) -> tuple[Any, Any]:
    """The points, and which of them are visible and lie in the picture."""
    pillow = optional("vision.datasets.cub", "PIL.Image", "vision")
    with pillow.open(path) as image:  # reads the header alone
        width, height = image.size
    inside = (points >= 0) & (points <= np.array([height, width]))
    return points, visible & inside.all(axis=-1)


def _shares(path: str) -> tuple[Any, Any]:
    """The share of annotators who saw a bird at each pixel, and its mask."""
    shares = (read_label_map(path) / 255).astype(np.float32)
    return shares, (shares > 0.5)[None]


# --- Stanford Online Products -------------------------------------------------------

_PRODUCTS = Layout(
    "Stanford Online Products",
    ("Stanford_Online_Products",),
    "Ebay_train.txt, Ebay_test.txt and the folders *_final with pictures",
    "https://cvgl.stanford.edu/projects/lifted_struct/",
)


@public("fdbr.vision.datasets")
def online_products(folder: Folder, split: str = "train") -> Any:
    """Return the Stanford Online Products: pictures of things for sale, for metric learning.

    Parameters
    ----------
    folder
        The folder ``Stanford_Online_Products``, or one that holds it.
    split
        ``"train"``, with the classes 0 to 11317, or ``"test"``, with 11318 to 22633.

    Returns
    -------
    sequence
        Examples with ``image`` (3, H, W), ``label`` and ``super_label``, int32;
        `online_products_super_label_names` has the names of the latter.

    Raises
    ------
    FileNotFoundError, ValueError
        As for `cub`.

    Notes
    -----
    Song et al., "Deep Metric Learning via Lifted Structured Feature Embedding", CVPR 2016.
    """
    function = "fdbr.vision.datasets.online_products"
    list_name = f"Ebay_{choice(function, 'split', split, ('train', 'test'))}.txt"
    root = _PRODUCTS.find(function, folder, list_name)
    path = os.path.join(root, list_name)
    rows = _table(function, path, 4)[1:]  # the first line names the columns
    try:
        classes = [(int(row[1]) - 1, int(row[2]) - 1) for row in rows]
    except ValueError as error:
        raise ValueError(f"{function}: {path} is damaged: {error}") from None
    columns = lock(np.array(classes, np.int32).reshape(-1, 2).T.copy())
    pictures = tuple(row[3] for row in rows)
    readers = (
        (("image",), FromFiles(function, root, (pictures,), read_photograph)),
        (("label", "super_label"), Rows(tuple(columns), None, path)),
    )
    return Examples(function, readers, len(pictures), ())


# --- folders ------------------------------------------------------------------------


@public("fdbr.vision.datasets")
def label_folder(
    folder: Folder, numerical_sort: bool = False, color: bool = True, accept: Any = None
) -> Any:
    """Return the pictures in folders that are named by their classes.

    `fdbr.train.image_folder` also reads archives and resizes, and has images of uint8.

    Parameters
    ----------
    folder
        A folder with a folder for each class.
    numerical_sort
        Whether the names of the classes are numbers, so that ``2`` comes before ``10``.
    color
        Whether images have three channels; otherwise one, of grey values.
    accept
        ``accept(path)`` tells whether a picture belongs to the data set; by default all do.

    Returns
    -------
    sequence
        Examples with ``image`` (3, H, W) or (1, H, W), and ``label``, int32, in the order of
        classes and names.  The names of the classes are its ``classes``.

    Raises
    ------
    FileNotFoundError
        If there is no such folder; when an example is read, if its file is missing.
    ValueError
        If it has no pictures, or one lies in no folder of a class; when an example is read, if its
        picture is damaged.

    >>> import pathlib, tempfile
    >>> from fdbr import vision
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("9", "10"):
    ...         pathlib.Path(folder, name).mkdir()
    ...         _ = pathlib.Path(folder, name, "a.pgm").write_bytes(b"P5 1 1 255 " + bytes([7]))
    ...     examples = vision.datasets.label_folder(folder, numerical_sort=True)
    ...     examples.classes, [int(example["label"]) for example in examples]
    (('9', '10'), [0, 1])
    """
    function = "fdbr.vision.datasets.label_folder"
    if not Path(folder).is_dir():
        raise FileNotFoundError(f"{function}: {folder} is no folder")
    images = image_folder(folder)
    classes = sorted(images.classes, key=int) if numerical_sort else list(images.classes)
    new_label = np.array([classes.index(name) for name in images.classes], np.int32)
    labels = new_label[images.labels]
    kept = [
        i
        for i in np.argsort(labels, kind="stable")
        if accept is None or accept(os.path.join(images.root, images.names[i]))
    ]
    pictures = tuple(images.names[i] for i in kept)
    read = read_photograph if color else _read_grey
    readers = (
        (("image",), FromFiles(function, images.root, (pictures,), read)),
        (("label",), Rows((lock(labels[kept]),))),
    )
    return Examples(function, readers, len(kept), tuple(classes))


def _read_grey(path: str) -> tuple[Any]:
    return (read_image(path, color=False),)
