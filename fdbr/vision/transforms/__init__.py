"""Transforms of images together with their boxes, masks and points.

A transform takes an example, a dict, and returns a new one; one that is random takes a key first,
as those of `fdbr.train.augment` do.  The fields of an example are

- of the picture: ``image``, of floating numbers or unsigned integers, and ``label_map``;
- of its objects, with an entry for each: ``boxes``, ``labels``, ``masks``, ``points``, ``visible``,
  ``crowded``, ``difficult``, ``areas``, ``scores``, and every field whose name begins with
  ``object_``;
- any others, which stay as they are.

Any of them may be missing.  Boxes and points without pixels are examples too: ``{"boxes": boxes,
"size": (height, width)}``.  Examples lie in host memory; an array on a GPU is an error.

Coordinates are continuous: the pixel in row i and column j covers ``[i, i + 1) x [j, j + 1)``.  An
object that leaves the picture is removed from all fields; `crop` says when.

>>> import numpy as np
>>> from fdbr import random, train
>>> from fdbr.vision import transforms
>>> def augmented(key, example):
...     first, second, third = random.split(key, 3)
...     example = transforms.random_crop_with_constraints(first, example)
...     example = transforms.random_flip(second, transforms.resize(example, 300))
...     return transforms.random_distort(third, example)
>>> one = {"image": np.zeros((3, 90, 120), "uint8"), "boxes": np.array([[9.0, 9, 80, 80]])}
>>> examples = train.map_examples(augmented, [one] * 4, random.key(0))
>>> examples[0]["image"].shape
(3, 300, 300)
"""

from fdbr.vision.transforms.chance import (
    random_crop,
    random_crop_with_constraints,
    random_expand,
    random_flip,
    random_rotate,
    random_sized_crop,
    resize_with_random_interpolation,
)
from fdbr.vision.transforms.colors import pca_lighting, random_distort
from fdbr.vision.transforms.geometry import (
    center_crop,
    crop,
    expand,
    flip,
    resize,
    resize_contain,
    rotate,
    scale,
    ten_crop,
    translate,
)
from fdbr.vision.transforms.joining import mixup, mosaic

__all__ = [
    "center_crop",
    "crop",
    "expand",
    "flip",
    "mixup",
    "mosaic",
    "pca_lighting",
    "random_crop",
    "random_crop_with_constraints",
    "random_distort",
    "random_expand",
    "random_flip",
    "random_rotate",
    "random_sized_crop",
    "resize",
    "resize_contain",
    "resize_with_random_interpolation",
    "rotate",
    "scale",
    "ten_crop",
    "translate",
]
__dir__ = __all__.copy  # `dir` shows the public names alone
