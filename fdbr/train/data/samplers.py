"""Samplers: the order of examples in an epoch, as a pure function of key and epoch.

A sampler is called as ``sampler(key, epoch)`` and gives the numbers of the examples in their
order; any function will do.  One that makes batches itself, because not every cut of its order
is one, has ``batches(key, epoch, size, drop_last)`` as well, which gives a list of such arrays.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import attrs
import numpy as np

from fdbr import random
from fdbr.core.array_modules import lock
from fdbr.errors.checks import describe, integer
from fdbr.errors.public import public

__all__ = [
    "BucketSampler",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "StratifiedSampler",
    "WeightedSampler",
]


@public("fdbr.train")
class Sampler(Protocol):
    """The protocol of samplers: a pure function of key and epoch.

    >>> import numpy as np
    >>> from fdbr import train
    >>> backwards = lambda key, epoch: np.arange(4)[::-1]
    >>> [batch.tolist() for batch in train.Batches(np.arange(4), 2, sampler=backwards)]
    [[3, 2], [1, 0]]
    """

    def __call__(self, key: Any, epoch: int) -> Any:
        """The numbers of an epoch's examples, in their order: as many in every epoch."""
        ...


def _epoch_key(name: str, key: Any, epoch: int) -> Any:
    if key is None:
        raise ValueError(f"fdbr.train.{name}: it draws at random; give Batches a key")
    return random.fold_in(key, epoch)


def _vector(name: str, what: str, value: Any, kinds: str) -> Any:
    array = np.asarray(value)
    if array.ndim != 1 or array.dtype.kind not in kinds or not array.size:
        raise TypeError(
            f"fdbr.train.{name}: {what} must be a sequence with a value for each example, got "
            f"{describe(array)}"
        )
    return lock(array.copy())


@public("fdbr.train")
@attrs.frozen(eq=False)
class SequentialSampler:
    """The order of the dataset, in every epoch.

    Parameters
    ----------
    count
        How many examples there are.

    >>> from fdbr import train
    >>> train.SequentialSampler(3)(None, 0)
    array([0, 1, 2])
    """

    count: int

    def __attrs_post_init__(self) -> None:
        integer("fdbr.train.SequentialSampler", "count", self.count, least=1)

    def __call__(self, key: Any, epoch: int) -> Any:
        return np.arange(self.count)


@public("fdbr.train")
@attrs.frozen(eq=False)
class RandomSampler:
    """A new order in every epoch, each example once: what ``Batches(…, key=key)`` has.

    Parameters
    ----------
    count
        How many examples there are.

    >>> from fdbr import random, train
    >>> sorted(train.RandomSampler(3)(random.key(0), 0).tolist())
    [0, 1, 2]
    """

    count: int

    def __attrs_post_init__(self) -> None:
        integer("fdbr.train.RandomSampler", "count", self.count, least=1)

    def __call__(self, key: Any, epoch: int) -> Any:
        return random.permutation(_epoch_key("RandomSampler", key, epoch), self.count)


@public("fdbr.train")
@attrs.frozen(eq=False, init=False)
class WeightedSampler:
    """Examples drawn with probabilities in proportion to weights.

    Parameters
    ----------
    weights
        A number ≥ 0 for each example.  One over the size of an example's class makes classes
        equally frequent.
    count
        How many to draw for an epoch; by default as many as there are weights.
    replace
        Whether an example may be drawn several times in an epoch.

    Raises
    ------
    TypeError, ValueError
        If a weight is negative or not finite, all are zero, or without replacement there are
        fewer examples of a weight above zero than are to be drawn.

    >>> from fdbr import random, train
    >>> order = train.WeightedSampler([0.0, 1.0, 0.0, 3.0], count=100)(random.key(0), 0)
    >>> sorted(set(order.tolist()))
    [1, 3]
    """

    weights: Any
    count: int
    replace: bool

    def __init__(self, weights: Any, count: int | None = None, replace: bool = True) -> None:
        name = "fdbr.train.WeightedSampler"
        weights = _vector("WeightedSampler", "weights", weights, "fiub").astype(np.float64)
        if not np.isfinite(weights).all() or (weights < 0).any() or not weights.any():
            raise ValueError(f"{name}: weights must be finite and at least 0, and not all be 0")
        count = len(weights) if count is None else integer(name, "count", count, least=1)
        weights = weights / weights.max()  # the sum of large ones may be infinite
        weights = weights / weights.sum()
        able = int(np.count_nonzero(weights))
        if not replace and count > able:
            raise ValueError(
                f"{name}: {able} examples have a weight above 0, so {count} cannot be drawn "
                "without replacement; give count, or replace=True"
            )
        self.__attrs_init__(lock(weights), count, replace)

    def __call__(self, key: Any, epoch: int) -> Any:
        key = _epoch_key("WeightedSampler", key, epoch)
        weights = self.weights
        return random.choice(key, len(weights), (self.count,), self.replace, weights)


