"""Parts of batches: what one of several processes has of each."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs
import optree

from fdbr.core.array_modules import is_array
from fdbr.errors.checks import describe, integer
from fdbr.pytrees.classes import NAMESPACE
from fdbr.pytrees.structure import settle
from fdbr.train.loop.examples import examples_of
from fdbr.train.loop.sources import Feed, feed_of

__all__ = ["bounds", "collated", "cut", "pair", "part_of"]


def pair(function: str, index: Any, count: Any) -> tuple[int, int]:
    """The number of a part and how many there are, if they are that."""
    count = integer(function, "count", count, least=1)
    index = integer(function, "index", index, least=0)
    if index >= count:
        raise ValueError(f"{function}: index must be below count={count}, got {index}")
    return index, count


def bounds(size: int, parts: tuple[tuple[int, int], ...]) -> tuple[int, int]:
    """Begin and end of a part of so many examples; of a part of that, and so on.

    >>> [bounds(5, ((i, 3),)) for i in range(3)]
    [(0, 2), (2, 4), (4, 5)]
    """
    begin, end = 0, size
    for index, count in parts:
        each, more = divmod(end - begin, count)
        begin += index * each + min(index, more)
        end = begin + each + (index < more)
    return begin, end


def collated(collate: Callable[[list[Any]], Any], examples: list[Any], count: int) -> Any:
    """A batch of the first ``count`` examples; of none, that of one without its rows."""
    return collate(examples) if count else cut(collate(examples), 0, 0)


def cut(batch: Any, begin: int, end: int, count: int | None = None) -> Any:
    """Some examples of a batch, views of its arrays; ``count`` is how many it has."""
    if count is None:
        count = examples_of(batch)
        if count is None:
            raise ValueError(
                f"fdbr.train: a batch that is {describe(batch)} has no array with a first axis, "
                "which would run over its examples, so there are no parts of it"
            )
    if isinstance(batch, list) and _is_of_examples(batch, count):
        return batch[begin:end]
    if batch is None or (is_array(batch) and not batch.shape):
        return batch
    shape = getattr(batch, "shape", None)
    if isinstance(shape, tuple) and shape:
        if shape[0] != count:
            raise ValueError(
                f"fdbr.train: of a batch of {count} examples there is no part where it has "
                f"{describe(batch)}: the first axes of its arrays must run over the examples"
            )
        return batch[begin:end]
    below, structure = _one_level(batch)
    if below is None:
        return batch  # a number, or a text, that is the same for all examples
    return optree.tree_unflatten(structure, [cut(part, begin, end, count) for part in below])


def _is_of_examples(items: list[Any], count: int) -> bool:
    """Whether a list has an item for each example, and not an array for each column."""
    return len(items) == count and examples_of(items) == count


def _one_level(batch: Any) -> tuple[list[Any] | None, Any]:
    """The parts of a node of a tree, and its structure; `None` of a leaf."""
    settle()
    below, structure = optree.tree_flatten(
        batch, is_leaf=lambda node: node is not batch, none_is_leaf=True, namespace=NAMESPACE
    )
    return (None, None) if structure.is_leaf() else (below, structure)


# --- sources ------------------------------------------------------------------------


def part_of(function: str, source: Any, index: int, count: int) -> Any:
    """The source of one part of each batch of another.

    Those that have a method ``part`` make it themselves, and read no more than that; of others,
    whole batches are read and cut.
    """
    own = getattr(source, "part", None)
    if callable(own) and not isinstance(source, Mapping):
        return own(index, count)
    feed = feed_of(source, "Batches.part")
    parts = (pair(function, index, count),)
    if feed.passes is not None:
        return (_cut(batch, parts) for batch in feed.epoch(0, 0))
    return (Part if feed.size is None else PartOfKnownLength)(source, parts)


def _cut(batch: Any, parts: tuple[tuple[int, int], ...]) -> Any:
    count = examples_of(batch)
    return cut(batch, *bounds(0 if count is None else count, parts), count)


@attrs.frozen(eq=False)
class Part:
    """A part of each batch of a source, which is cut out of it."""

    batches: Any
    parts: tuple[tuple[int, int], ...]
    _feed: Feed = attrs.field(init=False, repr=False)

    @_feed.default
    def _feed_of(self) -> Feed:
        return feed_of(self.batches, "Batches.part")

    def order_settings(self, number: int, start: int) -> Any:
        """The settings of the batches; see `Batches.order_settings`."""
        return self._feed.order_settings(number, start)

    def __iter__(self) -> Iterator[Any]:
        """The batches of epoch 0."""
        return self.epoch(0)

    def epoch(self, number: int, start: int = 0) -> Iterator[Any]:
        """The batches of an epoch, from batch ``start`` on."""
        stream = self._feed.epoch(number, start)
        try:
            for batch in stream:
                yield _cut(batch, self.parts)
        finally:
            if (close := getattr(stream, "close", None)) is not None:
                close()

    def part(self, index: int, count: int) -> Any:
        """A part of each part."""
        return attrs.evolve(self, parts=(*self.parts, pair("fdbr.train", index, count)))


class PartOfKnownLength(Part):
    """A part of each batch of a source whose length is known."""

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        return len(self.batches)
