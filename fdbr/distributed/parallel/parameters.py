"""Parameters of which each rank has a part, and has them whole while it computes."""

from typing import Any

import optree

from fdbr import tree
from fdbr.distributed.arguments import communicator_of
from fdbr.distributed.communicator import Communicator
from fdbr.distributed.parallel.parts import all_of, own_part, whole_of
from fdbr.errors.public import public
from fdbr.pytrees.classes import NAMESPACE
from fdbr.tree import frozen, static

__all__ = ["Shard", "gather_params", "shard_params", "shards"]


@public("fdbr.distributed")
@frozen
class Shard:
    """One rank's part of an array.

    Attributes
    ----------
    values
        The elements that are this rank's, one after the other; zeros behind the last.
    shape
        The shape of the whole array.

    >>> import numpy as np
    >>> Shard(np.zeros(2), (1, 3))
    Shard(values=array([0., 0.]), shape=(1, 3))
    """

    values: Any
    shape: tuple[int, ...] = static()


@public("fdbr.distributed")
def shard_params(params: Any, comm: Communicator) -> Any:
    """Cut this rank's part out of every parameter (ZeRO stage 3).

    Parameters
    ----------
    params
        A tree, the same on all ranks.
    comm
        The ranks.

    Returns
    -------
    tree
        The same with a `Shard` in place of each array that is trained; integers, buffers and `None`
        stay as they are.

    See Also
    --------
    gather_params : the way back, within a function that is differentiated.
    sharded : an optimizer for them, with ``stage=3``.

    >>> import numpy as np
    >>> from fdbr import distributed
    >>> distributed.run_in_threads(lambda c: distributed.shard_params(np.arange(3.0), c), 2)[1]
    Shard(values=array([2., 0.]), shape=(3,))
    """
    comm = communicator_of("shard_params", comm)

    def cut(leaf: Any, whole: Any) -> Any:
        if leaf is None:
            return whole
        return Shard(own_part(leaf, comm.rank, comm.size), tuple(getattr(leaf, "shape", ())))

    return optree.tree_map(
        cut, tree.trainable(params), params, none_is_leaf=True, namespace=NAMESPACE
    )


@public("fdbr.distributed")
def gather_params(sharded: Any, comm: Communicator, op: str = "mean") -> Any:
    """Put parameters together of all ranks' parts; differentiable.

    Backward, gradients of all ranks are combined and divided again, by `reduce_scatter`: each rank
    gets the gradient of its part.

    Parameters
    ----------
    sharded
        A tree as `shard_params` gives it.
    comm
        The ranks.
    op
        Whether gradients are the ``"mean"`` over ranks, as data parallelism wants it, or the
        ``"sum"``, which is the derivative of the sum of all ranks' losses.

    Returns
    -------
    tree
        The same with whole arrays.

    Raises
    ------
    ValueError
        If ``op`` is another word.

    >>> import fdbr
    >>> import numpy as np
    >>> from fdbr import distributed
    >>> def f(comm):
    ...     own = distributed.shard_params({"w": np.array([1.0, 2.0, 3.0])}, comm)
    ...     def loss(own, x):
    ...         return (distributed.gather_params(own, comm)["w"] * x).sum()
    ...     return fdbr.grad(loss)(own, comm.rank + 1.0)["w"].values
    >>> distributed.run_in_threads(f, 2)
    [array([1.5, 1.5]), array([1.5, 0. ])]
    """
    comm = communicator_of("gather_params", comm)
    if op not in ("mean", "sum"):
        raise ValueError(f"fdbr.distributed.gather_params: op must be 'mean' or 'sum', got {op!r}")
    leaves, structure = shards(sharded)
    values = [leaf.values for leaf in leaves if _is_shard(leaf)]
    rows = iter(all_of(values, comm, structure, op))
    return tree.unflatten(
        structure,
        [whole_of(next(rows), leaf.shape) if _is_shard(leaf) else leaf for leaf in leaves],
    )


def shards(sharded: Any) -> tuple[list[Any], Any]:
    """The leaves of a tree, each `Shard` as one."""
    return optree.tree_flatten(sharded, is_leaf=_is_shard, namespace=NAMESPACE)


def _is_shard(x: Any) -> bool:
    return isinstance(x, Shard)
