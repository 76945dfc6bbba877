"""Optimizers of whose state each rank has a part."""

from typing import Any

from fdbr import tree
from fdbr.distributed.arguments import communicator_of
from fdbr.distributed.collectives import all_reduce
from fdbr.distributed.communicator import Communicator
from fdbr.distributed.gradients.weights import factor_of, weighted_there
from fdbr.distributed.parallel.elementwise import check_divisible
from fdbr.distributed.parallel.parts import all_of, own_part, reduced, whole_of
from fdbr.errors.public import public
from fdbr.train.optim.arithmetic import in_parts
from fdbr.train.optim.base import Optimizer

__all__ = ["sharded"]


@public("fdbr.distributed")
def sharded(optimizer: Optimizer, comm: Communicator, *, stage: int = 2) -> Optimizer:
    r"""Divide the state of an optimizer among the ranks, which average their gradients: ZeRO.

    Each rank keeps the state of ``1 / size`` of the elements of every parameter and updates these;
    then the ranks tell each other. It takes the place of `average_gradients`, sends as much, and
    gives the same parameters on all ranks:

    .. math:: u = \mathrm{all\_gather}(\mathrm{update}_r(\mathrm{reduce\_scatter}(g_r)))

    Parameters
    ----------
    optimizer
        One that works element by element, such as `fdbr.train.optim.adam`, or by norms of
        parameters or of all together, such as `fdbr.train.optim.lamb` or
        `fdbr.train.optim.clip_by_global_norm`: norms are summed over the ranks. ``init`` tries it
        on small arrays, and raises if it is of another kind (`fdbr.train.optim.muon`).
    comm
        The ranks.
    stage
        With 1, gradients are averaged whole; with 2, each rank gets its part of the average alone.
        With 3, parameters are divided too: ``init`` and ``update`` take those that `shard_params`
        gives, and gradients with respect to them, which `gather_params` has averaged.

    Returns
    -------
    Optimizer
        Its ``update(grads, state, params=None, *, weight=None)`` takes each rank's own gradients,
        and the number of its examples, as that of `average_gradients`.

    Raises
    ------
    ValueError
        If ``stage`` is another number; by ``init``, if the optimizer cannot be divided.

    References
    ----------
    S. Rajbhandari, J. Rasley, O. Ruwase, Y. He, "ZeRO: Memory Optimizations Toward Training
    Trillion Parameter Models", SC 2020.

    >>> import numpy as np
    >>> from fdbr import distributed
    >>> from fdbr.train import optim
    >>> def f(comm):
    ...     optimizer = distributed.sharded(optim.sgd(0.1, momentum=0.9), comm)
    ...     params = np.ones(3)
    ...     state = optimizer.init(params)
    ...     return optimizer.update(np.ones(3) * comm.rank, state, params)[0]
    >>> distributed.run_in_threads(f, 2)[0]
    array([-0.05, -0.05, -0.05])
    """
    comm = communicator_of("sharded", comm)
    if stage not in (1, 2, 3):
        raise ValueError(f"fdbr.distributed.sharded: stage must be 1, 2 or 3, got {stage!r}")

    def parts(values: Any) -> Any:
        return tree.map(lambda leaf: own_part(leaf, comm.rank, comm.size), values)

    def init(params: Any) -> Any:
        check_divisible(optimizer, params)
        return optimizer.init(params if stage == 3 else parts(tree.trainable(params)))

    def stepped(grads: Any, state: Any, params: Any, extra: Any) -> tuple[Any, Any]:
        with in_parts(lambda number: all_reduce(number, comm)):
            return optimizer.update(grads, state, params, **extra)

    def update(
        grads: Any, state: Any, params: Any = None, *, weight: Any = None, **extra: Any
    ) -> tuple[Any, Any]:
        if stage == 3:
            if weight is not None:
                raise ValueError(
                    "fdbr.distributed.sharded: with stage=3 gradients come averaged from "
                    "gather_params; weigh each rank's loss there, and give no weight here"
                )
            return stepped(grads, state, params, extra)
        leaves, structure = tree.flatten(grads)
        shapes = [tuple(getattr(leaf, "shape", ())) for leaf in leaves]
        if weight is not None:
            factor = factor_of("sharded", weight, comm)
            leaves = [weighted_there(leaf, factor) for leaf in leaves]
        if stage == 1:
            means = all_reduce(tree.unflatten(structure, leaves), comm, "mean")
            own = [own_part(mean, comm.rank, comm.size) for mean in tree.leaves(means)]
        else:
            own = reduced(leaves, comm, structure)
        given = None if params is None else parts(tree.trainable(params))
        updates, state = stepped(tree.unflatten(structure, own), state, given, extra)
        changes, structure = tree.flatten(updates)
        rows = all_of(changes, comm, structure)
        wholes = [whole_of(row, shape) for row, shape in zip(rows, shapes, strict=True)]
        return tree.unflatten(structure, wholes), state

    return Optimizer(init, update)
