"""Pipelines: stages of a model on ranks one after the other, and micro-batches through them."""

from collections.abc import Callable
from typing import Any

import fdbr.transforms.vjp as transforms
from fdbr import ops, tree
from fdbr.distributed.arguments import communicator_of
from fdbr.distributed.collectives import broadcast, receive, send
from fdbr.distributed.communicator import Communicator
from fdbr.distributed.objects import receive_object, send_object
from fdbr.distributed.parallel.forms import form_of, zeros_of
from fdbr.distributed.parallel.schedules import FORWARD, Schedule, schedule
from fdbr.distributed.parallel.shards import bounds
from fdbr.errors.checks import integer
from fdbr.errors.public import public

__all__ = ["pipeline"]

_FORWARD_TAG, _BACKWARD_TAG, _FORM_TAG = 101, 102, 103


@public("fdbr.distributed")
def pipeline(
    stage: Callable[[Any, Any], Any],
    loss: Callable[[Any, Any], Any],
    comm: Communicator,
    *,
    micro_batches: int,
    order: str | Schedule = "1f1b",
    checkpoint: bool = False,
) -> Callable[[Any, Any, Any], tuple[Any, Any]]:
    """A function that gives the loss of a model on several ranks, and each rank's own gradients.

    Rank 0 has the first stage of the model and the last rank the last one. A batch is divided into
    micro-batches, with which the ranks work at once.

    Parameters
    ----------
    stage
        ``stage(params, x)``: this rank's part of the model, of its parameters and what the rank
        before gives (a tree of arrays), of the batch's ``x`` on rank 0.
    loss
        ``loss(output, y)``: the mean loss over the examples of a micro-batch. It is called on the
        last rank alone.
    comm
        The ranks.
    micro_batches
        Into how many parts a batch is divided, along the first axis; not equal ones, it may be.
    order
        ``"1f1b"``, ``"gpipe"``, or a `Schedule`.
    checkpoint
        Whether a stage keeps its input alone, and is computed again when backward comes.

    Returns
    -------
    function
        ``step(params, x, y) -> (loss, gradients)``, which all ranks call: the mean loss over the
        whole batch, on all ranks, and the gradients of this rank's parameters. ``x`` matters on
        rank 0 and ``y`` on the last; both are on all ranks trees of as many examples.

    Raises
    ------
    ValueError
        If ``order`` is not for so many ranks and micro-batches, or would have ranks wait for each
        other; by the function, if there are fewer examples than micro-batches.

    See Also
    --------
    schedule : the order as a value.

    >>> import numpy as np
    >>> from fdbr import distributed, ops
    >>> def f(comm):
    ...     step = distributed.pipeline(
    ...         lambda w, x: w * x, lambda out, y: ops.mean((out - y) ** 2), comm, micro_batches=2
    ...     )
    ...     value, slope = step(2.0 + comm.rank, np.ones(4), np.zeros(4))
    ...     return float(value), float(slope)
    >>> distributed.run_in_threads(f, 2)
    [(36.0, 36.0), (36.0, 24.0)]
    """
    comm = communicator_of("pipeline", comm)
    count = integer("fdbr.distributed.pipeline", "micro_batches", micro_batches, least=1)
    plan = schedule(order, comm.size, count) if isinstance(order, str) else order
    _check(plan, comm.size, count)
    first, last = comm.rank == 0, comm.rank == comm.size - 1

    def step(params: Any, x: Any, y: Any) -> tuple[Any, Any]:
        total = _examples(x if first else y, count)
        cuts = [bounds(total, i, count) for i in range(count)]
        kept: dict[int, Any] = {}
        grads: Any = None
        value: Any = 0.0
        for kind, i in plan.ranks[comm.rank]:
            share = (cuts[i][1] - cuts[i][0]) / total
            if kind == FORWARD:
                given = _part(x, cuts[i]) if first else _received(comm, comm.rank - 1)
                target = _part(y, cuts[i]) if last else None
                function = _stage(target, share)
                if checkpoint:
                    out, kept[i] = function(params, given), (function, given)
                else:
                    out, kept[i] = _vjp(function, params, given)
                if last:
                    value = value + out
                else:
                    _sent(out, comm, comm.rank + 1)
                    if checkpoint:
                        kept[i] = (*kept[i], tree.map(ops.zeros_like, out))
                    else:
                        kept[i] = (kept[i], tree.map(ops.zeros_like, out))
                continue
            held = kept.pop(i)
            like = None
            if not last:
                *front, like = held
                held = tuple(front) if checkpoint else front[0]
            if checkpoint:
                _, held = _vjp(held[0], params, held[1])
            ct = 1.0 if last else receive(like, comm, comm.rank + 1, _BACKWARD_TAG)
            derivatives = held(ct)
            grads = derivatives[0] if grads is None else tree.map(ops.add, grads, derivatives[0])
            if not first:
                send(derivatives[1], comm, comm.rank - 1, _BACKWARD_TAG)
        return broadcast(value, comm, comm.size - 1), grads

    def _stage(target: Any, share: float) -> Callable[[Any, Any], Any]:
        if not last:
            return stage
        return lambda params, x: share * loss(stage(params, x), target)

    def _vjp(function: Any, params: Any, given: Any) -> tuple[Any, Any]:
        if first:  # whose input may be integers, and gets no cotangent
            out, pull = transforms.vjp(lambda params: function(params, given), params)
            return out, lambda ct: _pair(pull(ct))
        out, pull = transforms.vjp(function, params, given)
        return out, pull

    return step


