"""Stages of training that add the measures of a data set to reports."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from fdbr.distributed.arguments import communicator_of
from fdbr.distributed.communicator import Communicator
from fdbr.distributed.objects import all_gather_object
from fdbr.errors.checks import describe, integer
from fdbr.errors.public import public
from fdbr.train.data.parts import bounds
from fdbr.train.stages.evaluation import adding
from fdbr.train.stages.piping import Stage
from fdbr.train.triggers.base import Condition, as_trigger
from fdbr.train.triggers.intervals import each_epoch
from fdbr.vision.evaluation.coco import COCO
from fdbr.vision.evaluation.images import fields_of_image
from fdbr.vision.evaluation.label_maps import Segmentation
from fdbr.vision.evaluation.predicting import predict_each
from fdbr.vision.evaluation.voc import VOC

__all__ = [
    "evaluate_detection_coco",
    "evaluate_detection_voc",
    "evaluate_instances_coco",
    "evaluate_instances_voc",
    "evaluate_keypoints_coco",
    "evaluate_segmentation",
]

_ROOM = "fdbr.vision.evaluation"


def _stage(
    measure: Any,
    model_of_state: Callable[[Any], Any],
    dataset: Any,
    every: Condition,
    prefix: str,
    name: str,
    batch: int,
    jit: bool,
    label_names: Sequence[str] | None,
    comm: Communicator | None,
) -> Stage:
    """Return the stage that adds a measure's figures."""
    function = measure.where.rpartition(".")[2]
    trigger = as_trigger(function, "every", every)
    batch = integer(measure.where, "batch", batch, least=1)
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise TypeError(
            f"{measure.where}: dataset must be a sequence of examples, with a length and items, "
            f"got {describe(dataset)}"
        )
    if not len(dataset):
        raise ValueError(f"{measure.where}: dataset is empty, there is nothing to evaluate")
    if label_names is not None and measure.classes is None:
        measure = attrs.evolve(measure, classes=len(label_names))
    # Consecutive examples, so that the ranks' records in their order are those of one process.
    parts = () if comm is None else ((communicator_of(function, comm).rank, comm.size),)
    begin, end = bounds(len(dataset), parts)

    def found(state: Any) -> Mapping[str, Any]:
        model = model_of_state(state)
        predict = functools.partial(model.predict, jit=True) if jit else model.predict
        own = (dataset[i] for i in range(begin, end))
        records = [
            measure.record(i, fields_of_image(measure, result), example)
            for i, (result, example) in enumerate(predict_each(predict, own, batch=batch), begin)
        ]
        if comm is not None:
            records = [record for part in all_gather_object(records, comm) for record in part]
        return _numbers(measure.figures(records), label_names)

    return adding(found, trigger, prefix, name)


def _numbers(figures: Mapping[str, Any], label_names: Sequence[str] | None) -> dict[str, float]:
    """Return the figures that are numbers, and those of each class where classes have names."""
    numbers = {name: value for name, value in figures.items() if isinstance(value, float)}
    for name, values in figures.items():
        if label_names is not None and name.startswith(("ap", "ar", "iou", "class_accuracy")):
            for label_name, value in zip(label_names, values, strict=False):
                numbers[f"{name}/{label_name}"] = float(value)
    return numbers


