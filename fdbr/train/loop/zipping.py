"""Several sources of batches as one."""

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from fdbr.errors.checks import integer
from fdbr.errors.public import public
from fdbr.train.data.parts import part_of
from fdbr.train.loop.positions import Position
from fdbr.train.loop.sources import Source, feed_of

__all__ = ["Zip", "zip"]


@attrs.frozen
class Zip:
    """Sources that are read side by side; `zip` makes it.

    Attributes
    ----------
    sources
        By their names, or by their numbers.
    is_tuple
        Whether a batch is a tuple of theirs, not a dict.
    """

    sources: Mapping[Any, Source]
    is_tuple: bool

    def __len__(self) -> int:
        """The number of batches in an epoch: that of the longest source."""
        return max(map(_size, self.sources.values()))

    def positions(self, position: Position) -> Any:
        """The position of each source, when that of all is given: a tuple, or a dict.

        >>> import numpy as np
        >>> from fdbr import train
        >>> pair = train.zip(train.Batches(np.arange(6), 2), train.Batches(np.arange(2), 1))
        >>> pair.positions(train.Position(1, 2))
        (Position(epoch=1, batch=2), Position(epoch=2, batch=1))
        """
        consumed = position.epoch * len(self) + position.batch
        found = {
            name: Position(*divmod(consumed, _size(source)))
            for name, source in self.sources.items()
        }
        return self._together(found)

    def epoch(self, number: int, start: int = 0) -> Iterator[Any]:
        """The batches of one epoch, from batch ``start`` on."""
        number = integer("fdbr.train.zip", "number", number, least=0)
        start = integer("fdbr.train.zip", "start", start, least=0)
        begin = number * len(self) + start
        streams = {name: _endless(source, begin) for name, source in self.sources.items()}
        return self._batches(streams, len(self) - start)

    def order_settings(self, number: int, start: int) -> dict[str, Any]:
        """The settings that must be the same when a run continues at a batch of an epoch.

        If one source is shorter than another, an epoch of the whole may begin within an epoch of
        the shorter one.  Then there are settings at the beginning of an epoch, too.
        """
        sizes = {name: _size(source) for name, source in self.sources.items()}
        if not start and len(set(sizes.values())) == 1:
            return {}
        found: dict[str, Any] = {}
        for name, source in self.sources.items():
            found[f"number of batches of source {name!r}"] = sizes[name]
            within = number * len(self) // sizes[name]
            own = feed_of(source).order_settings(within, 1)
            found |= {f"{setting} of source {name!r}": value for setting, value in own.items()}
        return found

    def part(self, index: int, count: int) -> "Zip":
        """The same of one part of each batch; see `Batches.part`."""
        parts = {
            name: part_of("fdbr.train.zip", source, index, count)
            for name, source in self.sources.items()
        }
        return Zip(parts, self.is_tuple)

    def _batches(self, streams: dict[Any, Iterator[Any]], count: int) -> Iterator[Any]:
        for _ in range(count):
            yield self._together({name: next(stream) for name, stream in streams.items()})

    def _together(self, parts: dict[Any, Any]) -> Any:
        return tuple(parts.values()) if self.is_tuple else parts


@public("fdbr.train")
def zip(*sources: Source, **named: Source) -> Zip:
    """Several sources of batches side by side, as one.

    An epoch is as long as that of the longest.  The others begin again when they are through, with
    epochs of their own, and so with orders of their own: a position of the whole says where each
    of them is.

    Parameters
    ----------
    *sources
        `Batches`, or whatever has ``len`` and ``epoch(number, start)``: a batch is a tuple of
        theirs.
    **named
        The same under names: a batch is a dict of theirs.

    Returns
    -------
    Zip
        A source for `fit`, with ``len`` and ``epoch(number, start)``; ``positions(position)``
        gives the position of each.

    Raises
    ------
    TypeError
        If there is no source, if some have names and some have none, or if one has no length.
    ValueError
        If one has no batch; when it is read, if one has fewer batches than its length.

    >>> import numpy as np
    >>> from fdbr import train
    >>> few, many = train.Batches(np.arange(2), 1), train.Batches(np.arange(6), 2)
    >>> for batch in train.zip(labelled=few, unlabelled=many).epoch(0):
    ...     print(batch["labelled"], batch["unlabelled"])
    [0] [0 1]
    [1] [2 3]
    [0] [4 5]
    """
    if bool(sources) == bool(named):
        raise TypeError(
            "fdbr.train.zip: give sources, such as Batches, either all with names or all without"
        )
    given: dict[Any, Any] = dict(named) if named else dict(enumerate(sources))
    for name, source in given.items():
        if not callable(getattr(source, "epoch", None)) or not hasattr(source, "__len__"):
            raise TypeError(
                f"fdbr.train.zip: source {name!r} must have len and epoch(number, start), so that "
                f"its position can be told; got {type(source).__name__}"
            )
        if not len(source):
            raise ValueError(f"fdbr.train.zip: source {name!r} has no batch")
    return Zip(given, is_tuple=not named)


def _size(source: Any) -> int:
    return len(source)


def _endless(source: Any, consumed: int) -> Iterator[Any]:
    """The batches of a source, epoch after epoch, after so many of them."""
    size = _size(source)
    epoch, start = divmod(consumed, size)
    while True:
        done = start
        for batch in source.epoch(epoch, start):
            yield batch
            done += 1
        if done != size:
            raise ValueError(
                f"fdbr.train.zip: a source has len {size}, but epoch {epoch} ended after batch "
                f"{done}; len must be the number of batches in every epoch"
            )
        epoch, start = epoch + 1, 0
