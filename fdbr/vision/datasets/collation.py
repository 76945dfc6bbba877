"""Batches of examples of vision."""

from typing import Any

import numpy as np

from fdbr import ops
from fdbr.core.array_modules import array_module, lock, on_device
from fdbr.errors.public import public
from fdbr.vision.results import Truths, pad

__all__ = ["collate"]


@public("fdbr.vision.datasets")
def collate(examples: list[Any], size: int | None = None) -> tuple[Any, Any]:
    """Return the images and the truths of examples, for ``model.losses``.

    Parameters
    ----------
    examples
        Dicts with ``image`` and either ``labels`` and ``boxes``, with ``masks``, ``points`` and
        ``visible`` if they have them; or ``label_map``.
    size
        The number of objects to which truths are padded; by default that of the image with most.
        With a size, `fdbr.jit` has one trace for all batches: ``functools.partial(collate,
        size=100)``.

    Returns
    -------
    tuple
        The images, of shape ``(N, 3, H, W)``, or a list of arrays if they differ in size; and
        padded `Truths`, or the label maps, ``(N, H, W)``, padded with -1 at the ends of rows and
        columns.

    Raises
    ------
    ValueError
        If there are no examples, they have neither labels nor label maps, or one has more than
        ``size`` objects.

    >>> import numpy as np
    >>> from fdbr import vision
    >>> example = {"image": np.zeros((3, 8, 8), "float32"), "boxes": np.zeros((1, 4), "float32"),
    ...            "labels": np.array([2], "int32")}
    >>> images, truths = vision.datasets.collate([example, example], size=3)
    >>> images.shape, truths.labels[0]
    ((2, 3, 8, 8), array([ 2, -1, -1], dtype=int32))
    """
    name = "fdbr.vision.datasets.collate"
    if not examples:
        raise ValueError(f"{name}: there are no examples")
    images = [example["image"] for example in examples]
    if len({image.shape for image in images}) == 1:
        images = lock(ops.stack(images))
    first = examples[0]
    if "labels" in first and "boxes" in first:
        columns = {
            field: tuple(example[field] for example in examples)
            for field in Truths._fields
            if field in first
        }
        return images, pad(Truths(**columns), size)
    if "label_map" not in first:
        raise ValueError(
            f"{name}: examples must have boxes and labels, or a label_map, but have "
            f"{', '.join(first)}; fdbr.train.collate_stack and collate_ragged take any fields"
        )
    maps = [example["label_map"] for example in examples]
    height, width = (max(extents) for extents in zip(*(one.shape for one in maps), strict=True))
    with on_device(*maps):
        padded = array_module(*maps).full((len(maps), height, width), -1, dtype=np.int32)
        for row, one in zip(padded, maps, strict=True):
            row[: one.shape[0], : one.shape[1]] = one
    return images, lock(padded)
