"""Sources of batches: whatever `fit` can read epoch after epoch."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import attrs

from fdbr.core.array_modules import is_array
from fdbr.train.loop.continuing import Again

__all__ = ["Feed", "Source", "explain_key", "feed_of"]

_END = object()


class Source(Protocol):
    """The protocol of the batches that `fit` takes; `Batches` fulfils it.

    With ``__len__``, the number of batches in an epoch, a run knows where it will end, and reads
    no batch before it is needed; without, it reads one batch ahead to see the end of an epoch.
    """

    def epoch(self, number: int, start: int = 0) -> Iterator[Any]:
        """The batches of an epoch, from batch ``start`` on."""
        ...

    # A source may have ``order_settings(number, start) -> Mapping[str, int | str]`` as well: the
    # settings that must be the same when a run continues at batch ``start`` of an epoch.


@attrs.frozen
class Feed:
    """A source, as the loop reads it.

    Attributes
    ----------
    epoch
        ``epoch(number, start)``: an iterator of batches.
    size
        How many an epoch has, if that is known.
    passes
        How often it can be read; `None` is any number of times.
    order
        ``order(number, start)``: the settings on which the order of batches depends.
    is_iterable
        Whether it is read from its beginning in every epoch.
    is_fixed
        Whether its order is known to be the same in every epoch.
    """

    epoch: Callable[[int, int], Iterator[Any]]
    size: int | None
    passes: int | None = None
    order: Callable[[int, int], Mapping[str, Any]] | None = None
    is_iterable: bool = False
    is_fixed: bool = False

    def order_settings(self, number: int, start: int) -> Mapping[str, Any]:
        """The settings that must be the same when a run continues at a batch of an epoch."""
        own = {} if self.order is None else self.order(number, start)
        if not start:
            return own
        return {**own, "number of batches": self.size}

    def batches(self, epoch: int, start: int) -> Iterator[tuple[Any, int, bool]]:
        """Each batch of an epoch, the number of those consumed with it, and whether it is last."""
        stream = self.epoch(epoch, start)
        marked = self._counted if self.size is not None else self._ahead
        try:
            done = start
            for batch, done, last in marked(stream, start):
                yield batch, done, last
            if self.size is not None and done < self.size:
                raise self._misjudged(epoch, f"ended after batch {done}")
            if self.size is None and done == start:
                raise ValueError(
                    f"fdbr.train.fit: epoch {epoch} of batches has no batch after the first {start}"
                    + ("; was the position reached with other batches?" if start else "")
                )
        finally:
            if (close := getattr(stream, "close", None)) is not None:
                close()

    def _counted(self, stream: Iterator[Any], start: int) -> Iterator[tuple[Any, int, bool]]:
        size = self.size
        done = start
        for batch in stream:
            done += 1
            if done > size:  # type: ignore[operator]
                raise self._misjudged(None, f"has a batch {done}")
            yield batch, done, done == size

    def _ahead(self, stream: Iterator[Any], start: int) -> Iterator[tuple[Any, int, bool]]:
        batch = next(stream, _END)
        done = start
        while batch is not _END:
            following = next(stream, _END)
            done += 1
            yield batch, done, following is _END
            batch = following

    def _misjudged(self, epoch: int | None, what: str) -> ValueError:
        which = "an epoch" if epoch is None else f"epoch {epoch}"
        return ValueError(
            f"fdbr.train.fit: batches has len {self.size}, but {which} {what}; len must be the "
            "number of batches in every epoch"
        )


def feed_of(batches: Any, function: str = "fit") -> Feed:
    """A source, as the loop reads it, from the batches that `fit` was given.

    Raises
    ------
    TypeError
        If it is no source, and no iterable of batches.
    """
    if callable(getattr(batches, "epoch", None)):
        order = getattr(batches, "order_settings", None)
        return Feed(
            lambda number, start: iter(batches.epoch(number, start)), _length(batches), order=order
        )
    if not isinstance(batches, Iterable) or isinstance(batches, Mapping | str | bytes):
        raise _no_source(batches, function)
    if is_array(batches) or isinstance(batches, tuple):
        raise _no_source(batches, function)
    again = Again(batches)
    passes = 1 if isinstance(batches, Iterator) else None
    size = None if passes else _length(batches)
    fixed = isinstance(batches, Sequence)
    return Feed(again.epoch, size, passes, again.order_settings, True, fixed)


def explain_key(error: KeyError, batch: Any, where: str) -> None:
    """Add the keys of a batch to an error about one that it does not have."""
    if isinstance(batch, Mapping) and error.args and error.args[0] not in batch:
        keys = ", ".join(map(repr, batch)) or "none"
        error.add_note(f"{where}: the batch has no {error.args[0]!r}; its keys are {keys}")


def _length(batches: Any) -> int | None:
    try:
        return len(batches)
    except TypeError:  # a loader of a stream may have a `__len__` that says so
        return None


def _no_source(batches: Any, function: str) -> TypeError:
    return TypeError(
        f"fdbr.train.{function}: batches must have epoch(number, start), or be an iterable of "
        f"batches, got {type(batches).__name__}; make them with fdbr.train.Batches(dataset, size)"
    )