@public(_ROOM)
def evaluate_detection_voc(
    model_of_state: Callable[[Any], Any],
    dataset: Any,
    every: Condition = each_epoch,
    prefix: str = "test/",
    name: str = "evaluate",
    *,
    batch: int = 1,
    jit: bool = False,
    label_names: Sequence[str] | None = None,
    comm: Communicator | None = None,
    iou: float = 0.5,
    eleven_points: bool = False,
) -> Stage:
    """Make a stage that adds the average precision of a detector to reports, as VOC measures it.

    One batch of images is held at a time.  With ``comm``, each rank predicts its share of the data
    set, and all ranks get the figures that one process would have got.

    Parameters
    ----------
    model_of_state
        ``model_of_state(state)``: a model with `predict`.
    dataset
        A sequence of examples: dicts with ``image``, ``boxes``, ``labels`` and perhaps
        ``difficult``; the same on all ranks.
    every
        Which reports; by default the last of each epoch.
    prefix
        What is put before the names.
    name
        That of the stage, under which it keeps what its trigger keeps.
    batch
        How many images are predicted at once.
    jit
        Whether ``predict`` is called with ``jit=True``.
    label_names
        The names of the classes; each class gets its own metrics.
    comm
        The ranks, or `None` for one process.
    iou, eleven_points
        As for `detection_voc`.

    Returns
    -------
    stage
        Adds ``map``, and with ``label_names`` ``ap/NAME``.  It raises what `detection_voc` raises,
        with the index of an example, and ValueError where a report has a metric of that name
        already.

    Raises
    ------
    TypeError
        If ``dataset`` has no length or items, or ``comm`` is no communicator.
    ValueError
        If ``dataset`` is empty.

    >>> import numpy as np
    >>> from fdbr import train, vision
    >>> class Model:
    ...     def predict(self, images):
    ...         boxes = np.array([[0, 0, 9, 9]], "float32")
    ...         n = len(images)
    ...         return vision.Detections([boxes] * n, [np.array([0])] * n, [np.array([0.9])] * n)
    >>> image = np.zeros((3, 10, 10), "float32")
    >>> dataset = [{"image": image, "boxes": np.array([[0, 0, 9, 9]]), "labels": np.array([0])}]
    >>> stage = vision.evaluation.evaluate_detection_voc(
    ...     lambda state: state, dataset, label_names=["cat"]
    ... )
    >>> report = train.Report(1, 1, {"loss": 0.5}, Model(), train.Position(1, 0), 0.1)
    >>> dict(next(stage(iter([report]))).metrics)
    {'loss': 0.5, 'test/map': 1.0, 'test/ap/cat': 1.0}
    """
    measure = VOC(f"{_ROOM}.evaluate_detection_voc", "boxes", iou, eleven_points)
    given = model_of_state, dataset, every, prefix, name, batch, jit, label_names, comm
    return _stage(measure, *given)


@public(_ROOM)
def evaluate_instances_voc(
    model_of_state: Callable[[Any], Any],
    dataset: Any,
    every: Condition = each_epoch,
    prefix: str = "test/",
    name: str = "evaluate",
    *,
    batch: int = 1,
    jit: bool = False,
    label_names: Sequence[str] | None = None,
    comm: Communicator | None = None,
    iou: float = 0.5,
    eleven_points: bool = False,
) -> Stage:
    """Make a stage that adds the average precision of instance masks to reports, as in VOC.

    Parameters
    ----------
    model_of_state, every, prefix, name, batch, jit, label_names, comm, iou, eleven_points
        As for `evaluate_detection_voc`.
    dataset
        A sequence of examples: dicts with ``image``, ``masks``, ``labels`` and perhaps
        ``difficult``.

    Returns
    -------
    stage
        As from `evaluate_detection_voc`.

    Raises
    ------
    TypeError, ValueError
        As for `evaluate_detection_voc`.

    >>> from fdbr import vision
    >>> evaluate = vision.evaluation.evaluate_instances_voc
    >>> stage = evaluate(lambda state: state[0], [{"image": ..., "masks": ..., "labels": ...}])
    """
    measure = VOC(f"{_ROOM}.evaluate_instances_voc", "masks", iou, eleven_points)
    given = model_of_state, dataset, every, prefix, name, batch, jit, label_names, comm
    return _stage(measure, *given)


@public(_ROOM)
def evaluate_detection_coco(
    model_of_state: Callable[[Any], Any],
    dataset: Any,
    every: Condition = each_epoch,
    prefix: str = "test/",
    name: str = "evaluate",
    *,
    batch: int = 1,
    jit: bool = False,
    label_names: Sequence[str] | None = None,
    comm: Communicator | None = None,
) -> Stage:
    """Make a stage that adds the figures of a detector to reports, as COCO measures them.

    Parameters
    ----------
    model_of_state, every, prefix, name, batch, jit, label_names, comm
        As for `evaluate_detection_voc`.
    dataset
        A sequence of examples: dicts with ``image``, ``boxes``, ``labels`` and perhaps ``crowded``
        and ``areas``.

    Returns
    -------
    stage
        Adds the twelve means of `detection_coco`, such as
        ``map/iou=0.50:0.95/area=all/max_dets=100``, and with ``label_names`` those of each class,
        such as ``ap/iou=0.50:0.95/area=all/max_dets=100/NAME``.

    Raises
    ------
    TypeError, ValueError
        As for `evaluate_detection_voc`.
    ImportError
        If pycocotools is not installed.

    >>> from fdbr import vision
    >>> evaluate = vision.evaluation.evaluate_detection_coco
    >>> stage = evaluate(lambda state: state[0], [{"image": ..., "boxes": ..., "labels": ...}])
    """
    measure = COCO(f"{_ROOM}.evaluate_detection_coco", "boxes")
    given = model_of_state, dataset, every, prefix, name, batch, jit, label_names, comm
    return _stage(measure, *given)


