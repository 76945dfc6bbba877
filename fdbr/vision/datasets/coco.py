"""COCO: boxes, instances and keypoints of one file of annotations, and panoptic maps."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from fdbr.core.array_modules import lock
from fdbr.core.devices import optional
from fdbr.errors.public import public
from fdbr.vision.boxes.run_lengths import decode_rle
from fdbr.vision.datasets.base import Examples, Folder, FromFiles, Layout, Rows, read_picture

__all__ = ["coco_boxes", "coco_instances", "coco_keypoints", "coco_panoptic", "coco_segmentation"]

_SOURCE = "https://cocodataset.org/#download"
_OBJECTS = ("boxes", "labels", "areas", "crowded")


@public("fdbr.vision.datasets")
def coco_boxes(
    folder: Folder,
    split: str = "train",
    year: str = "2017",
    use_crowded: bool = False,
    annotations: Folder | None = None,
    images: Folder | None = None,
) -> Any:
    """Return the boxes of COCO, or of a data set with a file of annotations like COCO's.

    Parameters
    ----------
    folder
        The folder with ``annotations/instances_train2017.json`` and ``train2017/*.jpg`` or
        ``images/train2017/*.jpg``.
    split
        ``"train"`` or ``"val"``; for 2014 also ``"minival"`` or ``"valminusminival"``, whose
        pictures are those of ``"val"``.
    year
        ``"2014"`` or ``"2017"``.
    use_crowded
        Whether to keep what is marked as a crowd: more objects of a class than are worth telling
        apart.
    annotations, images
        For another data set: its file of annotations and its folder of pictures, relative to
        ``folder``.  ``split`` and ``year`` are then not used.

    Returns
    -------
    sequence
        Examples with ``image`` (3, H, W), ``boxes`` (R, 4), ``labels`` (R,), which count the file's
        categories in their order, ``areas`` (R,), float32, of the objects' masks, ``crowded`` (R,),
        bool, and ``image_id``, int64; in increasing order of the latter.  Boxes without an area are
        left out.

    Raises
    ------
    FileNotFoundError
        If a file or folder is missing; when an example is read, if its picture is.
    ValueError
        If the annotations are damaged, or have an image or a category that is not listed; when an
        example is read, if its picture is damaged, or a box lies outside of it.  The message has
        the file and the example's number.

    Notes
    -----
    Lin et al., "Microsoft COCO: Common Objects in Context", ECCV 2014.

    >>> from fdbr import vision
    >>> def own_data(folder):
    ...     return vision.datasets.coco_boxes(folder, annotations="labels.json", images="photos")
    """
    function = "fdbr.vision.datasets.coco_boxes"
    index = _Index.read(function, "instances", folder, split, year, annotations, images)
    return index.examples(index.objects(use_crowded)[0])


@public("fdbr.vision.datasets")
def coco_instances(
    folder: Folder,
    split: str = "train",
    year: str = "2017",
    use_crowded: bool = False,
    annotations: Folder | None = None,
    images: Folder | None = None,
) -> Any:
    """Return the objects of COCO with their masks.

    Parameters
    ----------
    folder, split, year, use_crowded, annotations, images
        As for `coco_boxes`.

    Returns
    -------
    sequence
        Examples as those of `coco_boxes`, and with ``masks`` (R, H, W).

    Raises
    ------
    FileNotFoundError, ValueError
        As for `coco_boxes`.
    ImportError
        When an example with polygons is read, if pycocotools, which fills them, is not installed
        (``pip install 'fdbr[vision]'``).
    """
    function = "fdbr.vision.datasets.coco_instances"
    index = _Index.read(function, "instances", folder, split, year, annotations, images)
    objects, (rows, bounds) = index.objects(use_crowded)
    texts = []
    for row in rows:
        if "segmentation" not in row:
            raise index.wrong(row, "has no segmentation")
        texts.append(json.dumps(row["segmentation"], separators=(",", ":")).encode())
    masks = _Masks(function, index.path, tuple(texts), bounds, lock(index.sizes()))
    return index.examples(objects, (("masks",), masks))


@public("fdbr.vision.datasets")
def coco_keypoints(
    folder: Folder,
    split: str = "train",
    year: str = "2017",
    use_crowded: bool = False,
    annotations: Folder | None = None,
    images: Folder | None = None,
) -> Any:
    """Return the persons of COCO with their points.

    Parameters
    ----------
    folder, split, year, use_crowded, annotations, images
        As for `coco_boxes`; the annotations are ``person_keypoints_train2017.json``.

    Returns
    -------
    sequence
        Examples as those of `coco_boxes`, and with ``points`` (R, K, 2) and ``visible`` (R, K),
        True for points that are marked, also where something hides them.  A person may have no
        point that is marked.  `coco_keypoint_names` has the names of the points.

    Raises
    ------
    FileNotFoundError, ValueError
        As for `coco_boxes`.
    """
    function = "fdbr.vision.datasets.coco_keypoints"
    index = _Index.read(function, "person_keypoints", folder, split, year, annotations, images)
    objects, (rows, bounds) = index.objects(use_crowded)
    named = index.content["categories"][:1]
    count = len(named[0].get("keypoints", ())) if named else 0
    for row in rows:
        if len(row.get("keypoints", ())) != 3 * count:
            found = len(row.get("keypoints", ()))
            raise index.wrong(row, f"has {found} numbers for its {count} keypoints")
    values = np.array([row["keypoints"] for row in rows], np.float32)
    values = values.reshape(len(rows), count, 3)
    columns = (lock(values[:, :, 1::-1].copy()), lock(values[:, :, 2] > 0))
    return index.examples(objects, (("points", "visible"), Rows(columns, bounds, index.path)))


# --- files of annotations -----------------------------------------------------------


@attrs.frozen(eq=False)
class _Index:
    """The content of a file of annotations, with the pictures in the order of their ids."""

    function: str
    path: str
    content: Mapping[str, Any]
    images: tuple[Mapping[str, Any], ...]
    pictures: str

    @classmethod
    def read(
        cls,
        function: str,
        name: str,
        folder: Folder,
        split: str,
        year: str,
        annotations: Folder | None,
        images: Folder | None,
    ) -> "_Index":
        pictures = f"{'val' if 'val' in split else split}{year}"
        listed = os.fspath(annotations or f"annotations/{name}_{split}{year}.json")
        tree = f"{listed} and {images or pictures + ' or images/' + pictures}"
        layout = Layout("COCO", (), tree, _SOURCE)
        root = layout.find(function, folder, listed)
        places = [os.fspath(images)] if images is not None else [pictures, f"images/{pictures}"]
        found = [place for place in places if Path(root, place).is_dir()]
        if not found:
            layout.find(function, folder, places[0])
        path = os.path.join(root, listed)
        content = _content(function, path)
        ordered = tuple(sorted(content["images"], key=lambda one: one["id"]))
        return cls(function, path, content, ordered, os.path.join(root, found[0]))

    def wrong(self, row: Mapping[str, Any], problem: str) -> ValueError:
        """The error for an annotation; it has the example's number if there is an example."""
        ids = [one["id"] for one in self.images]
        image = row.get("image_id")
        where = f"example {ids.index(image)}" if image in ids else "no example"
        return ValueError(
            f"{self.function}: {self.path}: annotation {row.get('id')} of image {image} ({where}) "
            f"{problem}"
        )

    def sizes(self) -> Any:
        """The heights and widths of the pictures."""
        sizes: list[tuple[Any, Any]] = [
            (one.get("height"), one.get("width")) for one in self.images
        ]
        for i, size in enumerate(sizes):
            if not (_are_numbers(*size) and all(map(math.isfinite, size))):
                raise ValueError(
                    f"{self.function}: {self.path}: the height and width of image "
                    f"{self.images[i]['id']} (example {i}) are {size}"
                )
        return np.array(sizes, np.int64).reshape(-1, 2)

    def grouped(self, rows: Sequence[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], Any]:
        """Annotations in the order of the examples, and the bounds of each example's."""
        position = {one["id"]: i for i, one in enumerate(self.images)}
        owners = [position.get(row.get("image_id"), -1) for row in rows]
        if -1 in owners:
            raise self.wrong(rows[owners.index(-1)], "belongs to an image that is not listed")
        order = np.argsort(owners, kind="stable")
        bounds = np.searchsorted(np.array(owners)[order], np.arange(len(self.images) + 1))
        return [rows[i] for i in order], lock(bounds)

    def labels(self, rows: Sequence[Mapping[str, Any]]) -> Any:
        """The labels of annotations: the positions of their categories."""
        position = {one["id"]: i for i, one in enumerate(self.content["categories"])}
        for row in rows:
            if row.get("category_id") not in position:
                raise self.wrong(row, f"is of category {row.get('category_id')}, which has no name")
        return np.array([position[row["category_id"]] for row in rows], np.int32)

    def columns(self, rows: Sequence[Mapping[str, Any]]) -> tuple[Any, ...]:
        """The values of the fields `_OBJECTS` of annotations or segments."""
        for row in rows:
            box = row.get("bbox")
            if not (isinstance(box, list) and len(box) == 4 and _are_numbers(*box)):
                raise self.wrong(row, f"has the bbox {box}")
            if not _are_numbers(row.get("area", 0)):
                raise self.wrong(row, f"has the area {row['area']}")
        boxes = np.array([row["bbox"] for row in rows], np.float64).reshape(-1, 4)
        areas = [row.get("area", row["bbox"][2] * row["bbox"][3]) for row in rows]
        boxes[:, 2:] += boxes[:, :2]
        return (
            lock(boxes[:, [1, 0, 3, 2]].astype(np.float32)),
            lock(self.labels(rows)),
            lock(np.array(areas, np.float32)),
            lock(np.array([row.get("iscrowd", 0) for row in rows], bool)),
        )

    def objects(self, use_crowded: bool) -> tuple[Any, tuple[list[Mapping[str, Any]], Any]]:
        """A reader of the fields `_OBJECTS`; the annotations that it has, and their bounds."""
        rows, bounds = self.grouped(
            [
                row
                for row in self.content["annotations"]
                if (use_crowded or not row.get("iscrowd")) and 0 not in (row.get("bbox") or ())[2:]
            ]
        )
        return (_OBJECTS, Rows(self.columns(rows), bounds, self.path)), (rows, bounds)

    def examples(self, *readers: Any) -> Examples:
        """The data set of the pictures and of other readers."""
        names = tuple(one["file_name"] for one in self.images)
        ids = lock(np.array([one["id"] for one in self.images], np.int64))
        classes = tuple(one["name"] for one in self.content["categories"])
        pictures = FromFiles(self.function, self.pictures, (names,), read_picture)
        whole = (("image",), pictures), *readers, (("image_id",), Rows((ids,)))
        return Examples(self.function, whole, len(names), classes)


def _are_numbers(*values: Any) -> bool:
    return all(isinstance(value, int | float) for value in values)


def _content(function: str, path: str) -> Mapping[str, Any]:
    """The content of a file of annotations, if it has the three tables of one."""
    try:
        content = json.loads(Path(path).read_bytes())
    except ValueError as error:
        raise ValueError(f"{function}: {path} is no whole file of JSON: {error}") from error
    needed = {"images": {"file_name"}, "annotations": set(), "categories": {"name"}}
    for table, texts in needed.items():
        keys = ("id", *texts) if texts else ()
        rows = content.get(table) if isinstance(content, dict) else None
        if not isinstance(rows, list):
            raise ValueError(f"{function}: {path} has no table {table!r} of COCO's annotations")
        for i, row in enumerate(rows):
            if not isinstance(row, dict) or not all(key in row for key in keys):
                raise ValueError(
                    f"{function}: {path}: row {i} of {table} has not all of {', '.join(keys)}"
                )
            for key in _NAMES.keys() & row.keys():
                if not isinstance(row[key], _NAMES[key]):
                    raise ValueError(
                        f"{function}: {path}: row {i} of {table} has the {key} {row[key]!r}"
                    )
    if len({type(row["id"]) for row in content["images"]}) > 1:
        raise ValueError(f"{function}: {path}: the ids of images are numbers and texts")
    return content


_NAMES: dict[str, Any] = {
    "id": int | str,
    "image_id": int | str,
    "category_id": int | str,
    "file_name": str,
    "name": str,
}
"""The types of what names something."""


@attrs.frozen(eq=False)
class _Masks:
    """A reader of masks, which are kept as text: polygons, or the lengths of runs of pixels."""

    function: str
    path: str
    texts: tuple[bytes, ...] = attrs.field(repr=False)
    bounds: Any = attrs.field(repr=False)
    sizes: Any = attrs.field(repr=False)

    def paths(self, index: int) -> tuple[str, ...]:
        return (self.path,)

    def __call__(self, index: int) -> tuple[Any, ...]:
        begin, end = self.bounds[index : index + 2].tolist()
        height, width = self.sizes[index].tolist()
        masks = np.zeros((end - begin, height, width), bool)
        for mask, text in zip(masks, self.texts[begin:end], strict=True):
            try:
                mask[...] = _mask(json.loads(text), height, width)
            except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
                raise ValueError(
                    f"{self.function}: {self.path}: a segmentation of example {index} is damaged: "
                    f"{error}"
                ) from error
        return (lock(masks),)


def _mask(segmentation: Any, height: int, width: int) -> Any:
    """The mask of polygons or of runs."""
    if isinstance(segmentation, dict):
        if list(segmentation["size"]) != [height, width]:
            raise ValueError(f"its size is {segmentation['size']}, its picture's {[height, width]}")
        return decode_rle([segmentation])[0]
    tools = optional("vision.datasets.coco_instances", "pycocotools.mask", "vision")
    for polygon in segmentation:
        if len(polygon) < 6 or len(polygon) % 2:
            raise ValueError(f"a polygon has {len(polygon)} numbers")
    if not segmentation:
        return np.zeros((height, width), bool)
    return tools.decode(tools.merge(tools.frPyObjects(segmentation, height, width)))


# --- panoptic maps ------------------------------------------------------------------


@public("fdbr.vision.datasets")
def coco_panoptic(
    folder: Folder,
    split: str = "train",
    year: str = "2017",
    annotations: Folder | None = None,
    images: Folder | None = None,
) -> Any:
    """Return the panoptic maps of COCO: a map of segments, each of them an object or an area.

    Parameters
    ----------
    folder
        The folder with ``annotations/panoptic_train2017.json``, the folder
        ``annotations/panoptic_train2017`` of maps, and the pictures as for `coco_boxes`.
    split, year, annotations, images
        As for `coco_boxes`; the maps are in a folder beside ``annotations`` that has its name
        without ``.json``.

    Returns
    -------
    sequence
        Examples with ``image`` (3, H, W); ``segment_map`` (H, W), int32, the position of each
        pixel's segment in the following fields, -1 where there is none; ``boxes``, ``labels``,
        ``areas``, ``crowded``, as those of `coco_boxes`, of the segments; and ``image_id``.
        ``segment_map == np.arange(len(labels))[:, None, None]`` are masks.
        `coco_panoptic_label_names` has the names of the labels.

    Raises
    ------
    FileNotFoundError, ValueError
        As for `coco_boxes`; a map with a number that belongs to no segment is damaged.

    Notes
    -----
    Kirillov et al., "Panoptic Segmentation", CVPR 2019.
    """
    function = "fdbr.vision.datasets.coco_panoptic"
    index = _Index.read(function, "panoptic", folder, split, year, annotations, images)
    index, rows, bounds = _segments_of(index)
    objects = _OBJECTS, Rows(index.columns(rows), bounds, index.path)
    positions = np.arange(len(rows)) - np.repeat(bounds[:-1], np.diff(bounds))
    return index.examples(_maps(index, rows, bounds, "segment_map", positions), objects)


@public("fdbr.vision.datasets")
def coco_segmentation(
    folder: Folder,
    split: str = "train",
    year: str = "2017",
    annotations: Folder | None = None,
    images: Folder | None = None,
) -> Any:
    """Return the label maps of COCO, made of its panoptic maps.

    Parameters
    ----------
    folder, split, year, annotations, images
        As for `coco_panoptic`.

    Returns
    -------
    sequence
        Examples with ``image`` (3, H, W), ``label_map`` (H, W), -1 where the class is unknown, and
        ``image_id``.  `coco_panoptic_label_names` has the names of the labels.

    Raises
    ------
    FileNotFoundError, ValueError
        As for `coco_panoptic`.
    """
    function = "fdbr.vision.datasets.coco_segmentation"
    index = _Index.read(function, "panoptic", folder, split, year, annotations, images)
    index, rows, bounds = _segments_of(index)
    return index.examples(_maps(index, rows, bounds, "label_map", index.labels(rows)))


def _segments_of(index: _Index) -> tuple[_Index, list[Mapping[str, Any]], Any]:
    """The index of the pictures that have a map, their segments, and the bounds of each one's."""
    maps: dict[Any, Mapping[str, Any]] = {}
    for row in index.grouped(index.content["annotations"])[0]:
        if not isinstance(row.get("segments_info"), list) or "file_name" not in row:
            raise index.wrong(row, "has no segments_info, or no file_name")
        if row["image_id"] in maps:
            raise index.wrong(row, "is not the only one of its image")
        maps[row["image_id"]] = row
    listed = tuple(one for one in index.images if one["id"] in maps)
    content = {**index.content, "annotations": [maps[one["id"]] for one in listed]}
    index = attrs.evolve(index, images=listed, content=content)
    segments = [
        {**segment, "image_id": row["image_id"]}
        for row in content["annotations"]
        for segment in row["segments_info"]
    ]
    return index, *index.grouped(segments)


def _maps(
    index: _Index, rows: Sequence[Mapping[str, Any]], bounds: Any, field: str, values: Any
) -> Any:
    """A reader of panoptic maps, with a value for the pixels of each segment."""
    names = tuple(row["file_name"] for row in index.content["annotations"])
    ids = lock(np.array([row.get("id", -1) for row in rows], np.int64))
    root = os.path.splitext(index.path)[0]
    given = Rows((ids, lock(values)), bounds)
    return (field,), FromFiles(index.function, root, (names,), _segments, given)


def _segments(path: str, ids: Any, values: Any) -> tuple[Any, ...]:
    """A map whose colours are numbers: red + 256 green + 65536 blue; 0 is unknown."""
    red, green, blue = read_picture(path)[0].astype(np.int64)
    found, inverse = np.unique(red + 256 * green + 65536 * blue, return_inverse=True)
    value_of = {0: -1, **dict(zip(ids.tolist(), values.tolist(), strict=True))}
    if unknown := set(found.tolist()).difference(value_of):
        raise ValueError(f"its number {min(unknown)} is none of its segments")
    chosen = np.array([value_of[number] for number in found.tolist()], np.int32)
    return (chosen[inverse.reshape(red.shape)],)