@public("fdbr.train")
@attrs.frozen(eq=False, init=False)
class StratifiedSampler:
    """Each example once, spread so that every stretch has the classes in their proportions.

    A class of a tenth of the examples has, in each batch, a tenth of it, up to one or two.

    Parameters
    ----------
    labels
        The class of each example: integers or strings.

    Raises
    ------
    TypeError
        If labels are no sequence of integers or strings.

    >>> from fdbr import random, train
    >>> labels = [0] * 8 + [1] * 4
    >>> order = train.StratifiedSampler(labels)(random.key(0), 0)
    >>> [sum(labels[i] for i in order[k : k + 3]) for k in range(0, 12, 3)]
    [1, 1, 1, 1]
    """

    labels: Any

    def __init__(self, labels: Any) -> None:
        labels = _vector("StratifiedSampler", "labels", labels, "iubSU")
        numbers = np.unique(labels, return_inverse=True)[1]
        self.__attrs_init__(lock(numbers))

    def __call__(self, key: Any, epoch: int) -> Any:
        count = len(self.labels)
        if key is None:
            order, ties = np.arange(count), np.arange(count)
        else:
            first, second = random.split(random.fold_in(key, epoch))
            order = np.asarray(random.permutation(first, count))
            ties = np.asarray(random.permutation(second, count))
        return order[spread(self.labels[order], ties)]


def spread(classes: Any, ties: Any) -> Any:
    """An order that spreads classes, numbered from 0, evenly; ``ties`` decides between equals."""
    by_class = np.argsort(classes, kind="stable")
    sizes = np.bincount(classes)
    ranks = np.empty(len(classes))
    ranks[by_class] = np.arange(len(classes)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.lexsort((ties, (ranks + 0.5) / sizes[classes]))


@public("fdbr.train")
@attrs.frozen(eq=False, init=False)
class BucketSampler:
    """Each example once, in batches of like lengths, so that little is padded.

    Examples are put into buckets by their lengths, shuffled there, and each batch is of one
    bucket.  Batches come in random order.  The last batch of each bucket may be smaller, or is
    left out with ``drop_last``.  Without a key, buckets and what is in them come in order.

    Parameters
    ----------
    lengths
        The length of each example: integers.
    boundaries
        Rising lengths at which buckets end: examples shorter than the first make a bucket, and
        so on, and those as long as the last, or longer, make the last bucket.  Or the number of
        buckets, which then are as equal in number of examples as lengths allow.

    Raises
    ------
    TypeError, ValueError
        If lengths are no integers, or boundaries do not rise.

    >>> import numpy as np
    >>> from fdbr import random, train
    >>> texts = [np.zeros(n) for n in (1, 9, 2, 8, 3, 7)]
    >>> sampler = train.BucketSampler([len(text) for text in texts], boundaries=[5])
    >>> batches = train.Batches(texts, 3, random.key(0), sampler=sampler,
    ...                         collate=train.collate_padded())
    >>> sorted(batch.shape for batch in batches)
    [(3, 3), (3, 9)]
    """

    lengths: Any
    buckets: tuple[Any, ...]

    def __init__(self, lengths: Any, boundaries: Sequence[int] | int = 10) -> None:
        lengths = _vector("BucketSampler", "lengths", lengths, "iu")
        name = "fdbr.train.BucketSampler"
        if hasattr(boundaries, "__index__"):
            buckets = integer(name, "boundaries", boundaries, least=1)
            places = np.arange(1, buckets) * len(lengths) // buckets
            edges = np.unique(np.sort(lengths)[places])
        else:
            edges = np.asarray(boundaries)
            if edges.ndim != 1 or edges.dtype.kind not in "iuf" or (np.diff(edges) <= 0).any():
                raise ValueError(
                    f"{name}: boundaries must be rising lengths, or a number of buckets, got "
                    f"{boundaries!r}"
                )
        numbers = np.searchsorted(edges, lengths, side="right")
        members = [np.flatnonzero(numbers == bucket) for bucket in range(len(edges) + 1)]
        self.__attrs_init__(lengths, tuple(lock(m) for m in members if m.size))

    def __call__(self, key: Any, epoch: int) -> Any:
        return np.concatenate(self.batches(key, epoch, len(self.lengths), False))

    def batches(self, key: Any, epoch: int, size: int, drop_last: bool) -> list[Any]:
        """The numbers of the examples of each batch of an epoch."""
        if key is not None:
            key = random.fold_in(key, epoch)
        made = []
        for number, members in enumerate(self.buckets):
            if key is not None:
                members = members[random.permutation(random.fold_in(key, number), len(members))]
            end = len(members) - len(members) % size if drop_last else len(members)
            made += [members[begin : begin + size] for begin in range(0, end, size)]
        if key is None:
            return made
        order = random.permutation(random.fold_in(key, len(self.buckets)), len(made))
        return [made[place] for place in order]
