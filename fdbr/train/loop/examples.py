"""The number of examples in a batch."""

from collections.abc import Mapping
from typing import Any

from fdbr import tree

__all__ = ["examples_of"]


def examples_of(batch: Any) -> int | None:
    """The number of examples in a batch, as far as its shape tells.

    It is the length of the first axis of the first array that has one, in the order in which a
    dict or a tuple was written.  A list counts its items, unless they are arrays of one length and
    of several shapes or dtypes, ``[images, labels]``, which are columns.

    >>> import numpy as np
    >>> from fdbr.train.loop.examples import examples_of
    >>> examples_of({"image": np.zeros((32, 28, 28)), "label": np.zeros(32)})
    32
    >>> examples_of(["a text", "another"])
    2
    """
    shape = getattr(batch, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else None
    if isinstance(batch, list):
        columns = _length_of_columns(batch)
        return len(batch) if columns is None else columns
    if isinstance(batch, Mapping):
        parts: Any = batch.values()
    elif isinstance(batch, tuple):
        parts = batch
    else:
        parts = [leaf for leaf in tree.leaves(batch) if leaf is not batch]
    for part in parts:
        if (found := examples_of(part)) is not None:
            return found
    return None


def _length_of_columns(items: list[Any]) -> int | None:
    shapes: list[tuple[int, ...]] = [getattr(item, "shape", None) or () for item in items]
    kinds = {(getattr(item, "shape", None), getattr(item, "dtype", None)) for item in items}
    lengths = {shape[:1] for shape in shapes}
    if len(lengths) != 1 or len(kinds) == 1 or () in lengths:
        return None
    return int(shapes[0][0])
