"""PASCAL VOC and the Semantic Boundaries Dataset (SBD), which share their classes."""

import functools
import os
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import scipy.io

from fdbr.errors.public import public
from fdbr.vision.datasets.base import (
    Folder,
    LabelMap,
    Layout,
    examples_of,
    instances_of,
    lines_of,
    lookup,
    read_label_map,
    read_picture,
)
from fdbr.vision.datasets.labels import voc_label_names, voc_segmentation_label_names

__all__ = ["sbd_instances", "voc_boxes", "voc_instances", "voc_segmentation"]


def _layout(year: str) -> Layout:
    return Layout(
        f"PASCAL VOC {year}",
        (f"VOC{year}", f"VOCdevkit/VOC{year}"),
        "JPEGImages/ID.jpg and ImageSets, with Annotations/ID.xml for boxes, "
        "ImageSets/Segmentation, SegmentationClass/ID.png and SegmentationObject/ID.png for maps",
        f"http://host.robots.ox.ac.uk/pascal/VOC/voc{year}/",
    )


def _voc(function: str, folder: Folder, split: str, year: str, lists: str) -> tuple[str, list[str]]:
    """The root of a year's files, and the names of the examples of a split."""
    root = _layout(year).find(function, folder, "JPEGImages", f"ImageSets/{lists}")
    path = os.path.join(root, "ImageSets", lists, f"{split}.txt")
    names = lines_of(function, path)
    for i, name in enumerate(names):
        if len(name.split()) > 1:
            raise ValueError(
                f"{function}: {path} must have the name of an example on each line, but line "
                f"{i + 1} is {name!r}"
            )
    return root, names


@public("fdbr.vision.datasets")
def voc_boxes(
    folder: Folder,
    split: str = "train",
    year: str = "2012",
    use_difficult: bool = False,
    classes: tuple[str, ...] = voc_label_names,
) -> Any:
    """Return the boxes of PASCAL VOC, or of a data set in its layout.

    Parameters
    ----------
    folder
        The folder with ``JPEGImages``, ``Annotations`` and ``ImageSets/Main``; or one that holds it
        as ``VOC2012`` or ``VOCdevkit/VOC2012``.
    split
        ``"train"``, ``"val"``, ``"trainval"``, or ``"test"`` where its files are (2007): a list
        ``ImageSets/Main/{split}.txt``.
    year
        ``"2007"`` or ``"2012"``, or another one of a folder ``VOC{year}``.
    use_difficult
        Whether to keep the objects that are marked as difficult.
    classes
        The names of the classes, for another data set in this layout; upper and lower case do
        not differ.

    Returns
    -------
    sequence
        Examples with ``image`` (3, H, W), ``boxes`` (R, 4), ``labels`` (R,) and ``difficult``
        (R,), bool.  Files count pixels from 1, boxes from 0: all four numbers are the file's
        less 1.

    Raises
    ------
    FileNotFoundError
        If the folder has no such layout or list; when an example is read, if its file is missing.
    ValueError
        If the list is empty; when an example is read, if a file is damaged, or has a class without
        a name or a box outside of the picture.  The message has the file and the example's number.

    Notes
    -----
    Everingham et al., "The PASCAL Visual Object Classes (VOC) Challenge", IJCV 2010.

    >>> from fdbr import train, vision
    >>> def training_batches(folder, key):
    ...     examples = vision.datasets.voc_boxes(folder, "trainval", "2007")
    ...     return train.Batches(examples, 8, key, collate=vision.datasets.collate)
    """
    function = "fdbr.vision.datasets.voc_boxes"
    root, names = _voc(function, folder, split, year, "Main")
    parse = functools.partial(_objects, tuple(c.lower() for c in classes), use_difficult)
    boxes = {("boxes", "labels", "difficult"): (parse, ("Annotations", ".xml"))}
    return examples_of(function, root, names, classes, _PICTURES | boxes)


_PICTURES: dict[Any, Any] = {("image",): (read_picture, ("JPEGImages", ".jpg"))}


def _objects(classes: tuple[str, ...], use_difficult: bool, path: str) -> tuple[Any, ...]:
    """The boxes, labels and marks of the objects in a file of annotations."""
    boxes, labels, marks = [], [], []
    for number, node in enumerate(ElementTree.parse(path).getroot().findall("object")):
        difficult = int(node.findtext("difficult") or 0) != 0
        if difficult and not use_difficult:
            continue
        name = _text(node, "name", number).strip().lower()
        if name not in classes:
            raise ValueError(f"object {number} is of the class {name!r}, which has no label")
        edges = ("ymin", "xmin", "ymax", "xmax")
        boxes.append([float(_text(node, f"bndbox/{edge}", number)) - 1 for edge in edges])
        labels.append(classes.index(name))
        marks.append(difficult)
    return (
        np.array(boxes, np.float32).reshape(-1, 4),
        np.array(labels, np.int32),
        np.array(marks, bool),
    )


def _text(node: Any, tag: str, number: int) -> str:
    text = node.findtext(tag)
    if text is None:
        raise ValueError(f"object {number} has no <{tag.replace('/', '><')}>")
    return str(text)


