"""Datasets made of datasets: parts, rows of them, pairs, and transformed ones.

They are sequences of examples that read what they are made of when they are asked.
"""

from collections.abc import Callable, Iterator
from typing import Any

import attrs
import numpy as np

from fdbr import random, tree
from fdbr.core.array_modules import array_module, lock
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.train.data.collation import collate_stack
from fdbr.train.data.reading import (
    count_of,
    example_of,
    examples_of,
    has_rows,
    in_epoch,
    length_of,
    take,
)
from fdbr.train.loop.continuing import checksum_of

__all__ = ["View", "choice_of", "concatenate", "gather", "map_examples", "subset", "zip_examples"]


class View:
    """A dataset made of others: a sequence of examples."""

    has_rows = False

    def __len__(self) -> int:
        raise NotImplementedError

    def example(self, index: int) -> Any:
        """The example of a number from 0."""
        raise NotImplementedError

    def __getitem__(self, index: Any) -> Any:
        count = len(self)
        if isinstance(index, slice):
            return Subset(self, np.arange(count)[index])
        try:
            number = index.__index__()
        except AttributeError:
            raise TypeError(
                f"{type(self).__name__}: the index of an example must be an integer, not "
                f"{describe(index)}; fdbr.train.subset chooses several"
            ) from None
        if not -count <= number < count:
            raise IndexError(f"there is no example {number}: the dataset has {count}")
        return self.example(number % count)

    def __iter__(self) -> Iterator[Any]:
        return (self.example(number) for number in range(len(self)))

    def in_epoch(self, number: int) -> Any:
        """The dataset as it is in an epoch."""
        return self


@attrs.frozen(eq=False)
class Subset(View):
    """Examples of a dataset, chosen by their numbers."""

    dataset: Any
    indices: Any = attrs.field(repr=lambda indices: f"{len(indices)} of them")

    def __len__(self) -> int:
        return len(self.indices)

    def example(self, index: int) -> Any:
        return example_of(self.dataset, int(self.indices[index]))

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return examples_of(self.dataset, self.indices[indices])

    @property
    def has_rows(self) -> bool:  # type: ignore[override]
        return has_rows(self.dataset)

    def take(self, indices: Any) -> Any:
        return take(self.dataset, self.indices[indices])

    def in_epoch(self, number: int) -> Any:
        return Subset(in_epoch(self.dataset, number), self.indices)


def choice_of(dataset: Any) -> str | None:
    """A checksum of the numbers by which subsets choose their examples; `None` without any."""
    if isinstance(dataset, Subset):
        below = choice_of(dataset.dataset)
        own = checksum_of(np.asarray(dataset.indices))
        return own if below is None else f"{own}{below}"
    if not isinstance(dataset, View):
        return None
    parts = getattr(dataset, "datasets", (getattr(dataset, "dataset", None),))
    return "".join(found for found in map(choice_of, parts) if found) or None


@public("fdbr.train")
def subset(dataset: Any, indices: Any) -> Any:
    """Some of the examples of a dataset.

    Parameters
    ----------
    dataset
        A dataset, as for `Batches`.
    indices
        The numbers of the examples, in their order; or a truth value for each example.

    Returns
    -------
    sequence
        A dataset that reads an example when it is asked for it.

    Raises
    ------
    TypeError
        If ``indices`` are no integers and no truth values.
    IndexError
        If there is no such example.

    >>> import numpy as np
    >>> from fdbr import train
    >>> [x.item() for x in train.subset(np.arange(10), [7, 2])]
    [7, 2]
    """
    name = "fdbr.train.subset"
    count = count_of(name, dataset)
    chosen = np.asarray(indices)
    if chosen.ndim == 1 and chosen.dtype == bool and len(chosen) == count:
        chosen = np.flatnonzero(chosen)
    if chosen.ndim != 1 or (chosen.size and chosen.dtype.kind not in "iu"):
        raise TypeError(
            f"{name}: indices must be integers of one axis, or a truth value for each of the "
            f"{count} examples, got {describe(chosen)}"
        )
    chosen = chosen.astype(np.int64)
    if chosen.size and not -count <= chosen.min() <= chosen.max() < count:
        wrong = chosen[(chosen < -count) | (chosen >= count)][0]
        raise IndexError(f"{name}: there is no example {wrong}: dataset has {count}")
    return Subset(dataset, lock(chosen % count))


@attrs.frozen(eq=False)
class Concatenated(View):
    """Datasets one after another."""

    datasets: tuple[Any, ...]
    ends: Any

    def __len__(self) -> int:
        return int(self.ends[-1])

    def _place(self, indices: Any) -> tuple[Any, Any]:
        parts = np.searchsorted(self.ends, indices, side="right")
        return parts, indices - np.concatenate([[0], self.ends])[parts]

    def example(self, index: int) -> Any:
        part, place = self._place(index)
        return example_of(self.datasets[part], int(place))

    @property
    def has_rows(self) -> bool:  # type: ignore[override]
        return all(map(has_rows, self.datasets))

    def take(self, indices: Any) -> Any:
        parts, places = self._place(indices)
        by_part = np.argsort(parts, kind="stable")
        taken = [take(self.datasets[p], places[parts == p]) for p in np.unique(parts)]
        back = np.argsort(by_part)
        return tree.map(lambda *rows: _together(rows, back), *taken)

    def in_epoch(self, number: int) -> Any:
        return Concatenated(tuple(in_epoch(one, number) for one in self.datasets), self.ends)


def _together(rows: Any, order: Any) -> Any:
    xp = array_module(*rows)
    return lock(xp.concatenate(rows).take(xp.asarray(order), axis=0))


