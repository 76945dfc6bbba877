"""Datasets in parts: training and test examples, and the folds of cross-validation."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fdbr import random
from fdbr.core.array_modules import lock
from fdbr.errors.checks import describe, integer
from fdbr.errors.public import public
from fdbr.train.data.reading import count_of
from fdbr.train.data.samplers import spread
from fdbr.train.data.sequences import Subset, subset

__all__ = ["folds", "split", "split_n"]


@public("fdbr.train")
def split(
    dataset: Any,
    parts: float | Sequence[float],
    key: Any = None,
    labels: Any = None,
) -> list[Any]:
    """A dataset in parts, which have no example in common.

    Parameters
    ----------
    dataset
        A dataset, as for `Batches`.
    parts
        The sizes of the parts: integers that add up to the number of examples, or fractions
        that add up to 1.  A single number is the size of the first of two.
    key
        A key, to put the examples in random order first.
    labels
        The class of each example, to have them in each part in like proportions.

    Returns
    -------
    list
        The parts, which are datasets, too.

    Raises
    ------
    TypeError, ValueError
        If the sizes do not add up, or a part would be empty.

    >>> import numpy as np
    >>> from fdbr import random, train
    >>> training, test = train.split(np.arange(10), 0.8, key=random.key(0))
    >>> len(training), len(test)
    (8, 2)
    """
    count = count_of("fdbr.train.split", dataset)
    sizes = _sizes(parts, count)
    order = _order("split", count, key, labels)
    ends = np.cumsum(sizes)
    return [
        Subset(dataset, lock(order[end - size : end]))
        for size, end in zip(sizes, ends, strict=True)
    ]


def _sizes(parts: Any, count: int) -> list[int]:
    """The sizes of parts, from what a user says of them."""
    name = "fdbr.train.split"
    single = not isinstance(parts, Sequence | np.ndarray)
    given = [parts] if single else list(parts)
    numbers = (int, float, np.integer, np.floating)
    if not given or not all(isinstance(p, numbers) and not isinstance(p, bool) for p in given):
        raise TypeError(
            f"{name}: parts must be sizes or fractions, or one of them, got {describe(parts)}"
        )
    whole = all(hasattr(part, "__index__") for part in given)
    if single:
        given.append((count if whole else 1.0) - given[0])
    if not all(math.isfinite(part) and part > 0 for part in given):
        raise ValueError(
            f"{name}: each part must have a size above 0, and less than the whole of {count}, got "
            f"{parts}"
        )
    if whole and sum(given) == count:
        return [int(part) for part in given]
    if whole or abs(sum(given) - 1) > 1e-6:
        raise ValueError(
            f"{name}: sizes must add up to the {count} examples, or fractions to 1, got {parts}, "
            f"which add up to {sum(given)}; subset and split_n take others"
        )
    ends = np.round(np.cumsum(given) * count).astype(int)
    sizes = np.diff(ends, prepend=0).tolist()
    if not all(sizes):
        raise ValueError(f"{name}: of {count} examples, a part of {parts} would be empty")
    return sizes


@public("fdbr.train")
def split_n(dataset: Any, n: int, key: Any = None, labels: Any = None) -> list[Any]:
    """A dataset in a number of parts, whose sizes differ by at most one.

    Parameters
    ----------
    dataset, key, labels
        As for `split`.
    n
        How many parts.

    Returns
    -------
    list
        The parts, which are datasets, too.

    Raises
    ------
    TypeError, ValueError
        If ``n`` is no integer from 1 to the number of examples.

    >>> import numpy as np
    >>> from fdbr import train
    >>> [len(part) for part in train.split_n(np.arange(10), 3)]
    [4, 3, 3]
    """
    return [Subset(dataset, lock(part)) for part in _parts("split_n", dataset, n, key, labels)]


def _parts(function: str, dataset: Any, n: Any, key: Any, labels: Any) -> list[Any]:
    name = f"fdbr.train.{function}"
    count = count_of(name, dataset)
    n = integer(name, "n", n, least=1)
    if n > count:
        raise ValueError(f"{name}: {count} examples make no {n} parts")
    return np.array_split(_order(function, count, key, labels), n)


def _order(function: str, count: int, key: Any, labels: Any) -> Any:
    if labels is None:
        return np.arange(count) if key is None else np.asarray(random.permutation(key, count))
    classes = np.asarray(labels)
    if classes.shape != (count,) or classes.dtype.kind not in "iubSU":
        raise ValueError(
            f"fdbr.train.{function}: labels must be an integer or a string for each of the {count} "
            f"examples, got {describe(classes)}"
        )
    numbers = np.unique(classes, return_inverse=True)[1]
    if key is None:
        return spread(numbers, np.arange(count))
    first, second = random.split(key)
    order = np.asarray(random.permutation(first, count))
    return order[spread(numbers[order], np.asarray(random.permutation(second, count)))]


@public("fdbr.train")
def folds(dataset: Any, n: int, key: Any = None, labels: Any = None) -> list[tuple[Any, Any]]:
    """The folds of an n-fold cross-validation.

    Parameters
    ----------
    dataset, key, labels
        As for `split`.
    n
        How many folds, at least 2.

    Returns
    -------
    list
        For each fold a pair of datasets: examples to train with, and examples to test with.
        Every example is to be tested with in one fold.

    Raises
    ------
    TypeError, ValueError
        If ``n`` is no integer from 2 to the number of examples.

    >>> import numpy as np
    >>> from fdbr import train
    >>> for training, test in train.folds(np.arange(4), 2):
    ...     print([x.item() for x in training], [x.item() for x in test])
    [2, 3] [0, 1]
    [0, 1] [2, 3]
    """
    integer("fdbr.train.folds", "n", n, least=2)
    parts = _parts("folds", dataset, n, key, labels)
    return [
        (
            subset(dataset, np.concatenate(parts[:number] + parts[number + 1 :])),
            Subset(dataset, lock(part)),
        )
        for number, part in enumerate(parts)
    ]
