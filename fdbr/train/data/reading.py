"""Datasets: what can be one, and how its examples are read.

A dataset is a tree of arrays whose first axes run over the examples, or a sequence of examples:
anything with ``len`` and ``[i]``.  A sequence may have more, and is read the better for it:

- ``__getitems__(indices)``: a list of examples at once, as PyTorch and Hugging Face have it;
- ``in_epoch(number)``: the dataset as it is in an epoch, where examples depend on that;
- ``take(indices)`` with ``has_rows``: examples that lie in arrays, stacked at once.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from fdbr import tree
from fdbr.core.array_modules import array_module, is_array, lock
from fdbr.errors.checks import describe

__all__ = [
    "count_of",
    "example_of",
    "examples_of",
    "has_rows",
    "in_epoch",
    "is_sequence",
    "length_of",
    "take",
    "take_rows",
]


def is_sequence(dataset: Any) -> bool:
    """Whether a dataset is a sequence of examples, and no tree of arrays."""
    if isinstance(dataset, list):
        return True
    if isinstance(dataset, tuple | Mapping | str | bytes | type) or _is_column(dataset):
        return False
    return hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")


def has_rows(dataset: Any) -> bool:
    """Whether examples lie in arrays, of which `take` makes a batch at once."""
    return bool(getattr(dataset, "has_rows", False)) if is_sequence(dataset) else True


def _is_column(value: Any) -> bool:
    """Whether a value is an array, or reads as one: a dataset of h5py, say."""
    return is_array(value) or (
        isinstance(getattr(value, "shape", None), tuple)
        and hasattr(value, "dtype")
        and hasattr(value, "__getitem__")
    )


def count_of(function: str, dataset: Any) -> int:
    """The number of examples; an error that begins with ``function`` if it is no dataset."""
    if is_sequence(dataset):
        count = len(dataset)
        if not count:
            raise ValueError(f"{function}: dataset is an empty sequence")
        return int(count)
    if isinstance(dataset, Iterator) or (
        hasattr(dataset, "__iter__") and not hasattr(dataset, "__len__") and not _is_column(dataset)
    ):
        raise TypeError(
            f"{function}: dataset must be a tree of arrays, or a sequence with len and [i], but "
            f"{type(dataset).__name__} can only be iterated; give it to fdbr.train.Stream, or make "
            "a list of it"
        )
    return _rows_of(function, dataset)


def _rows_of(function: str, dataset: Any) -> int:
    arrays = tree.leaves(dataset)
    paths = [path or "the root" for path in tree.paths(dataset)]
    for path, array in zip(paths, arrays, strict=True):
        if not _is_column(array) or not array.shape:
            raise TypeError(
                f"{function}: dataset must be a tree of arrays with a first axis, but at "
                f"{path} it has {describe(array)}"
            )
    counts = [array.shape[0] for array in arrays]
    if not counts or not counts[0]:
        raise ValueError(f"{function}: dataset is empty, so it makes no batch")
    if len(set(counts)) > 1:
        lengths = ", ".join(f"{p} has {n}" for p, n in zip(paths, counts, strict=True))
        raise ValueError(
            f"{function}: the arrays of dataset must have as many examples, but {lengths}"
        )
    return int(counts[0])


def length_of(dataset: Any) -> int:
    """The number of examples of what is known to be a dataset."""
    return len(dataset) if is_sequence(dataset) else int(tree.leaves(dataset)[0].shape[0])


def in_epoch(dataset: Any, number: int) -> Any:
    """The dataset as it is in an epoch."""
    change = getattr(dataset, "in_epoch", None)
    return dataset if change is None else change(number)


# --- single examples ----------------------------------------------------------------


def example_of(dataset: Any, index: int) -> Any:
    """The example of a number, which is not negative."""
    if is_sequence(dataset):
        return dataset[index]
    return tree.map(lambda array: array[index], dataset)


def examples_of(dataset: Any, indices: Any, where: str = "") -> list[Any]:
    """The examples of several numbers, in their order.

    An error in the dataset keeps its kind, with a note that says which example was read, and
    ``where``.
    """
    numbers = indices.tolist()
    together = getattr(dataset, "__getitems__", None)
    if together is not None:
        try:
            return list(together(numbers))
        except Exception as error:
            some = f"{numbers[:8]}{' …' if len(numbers) > 8 else ''}"
            error.add_note(f"fdbr.train: it arose while examples {some}{where} were read together")
            raise
    found = []
    number = -1
    try:
        for number in numbers:
            found.append(example_of(dataset, number))
    except Exception as error:
        error.add_note(f"fdbr.train: it arose while example {number}{where} was read")
        raise
    return found


# --- rows of arrays -----------------------------------------------------------------


def take(dataset: Any, indices: Any) -> Any:
    """The examples of several numbers, stacked, where `has_rows`."""
    if is_sequence(dataset):
        return dataset.take(indices)
    arrays, shape = tree.flatten(dataset)
    return tree.unflatten(shape, [take_rows(array, indices) for array in arrays])


def take_rows(array: Any, indices: Any) -> Any:
    """Rows of an array, read-only copies of them; no other row is read."""
    if type(array) is np.ndarray and array.flags.carray:
        return lock(array.take(indices, axis=0))
    if isinstance(array, np.ndarray):  # mapped from a file, or strided: `take` would read it all
        return lock(np.asarray(refuse_mask(array))[indices])
    if is_array(array):
        return lock(array.take(array_module(array).asarray(indices), axis=0))
    # An array in a file: those of h5py are read in rising order, and each row once.
    rising, places = np.unique(indices, return_inverse=True)
    return lock(np.asarray(refuse_mask(array[rising]))[places])


def refuse_mask(array: Any) -> Any:
    """An array; one of which elements are masked, a mask that batches would lose, is an error."""
    if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
        raise TypeError(
            "fdbr.train.Batches: elements of an array of the dataset are masked, and batches are "
            'plain arrays. Give array.filled(value), and the mask beside it: {"x": '
            'array.filled(0), "mask": ~np.ma.getmaskarray(array)}'
        )
    return array
