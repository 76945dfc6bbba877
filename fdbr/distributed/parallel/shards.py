"""Values that are the same on all ranks, values that are parts, and the way from one to the other.

Within a tensor-parallel model every rank computes the same loss, which is *one* loss.  So a value
that all ranks have alike is one value, whose cotangent all ranks have in full; and a value of which
each rank has its own is as many values, whose cotangents are each rank's own.  The identity leads
from the first kind to the second, and its transpose is the sum; the sum leads back, and its
transpose is the identity.  (Shoeybi et al., *Megatron-LM*, 2019, call the two f and g.)
"""

from typing import Any

from fdbr import ops, tree
from fdbr.distributed.arguments import caller, communicator_of
from fdbr.distributed.calls import Call
from fdbr.distributed.communicator import Communicator
from fdbr.distributed.primitives import communicate
from fdbr.distributed.structures import text_of
from fdbr.errors.public import public

__all__ = ["bounds", "cut", "from_shards", "joined", "maximum", "to_shards"]


@public("fdbr.distributed")
def to_shards(x: Any, comm: Communicator) -> Any:
    """Hand what all ranks have alike to parts of a model that differ from rank to rank.

    Forward it is the identity.  Backward the cotangents of all ranks are added: what each rank's
    part wants of ``x``, together.

    Parameters
    ----------
    x
        A tree of arrays, the same on all ranks; it is differentiated on all of them, or on none.
    comm
        The ranks.

    Returns
    -------
    tree
        The same values.

    See Also
    --------
    from_shards : the way back.

    Notes
    -----
    The loss that all ranks compute alike counts once, not once for each rank as with `all_reduce`,
    whose transpose is `all_reduce`.

    >>> import fdbr
    >>> from fdbr import distributed
    >>> def f(comm):
    ...     weight = [2.0, 3.0][comm.rank]
    ...     def loss(x):
    ...         return distributed.from_shards(weight * distributed.to_shards(x, comm), comm)
    ...     return fdbr.value_and_grad(loss)(1.0)
    >>> [tuple(map(float, found)) for found in distributed.run_in_threads(f, 2)]
    [(5.0, 5.0), (5.0, 5.0)]
    """
    return _moved("to_shards", "", x, comm)


@public("fdbr.distributed")
def from_shards(x: Any, comm: Communicator) -> Any:
    """Add what the ranks' parts of a model give: the sum is the same on all ranks.

    Forward it is `all_reduce`.  Backward it is the identity: all ranks have the sum's cotangent, in
    full and alike, because what follows is the same on all of them.

    Parameters
    ----------
    x
        A tree of arrays, each rank's own; it is differentiated on all ranks, or on none.
    comm
        The ranks.

    Returns
    -------
    tree
        The sums.

    See Also
    --------
    to_shards : the other direction, with an example.

    >>> from fdbr import distributed
    >>> distributed.from_shards(2.0, distributed.serial())
    np.float64(2.0)
    """
    return _moved("from_shards", "sum", x, comm)


def maximum(x: Any, comm: Communicator) -> Any:
    """The maximum over the ranks, as a constant."""
    return _moved("maximum_of_shards", "max", x, comm)


def _moved(name: str, op: str, x: Any, comm: Communicator) -> Any:
    comm = communicator_of(name, comm)
    leaves, structure = tree.flatten(x)
    call = Call(name, op, structure=text_of(structure), where=caller())
    outs = communicate(call, comm, leaves)
    assert outs is not None
    return tree.unflatten(structure, outs)


def bounds(count: int, rank: int, size: int) -> tuple[int, int]:
    """The places where a rank's part of so many begins and ends; parts differ by one at most."""
    part, more = divmod(count, size)
    first = rank * part + min(rank, more)
    return first, first + part + (rank < more)


def cut(x: Any, comm: Communicator, axis: int = 0) -> Any:
    """The rank's own part of an array along an axis; `None` of `None`."""
    if x is None:
        return None
    first, last = bounds(x.shape[axis], comm.rank, comm.size)
    place: list[Any] = [slice(None)] * len(x.shape)
    place[axis] = slice(first, last)
    return x[tuple(place)]


def joined(part: Any, comm: Communicator, count: int, axis: int = 0) -> Any:
    """The whole array, on all ranks, of which each has a part along an axis."""
    if part is None:
        return None
    axis %= len(part.shape)
    first, last = bounds(count, comm.rank, comm.size)
    ends = [(0, 0)] * len(part.shape)
    ends[axis] = (first, count - last)
    return from_shards(ops.pad(part, ends), comm)
