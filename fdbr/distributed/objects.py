"""Objects of Python between the ranks of one run, by pickle."""

import pickle
from collections.abc import Sequence
from typing import Any

from fdbr.distributed.arguments import caller, peer_of, root_of
from fdbr.distributed.calls import Call
from fdbr.distributed.communicator import Communicator
from fdbr.errors.public import public

__all__ = [
    "all_gather_object",
    "broadcast_object",
    "gather_object",
    "receive_object",
    "scatter_object",
    "send_object",
]


@public("fdbr.distributed")
def broadcast_object(x: Any, comm: Communicator, root: int = 0) -> Any:
    """Give the object of one rank to all ranks; it is pickled.

    >>> from fdbr import distributed
    >>> distributed.broadcast_object("spam", distributed.serial())
    'spam'
    """
    root = root_of("broadcast_object", root, comm)
    data = pickle.dumps(x) if comm.rank == root else b""
    return pickle.loads(comm.transport.broadcast_bytes(data, root))


@public("fdbr.distributed")
def all_gather_object(x: Any, comm: Communicator) -> list[Any]:
    """List the objects of all ranks, in their order, on all ranks; they are pickled.

    >>> from fdbr import distributed
    >>> distributed.run_in_threads(lambda comm: distributed.all_gather_object(comm.rank, comm), 2)
    [[0, 1], [0, 1]]
    """
    root_of("all_gather_object", 0, comm)
    return [pickle.loads(data) for data in comm.transport.all_gather_bytes(pickle.dumps(x))]


@public("fdbr.distributed")
def gather_object(x: Any, comm: Communicator, root: int = 0) -> list[Any] | None:
    """List the objects of all ranks on one rank; others get `None`.  They are pickled.

    >>> from fdbr import distributed
    >>> distributed.run_in_threads(lambda comm: distributed.gather_object(comm.rank, comm), 2)
    [[0, 1], None]
    """
    root = root_of("gather_object", root, comm)
    call = Call("gather_object", root=root, where=caller())
    parts = comm.transport.all_gather_bytes(pickle.dumps(x), call)
    return [pickle.loads(data) for data in parts] if comm.rank == root else None


@public("fdbr.distributed")
def scatter_object(xs: Sequence[Any] | None, comm: Communicator, root: int = 0) -> Any:
    """One object for each rank, of a sequence that one rank has; they are pickled.

    >>> from fdbr import distributed
    >>> distributed.run_in_threads(lambda comm: distributed.scatter_object("ab", comm), 2)
    ['a', 'b']
    """
    root = root_of("scatter_object", root, comm)
    if comm.rank == root and (xs is None or len(xs) != comm.size):
        raise ValueError(
            f"fdbr.distributed.scatter_object: xs must have an object for each of {comm.size} "
            f"ranks, got {'None' if xs is None else len(xs)}"
        )
    data = pickle.dumps(list(xs or ())) if comm.rank == root else b""
    call = Call("scatter_object", root=root, where=caller())
    return pickle.loads(comm.transport.broadcast_bytes(data, root, call))[comm.rank]


@public("fdbr.distributed")
def send_object(x: Any, comm: Communicator, to: int, tag: int = 0) -> None:
    """Send an object to another rank, which calls `receive_object`; it is pickled.

    >>> from fdbr import distributed
    >>> comm = distributed.serial()
    >>> distributed.send_object({"a": 1}, comm, to=0)
    >>> distributed.receive_object(comm, source=0)
    {'a': 1}
    """
    comm.transport.send_bytes(pickle.dumps(x), peer_of("send_object", "to", to, comm), tag)


@public("fdbr.distributed")
def receive_object(comm: Communicator, source: int, tag: int = 0) -> Any:
    """The object that another rank sends with `send_object`.

    >>> from fdbr import distributed
    >>> comm = distributed.serial()
    >>> distributed.send_object("spam", comm, to=0)
    >>> distributed.receive_object(comm, source=0)
    'spam'
    """
    source = peer_of("receive_object", "source", source, comm)
    return pickle.loads(comm.transport.receive_bytes(source, tag))
