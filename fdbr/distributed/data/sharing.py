"""Each rank's share of the same global batches."""

from collections.abc import Iterator
from typing import Any

import attrs

from fdbr import tree
from fdbr.core.array_modules import is_array, lock
from fdbr.distributed.arguments import communicator_of, root_of
from fdbr.distributed.communicator import Communicator
from fdbr.distributed.errors import RankFailedError
from fdbr.distributed.objects import broadcast_object
from fdbr.errors.checks import describe, integer
from fdbr.errors.public import public
from fdbr.train.data.parts import part_of
from fdbr.train.loop.sources import Feed, feed_of

__all__ = ["broadcast_batches", "share"]

_SHARE, _BROADCAST = "fdbr.distributed.share", "fdbr.distributed.broadcast_batches"


@public("fdbr.distributed")
def share(batches: Any, comm: Communicator) -> Any:
    """The share of one rank of the same global batches.

    Of each batch a rank has consecutive examples, so that the shares of all ranks, put together in
    their order, are the batch: whatever the number of ranks, a run sees the same batches in the
    same order.  Lengths, epochs and positions are those of the global batches, by which a run goes
    on where it stopped on another number of ranks.

    Shares differ by at most one example; the first ranks have that one more.  Where a batch has
    fewer examples than there are ranks, the last ones have none: their arrays have shape
    ``(0, ...)``.  Weigh gradients and metrics by the number of examples, then it does not matter:
    ``optimizer.update(grads, state, params, weight=n)`` with `average_gradients`, and
    `fdbr.distributed.aggregate`.

    Parameters
    ----------
    batches
        `fdbr.train.Batches`, of which no more is read than the rank's share; `fdbr.train.Stream`,
        of which each rank reads all examples and puts together its own; what
        `fdbr.train.prefetch` and `fdbr.train.zip` make of these; or another source of batches,
        whose arrays are cut along their first axes.  All ranks give the same: see
        `fdbr.distributed.synchronized`.
    comm
        The ranks.

    Returns
    -------
    source
        What `fdbr.train.fit` and `fdbr.train.prefetch` take.

    Raises
    ------
    TypeError
        If ``batches`` are none.
    ValueError
        When a batch is read, if its arrays have first axes of different lengths.

    >>> import numpy as np
    >>> from fdbr import distributed, train
    >>> batches = train.Batches(np.arange(5), size=4)
    >>> def f(comm):
    ...     return [batch.tolist() for batch in distributed.share(batches, comm)]
    >>> distributed.run_in_threads(f, 3)
    [[[0, 1], [4]], [[2], []], [[3], []]]
    """
    comm = communicator_of("share", comm)
    return part_of(_SHARE, batches, comm.rank, comm.size)


@public("fdbr.distributed")
def broadcast_batches(batches: Any, comm: Communicator, root: int = 0) -> Any:
    """The batches of one rank, on all ranks: the others read none.

    It is for models whose parts lie on several ranks, where all need the same batch, and for data
    that one machine alone has.  Batches are pickled on their way.

    Parameters
    ----------
    batches
        A source of batches on the root; on other ranks it is ignored, and may be `None`.
    comm
        The ranks.
    root
        The rank that reads.

    Returns
    -------
    source
        What `fdbr.train.fit` takes; its arrays are read-only.  All ranks read the same epochs.

    Raises
    ------
    TypeError
        If ``batches`` are none that can be read again.
    RankFailedError
        On other ranks, when a batch is asked for that the root could not read.

    >>> import numpy as np
    >>> from fdbr import distributed, train
    >>> def f(comm):
    ...     own = train.Batches(np.arange(3), size=2) if comm.rank == 0 else None
    ...     return [x.tolist() for x in distributed.broadcast_batches(own, comm).epoch(0)]
    >>> distributed.run_in_threads(f, 2)
    [[[0, 1], [2]], [[0, 1], [2]]]
    """
    root = root_of("broadcast_batches", root, comm)
    feed, failure = None, None
    if comm.rank == root:
        try:
            feed = feed_of(batches, "fit")
            if feed.passes is not None:
                raise TypeError(
                    f"{_BROADCAST}: batches must be such as can be read again: Batches, or a "
                    f"list, not {describe(batches)}"
                )
        except TypeError as error:
            failure = error
    text = None if failure is None else str(failure)
    size, text = broadcast_object((feed and feed.size, text), comm, root)
    if text is not None:
        raise TypeError(text)
    return (Broadcast if size is None else BroadcastOfKnownLength)(feed, comm, root, size)


@attrs.frozen(eq=False)
class Broadcast:
    """Batches that one rank reads for all."""

    feed: Feed | None
    comm: Communicator
    root: int
    size: int | None

    def __iter__(self) -> Iterator[Any]:
        """The batches of epoch 0."""
        return self.epoch(0)

    def epoch(self, number: int, start: int = 0) -> Iterator[Any]:
        """The batches of an epoch, from batch ``start`` on."""
        number = integer(f"{_BROADCAST} of epoch", "number", number, least=0)
        start = integer(f"{_BROADCAST} of epoch", "start", start, least=0)
        if self.feed is None:
            return self._received()
        return self._sent(self.feed.epoch(number, start))

    def order_settings(self, number: int, start: int) -> Any:
        """The settings of the batches on the rank that reads them; nothing on other ranks."""
        return {} if self.feed is None else self.feed.order_settings(number, start)

    def _sent(self, stream: Iterator[Any]) -> Iterator[Any]:
        try:
            while True:
                try:
                    batch = next(stream)
                except StopIteration:
                    break
                except Exception as error:
                    broadcast_object(
                        ("failed", f"{type(error).__name__}: {error}"), self.comm, self.root
                    )
                    raise
                broadcast_object(("batch", batch), self.comm, self.root)
                yield batch
            broadcast_object(("end", None), self.comm, self.root)
        finally:
            if (close := getattr(stream, "close", None)) is not None:
                close()

    def _send(self, what: str, value: Any) -> None:
        broadcast_object((what, value), self.comm, self.root)

    def _received(self) -> Iterator[Any]:
        while True:
            what, batch = broadcast_object(None, self.comm, self.root)
            if what == "failed":
                raise RankFailedError(
                    f"{_BROADCAST}: rank {self.root} could not read the next batch: {batch}"
                )
            if what == "end":
                return
            yield tree.map(lambda leaf: lock(leaf) if is_array(leaf) else leaf, batch)


class BroadcastOfKnownLength(Broadcast):
    """Batches that one rank reads for all, and whose number is known."""

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        assert self.size is not None
        return self.size
