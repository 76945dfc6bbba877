"""Batching rules: operations on a whole batch of examples at once.

A batched operand carries the batch as its first axis.  An operation's batch statement is a
function ``batch(apply, values, batched, size, params)``: ``values`` are the operands, of which
those with ``batched[i]`` are batched, all of one ``size``; ``apply(*values, **params)`` applies
the operation itself.  The result is batched.
"""

from typing import Any

from fdbr.core.primitive import dispatch, registry
from fdbr.ops.declare.rules import Function

__all__ = ["aligned", "leading", "prefixed", "shifted", "spread"]


def aligned(apply: Function, values: Any, batched: Any, size: int, params: Any) -> Any:
    """For operations that broadcast: give the examples as many axes as the others have."""
    return apply(*align(values, batched), **params)


def leading(core: int) -> Function:
    """For operations on the last ``core`` axes, before which all others broadcast."""

    def batch(apply: Function, values: Any, batched: Any, size: int, params: Any) -> Any:
        return apply(*align(values, batched, core), **params)

    return batch


def align(values: Any, batched: Any, core: int = 0) -> list[Any]:
    """The operands with axes of length 1 behind the batch, so that their own axes line up."""
    ranks = [_rank(value) - flag for value, flag in zip(values, batched, strict=True)]
    rank = max(core, *ranks)
    return [
        _reshape(value, (value.shape[0], *(1,) * (rank - own), *value.shape[1:]))
        if flag and own < rank
        else value
        for value, flag, own in zip(values, batched, ranks, strict=True)
    ]


def shifted(*names: str) -> Function:
    """For operations on axes that keywords count from the front: they move by one."""

    def batch(apply: Function, values: Any, batched: Any, size: int, params: Any) -> Any:
        moved = {name: _shift(params[name]) for name in names}
        return apply(*values, **{**params, **moved})

    return batch


def _shift(axes: Any) -> Any:
    return axes + 1 if isinstance(axes, int) else tuple(axis + 1 for axis in axes)


def prefixed(name: str) -> Function:
    """For operations to a shape that a keyword gives: the batch comes first."""

    def batch(apply: Function, values: Any, batched: Any, size: int, params: Any) -> Any:
        return apply(*values, **{**params, name: (size, *params[name])})

    return batch


def spread(value: Any, flag: bool, size: int) -> Any:
    """A batched operand: itself, or one that is not batched repeated along the batch."""
    if flag:
        return value
    return dispatch(registry["broadcast_to"], (value,), {"to": (size, *value.shape)})


def _rank(value: Any) -> int:
    return getattr(value, "ndim", 0)


def _reshape(value: Any, shape: tuple[int, ...]) -> Any:
    return dispatch(registry["reshape"], (value,), {"to": shape})
