"""Collation: batches made of lists of examples."""

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

from fdbr import tree
from fdbr.core.array_modules import array_module, lock
from fdbr.core.util.pickling import public_factory
from fdbr.errors.checks import integer
from fdbr.errors.public import public
from fdbr.pytrees.structure import rows_of
from fdbr.train.data.reading import refuse_mask

__all__ = ["collate_padded", "collate_ragged", "collate_stack"]

_PADDED = "fdbr.train.collate_padded"


@public("fdbr.train")
def collate_stack(examples: list[Any]) -> Any:
    """Examples of one shape, stacked: what `Batches` does by itself.

    Parameters
    ----------
    examples
        A list of trees of arrays and numbers.  What NumPy makes arrays of is an array, too:
        tensors of PyTorch, images of Pillow.

    Returns
    -------
    tree
        Their tree, of read-only arrays with one axis more in front.

    Raises
    ------
    ValueError
        If examples differ in structure or shape.

    >>> import numpy as np
    >>> from fdbr import train
    >>> train.collate_stack([{"x": np.zeros(2), "y": 1}, {"x": np.ones(2), "y": 2}])["y"]
    array([1, 2])
    """
    return _joined("collate_stack", _stack, examples)


def _joined(function: str, f: Callable[..., Any], examples: Any) -> Any:
    """The tree of what a function makes of the corresponding leaves of the examples."""
    first, *rest = _some(function, examples)
    try:
        rows, structure = rows_of("map", first, rest)
    except ValueError as error:
        how = str(error).partition(": ")[2].replace("tree", "example", 2)
        raise _unlike(function, how) from error
    made: list[Any] = []
    for row in rows:
        if any(one is None for one in row):
            if any(one is not None for one in row):
                raise _unlike(function, "some have None where others have something")
            made.append(None)
        else:
            made.append(f(*row))
    return tree.unflatten(structure, made)


def _unlike(function: str, how: str) -> ValueError:
    return ValueError(
        f"fdbr.train.{function}: the examples of a batch must have one structure, but {how}"
    )


def _some(function: str, examples: Any) -> list[Any]:
    if not isinstance(examples, list) or not examples:
        raise TypeError(
            f"fdbr.train.{function}: examples must be a list of at least one example, not "
            f"{'an empty list' if isinstance(examples, list) else type(examples).__name__}"
        )
    return examples


def _stack(*values: Any) -> Any:
    xp = array_module(*values)
    arrays = [xp.asarray(refuse_mask(value)) for value in values]
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1:
        raise ValueError(
            f"fdbr.train.Batches: examples of shapes {sorted(shapes)[:5]} cannot be stacked; pad "
            "them to one shape, collate=fdbr.train.collate_padded(), or leave them apart, "
            "collate=fdbr.train.collate_ragged"
        )
    return lock(xp.stack(arrays))


@public("fdbr.train")
def collate_ragged(examples: list[Any]) -> Any:
    """Examples of different lengths, left apart: each array is a list of arrays in the batch.

    Numbers, and arrays without axes, are stacked.  Layers over sequences take such lists.

    Parameters
    ----------
    examples
        A list of trees of arrays and numbers.

    Returns
    -------
    tree
        Their tree, with a list of as many arrays in the place of each array.

    Raises
    ------
    ValueError
        If examples differ in structure.

    >>> import numpy as np
    >>> from fdbr import train
    >>> batch = train.collate_ragged([{"x": np.zeros(2), "y": 1}, {"x": np.ones(3), "y": 2}])
    >>> [len(x) for x in batch["x"]], batch["y"]
    ([2, 3], array([1, 2]))
    """
    return _joined("collate_ragged", _apart, examples)


def _apart(*values: Any) -> Any:
    xp = array_module(*values)
    arrays = [xp.asarray(refuse_mask(value)) for value in values]
    return lock(xp.stack(arrays)) if not any(array.ndim for array in arrays) else arrays


@public_factory("fdbr.train")
def collate_padded(
    value: float = 0, masks: bool = False, length: int | None = None, multiple: int = 1
) -> Callable[[list[Any]], Any]:
    """Make a collation that pads arrays of different lengths along their first axes.

    Parameters
    ----------
    value
        Pads.
    masks
        Whether a batch is a pair ``(batch, masks)``.  The masks are a tree of the same shape:
        True where an element is one of the example, of shape ``(examples, length)``, and `None`
        for what has no axis to be padded.
    length
        The length to pad to; by default that of the longest in the batch.
    multiple
        Pad further to a multiple of this, so that a jitted step sees few shapes.

    Returns
    -------
    function
        For ``Batches(…, collate=…)``.

    Raises
    ------
    TypeError, ValueError
        If ``length`` or ``multiple`` is no positive integer.  By the function, if an example is
        longer than ``length``, or examples differ in other axes or in structure.

    >>> import numpy as np
    >>> from fdbr import train
    >>> batch, mask = train.collate_padded(masks=True)([np.array([1, 2]), np.array([3])])
    >>> batch
    array([[1, 2],
           [3, 0]])
    >>> mask.sum(axis=1)
    array([2, 1])
    """
    multiple = integer(_PADDED, "multiple", multiple, least=1)
    if length is not None:
        length = integer(_PADDED, "length", length, least=1)

    return Padding(value, masks, length, multiple)


@attrs.frozen
class Padding:
    """The collation that `collate_padded` makes; a class, so that it can go to other processes."""

    value: float
    masks: bool
    length: int | None
    multiple: int

    def __call__(self, examples: list[Any]) -> Any:
        settings = (self.value, self.length, self.multiple)
        pairs = _joined("collate_padded", lambda *row: Pair(*_pad(row, *settings)), examples)
        batch = tree.map(lambda pair: pair.array, pairs)
        return (batch, tree.map(lambda pair: pair.mask, pairs)) if self.masks else batch


@attrs.frozen
class Pair:
    """A padded array and its mask, as one leaf."""

    array: Any
    mask: Any


def _pad(values: Any, value: Any, length: int | None, multiple: int) -> tuple[Any, Any]:
    """The padded array, and the mask or `None`."""
    xp = array_module(*values)
    arrays = [xp.asarray(refuse_mask(one)) for one in values]
    if len({array.shape[1:] for array in arrays}) > 1 or len({a.ndim for a in arrays}) > 1:
        shapes = sorted({array.shape for array in arrays})[:5]
        raise ValueError(
            f"{_PADDED}: examples of shapes {shapes} differ in more than their first axis"
        )
    if not arrays[0].ndim:
        return lock(xp.stack(arrays)), None
    lengths = [len(array) for array in arrays]
    longest = max(lengths)
    if length is not None and longest > length:
        raise ValueError(
            f"{_PADDED}: an example has the length {longest}, more than length={length}; cut it "
            "with fdbr.train.map_examples, or give a larger length"
        )
    longest = -(-(longest if length is None else length) // multiple) * multiple
    dtype = np.result_type(*[array.dtype for array in arrays])
    padded = xp.full((len(arrays), longest, *arrays[0].shape[1:]), value, dtype=dtype)
    for row, array in zip(padded, arrays, strict=True):
        row[: len(array)] = array
    mask = xp.arange(longest)[None, :] < xp.asarray(lengths)[:, None]
    return lock(padded), lock(mask)
