"""The measures of the COCO challenges, which pycocotools computes."""

import functools
from collections.abc import Mapping, Sequence
from types import FunctionType
from typing import Any

import attrs
import numpy as np

from fdbr.core.array_modules import to_numpy
from fdbr.core.devices import optional
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.vision.evaluation.images import checked, measured
from fdbr.vision.evaluation.voc import check_same_size, mean

__all__ = ["COCO", "detection_coco", "instances_coco", "keypoints_coco"]

_ROOM = "fdbr.vision.evaluation"
_ALL = "0.50:0.95"
_OF_REGIONS = [
    *(("ap", iou, "all", 100) for iou in (_ALL, "0.50", "0.75")),
    *(("ap", _ALL, area, 100) for area in ("small", "medium", "large")),
    *(("ar", _ALL, "all", most) for most in (1, 10, 100)),
    *(("ar", _ALL, area, 100) for area in ("small", "medium", "large")),
]
_OF_KEYPOINTS = [
    (figure, iou, area, 20)
    for figure in ("ap", "ar")
    for iou, area in ((_ALL, "all"), ("0.50", "all"), ("0.75", "all"), (_ALL, "medium"),
                      (_ALL, "large"))
]  # fmt: skip
"""The figures of COCO's tables: precision or recall, overlaps, areas, most objects of an image."""


def _silent(function: FunctionType) -> FunctionType:
    """Return a function of pycocotools that does not print.

    Replacing ``sys.stdout`` during the call would also silence the other threads of the process.
    """
    space = {**function.__globals__, "print": lambda *args, **kwargs: None}
    return FunctionType(function.__code__, space, function.__name__, function.__defaults__)


@functools.cache
def _pycocotools(where: str) -> tuple[Any, Any, Any]:
    """Return a function that makes an index, a class of evaluations and the module of masks."""
    where = where.removeprefix("fdbr.")
    coco, evaluation, mask = (
        optional(where, f"pycocotools.{name}", "vision") for name in ("coco", "cocoeval", "mask")
    )
    create_index = _silent(coco.COCO.createIndex)

    def indexed(images: list[Any], categories: list[Any], annotations: list[Any]) -> Any:
        index = coco.COCO()
        index.dataset = {
            "images": images, "categories": categories, "annotations": annotations
        }  # fmt: skip
        create_index(index)
        return index

    methods = {name: _silent(getattr(evaluation.COCOeval, name)) for name in
               ("evaluate", "accumulate")}  # fmt: skip
    return indexed, type("SilentEvaluation", (evaluation.COCOeval,), methods), mask


