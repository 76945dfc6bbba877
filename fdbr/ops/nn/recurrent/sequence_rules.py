"""Declare operations over whole sequences: their batching rule, and jvp rules from vjp rules.

The last two axes of operands are ``(elements, width)`` for packed arrays, ``(sequences, width)``
for states, and those of weights; leading axes are the same for all operands.  A missing operand is
the number 0.
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

__all__ = ["in_one_dtype", "over_sequences", "is_given"]


def is_given(x: Any) -> bool:
    """Whether an optional operand is given."""
    return getattr(x, "ndim", 0) > 0


def over_sequences(
    *, first: Callable[..., Any], weights: frozenset[str], **vjps: Any
) -> Callable[[Any], Any]:
    """Declare an operation over whole sequences by its vjp rules.

    ``first`` and the rules of the operands are those of `opaque`; ``weights`` are the operands that
    all sequences share.  The jvp rule is the transpose of the vjp rules, which are linear in the
    cotangents.
    """

    def declare(value: Any) -> Any:
        operands = operands_of(value)
        rules = [stated_rule(vjps.get(name), operands, i) for i, name in enumerate(operands)]
        first_rule = stated_rule(first, operands, 0)

        def forward(values: Any, tangents: Any, out: Any, params: Any) -> Any:
            varied = [i for i, t in enumerate(tangents) if t is not None and rules[i] is not None]
            trace = ReverseTrace("jvp", value)
            cotangents = [trace.input(lock(zeros_of(x))) for x in out]

            def vjp(cotangents: Any) -> list[Any]:
                shared = first_rule.pull(cotangents, *first_rule.save(values, out, params))
                return [
                    settled(rules[i].pull(shared, *rules[i].save(values, out, params)))
                    for i in varied
                ]

            results = run(trace, vjp, cotangents)
            roots = [
                (end.node, tangents[i])
                for i, end in zip(varied, results, strict=True)
                if getattr(end, "_trace", None) is trace
            ]
            found = backward(roots)
            return match(tuple([found.get(x.node[0]) for x in cotangents]), out)

        shared = [name in weights for name in operands]
        batch = _batch_together(shared)
        rule = Rules(rules.__getitem__, first=first_rule)
        return operation(value, "opaque", rule, forward, batch, fresh=True, total=True)

    return declare


def _batch_together(shared: list[bool]) -> Callable[..., Any]:
    """Make the batching rule, where ``shared`` marks the operands that are weights.

    If examples share the weights, they are treated as more sequences; otherwise all operands get a
    leading axis.
    """

    def batch(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
        rows = zip(values, batched, shared, strict=True)
        if any(
            is_given(x) and (x.ndim - flag > 2 or (flag and is_weight))
            for x, flag, is_weight in rows
        ):
            broadcast = [
                spread(x, flag, size) if is_given(x) else x
                for x, flag in zip(values, batched, strict=True)
            ]
            return apply(*broadcast, **params)
        folded = [
            x if weight or not is_given(x) else _fold(spread(x, flag, size))
            for x, flag, weight in zip(values, batched, shared, strict=True)
        ]
        outs = apply(*folded, **{**params, "steps": params["steps"].times(size)})
        return tuple([_unfold(x, size) for x in outs])

    return batch


def _fold(x: Any) -> Any:
    """Merge the batch into the rows, with the examples of one row adjacent."""
    size, rows, width = x.shape
    return reshape(moveaxis(x, 0, 1), (rows * size, width))


def _unfold(x: Any, size: int) -> Any:
    rows, width = x.shape
    return moveaxis(reshape(x, (rows // size, size, width)), 1, 0)


def in_one_dtype(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function compute in the promoted dtype of its arrays; 16-bit floats in float32."""

    @functools.wraps(function)
    def in_common_dtype(*values: Any, **params: Any) -> Any:
        dtype = to = result_type(*[x for x in values if is_given(x)])
        if is_short(dtype):
            dtype = np.dtype("float32")
        arrays = [astype(x, dtype) if is_given(x) and x.dtype != dtype else x for x in values]
        outs = function(*arrays, **params)
        return tuple([x if dtype == to else astype(x, to) for x in outs])

    return in_common_dtype
