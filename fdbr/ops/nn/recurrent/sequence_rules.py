"""A batching rule for operations over whole sequences, and forward rules from reverse ones.

Their operands have two axes of their own: packed arrays ``(elements, width)``, states
``(sequences, width)`` and weights; before these all have the same axes, or none has any.  An
operand that is not there is the number 0.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr.core.array_modules import lock
from fdbr.core.lazy_cotangents import settled
from fdbr.core.tape import ReverseTrace, backward
from fdbr.core.tracer import run
from fdbr.ops.declare.batches import spread
from fdbr.ops.declare.operation import operands_of, operation
from fdbr.ops.declare.rules import Rules, stated_rule
from fdbr.ops.declare.unbroadcast import match, zeros_of
from fdbr.ops.dtypes import astype, result_type
from fdbr.ops.shape.manipulation import moveaxis, reshape
from fdbr.pytrees.dtypes import is_short

__all__ = ["in_one_dtype", "over_sequences", "there"]


def there(x: Any) -> bool:
    """Whether an operand is there."""
    return getattr(x, "ndim", 0) > 0


def over_sequences(
    *, first: Callable[..., Any], weights: frozenset[str], **pulls: Any
) -> Callable[[Any], Any]:
    """Declare an operation over whole sequences, by its reverse rules.

    ``first`` and the statements of the operands are those of `opaque`'s reverse rules; ``weights``
    are the operands that all sequences share.  The forward rule is the transpose of the reverse
    rules, which are linear in the cotangents.
    """

    def declare(value: Any) -> Any:
        operands = operands_of(value)
        rules = [stated_rule(pulls.get(name), operands, i) for i, name in enumerate(operands)]
        begin = stated_rule(first, operands, 0)

        def forward(values: Any, tangents: Any, out: Any, params: Any) -> Any:
            moved = [i for i, t in enumerate(tangents) if t is not None and rules[i] is not None]
            trace = ReverseTrace("jvp", value)
            given = [trace.input(lock(zeros_of(x))) for x in out]

            def pulled(given: Any) -> list[Any]:
                shared = begin.pull(given, *begin.save(values, out, params))
                return [
                    settled(rules[i].pull(shared, *rules[i].save(values, out, params)))
                    for i in moved
                ]

            ends = run(trace, pulled, given)
            roots = [
                (end.node, tangents[i])
                for i, end in zip(moved, ends, strict=True)
                if getattr(end, "_trace", None) is trace
            ]
            found = backward(roots)
            return match(tuple([found.get(x.node[0]) for x in given]), out)

        shared = [name in weights for name in operands]
        batch = _batch_together(shared)
        rule = Rules(rules.__getitem__, first=begin)
        return operation(value, "opaque", rule, forward, batch, fresh=True, total=True)

    return declare


def _batch_together(shared: list[bool]) -> Callable[..., Any]:
    """The batching rule, for operands of which some are weights.

    Where the examples share the weights they are further sequences; otherwise all operands have a
    further axis.
    """

    def batch(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
        rows = zip(values, batched, shared, strict=True)
        if any(there(x) and (x.ndim - flag > 2 or (flag and own)) for x, flag, own in rows):
            whole = [
                spread(x, flag, size) if there(x) else x
                for x, flag in zip(values, batched, strict=True)
            ]
            return apply(*whole, **params)
        folded = [
            x if weight or not there(x) else _folded(spread(x, flag, size))
            for x, flag, weight in zip(values, batched, shared, strict=True)
        ]
        outs = apply(*folded, **{**params, "steps": params["steps"].times(size)})
        return tuple([_unfolded(x, size) for x in outs])

    return batch


def _folded(x: Any) -> Any:
    """A batch of rows as rows, those of one sequence beside each other."""
    size, rows, width = x.shape
    return reshape(moveaxis(x, 0, 1), (rows * size, width))


def _unfolded(x: Any, size: int) -> Any:
    rows, width = x.shape
    return moveaxis(reshape(x, (rows // size, size, width)), 1, 0)


def in_one_dtype(function: Callable[..., Any]) -> Callable[..., Any]:
    """Have a function compute in the dtype of all its arrays; those of 16 bits in float32."""

    @functools.wraps(function)
    def widened(*values: Any, **params: Any) -> Any:
        dtype = to = result_type(*[x for x in values if there(x)])
        if is_short(dtype):
            dtype = np.dtype("float32")
        arrays = [astype(x, dtype) if there(x) and x.dtype != dtype else x for x in values]
        outs = function(*arrays, **params)
        return tuple([x if dtype == to else astype(x, to) for x in outs])

    return widened
