"""Datasets in batches, in an order that is a pure function of key and epoch."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fdbr import random, tree
from fdbr.core.array_modules import to_numpy
from fdbr.errors.checks import describe, integer
from fdbr.errors.public import public
from fdbr.train.data.collation import collate_stack
from fdbr.train.data.parts import bounds, collated, pair
from fdbr.train.data.reading import count_of, examples_of, has_rows, in_epoch, length_of, take
from fdbr.train.data.samplers import Sampler
from fdbr.train.data.sequences import choice_of
from fdbr.train.loop.continuing import checksum_of
from fdbr.tree import frozen, static

__all__ = ["Batches"]

_NAME = "fdbr.train.Batches"
_SMALL = 2**26
"""Bytes up to which the examples of a list are stacked at once, and not batch by batch."""


@public("fdbr.train")
@frozen(copy=False)  # a data set may be larger than memory
class Batches:
    """A dataset in batches.

    Parameters
    ----------
    dataset
        A tree of arrays whose first axes, of equal length, run over the examples; or a sequence
        of examples, each of them a tree: a list, or anything with ``len`` and ``[i]``, such as
        datasets of PyTorch and Hugging Face.  Of arrays that are mapped from files (`numpy.memmap`,
        h5py) and of sequences, no more is read than a batch needs, when it is asked for; a list
        of less than 64 MB is stacked at once.
    size
        How many examples make a batch.  The last batch of an epoch may be smaller.
    key
        A key, from which the order of examples in each epoch follows.
    shuffle
        Whether the order changes; by default, if there is a key.
    drop_last
        Whether to leave out a last batch that is smaller.
    sampler
        Another order: ``sampler(key, epoch)`` gives the numbers of an epoch's examples, as many
        in every epoch (see `Sampler`).
    collate
        ``collate(examples)`` makes a batch of a list of examples; `collate_stack` by default.

    Raises
    ------
    TypeError
        If ``size`` is no integer, or a leaf is no array.
    ValueError
        If ``size`` is not positive, the dataset is empty, its arrays have different lengths, it
        is to be shuffled without a key, or there is no batch because of ``drop_last``; if a
        sampler's order is none of the dataset's.

    Notes
    -----
    Batches are read-only copies: they have no memory in common with the dataset.  An error that
    the dataset raises for an example keeps its kind, and has a note that says which example.

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
    sampler: Sampler | None = static()
    collate: Callable[[list[Any]], Any] | None = static()
    _drawn: int | None = static(repr=False)  # examples of an epoch, where a sampler chooses them
    _made: int | None = static(repr=False)  # batches of an epoch, where a sampler makes them
    _parts: tuple[tuple[int, int], ...] = static(default=(), repr=False)  # of parts, of batches

    def __init__(
        self,
        dataset: Any,
        size: int,
        key: Any = None,
        shuffle: bool | None = None,
        drop_last: bool = False,
        sampler: Sampler | None = None,
        collate: Callable[[list[Any]], Any] | None = None,
    ) -> None:
        if key is not None:
            random.fold_in(key, 0)  # which says so if it is no key
        if sampler is not None and (shuffle is not None or not callable(sampler)):
            raise TypeError(
                f"{_NAME}: a sampler gives the order; leave shuffle out"
                if callable(sampler)
                else f"{_NAME}: sampler must be a function of key and epoch, not "
                f"{describe(sampler)}"
            )
        shuffle = (key is not None and sampler is None) if shuffle is None else shuffle
        if shuffle and key is None:
            raise ValueError(f"{_NAME}: to shuffle takes a key; give key=fdbr.random.key(seed)")
        if isinstance(dataset, list) and collate is None:
            dataset = _stacked(dataset)
        size = integer(_NAME, "size", size, least=1)
        count = count_of(_NAME, dataset)
        made = None
        if sampler is not None:
            order = _sampled(sampler, key, 0, size, drop_last, count)
            count, made = len(order), len(order) if isinstance(order, list) else None
        if drop_last and made is None and size > count:
            raise ValueError(
                f"{_NAME}: {count} examples make no batch of {size}, and drop_last leaves out "
                "smaller ones"
            )
        drawn = None if sampler is None else count
        self.__attrs_init__(  # type: ignore[attr-defined]
            dataset, size, key, shuffle, drop_last, sampler, collate, drawn, made
        )

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        if self._made is not None:
            return self._made
        return self._cut(length_of(self.dataset) if self._drawn is None else self._drawn)

    def _cut(self, count: int) -> int:
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
        number = integer(f"{_NAME}.epoch", "number", number, least=0)
        start = integer(f"{_NAME}.epoch", "start", start, least=0)
        count = len(self)
        if start > count:
            raise ValueError(
                f"{_NAME}.epoch: start is {start}, but an epoch has {count} "
                "batches; does the position belong to other batches?"
            )
        read = self.reader(number)
        return (read(place) for place in range(start, count))

    def reader(self, number: int) -> Callable[[int], Any]:
        """A function that reads single batches of an epoch, by their places in it.

        >>> import numpy as np
        >>> from fdbr import train
        >>> read = train.Batches(np.arange(6), 2).reader(0)
        >>> read(2)
        array([4, 5])
        """
        number = integer(f"{_NAME}.reader", "number", number, least=0)
        chosen = self._plan(number)
        dataset, parts = in_epoch(self.dataset, number), self._parts
        collate = self.collate or collate_stack
        rows = self.collate is None and has_rows(dataset)

        def read(place: int) -> Any:
            indices = chosen(place)
            begin, end = bounds(len(indices), parts)
            if rows:
                return take(dataset, indices[begin:end])
            where = f" (batch {place} of epoch {number})"
            wanted = indices[begin:end] if begin < end else indices[:1]
            return collated(collate, examples_of(dataset, wanted, where), end - begin)

        return read

    def order_settings(self, number: int, start: int) -> dict[str, Any]:
        """The settings that must be the same when a run continues at a batch of an epoch.

        There are none at the beginning of an epoch.

        >>> import numpy as np
        >>> from fdbr import train
        >>> train.Batches(np.arange(6), 2).order_settings(0, 1)["size"]
        2
        """
        if not start:
            return {}
        count = length_of(self.dataset)
        order = None
        if self.sampler is not None:
            order = _sampled(self.sampler, self.key, number, self.size, self.drop_last, count)
        return {
            "source": "Batches",
            "size": self.size,
            "number of examples": count,
            "drop_last": self.drop_last,
            "key": checksum_of(to_numpy(self.key)) if self.shuffle else "unused",
            "order of the sampler": "none"
            if order is None
            else checksum_of(*(order if isinstance(order, list) else [order])),
            "choice of examples": choice_of(self.dataset) or "all",
        }

    def part(self, index: int, count: int) -> "Batches":
        """The same batches in the same order, of each of which only one part is read.

        Parameters
        ----------
        index, count
            Which of how many parts of consecutive examples.  The first ones have an example more
            where it does not come out even; a batch of fewer examples than parts leaves the last
            ones empty, with arrays whose first axis has length 0.

        Returns
        -------
        Batches
            Lengths and positions are those of the whole batches.

        Raises
        ------
        TypeError, ValueError
            If ``index`` is no integer from 0 to ``count - 1``.

        >>> import numpy as np
        >>> from fdbr import train
        >>> batches = train.Batches(np.arange(5), 4)
        >>> [[x.tolist() for x in batches.part(i, 3)] for i in range(3)]
        [[[0, 1], [4]], [[2], []], [[3], []]]
        """
        return tree.replace(self, _parts=(*self._parts, pair(f"{_NAME}.part", index, count)))

    def _plan(self, number: int) -> Callable[[int], Any]:
        """A function from a batch's place to the numbers of its examples."""
        size, count = self.size, length_of(self.dataset)
        order: Any
        if self.sampler is not None:
            order = _sampled(self.sampler, self.key, number, size, self.drop_last, count)
            made = isinstance(order, list)
            if len(order) != (self._made if made else self._drawn):
                raise ValueError(
                    f"{_NAME}: sampler gives {self._made if made else self._drawn} "
                    f"{'batches' if made else 'examples'} in epoch 0, but {len(order)} in epoch "
                    f"{number}; every epoch must have as many"
                )
            if made:
                return order.__getitem__
        elif self.shuffle:
            order = random.permutation(random.fold_in(self.key, number), count)
        else:
            order = np.arange(count)
        return lambda place: order[place * size : (place + 1) * size]


