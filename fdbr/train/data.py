"""Datasets in batches, in an order that is a pure function of key and epoch."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from fdbr import random, tree
from fdbr.backend import array_module, is_array, lock
from fdbr.messages import describe, integer
from fdbr.tree import frozen, static

__all__ = ["Batches"]


@frozen
class Batches:
    """A dataset in batches.

    Parameters
    ----------
    dataset
        A tree of arrays whose first axes, of equal length, run over the examples; or a list
        (or another sequence that is no tree) of examples, each of them a tree, which are
        stacked.
    size
        How many examples make a batch.  The last batch of an epoch may be smaller.
    key
        A key, from which the order of examples in each epoch follows.
    shuffle
        Whether the order changes; by default, if there is a key.
    drop_last
        Whether to leave out a last batch that is smaller.

    Raises
    ------
    TypeError
        If ``size`` is no integer, or a leaf is no array.
    ValueError
        If ``size`` is not positive, the dataset is empty, its arrays have different lengths, it
        is to be shuffled without a key, or there is no batch because of ``drop_last``.

    Notes
    -----
    Batches are read-only copies: they have no memory in common with the dataset.

    >>> import numpy as np
    >>> from fdbr import train
    >>> batches = train.Batches({"x": np.arange(5)}, size=2)
    >>> len(batches)
    3
    >>> for batch in batches:
    ...     print(batch["x"])
    [0 1]
    [2 3]
    [4]
    """

    dataset: Any
    size: int = static()
    key: Any
    shuffle: bool = static()
    drop_last: bool = static()

    def __init__(
        self,
        dataset: Any,
        size: int,
        key: Any = None,
        shuffle: bool | None = None,
        drop_last: bool = False,
    ) -> None:
        if key is not None:
            random.fold_in(key, 0)  # which says so if it is no key
        shuffle = key is not None if shuffle is None else shuffle
        if shuffle and key is None:
            raise ValueError(
                "fdbr.train.Batches: to shuffle takes a key; give key=fdbr.random.key(seed)"
            )
        dataset = _stacked(dataset)
        size = integer("fdbr.train.Batches", "size", size, least=1)
        count = _count(dataset)
        if drop_last and size > count:
            raise ValueError(
                f"fdbr.train.Batches: {count} examples make no batch of {size}, and drop_last "
                "leaves out smaller ones"
            )
        self.__attrs_init__(dataset, size, key, shuffle, drop_last)  # type: ignore[attr-defined]

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        count = len(tree.leaves(self.dataset)[0])
        return count // self.size if self.drop_last else -(-count // self.size)

    def __iter__(self) -> Iterator[Any]:
        """The batches of epoch 0."""
        return self.epoch(0)

    def epoch(self, number: int, start: int = 0) -> Iterator[Any]:
        """The batches of one epoch.

        Parameters
        ----------
        number
            The epoch, from 0.
        start
            How many batches to leave out at its beginning.

        Raises
        ------
        TypeError, ValueError
            If ``number`` or ``start`` is no integer of its range.

        >>> import fdbr, numpy as np
        >>> batches = fdbr.train.Batches(np.arange(6), 2, key=fdbr.random.key(0))
        >>> whole, rest = list(batches.epoch(3)), list(batches.epoch(3, start=1))
        >>> all((a == b).all() for a, b in zip(whole[1:], rest, strict=True))
        True
        """
        number = integer("fdbr.train.Batches.epoch", "number", number, least=0)
        start = integer("fdbr.train.Batches.epoch", "start", start, least=0)
        if start > len(self):
            raise ValueError(
                f"fdbr.train.Batches.epoch: start is {start}, but an epoch has {len(self)} "
                "batches; does the position belong to other batches?"
            )
        return self._batches(self._order(number), start)

    def _order(self, number: int) -> Any:
        count = len(tree.leaves(self.dataset)[0])
        if not self.shuffle:
            return np.arange(count)
        return random.permutation(random.fold_in(self.key, number), count)

    def _batches(self, order: Any, start: int) -> Iterator[Any]:
        arrays, shape = tree.flatten(self.dataset)
        for position in range(start, len(self)):
            chosen = order[position * self.size : (position + 1) * self.size]
            yield tree.unflatten(shape, [_rows(array, chosen) for array in arrays])


def _rows(array: Any, chosen: Any) -> Any:
    return lock(array.take(array_module(array).asarray(chosen), axis=0))


def _stacked(dataset: Any) -> Any:
    """The dataset as a tree of arrays: a sequence of examples is put together."""
    is_tree = is_array(dataset) or tree.structure(dataset).num_nodes != 1
    sequence = hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
    if not isinstance(dataset, list) and (is_tree or not sequence):
        return dataset
    examples = [dataset[i] for i in range(len(dataset))]
    if not examples:
        raise ValueError("fdbr.train.Batches: dataset is an empty sequence")
    return tree.map(_stack, *examples)


def _stack(*values: Any) -> Any:
    xp = array_module(*values)
    shapes = {np.shape(value) for value in values}
    if len(shapes) > 1:
        raise ValueError(
            f"fdbr.train.Batches: examples of shapes {sorted(shapes)[:5]} cannot be stacked; pad "
            "them to one shape"
        )
    return lock(xp.stack([xp.asarray(value) for value in values]))


def _count(dataset: Any) -> int:
    arrays = tree.leaves(dataset)
    paths = [path or "the root" for path in tree.paths(dataset)]
    for path, array in zip(paths, arrays, strict=True):
        if not is_array(array) or not array.shape:
            raise TypeError(
                f"fdbr.train.Batches: dataset must be a tree of arrays with a first axis, but at "
                f"{path} it has {describe(array)}"
            )
    counts = [array.shape[0] for array in arrays]
    if not counts or not counts[0]:
        raise ValueError("fdbr.train.Batches: dataset is empty, so it makes no batch")
    if len(set(counts)) > 1:
        lengths = ", ".join(f"{p} has {n}" for p, n in zip(paths, counts, strict=True))
        raise ValueError(
            f"fdbr.train.Batches: the arrays of dataset must have as many examples, but {lengths}"
        )
    return int(counts[0])