@public("fdbr.vision.datasets")
def voc_segmentation(folder: Folder, split: str = "train", year: str = "2012") -> Any:
    """Return the label maps of PASCAL VOC.

    Parameters
    ----------
    folder, split, year
        As for `voc_boxes`; the lists are in ``ImageSets/Segmentation``, the maps in
        ``SegmentationClass``.

    Returns
    -------
    sequence
        Examples with ``image`` (3, H, W) and ``label_map`` (H, W): 0 is the background, -1 is
        unknown; `voc_segmentation_label_names` has the names.

    Raises
    ------
    FileNotFoundError, ValueError
        As for `voc_boxes`.
    """
    function = "fdbr.vision.datasets.voc_segmentation"
    root, names = _voc(function, folder, split, year, "Segmentation")
    parse = LabelMap(lookup(range(21), ignored=[255]))
    maps = {("label_map",): (parse, ("SegmentationClass", ".png"))}
    return examples_of(function, root, names, voc_segmentation_label_names, _PICTURES | maps)


@public("fdbr.vision.datasets")
def voc_instances(folder: Folder, split: str = "train", year: str = "2012") -> Any:
    """Return the objects of PASCAL VOC with their masks.

    Parameters
    ----------
    folder, split, year
        As for `voc_segmentation`; the objects are in ``SegmentationObject``.

    Returns
    -------
    sequence
        Examples with ``image`` (3, H, W), ``boxes`` (R, 4) around the masks, ``labels`` (R,) and
        ``masks`` (R, H, W).

    Raises
    ------
    FileNotFoundError, ValueError
        As for `voc_boxes`.
    """
    function = "fdbr.vision.datasets.voc_instances"
    root, names = _voc(function, folder, split, year, "Segmentation")
    maps = ("SegmentationClass", ".png"), ("SegmentationObject", ".png")
    objects = {("boxes", "labels", "masks"): (_voc_instances, *maps)}
    return examples_of(function, root, names, voc_label_names, _PICTURES | objects)


def _voc_instances(class_path: str, object_path: str) -> tuple[Any, ...]:
    return instances_of(read_label_map(class_path), read_label_map(object_path))


# --- SBD ----------------------------------------------------------------------------

_SBD = Layout(
    "SBD",
    ("dataset", "benchmark_RELEASE/dataset"),
    "img/ID.jpg, cls/ID.mat, inst/ID.mat, train.txt and val.txt",
    "http://home.bharathh.info/pubs/codes/SBD/download.html",
)


@public("fdbr.vision.datasets")
def sbd_instances(folder: Folder, split: str = "train") -> Any:
    """Return the objects of the Semantic Boundaries Dataset with their masks.

    Parameters
    ----------
    folder
        The folder ``dataset`` of the archive, or one that holds it or ``benchmark_RELEASE``.
    split
        A list of the publisher: ``"train"``, ``"val"`` or ``"train_noval"``, the training examples
        that are not in PASCAL VOC 2012's validation set; ``"trainval"``, all of the first two; or
        one of ChainerCV's: ``"train_voc2012"`` is ``"train_noval"``, ``"val_voc2012"`` are all
        others, ``"trainval_voc2012"`` are all.

    Returns
    -------
    sequence
        Examples as those of `voc_instances`, with the same classes.

    Raises
    ------
    FileNotFoundError, ValueError
        As for `voc_boxes`.

    Notes
    -----
    Hariharan et al., "Semantic Contours from Inverse Detectors", ICCV 2011.
    """
    function = "fdbr.vision.datasets.sbd_instances"
    root = _SBD.find(function, folder, "img", "cls", "inst")
    names = _sbd_names(function, root, split)
    fields = {
        ("image",): (read_picture, ("img", ".jpg")),
        ("boxes", "labels", "masks"): (_sbd_instances, ("cls", ".mat"), ("inst", ".mat")),
    }
    return examples_of(function, root, names, voc_label_names, fields)


def _sbd_names(function: str, root: str, split: str) -> list[str]:
    """The names of a split, which has a list or is made of others."""

    def names(one: str) -> list[str]:
        return lines_of(function, os.path.join(root, f"{one}.txt"))

    if Path(root, f"{split}.txt").is_file():
        return names(split)
    if split == "train_voc2012":
        return names("train_noval")
    if split in ("trainval", "trainval_voc2012"):
        return sorted({*names("train"), *names("val")})
    if split == "val_voc2012":
        training = names("train_noval")
        return sorted({*names("train"), *names("val")}.difference(training))
    return names(split)  # an error that lists those that are there


def _sbd_instances(class_path: str, object_path: str) -> tuple[Any, ...]:
    return instances_of(_mat_map(class_path, "GTcls"), _mat_map(object_path, "GTinst"))


def _mat_map(path: str, name: str) -> Any:
    """The map of a file of MATLAB: the field ``Segmentation`` of a structure."""
    content = scipy.io.loadmat(path)
    try:
        return np.asarray(content[name]["Segmentation"][0, 0], np.int32)
    except (KeyError, IndexError, ValueError) as error:
        raise ValueError(f"{path} has no structure {name} with a field Segmentation") from error