@attrs.frozen
class COCO:
    """The measure of COCO: annotations of each image, and what pycocotools finds of all."""

    where: str
    by: str = "boxes"
    classes: int | None = None
    box_format: str = "yxyx"
    sigmas: Any = None
    predicted: tuple[str, ...] = ("boxes", "labels", "scores", "masks")
    truths: tuple[str, ...] = ("boxes", "labels", "masks", "points", "visible")

    def __attrs_post_init__(self) -> None:
        _pycocotools(self.where)  # a missing library is an error before any prediction

    def record(self, i: int, found: Mapping[str, Any], true: Mapping[str, Any]) -> Any:
        """Return the annotations of an image, predicted and true, and its size."""
        form = self.classes, self.box_format
        needed = {
            "boxes": ("boxes", "labels"),
            "masks": ("masks", "labels"),
            "points": ("boxes", "labels", "points", "visible"),
        }[self.by]
        true = checked(
            self, i, "truths", true, needed, ("crowded", "areas", *self._also(true)), *form
        )
        found = checked(self, i, "predicted", found, (self.by, "labels", "scores"), (), *form)
        if self.by == "masks":
            check_same_size(self.where, i, found, true)
        if self.by == "points":
            self._check_points(i, found, true)
        size = true["masks"].shape[1:] if "masks" in true else (0, 0)
        return self._annotations(found), self._annotations(true), size

    def _also(self, true: Mapping[str, Any]) -> tuple[str, ...]:
        """The masks, if the areas of objects with points are to be those of their masks."""
        return ("masks",) if self.by == "points" and true.get("areas") is None else ()

    def _check_points(self, i: int, found: Mapping[str, Any], true: Mapping[str, Any]) -> None:
        sigmas = self.sigmas
        count = 17 if sigmas is None else len(sigmas)
        for side, points in (("predicted", found["points"]), ("truths", true["points"])):
            if points.shape[1] != count and points.size:
                raise ValueError(
                    f"{self.where}: image {i}: {side}.points must have {count} points of each "
                    f"object, got {describe(points)}; sigmas= is for numbers other than COCO's 17"
                )
        if not np.isfinite(found["points"]).all():
            raise ValueError(f"{self.where}: image {i}: predicted.points must be finite")
        marked = np.isfinite(true["points"]).all(axis=-1) | ~true["visible"].astype(bool)
        if not marked.all():
            raise ValueError(f"{self.where}: image {i}: truths.points must be finite where visible")

    def _annotations(self, of: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the annotations of the objects of an image, without their numbers."""
        columns: dict[str, Any] = {"category_id": of["labels"].tolist()}
        boxes = areas = None
        if "boxes" in of:
            boxes = of["boxes"].astype(float)
        if "masks" in of:
            mask = _pycocotools(self.where)[2]
            masks = np.asfortranarray(of["masks"].transpose(1, 2, 0).astype(bool), dtype=np.uint8)
            columns["segmentation"] = mask.encode(masks)
            areas = mask.area(columns["segmentation"])
        if "points" in of:
            visible = of.get("visible", np.ones(of["points"].shape[:2])).astype(bool)
            points = np.where(visible[..., None], of["points"].astype(float), 0)
            triples = np.concatenate([points[..., ::-1], visible[..., None] * 2], axis=-1)
            columns["keypoints"] = triples.reshape(len(points), 3 * points.shape[1]).tolist()
            columns["num_keypoints"] = visible.sum(axis=1).tolist()
            if "visible" not in of:  # predictions have the box of their points, as in pycocotools
                ends = points.min(1, initial=np.inf), points.max(1, initial=-np.inf)
                boxes = np.concatenate(ends, axis=-1) if points.size else np.zeros((len(points), 4))
        if boxes is not None:
            extents = boxes[:, 2:] - boxes[:, :2]
            columns["bbox"] = np.concatenate([boxes[:, 1::-1], extents[:, ::-1]], axis=1).tolist()
            areas = np.prod(extents, axis=1) if areas is None else areas
        columns["area"] = np.asarray(of.get("areas", areas), float).tolist()
        columns["iscrowd"] = of.get("crowded", np.zeros(len(of["labels"]))).astype(int).tolist()
        if "scores" in of:
            columns["score"] = of["scores"].astype(float).tolist()
        rows = zip(*columns.values(), strict=True)
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def figures(self, records: Sequence[Any]) -> dict[str, Any]:
        """Return the figures of COCO's tables, by class and in the mean."""
        indexed, evaluation, _ = _pycocotools(self.where)
        images = [
            {"id": i, "height": size[0], "width": size[1]}
            for i, (_, _, size) in enumerate(records, 1)
        ]
        sides = []
        for side in (0, 1):
            whole = [
                {**annotation, "image_id": i}
                for i, record in enumerate(records, 1)
                for annotation in record[side]
            ]
            sides.append([{**annotation, "id": n} for n, annotation in enumerate(whole, 1)])
        labels = sorted({annotation["category_id"] for side in sides for annotation in side})
        categories = [{"id": label} for label in labels]
        found, true = (indexed(images, categories, side) for side in sides)
        names = {"boxes": "bbox", "masks": "segm", "points": "keypoints"}
        run = evaluation(true, found, names[self.by])
        if self.sigmas is not None:
            run.params.kpt_oks_sigmas = np.asarray(to_numpy(self.sigmas), float)
        run.evaluate()
        run.accumulate()
        count = self.classes or (labels[-1] + 1 if labels else 0)
        figures: dict[str, Any] = {}
        for name, iou, area, most in _OF_KEYPOINTS if self.by == "points" else _OF_REGIONS:
            values = run.eval["precision" if name == "ap" else "recall"]
            a, m = run.params.areaRngLbl.index(area), run.params.maxDets.index(most)
            values = values[..., a, m]  # thresholds, then points of recall, then classes
            if iou != _ALL:
                values = values[np.isclose(run.params.iouThrs, float(iou))]
            values = np.reshape(values, (int(np.prod(values.shape[:-1])), len(labels)))
            each = np.full(count, np.nan)
            # pycocotools marks classes without objects by -1, at all thresholds.
            each[labels] = np.where((values == -1).any(axis=0), np.nan, values.mean(axis=0))
            key = f"{name}/iou={iou}/area={area}/max_dets={most}"
            figures |= {key: each, "m" + key: mean(each)}
        return figures | {"existent_labels": np.array(labels, np.int32), "coco_eval": run}


@public(_ROOM)
def detection_coco(
    predicted: Any,
    truths: Any = None,
    *,
    crowded: Any = None,
    areas: Any = None,
    classes: int | None = None,
    box_format: str = "yxyx",
) -> dict[str, Any]:
    """Return the average precisions and recalls of a detector, as COCO measures them.

    pycocotools computes them: ``pip install 'fdbr[vision]'``.

    Parameters
    ----------
    predicted
        `fdbr.vision.Detections`, or a tuple of its fields, of as many images: ragged or padded.
        Fields may be iterators: one image is held at a time.
    truths
        `fdbr.vision.Truths`, or a tuple ``(boxes, labels)``.  Without it, ``predicted`` are pairs
        ``(prediction, example)`` as `predict_each` yields.
    crowded
        For each image an array of shape ``(R,)``, bool: the objects that are crowds.
    areas
        For each image an array of shape ``(R,)``: the areas of objects in pixels, which decide
        whether they are small (up to 32²), medium or large (from 96²).  By default those of boxes.
    classes
        The number of classes; by default one more than the largest label.
    box_format
        ``"yxyx"`` or ``"xyxy"``: the order of coordinates in a box.

    Returns
    -------
    dict
        Twelve figures under the names of ChainerCV, such as
        ``"map/iou=0.50:0.95/area=all/max_dets=100"``: ``map`` and ``mar`` are means of precisions
        and recalls over the classes, ``ap`` and ``ar`` arrays with an item for each class.  A
        class without objects has NaN and does not count.  ``"existent_labels"``: the labels of
        all predictions and truths; ``"coco_eval"``: the object of pycocotools.

    Raises
    ------
    ValueError, TypeError
        If numbers of images differ, or an array has another shape or dtype, or there are scores
        that are NaN or labels outside the classes; the message has the index of the image.
    ImportError
        If pycocotools is not installed.

    References
    ----------
    Lin et al., Microsoft COCO: Common Objects in Context, ECCV 2014;
    https://cocodataset.org/#detection-eval.

    >>> import numpy as np
    >>> from fdbr import vision
    >>> boxes = [np.array([[0, 0, 40, 40], [50, 50, 99, 99]], "float32")]
    >>> found = vision.Detections(boxes, [np.array([0, 1])], [np.array([0.9, 0.8])])
    >>> figures = vision.evaluation.detection_coco(found, (boxes, [np.array([0, 0])]))
    >>> figures["ap/iou=0.50/area=all/max_dets=100"]
    array([0.5049505,       nan])
    """
    measure = COCO(f"{_ROOM}.detection_coco", "boxes", classes, box_format)
    return measure.figures(measured(measure, predicted, truths, crowded=crowded, areas=areas))


@public(_ROOM)
def instances_coco(
    predicted: Any,
    truths: Any = None,
    *,
    crowded: Any = None,
    areas: Any = None,
    classes: int | None = None,
) -> dict[str, Any]:
    """Return the average precisions and recalls of instance masks, as COCO measures them.

    Parameters
    ----------
    predicted
        `fdbr.vision.Instances`, or a tuple of its fields; the boxes are not read and may be `None`.
    truths
        `fdbr.vision.Truths`, or a tuple ``(boxes, labels, masks)``, or `None`, as for
        `detection_coco`.
    crowded, areas, classes
        As for `detection_coco`; overlaps and areas are those of masks.

    Returns
    -------
    dict
        As from `detection_coco`.

    Raises
    ------
    ValueError, TypeError, ImportError
        As for `detection_coco`, and if masks of an image differ in size.

    >>> import numpy as np
    >>> from fdbr import vision
    >>> masks, labels = [np.eye(3, dtype=bool)[None]], [np.array([0])]
    >>> found = vision.Instances(None, labels, [np.array([0.9])], masks)
    >>> figures = vision.evaluation.instances_coco(found, vision.Truths(None, labels, masks))
    >>> round(figures["map/iou=0.50:0.95/area=small/max_dets=100"], 6)
    1.0
    """
    measure = COCO(f"{_ROOM}.instances_coco", "masks", classes)
    return measure.figures(measured(measure, predicted, truths, crowded=crowded, areas=areas))


@public(_ROOM)
def keypoints_coco(
    predicted: Any,
    truths: Any = None,
    *,
    crowded: Any = None,
    areas: Any = None,
    classes: int | None = None,
    box_format: str = "yxyx",
    sigmas: Any = None,
) -> dict[str, Any]:
    """Return the average precisions and recalls of keypoints, as COCO measures them.

    The similarity of a prediction and an object is the mean of
    ``exp(-d² / (2 s² (2 sigma)²))`` over the visible points: ``d`` is the distance of the two
    points, ``s²`` the area of the object.

    Parameters
    ----------
    predicted
        `fdbr.vision.Keypoints`, or a tuple ``(boxes, labels, scores, points)``; boxes are not read.
    truths
        `fdbr.vision.Truths`, or a tuple ``(boxes, labels, masks, points, visible)`` whose masks
        may be `None`; or `None`, as for `detection_coco`.
    crowded, classes, box_format
        As for `detection_coco`.
    areas
        As for `detection_coco`; by default those of masks where there are masks, and of boxes.
    sigmas
        The constant ``sigma`` of each point, shape ``(K,)``; by default those of COCO's 17 points.

    Returns
    -------
    dict
        Ten figures, as from `detection_coco`: ``map`` and ``mar`` for the similarities 0.50:0.95,
        0.50 and 0.75, and for the areas medium and large, ``max_dets=20``.

    Raises
    ------
    ValueError, TypeError, ImportError
        As for `detection_coco`, and if the number of points is not that of ``sigmas``.

    References
    ----------
    https://cocodataset.org/#keypoints-eval

    >>> import numpy as np
    >>> from fdbr import vision
    >>> boxes, labels = [np.array([[0, 0, 90, 40]], "float32")], [np.array([0])]
    >>> points, visible = [np.full((1, 17, 2), 9.0)], [np.ones((1, 17), bool)]
    >>> found = vision.Keypoints(boxes, labels, [np.array([0.9])], points, None)
    >>> truths = vision.Truths(boxes, labels, None, points, visible)
    >>> figures = vision.evaluation.keypoints_coco(found, truths)
    >>> round(figures["map/iou=0.50:0.95/area=medium/max_dets=20"], 6)
    1.0
    """
    measure = COCO(
        f"{_ROOM}.keypoints_coco", "points", classes, box_format, sigmas,
        predicted=("boxes", "labels", "scores", "points", "point_scores"),
    )  # fmt: skip
    return measure.figures(measured(measure, predicted, truths, crowded=crowded, areas=areas))
