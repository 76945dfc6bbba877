"""The collectives, on trees of arrays."""

from typing import Any

import attrs
import numpy as np
from optree import PyTreeSpec

from fdbr import tree
from fdbr.distributed.arguments import caller, communicator_of, op_of, peer_of, root_of, wire_of
from fdbr.distributed.calls import Call
from fdbr.distributed.communicator import Communicator
from fdbr.distributed.exchange import check
from fdbr.distributed.primitives import as_array, communicate
from fdbr.distributed.structures import LEAF, text_of
from fdbr.errors.public import public

__all__ = [
    "after",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "barrier",
    "broadcast",
    "gather",
    "receive",
    "reduce",
    "reduce_scatter",
    "scatter",
    "send",
    "send_receive",
]


@public("fdbr.distributed")
def all_reduce(x: Any, comm: Communicator, op: str = "sum", *, wire: str | None = None) -> Any:
    """The sum, mean, maximum or minimum of what all ranks give, on all ranks.

    Parameters
    ----------
    x
        A tree of arrays, of the same structure, shapes and dtypes on all ranks.
    comm
        The ranks.
    op
        ``"sum"``, ``"mean"``, ``"max"`` or ``"min"``.
    wire
        ``"float16"`` or ``"bfloat16"``, to which floating numbers are rounded on their way; sums
        are computed in float32.

    Returns
    -------
    tree
        Of the same structure, shapes and dtypes.

    Raises
    ------
    MismatchError
        If ranks call different collectives, or give trees of another structure, other shapes or
        dtypes.
    CollectiveTimeoutError
        If some do not come within ``comm.timeout``.

    Notes
    -----
    What is differentiated is the sum of all ranks' losses, so the cotangents of a sum are added up
    over ranks as well; those of an extreme value go in equal shares to the ranks that have it.
    Each collective that is called where derivatives are taken is called once more on the way back,
    transposed, on all ranks: also where nothing depends on it.

    >>> from fdbr import distributed
    >>> import numpy as np
    >>> def f(comm):
    ...     return distributed.all_reduce(np.array([1.0, comm.rank]), comm)
    >>> distributed.run_in_threads(f, 2)[0]
    array([2., 1.])
    """
    call = Call(
        "all_reduce", op_of("all_reduce", op), wire=wire_of("all_reduce", wire), where=caller()
    )
    return _on_tree(call, communicator_of("all_reduce", comm), x)


@public("fdbr.distributed")
def reduce(
    x: Any, comm: Communicator, op: str = "sum", root: int = 0, *, wire: str | None = None
) -> Any:
    """`all_reduce` for one rank alone; others get `None`.

    >>> from fdbr import distributed
    >>> distributed.run_in_threads(lambda comm: distributed.reduce(1.0, comm), 2)
    [np.float64(2.0), None]
    """
    root = root_of("reduce", root, comm)
    call = Call("reduce", op_of("reduce", op), root, wire=wire_of("reduce", wire), where=caller())
    if op not in ("max", "min"):
        return _on_tree(call, comm, x)
    # All have to know it, for the derivative.
    whole = _on_tree(attrs.evolve(call, name="all_reduce", asked="reduce"), comm, x)
    return whole if comm.rank == root else None


@public("fdbr.distributed")
def broadcast(x: Any, comm: Communicator, root: int = 0, *, wire: str | None = None) -> Any:
    """Give the tree of one rank to all ranks.

    Parameters
    ----------
    x
        A tree of arrays. On other ranks a tree of the same structure, or `None` where the root's is
        one array.
    comm
        The ranks.
    root
        The rank that has it.
    wire
        As in `all_reduce`.

    >>> from fdbr import distributed
    >>> distributed.run_in_threads(lambda comm: distributed.broadcast(comm.rank, comm, 1), 2)
    [np.int64(1), np.int64(1)]
    """
    root = root_of("broadcast", root, comm)
    call = Call("broadcast", root=root, wire=wire_of("broadcast", wire), where=caller())
    return _from_root(call, comm, x)


