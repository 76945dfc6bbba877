"""Evaluation by all ranks together."""

from collections.abc import Callable, Mapping
from typing import Any

from fdbr.distributed.arguments import communicator_of
from fdbr.distributed.communicator import Communicator
from fdbr.distributed.loop.means import plain, together
from fdbr.distributed.objects import all_gather_object
from fdbr.errors.public import public
from fdbr.train.loop.examples import examples_of
from fdbr.train.stages.averages import means
from fdbr.train.stages.evaluation import adding, evaluated_feed, sums_of
from fdbr.train.stages.piping import Stage
from fdbr.train.triggers.base import Condition, as_trigger
from fdbr.train.triggers.intervals import each_epoch

__all__ = ["evaluate"]


@public("fdbr.distributed")
def evaluate(
    metrics_of_state: Callable[[Any, Any], Mapping[str, Any]],
    comm: Communicator,
    batches: Any,
    every: Condition = each_epoch,
    prefix: str = "test/",
    name: str = "evaluate",
    *,
    examples: Callable[[Any], int | None] = examples_of,
) -> Stage:
    """A stage that adds metrics of the state to some reports: means over the examples of all ranks.

    `fdbr.train.evaluate` with ``batches``, divided among ranks.  All ranks get the same numbers, to
    the last bit.  Ranks may have different numbers of examples, and of batches, or none: a batch
    without examples is passed by.

    Metrics of the state alone need no other ranks: `fdbr.train.evaluate` computes them.

    Parameters
    ----------
    metrics_of_state
        ``metrics_of_state(state, batch)``: a mapping from names to means over the examples of the
        batch.  It calls no collective, unless all ranks have as many batches with examples.
    comm
        The ranks.
    batches
        The data of this rank: ``share(test_batches, comm)``, or batches of its part of a dataset.
    every
        Which reports; by default the last of each epoch.
    prefix
        What is put before the names.
    name
        That of the stage, under which it keeps what its trigger keeps.
    examples
        ``examples(batch)``: how many examples a batch has, or `None`; as in `fdbr.train.fit`.

    Returns
    -------
    stage
        Raises ValueError where a report has a metric of that name already, TypeError if the metrics
        are no mapping.

    Raises
    ------
    TypeError
        If ``metrics_of_state`` is no function, or ``batches`` are none that can be read again.

    >>> import numpy as np
    >>> from fdbr import distributed, train
    >>> data = train.Batches(np.arange(5.0), size=4)
    >>> report = train.Report(1, 1, {}, 2.0, train.Position(1, 0), 0.1)
    >>> def f(comm):
    ...     own = distributed.share(data, comm)
    ...     stage = distributed.evaluate(lambda s, x: {"mean": s * x.mean()}, comm, own)
    ...     return dict(next(stage(iter([report]))).metrics)
    >>> distributed.run_in_threads(f, 3)
    [{'test/mean': 4.0}, {'test/mean': 4.0}, {'test/mean': 4.0}]
    """
    comm = communicator_of("evaluate", comm)
    trigger = as_trigger("evaluate", "every", every)
    feed = evaluated_feed(batches)

    def found(state: Any) -> Mapping[str, Any]:
        own = plain(sums_of(metrics_of_state, state, feed, examples))
        return means(together(all_gather_object(own, comm)))

    return adding(found, trigger, prefix, name)
