"""Vision: detection, segmentation and keypoints, as pure functions and frozen models.

An image is an array of shape ``(3, H, W)``, float32, red, green and blue from 0 to 255.  Boxes are
``(R, 4)``, float32, ``(y_min, x_min, y_max, x_max)``; labels ``(R,)``, int32, from 0; masks
``(R, H, W)``, bool; points ``(R, K, 2)``, ``(y, x)``.  An example of a data set is a dict with the
keys ``image``, ``boxes``, ``labels``, ``masks``, ``points``, ``visible``, ``label_map``.
"""

from fdbr.errors.names import missing_from
from fdbr.vision import boxes, datasets, drawing, evaluation, models, transforms
from fdbr.vision.boxes import *  # noqa: F403
from fdbr.vision.checking import check_dataset, check_example
from fdbr.vision.drawing import report
from fdbr.vision.files import read_image, write_image
from fdbr.vision.results import Detections, Instances, Keypoints, Truths, pad, unpad

__all__ = [
    "Detections",
    "Instances",
    "Keypoints",
    "Truths",
    "check_dataset",
    "check_example",
    "datasets",
    "drawing",
    "evaluation",
    "models",
    "pad",
    "read_image",
    "report",
    "transforms",
    "unpad",
    "write_image",
]
__all__ += boxes.__all__
__dir__ = __all__.copy  # `dir` shows the public names alone
globals().update(__getattr__=missing_from(__name__))  # type checkers see no `__getattr__`