@public(_ROOM)
def evaluate_instances_coco(
    model_of_state: Callable[[Any], Any],
    dataset: Any,
    every: Condition = each_epoch,
    prefix: str = "test/",
    name: str = "evaluate",
    *,
    batch: int = 1,
    jit: bool = False,
    label_names: Sequence[str] | None = None,
    comm: Communicator | None = None,
) -> Stage:
    """Make a stage that adds the figures of instance masks to reports, as COCO measures them.

    Masks are kept as run lengths until all images are predicted.

    Parameters
    ----------
    model_of_state, every, prefix, name, batch, jit, label_names, comm
        As for `evaluate_detection_voc`.
    dataset
        A sequence of examples: dicts with ``image``, ``masks``, ``labels`` and perhaps ``crowded``
        and ``areas``.

    Returns
    -------
    stage
        As from `evaluate_detection_coco`.

    Raises
    ------
    TypeError, ValueError, ImportError
        As for `evaluate_detection_coco`.

    >>> from fdbr import vision
    >>> evaluate = vision.evaluation.evaluate_instances_coco
    >>> stage = evaluate(lambda state: state[0], [{"image": ..., "masks": ..., "labels": ...}])
    """
    measure = COCO(f"{_ROOM}.evaluate_instances_coco", "masks")
    given = model_of_state, dataset, every, prefix, name, batch, jit, label_names, comm
    return _stage(measure, *given)


@public(_ROOM)
def evaluate_keypoints_coco(
    model_of_state: Callable[[Any], Any],
    dataset: Any,
    every: Condition = each_epoch,
    prefix: str = "test/",
    name: str = "evaluate",
    *,
    batch: int = 1,
    jit: bool = False,
    label_names: Sequence[str] | None = None,
    comm: Communicator | None = None,
    sigmas: Any = None,
) -> Stage:
    """Make a stage that adds the figures of keypoints to reports, as COCO measures them.

    Parameters
    ----------
    model_of_state, every, prefix, name, batch, jit, label_names, comm
        As for `evaluate_detection_voc`.
    dataset
        A sequence of examples: dicts with ``image``, ``boxes``, ``labels``, ``points``,
        ``visible`` and perhaps ``crowded``, ``areas`` and ``masks``.
    sigmas
        As for `keypoints_coco`.

    Returns
    -------
    stage
        Adds the ten means of `keypoints_coco`, and with ``label_names`` those of each class.

    Raises
    ------
    TypeError, ValueError, ImportError
        As for `evaluate_detection_coco`.

    >>> from fdbr import vision
    >>> evaluate = vision.evaluation.evaluate_keypoints_coco
    >>> stage = evaluate(lambda state: state[0], [{"image": ..., "points": ...}])
    """
    measure = COCO(f"{_ROOM}.evaluate_keypoints_coco", "points", sigmas=sigmas)
    given = model_of_state, dataset, every, prefix, name, batch, jit, label_names, comm
    return _stage(measure, *given)


@public(_ROOM)
def evaluate_segmentation(
    model_of_state: Callable[[Any], Any],
    dataset: Any,
    every: Condition = each_epoch,
    prefix: str = "test/",
    name: str = "evaluate",
    *,
    batch: int = 1,
    jit: bool = False,
    label_names: Sequence[str] | None = None,
    comm: Communicator | None = None,
) -> Stage:
    """Make a stage that adds the overlaps and accuracies of a segmenter to reports.

    Parameters
    ----------
    model_of_state, every, prefix, name, batch, jit, label_names, comm
        As for `evaluate_detection_voc`.
    dataset
        A sequence of examples: dicts with ``image`` and ``label_map``.

    Returns
    -------
    stage
        Adds ``miou``, ``pixel_accuracy`` and ``mean_class_accuracy``, and with ``label_names``
        ``iou/NAME`` and ``class_accuracy/NAME``.

    Raises
    ------
    TypeError, ValueError
        As for `evaluate_detection_voc`.

    >>> import numpy as np
    >>> from fdbr import train, vision
    >>> class Model:
    ...     def predict(self, images):
    ...         return tuple((image[0] > 0).astype("int32") for image in images)
    >>> dataset = [{"image": np.zeros((3, 1, 2)), "label_map": np.array([[0, 1]])}]
    >>> stage = vision.evaluation.evaluate_segmentation(lambda state: state, dataset)
    >>> report = train.Report(1, 1, {}, Model(), train.Position(1, 0), 0.1)
    >>> dict(next(stage(iter([report]))).metrics)
    {'test/miou': 0.25, 'test/pixel_accuracy': 0.5, 'test/mean_class_accuracy': 0.5}
    """
    measure = Segmentation(f"{_ROOM}.evaluate_segmentation")
    given = model_of_state, dataset, every, prefix, name, batch, jit, label_names, comm
    return _stage(measure, *given)
