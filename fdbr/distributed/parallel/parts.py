"""Arrays as flat parts of equal length, one for each rank."""

import math
from collections.abc import Sequence
from typing import Any

from optree import PyTreeSpec

from fdbr import ops
from fdbr.core.array_modules import is_array, keep
from fdbr.distributed.arguments import caller
from fdbr.distributed.calls import Call
from fdbr.distributed.communicator import Communicator
from fdbr.distributed.primitives import communicate
from fdbr.distributed.structures import text_of

__all__ = ["all_of", "length_of", "own_part", "padded", "reduced", "whole_of"]


def length_of(count: int, size: int) -> int:
    """The length of each rank's part, of so many elements; the last ones are padded."""
    return -(-count // size)


def padded(x: Any, size: int) -> Any:
    """The elements of an array, and zeros behind them, so that they can be divided."""
    flat = ops.reshape(ops.asarray(x), (-1,))
    more = length_of(flat.shape[0], size) * size - flat.shape[0]
    return ops.pad(flat, [(0, more)]) if more else flat


def own_part(x: Any, rank: int, size: int) -> Any:
    """The part of an array that is a rank's: an array of its own, that does not keep the whole."""
    length = length_of(math.prod(getattr(x, "shape", ())), size)
    part = padded(x, size)[rank * length : (rank + 1) * length]
    return keep(part) if is_array(part) else part


def reduced(arrays: Sequence[Any], comm: Communicator, structure: PyTreeSpec) -> list[Any]:
    """The rank's own parts of the means of the arrays of all ranks, in trees of a structure."""
    call = Call("reduce_scatter", "mean", structure=text_of(structure), where=caller())
    return communicate(call, comm, [padded(x, comm.size) for x in arrays]) if arrays else []  # type: ignore[return-value]


def all_of(
    parts: Sequence[Any], comm: Communicator, structure: PyTreeSpec, op: str = ""
) -> list[Any]:
    """All ranks' parts, one row for each; ``op`` is how their cotangents are combined."""
    if not parts:
        return []
    call = Call("all_gather", op, structure=text_of(structure), where=caller())
    return communicate(call, comm, list(parts))  # type: ignore[return-value]


def whole_of(rows: Any, shape: tuple[int, ...]) -> Any:
    """The array of which these are the parts."""
    return ops.reshape(ops.reshape(rows, (-1,))[: math.prod(shape)], shape)
