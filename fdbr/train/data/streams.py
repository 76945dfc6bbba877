"""Streams: examples that can only be read one after another, in batches."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import attrs
import numpy as np

from fdbr import random
from fdbr.core.array_modules import to_numpy
from fdbr.errors.checks import describe, integer
from fdbr.errors.public import public
from fdbr.train.data.collation import collate_stack
from fdbr.train.data.parts import bounds, collated, pair
from fdbr.train.loop.continuing import checksum_of

__all__ = ["Stream"]

_NAME = "fdbr.train.Stream"


@public("fdbr.train")
@attrs.frozen(eq=False, init=False)
class Stream:
    """Examples that can only be read one after another, in batches: a source for `fit`.

    It has no length.  A run that continues from the middle of an epoch reads that epoch from its
    beginning and leaves out what was consumed; an iterable that can ``skip(n)`` examples, as those
    of Hugging Face can, is asked to.

    Parameters
    ----------
    examples
        ``examples(epoch)``: an iterable of the examples of an epoch, the same whenever it is
        called, and finite or not.  Or an iterable that can be iterated anew, such as a Hugging
        Face ``IterableDataset``, whose ``set_epoch`` is called if it has one.
    size
        How many examples make a batch.
    shard
        A pair ``(index, count)``: of ``count`` consecutive examples, only that one.  One process
        of several has one shard each.
    window
        With a key, examples leave a window of so many in random order; the order depends on key
        and epoch alone.
    key
        A key, for ``window``.
    drop_last
        Whether to leave out a last batch that is smaller.
    collate
        As for `Batches`.

    Raises
    ------
    TypeError, ValueError
        If ``examples`` is an iterator, which is used up after one epoch, or a number is out of its
        range; by `epoch`, if there is no batch in it.

    >>> from fdbr import train
    >>> stream = train.Stream(lambda epoch: range(epoch, epoch + 5), size=2)
    >>> [batch.tolist() for batch in stream.epoch(1, start=1)]
    [[3, 4], [5]]
    """

    examples: Any
    size: int
    shard: tuple[int, int]
    window: int
    key: Any
    drop_last: bool
    collate: Callable[[list[Any]], Any] | None
    _parts: tuple[tuple[int, int], ...] = attrs.field(default=(), repr=False)

    def __init__(
        self,
        examples: Callable[[int], Iterable[Any]] | Iterable[Any],
        size: int,
        shard: tuple[int, int] = (0, 1),
        window: int = 1,
        key: Any = None,
        drop_last: bool = False,
        collate: Callable[[list[Any]], Any] | None = None,
    ) -> None:
        if isinstance(examples, Iterator) or not (callable(examples) or _again(examples)):
            raise TypeError(
                f"{_NAME}: examples must be a function of the epoch that gives an iterable, or "
                f"what can be iterated anew for each epoch, not {describe(examples)}; give "
                "lambda epoch: (… for … in …)"
            )
        size = integer(_NAME, "size", size, least=1)
        window = integer(_NAME, "window", window, least=1)
        if not isinstance(shard, tuple) or len(shard) != 2:
            raise TypeError(f"{_NAME}: shard must be a pair (index, count), got {describe(shard)}")
        number = integer(_NAME, "shard[1]", shard[1], least=1)
        index = integer(_NAME, "shard[0]", shard[0], least=0)
        if index >= number:
            raise ValueError(f"{_NAME}: shard must be an index below a count, got {shard}")
        if (window > 1) != (key is not None):
            raise ValueError(f"{_NAME}: to shuffle takes both a window above 1 and a key")
        if key is not None:
            random.fold_in(key, 0)  # which says so if it is no key
        self.__attrs_init__(examples, size, (index, number), window, key, bool(drop_last), collate)

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
            If ``number`` or ``start`` is no integer ≥ 0; when it is read, if there is no batch.

        >>> from fdbr import train
        >>> list(train.Stream([1, 2, 3], size=2).epoch(0))
        [array([1, 2]), array([3])]
        """
        number = integer(f"{_NAME}.epoch", "number", number, least=0)
        start = integer(f"{_NAME}.epoch", "start", start, least=0)
        return self._batches(number, start)

    def _batches(self, number: int, start: int) -> Iterator[Any]:
        collate = self.collate or collate_stack
        some = start > 0
        examples = self._examples(number, start * self.size)
        while part := list(itertools.islice(examples, self.size)):
            if len(part) < self.size and self.drop_last:
                break
            some = True
            begin, end = bounds(len(part), self._parts)
            yield collated(collate, part[begin:end] or part[:1], end - begin)
        if not some:
            raise ValueError(
                f"{_NAME}: epoch {number} has no batch of {self.size} examples; examples must "
                "give an iterable that begins anew in every epoch"
            )

    def order_settings(self, number: int, start: int) -> dict[str, Any]:
        """The settings that must be the same when a run continues at a batch of an epoch.

        >>> from fdbr import train
        >>> train.Stream([1, 2, 3], size=2).order_settings(0, 1)["window"]
        1
        """
        if not start:
            return {}
        return {
            "source": "Stream",
            "size": self.size,
            "number of shards": self.shard[1],
            "window": self.window,
            "drop_last": self.drop_last,
            "key": "unused" if self.key is None else checksum_of(to_numpy(self.key)),
        }

    def part(self, index: int, count: int) -> "Stream":
        """The same batches in the same order, each of them one part of its examples.

        All examples are read, as a stream cannot do otherwise; only those of the part are put
        together.  See `Batches.part`.

        >>> from fdbr import train
        >>> stream = train.Stream(lambda epoch: range(5), size=4)
        >>> [[batch.tolist() for batch in stream.part(i, 2)] for i in range(2)]
        [[[0, 1], [4]], [[2, 3], []]]
        """
        return self._changed(_parts=(*self._parts, pair(f"{_NAME}.part", index, count)))

    def with_key(self, key: Any) -> "Stream":
        """The same with another key."""
        return self._changed(key=key)

    def _changed(self, **changes: Any) -> "Stream":
        made = Stream.__new__(Stream)
        fields = {field.name: getattr(self, field.name) for field in attrs.fields(Stream)}
        made.__attrs_init__(*{**fields, **changes}.values())
        return made

    def _examples(self, number: int, skipped: int) -> Iterator[Any]:
        source = self.examples
        set_epoch = getattr(source, "set_epoch", None)
        if set_epoch is not None:
            set_epoch(number)
        if not _again(source):
            source = source(number)
        index, count = self.shard
        if self.key is None:
            before = skipped * count
            skip = getattr(source, "skip", None)
            rest = skip(before) if skip is not None and before else source
            begin = index + (0 if skip is not None else before)
            return itertools.islice(iter(rest), begin, None, count)
        part = itertools.islice(iter(source), index, None, count)
        shuffled = _shuffled(part, random.fold_in(self.key, number), self.window)
        return itertools.islice(shuffled, skipped, None)


def _again(source: Any) -> bool:
    """Whether a value can be iterated, anew each time."""
    return hasattr(source, "__iter__")


def _shuffled(examples: Iterator[Any], key: Any, window: int) -> Iterator[Any]:
    """Examples in an order in which each leaves a window of so many at random."""
    held = list(itertools.islice(examples, window))
    for number in itertools.count():
        # Places are drawn for many examples at once.
        draws = np.asarray(random.uniform(random.fold_in(key, number), (1024,), dtype="float64"))
        for draw in draws:
            if not held:
                return
            place = int(draw * len(held))
            chosen = held[place]
            fresh = next(examples, held)  # which is no example
            if fresh is held:
                held[place] = held[-1]
                held.pop()
            else:
                held[place] = fresh
            yield chosen
