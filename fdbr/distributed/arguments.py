"""Arguments of collectives."""

from typing import Any

from fdbr.distributed.communicator import Communicator
from fdbr.errors.checks import describe, integer
from fdbr.errors.lines import caller

__all__ = ["caller", "communicator_of", "op_of", "peer_of", "root_of", "wire_of"]

_OPS = ("sum", "mean", "max", "min")
_WIRES = (None, "float16", "bfloat16")


def communicator_of(name: str, comm: Any) -> Communicator:
    """The communicator, if it is one."""
    if not isinstance(comm, Communicator):
        raise TypeError(
            f"fdbr.distributed.{name}: comm must be a communicator, as of "
            f"fdbr.distributed.world(), not {describe(comm)}"
        )
    return comm


def op_of(name: str, op: Any) -> str:
    """The name of a reduction, if it is one."""
    if op not in _OPS:
        raise ValueError(f"fdbr.distributed.{name}: op must be one of {_OPS}, got {op!r}")
    return op


def wire_of(name: str, wire: Any) -> str:
    """The dtype in which floating numbers travel, if it is one; empty for their own."""
    if wire not in _WIRES:
        raise ValueError(
            f"fdbr.distributed.{name}: wire must be 'float16', 'bfloat16' or None, got {wire!r}"
        )
    return wire or ""


def root_of(name: str, root: Any, comm: Any) -> int:
    """The root, if the communicator has such a rank."""
    return peer_of(name, "root", root, comm)


def peer_of(name: str, argument: str, rank: Any, comm: Any) -> int:
    """A rank, if the communicator has it."""
    comm = communicator_of(name, comm)
    rank = integer(f"fdbr.distributed.{name}", argument, rank, 0)
    if rank >= comm.size:
        raise ValueError(
            f"fdbr.distributed.{name}: {argument} must be a rank below {comm.size}, got {rank}"
        )
    return rank
