"""Batching rules: operations on a whole batch of examples at once.

A batched operand has the batch as its first axis.  A batching rule is a function
``batch(apply, values, batched, size, params)``: ``values`` are the operands, ``batched[i]`` says
whether operand ``i`` has a batch axis, of length ``size``, and ``apply(*values, **params)``
applies the operation itself.  The rule returns a batched result.
"""

from typing import Any

from fdbr.core.primitive import dispatch, registry
from fdbr.ops.declare.rules import Function

__all__ = ["aligned", "leading", "prefixed", "shifted", "spread"]


def aligned(apply: Function, values: Any, batched: Any, size: int, params: Any) -> Any:
    """Apply an operation that broadcasts, after lining up the axes of the examples."""
    return apply(*align(values, batched), **params)


def leading(core: int) -> Function:
    """Make the rule of an operation on the last ``core`` axes, whose other axes broadcast."""

    def batch(apply: Function, values: Any, batched: Any, size: int, params: Any) -> Any:
        return apply(*align(values, batched, core), **params)

    return batch


def align(values: Any, batched: Any, core: int = 0) -> list[Any]:
    """Insert axes of length 1 after the batch axis, so that the axes of the examples line up."""
    ranks = [_rank(value) - flag for value, flag in zip(values, batched, strict=True)]
    rank = max(core, *ranks)
    return [
        _reshape(value, (value.shape[0], *(1,) * (rank - own), *value.shape[1:]))
        if flag and own < rank
        else value
        for value, flag, own in zip(values, batched, ranks, strict=True)
    ]


def shifted(*names: str) -> Function:
    """Make the rule of an operation whose keywords ``names`` hold axes, to which it adds one."""

    def batch(apply: Function, values: Any, batched: Any, size: int, params: Any) -> Any:
        moved = {name: _shift(params[name]) for name in names}
        return apply(*values, **{**params, **moved})

    return batch


def _shift(axes: Any) -> Any:
    return axes + 1 if isinstance(axes, int) else tuple(axis + 1 for axis in axes)


def prefixed(name: str) -> Function:
    """Make the rule of an operation whose keyword ``name`` is a shape: prepend the batch size."""

    def batch(apply: Function, values: Any, batched: Any, size: int, params: Any) -> Any:
        return apply(*values, **{**params, name: (size, *params[name])})

    return batch


def spread(value: Any, flag: bool, size: int) -> Any:
    """Broadcast an operand along a new batch axis, unless it is batched already."""
    if flag:
        return value
    return dispatch(registry["broadcast_to"], (value,), {"to": (size, *value.shape)})


def _rank(value: Any) -> int:
    return getattr(value, "ndim", 0)


def _reshape(value: Any, shape: tuple[int, ...]) -> Any:
    return dispatch(registry["reshape"], (value,), {"to": shape})