def _pair(derivatives: Any) -> Any:
    return (derivatives[0] if isinstance(derivatives, tuple) else derivatives, None)


def _check(plan: Any, size: int, count: int) -> None:
    where = "fdbr.distributed.pipeline"
    if not isinstance(plan, Schedule):
        raise TypeError(f"{where}: order must be 'gpipe', '1f1b' or a Schedule, got {plan!r}")
    wanted = sorted((kind, i) for kind in ("backward", "forward") for i in range(count))
    if len(plan.ranks) != size or any(sorted(tasks) != wanted for tasks in plan.ranks):
        raise ValueError(
            f"{where}: the schedule is not one of {size} ranks that do each of {count} "
            "micro-batches once forward and once backward"
        )
    plan.timeline()
    orders = {
        kind: {tuple(i for k, i in tasks if k == kind) for tasks in plan.ranks}
        for kind in ("forward", "backward")
    }
    if any(len(found) > 1 for found in orders.values()):
        raise ValueError(
            f"{where}: all ranks must take the micro-batches in the same order, as messages come"
        )


def _examples(batch: Any, count: int) -> int:
    sizes = {leaf.shape[0] if getattr(leaf, "shape", ()) else -1 for leaf in tree.leaves(batch)}
    if len(sizes) != 1 or -1 in sizes:
        raise ValueError(
            "fdbr.distributed.pipeline: x and y must be trees of arrays whose first axis is that "
            "of examples, equally many on all ranks"
        )
    (total,) = sizes
    if total < count:
        raise ValueError(
            f"fdbr.distributed.pipeline: {total} examples cannot be divided into {count} "
            "micro-batches"
        )
    return int(total)


def _part(batch: Any, cut: tuple[int, int]) -> Any:
    return tree.map(lambda leaf: leaf[cut[0] : cut[1]], batch)


def _sent(out: Any, comm: Communicator, to: int) -> None:
    send_object(form_of(out), comm, to, _FORM_TAG)
    send(out, comm, to, _FORWARD_TAG)


def _received(comm: Communicator, source: int) -> Any:
    like = zeros_of(receive_object(comm, source, _FORM_TAG))
    return receive(like, comm, source, _FORWARD_TAG)