@public("fdbr.distributed")
def gather(x: Any, comm: Communicator, root: int = 0, *, wire: str | None = None) -> Any:
    """Stack the trees of all ranks along a new first axis, on one rank; others get `None`.

    >>> from fdbr import distributed
    >>> distributed.run_in_threads(lambda comm: distributed.gather(comm.rank, comm), 2)
    [array([0, 1]), None]
    """
    root = root_of("gather", root, comm)
    return _on_tree(
        Call("gather", root=root, wire=wire_of("gather", wire), where=caller()), comm, x
    )


@public("fdbr.distributed")
def all_gather(x: Any, comm: Communicator, *, wire: str | None = None) -> Any:
    """Stack the trees of all ranks along a new first axis, on all ranks.

    >>> from fdbr import distributed
    >>> distributed.run_in_threads(lambda comm: distributed.all_gather(comm.rank, comm), 2)
    [array([0, 1]), array([0, 1])]
    """
    comm = communicator_of("all_gather", comm)
    return _on_tree(Call("all_gather", wire=wire_of("all_gather", wire), where=caller()), comm, x)


@public("fdbr.distributed")
def scatter(x: Any, comm: Communicator, root: int = 0, *, wire: str | None = None) -> Any:
    """Parts of what one rank has: the first axis of each array is divided among the ranks.

    >>> from fdbr import distributed
    >>> import numpy as np
    >>> def f(comm):
    ...     return distributed.scatter(np.arange(4.0) if comm.rank == 0 else None, comm)
    >>> distributed.run_in_threads(f, 2)
    [array([0., 1.]), array([2., 3.])]
    """
    root = root_of("scatter", root, comm)
    call = Call("scatter", root=root, wire=wire_of("scatter", wire), where=caller())
    return _from_root(call, comm, x)


@public("fdbr.distributed")
def reduce_scatter(x: Any, comm: Communicator, op: str = "sum", *, wire: str | None = None) -> Any:
    """Parts of what `all_reduce` gives: the first axis of each array is divided among the ranks.

    >>> from fdbr import distributed
    >>> import numpy as np
    >>> distributed.run_in_threads(lambda c: distributed.reduce_scatter(np.arange(2.0), c), 2)
    [array([0.]), array([2.])]
    """
    comm = communicator_of("reduce_scatter", comm)
    op, wire = op_of("reduce_scatter", op), wire_of("reduce_scatter", wire)
    call = Call("reduce_scatter", op, wire=wire, where=caller())
    if op not in ("max", "min"):
        return _on_tree(call, comm, x)
    check(call, comm, [as_array(call, leaf) for leaf in tree.leaves(x)])
    whole = _on_tree(attrs.evolve(call, name="all_reduce", asked="reduce_scatter"), comm, x)
    return tree.map(lambda leaf: _part(leaf, comm), whole)


@public("fdbr.distributed")
def all_to_all(x: Any, comm: Communicator, *, wire: str | None = None) -> Any:
    """Parts of what each rank has: part ``i`` of rank ``j`` becomes part ``j`` of rank ``i``.

    The first axis of each array is divided among the ranks.

    >>> from fdbr import distributed
    >>> import numpy as np
    >>> def f(comm):
    ...     return distributed.all_to_all(np.array([10, 11]) + 10 * comm.rank, comm)
    >>> distributed.run_in_threads(f, 2)
    [array([10, 20]), array([11, 21])]
    """
    comm = communicator_of("all_to_all", comm)
    return _on_tree(Call("all_to_all", wire=wire_of("all_to_all", wire), where=caller()), comm, x)


@public("fdbr.distributed")
def send(x: Any, comm: Communicator, to: int, tag: int = 0, *, wire: str | None = None) -> Any:
    """Send a tree to another rank, which calls `receive`.

    Returns
    -------
    token
        A zero that depends on what was sent: see `after`.

    >>> from fdbr import distributed
    >>> def f(comm):
    ...     if comm.rank == 0:
    ...         distributed.send(3.0, comm, to=1)
    ...     else:
    ...         return distributed.receive(0.0, comm, source=0)
    >>> distributed.run_in_threads(f, 2)
    [None, np.float64(3.0)]
    """
    to = peer_of("send", "to", to, comm)
    call = Call("send", to=to, tag=tag, wire=wire_of("send", wire), where=caller())
    leaves, structure = tree.flatten(x)
    communicate(_of(call, structure), communicator_of("send", comm), leaves)
    return np.float64(0.0)


