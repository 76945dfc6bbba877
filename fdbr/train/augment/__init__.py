"""Augmentation of images: functions of an image, and of a key where they are random.

Images are arrays of channels, rows and columns, of floating numbers or unsigned integers; results
have the same dtype.  `fdbr.train.map_examples` gives each example of each epoch a key of its own.

>>> import numpy as np
>>> from fdbr import random, train
>>> def augmented(key, example):
...     first, second = random.split(key)
...     image = train.augment.random_crop(first, example["image"], 32, padding=4)
...     return {**example, "image": train.augment.random_flip(second, image)}
>>> dataset = {"image": np.zeros((10, 3, 32, 32), "uint8"), "label": np.arange(10)}
>>> examples = train.map_examples(augmented, dataset, random.key(0))
>>> next(iter(train.Batches(examples, 4)))["image"].shape
(4, 3, 32, 32)
"""

from fdbr.train.augment.colors import (
    color_jitter,
    grayscale,
    normalize,
    random_erasing,
    to_float,
)
from fdbr.train.augment.geometry import (
    center_crop,
    random_crop,
    random_flip,
    random_resized_crop,
    random_rotation,
    resize,
    rotate,
)

__all__ = [
    "center_crop",
    "color_jitter",
    "grayscale",
    "normalize",
    "random_crop",
    "random_erasing",
    "random_flip",
    "random_resized_crop",
    "random_rotation",
    "resize",
    "rotate",
    "to_float",
]
__dir__ = __all__.copy  # `dir` shows the public names alone