def _sampled(sampler: Any, key: Any, epoch: int, size: int, drop_last: bool, count: int) -> Any:
    """A sampler's order: an array, or a list of them where it makes batches itself."""
    if hasattr(sampler, "batches"):
        batches = [_order(part, count) for part in sampler.batches(key, epoch, size, drop_last)]
        if not batches:
            raise ValueError(
                f"{_NAME}: the sampler makes no batch of {size}; give a smaller size, or "
                "drop_last=False"
            )
        return batches
    return _order(sampler(key, epoch), count)


def _order(order: Any, count: int) -> Any:
    order = np.asarray(order)
    if order.ndim != 1 or order.dtype.kind not in "iu" or not order.size:
        raise ValueError(
            f"{_NAME}: a sampler must give numbers of examples, integers of one axis, got "
            f"{describe(order)}"
        )
    if order.min() < 0 or order.max() >= count:
        wrong = order[(order < 0) | (order >= count)][0]
        raise ValueError(
            f"{_NAME}: the sampler gives example {wrong}, but the dataset has {count}, from 0 to "
            f"{count - 1}"
        )
    return order


def _stacked(dataset: list[Any]) -> Any:
    """The examples of a list as a tree of arrays, where they are small together."""
    if not dataset:
        raise ValueError(f"{_NAME}: dataset is an empty sequence")
    each = sum(getattr(leaf, "nbytes", 8) for leaf in tree.leaves(dataset[0]))
    return collate_stack(dataset) if each * len(dataset) < _SMALL else dataset
