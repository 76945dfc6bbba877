"""Sources of batches that are read ahead."""

import itertools
import os
from collections.abc import Iterator
from typing import Any

import attrs

from fdbr.errors.checks import describe, integer
from fdbr.errors.public import public
from fdbr.train.data.parts import part_of
from fdbr.train.data.prefetching.processes import Processes
from fdbr.train.data.prefetching.threads import by_threads
from fdbr.train.loop.sources import feed_of

__all__ = ["prefetch"]

_NAME = "fdbr.train.prefetch"


@attrs.frozen(eq=False)
class Ahead:
    """Batches that are read ahead, of a source without a length."""

    batches: Any
    workers: int
    processes: bool
    ahead: int
    _pool: Processes = attrs.field(factory=Processes, init=False, repr=False)

    def __iter__(self) -> Iterator[Any]:
        """The batches of epoch 0."""
        return self.epoch(0)

    def epoch(self, number: int, start: int = 0) -> Iterator[Any]:
        """The batches of an epoch, from batch ``start`` on; see `Batches.epoch`."""
        number = integer(f"{_NAME} of epoch", "number", number, least=0)
        start = integer(f"{_NAME} of epoch", "start", start, least=0)
        by = self._pool.batches if self.processes else by_threads
        return by(self.batches, number, start, self._places(start), self.workers, self.ahead)

    def order_settings(self, number: int, start: int) -> Any:
        """The settings of the batches; see `Batches.order_settings`."""
        return feed_of(self.batches).order_settings(number, start)

    def close(self) -> None:
        """End the worker processes that wait for the next epoch, which would start new ones."""
        self._pool.close()

    def part(self, index: int, count: int) -> Any:
        """The same of one part of each batch; see `Batches.part`."""
        return attrs.evolve(self, batches=part_of(f"{_NAME}.part", self.batches, index, count))

    def _places(self, start: int) -> Any:
        return itertools.count(start)


class AheadOfKnownLength(Ahead):
    """Batches that are read ahead."""

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        return len(self.batches)

    def _places(self, start: int) -> Any:
        count = len(self.batches)
        if start > count:
            raise ValueError(
                f"{_NAME} of epoch: start is {start}, but an epoch has {count} batches; does the "
                "position belong to other batches?"
            )
        return range(start, count)


@public("fdbr.train")
def prefetch(
    batches: Any, workers: int | None = None, processes: bool = False, ahead: int | None = None
) -> Any:
    """The same batches in the same order, read ahead by other threads or processes.

    Threads are there while an epoch is read.  Processes are started with the first epoch and read
    all later ones, too: until the result is closed, ``source.close()``, or garbage collected, until
    an error or Ctrl-C ends an epoch, or until the program ends, however it does.

    Parameters
    ----------
    batches
        `Batches`, or another source of batches; of one that can only be read in order (it has no
        ``reader``, as `Stream` has none), there is one worker.
    workers
        How many threads or processes; by default one less than there are processors, and at least
        one.
    processes
        Whether they are processes, for datasets whose reading holds Python's lock.  Dataset,
        sampler and functions are then pickled, arrays that are mapped from files by the names of
        these, and sent to the processes: as they are when an epoch begins, if they are not what
        they were in the one before.  Batches come back over shared memory.  A program that starts
        processes must begin its work under ``if __name__ == "__main__":``.
    ahead
        How many batches are read, or being read, at most before they are asked for; by default
        two for each worker.  Of processes each has 64 at most.

    Returns
    -------
    source
        It has ``epoch(number, start)``, ``close()``, and ``len`` if ``batches`` has.

    Raises
    ------
    TypeError
        If ``batches`` have no ``epoch``; when an epoch begins, if they cannot be pickled.
    ValueError
        If ``workers`` or ``ahead`` is no positive integer.
    RuntimeError
        When a batch is asked for, if the process that should read it has died.
    Exception
        Whatever reading a batch raises, when its turn comes, with a note of the example and of
        the traceback in the worker.

    >>> import numpy as np
    >>> from fdbr import train
    >>> batches = train.Batches(np.arange(5), 2)
    >>> [batch.tolist() for batch in train.prefetch(batches, workers=2)]
    [[0, 1], [2, 3], [4]]
    """
    if not callable(getattr(batches, "epoch", None)):
        raise TypeError(
            f"{_NAME}: batches must have epoch(number, start), as fdbr.train.Batches and "
            f"fdbr.train.Stream have, got {describe(batches)}"
        )
    if workers is not None:
        workers = integer(_NAME, "workers", workers, least=1)
    else:
        workers = max(1, _processors() - 1)
    if not hasattr(batches, "reader"):
        workers = 1
    ahead = 2 * workers if ahead is None else integer(_NAME, "ahead", ahead, least=1)
    known = hasattr(batches, "__len__")
    return (AheadOfKnownLength if known else Ahead)(batches, workers, bool(processes), ahead)


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