@public("fdbr.train")
def concatenate(*datasets: Any) -> Any:
    """Datasets one after another, as one.

    Parameters
    ----------
    datasets
        Datasets, as for `Batches`.

    Returns
    -------
    sequence
        A dataset that reads an example when it is asked for it.

    Raises
    ------
    TypeError
        If there is none, or one is no dataset.

    >>> import numpy as np
    >>> from fdbr import train
    >>> whole = train.concatenate(np.arange(3), np.arange(10, 12))
    >>> len(whole), whole[3].item()
    (5, 10)
    """
    if not datasets:
        raise TypeError("fdbr.train.concatenate: give at least one dataset")
    ends = np.cumsum([count_of("fdbr.train.concatenate", one) for one in datasets])
    return Concatenated(datasets, lock(ends))


@attrs.frozen(eq=False)
class Zipped(View):
    """Datasets of one length side by side."""

    datasets: tuple[Any, ...]
    names: tuple[str, ...] | None

    def __len__(self) -> int:
        return length_of(self.datasets[0])

    def _of(self, parts: list[Any]) -> Any:
        if self.names is None:
            return tuple(parts)
        return dict(zip(self.names, parts, strict=True))

    def example(self, index: int) -> Any:
        return self._of([example_of(one, index) for one in self.datasets])

    @property
    def has_rows(self) -> bool:  # type: ignore[override]
        return all(map(has_rows, self.datasets))

    def take(self, indices: Any) -> Any:
        return self._of([take(one, indices) for one in self.datasets])

    def in_epoch(self, number: int) -> Any:
        return Zipped(tuple(in_epoch(one, number) for one in self.datasets), self.names)


@public("fdbr.train")
def zip_examples(*datasets: Any, **named: Any) -> Any:
    """Datasets side by side: examples are tuples of theirs, or dicts where they have names.

    Parameters
    ----------
    datasets, named
        Datasets of one length, either without names or with them.

    Returns
    -------
    sequence
        A dataset that reads an example when it is asked for it.

    Raises
    ------
    TypeError
        If there is none, or some have names and some do not.
    ValueError
        If their lengths differ.

    >>> import numpy as np
    >>> from fdbr import train
    >>> train.zip_examples([0, 1, 2], [10, 11, 12])[1]
    (1, 11)
    """
    name = "fdbr.train.zip_examples"
    if bool(datasets) == bool(named):
        raise TypeError(f"{name}: give datasets, either all with names or all without")
    parts = datasets or tuple(named.values())
    counts = [count_of(name, one) for one in parts]
    if len(set(counts)) > 1:
        raise ValueError(f"{name}: datasets must have as many examples, but they have {counts}")
    return Zipped(parts, tuple(named) if named else None)


@attrs.frozen(eq=False)
class Mapped(View):
    """A dataset whose examples go through a function."""

    function: Callable[..., Any]
    dataset: Any
    key: Any = attrs.field(default=None, repr=False)
    epoch: int = 0
    epoch_key: Any = attrs.field(init=False, repr=False)

    @epoch_key.default
    def _epoch_key(self) -> Any:
        return None if self.key is None else random.fold_in(self.key, self.epoch)

    def __len__(self) -> int:
        return length_of(self.dataset)

    def _of(self, index: int, example: Any) -> Any:
        if self.key is None:
            return self.function(example)
        return self.function(random.fold_in(self.epoch_key, index), example)

    def example(self, index: int) -> Any:
        return self._of(index, example_of(self.dataset, index))

    def in_epoch(self, number: int) -> Any:
        return Mapped(self.function, in_epoch(self.dataset, number), self.key, number)


@public("fdbr.train")
def map_examples(f: Callable[..., Any], dataset: Any, key: Any = None) -> Any:
    """A dataset whose examples go through a function, each time that they are read.

    Parameters
    ----------
    f
        ``f(example)``, or ``f(key, example)`` with a key.
    dataset
        A dataset, as for `Batches`.
    key
        For random augmentation: each example has a key of its own, made of this one, the epoch
        and the example's number.  What it becomes depends on nothing else, and least of all on
        the number of workers or the order of reading.

    Returns
    -------
    sequence
        A dataset that reads an example when it is asked for it; ``dataset[i]`` is as in epoch 0.

    Raises
    ------
    TypeError
        If ``f`` is no function, ``dataset`` no dataset, or ``key`` no key.

    >>> import numpy as np
    >>> from fdbr import random, train
    >>> noisy = train.map_examples(lambda key, x: x + random.normal(key), np.zeros(3),
    ...                            random.key(0))
    >>> bool(noisy[1] == noisy[1]), bool(noisy[1] == noisy.in_epoch(1)[1])
    (True, False)
    """
    count_of("fdbr.train.map_examples", dataset)
    if key is not None:
        random.fold_in(key, 0)  # which says so if it is no key
    return Mapped(f, dataset, key)


@public("fdbr.train")
def gather(dataset: Any, collate: Callable[[list[Any]], Any] | None = None) -> Any:
    """All examples of a dataset in one batch, read now.

    Parameters
    ----------
    dataset
        A dataset, as for `Batches`.
    collate
        As for `Batches`.

    Returns
    -------
    tree
        A tree of arrays, read-only copies.

    Raises
    ------
    TypeError, ValueError
        If it is no dataset, or examples do not fit together.

    >>> import numpy as np
    >>> from fdbr import train
    >>> first, second = train.split({"x": np.arange(5)}, 3)
    >>> train.gather(second)
    {'x': array([3, 4])}
    """
    indices = np.arange(count_of("fdbr.train.gather", dataset))
    if collate is None and has_rows(dataset):
        return take(dataset, indices)
    return (collate or collate_stack)(examples_of(dataset, indices))