@public("fdbr.distributed")
def receive(
    like: Any,
    comm: Communicator,
    source: int,
    tag: int = 0,
    after: Any = None,
    *,
    wire: str | None = None,
) -> Any:
    """The tree that another rank sends.

    Parameters
    ----------
    like
        A tree of arrays of the structure, shapes and dtypes of what comes.
    comm
        The ranks.
    source
        The rank that sends.
    tag
        The number that it gives with it.
    after
        A token of `send`, on which the result depends.
    wire
        As in `all_reduce`; the sender's must be the same.

    >>> from fdbr import distributed
    >>> comm = distributed.serial()
    >>> token = distributed.send(3.0, comm, to=0)
    >>> distributed.receive(0.0, comm, source=0)
    np.float64(3.0)
    """
    source = peer_of("receive", "source", source, comm)
    call = Call("receive", source=source, tag=tag, wire=wire_of("receive", wire), where=caller())
    return _on_tree(call, comm, like)


@public("fdbr.distributed")
def send_receive(
    x: Any, comm: Communicator, to: int, source: int, like: Any = None, tag: int = 0
) -> Any:
    """Send a tree to one rank, and give what another one sends.

    >>> from fdbr import distributed
    >>> def f(comm):
    ...     following, preceding = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    ...     return distributed.send_receive(comm.rank, comm, to=following, source=preceding)
    >>> distributed.run_in_threads(f, 3)
    [np.int64(2), np.int64(0), np.int64(1)]
    """
    token = send(x, comm, to, tag)
    return receive(x if like is None else like, comm, source, tag, token)


@public("fdbr.distributed")
def after(x: Any, token: Any) -> Any:
    """The same tree, which depends on a token.

    >>> from fdbr import distributed
    >>> distributed.after(2.0, distributed.send(1.0, distributed.serial(), to=0))
    2.0
    """
    return x


@public("fdbr.distributed")
def barrier(comm: Communicator) -> None:
    """Wait until all ranks have come here.

    >>> from fdbr import distributed
    >>> distributed.barrier(distributed.serial())
    """
    communicate(Call("barrier", where=caller()), communicator_of("barrier", comm), None)


def _on_tree(call: Call, comm: Communicator, x: Any) -> Any:
    leaves, structure = tree.flatten(x)
    outs = communicate(_of(call, structure), comm, leaves)
    return None if outs is None else tree.unflatten(structure, outs)


def _of(call: Call, structure: PyTreeSpec) -> Call:
    """The call for a tree of that structure."""
    return attrs.evolve(call, structure=text_of(structure))


def _from_root(call: Call, comm: Communicator, x: Any) -> Any:
    leaves, structure = tree.flatten(x)
    if x is not None:
        call = _of(call, structure)
    elif comm.rank != call.root:
        call = attrs.evolve(call, structure=LEAF)
    if comm.rank == call.root:
        return tree.unflatten(structure, communicate(call, comm, leaves))
    outs = communicate(call, comm, None, leaves or None)
    assert outs is not None
    if x is None and len(outs) == 1:
        return outs[0]
    if len(outs) != len(leaves):
        raise ValueError(
            f"fdbr.distributed.{call.name}: x has {len(leaves)} leaves on this rank, but on rank "
            f"{call.root} it has {len(outs)}; give a tree of the same structure on all ranks"
        )
    return tree.unflatten(structure, outs)


def _part(whole: Any, comm: Communicator) -> Any:
    """The part of an array that is this rank's."""
    count = whole.shape[0] // comm.size
    return whole[comm.rank * count : (comm.rank + 1) * count]
