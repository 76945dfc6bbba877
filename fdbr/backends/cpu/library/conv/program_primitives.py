"""Primitives that occur only in programs: passes insert them, and they have no rules.

Their values define what they compute, in terms of the primitives that they replace.
"""

import functools
from collections.abc import Callable
from typing import Any

import attrs

from fdbr.compiler.ir import op
from fdbr.core.primitive import Primitive

__all__ = [
    "CONVOLUTIONS",
    "EXAMPLES_LAST",
    "IN_ORDER",
    "VJP",
    "PUT_LAST",
    "WITH_RELU",
    "back",
    "forward",
    "last",
    "to_last",
]

Value = Callable[..., Any]


def _derived(primitive: Primitive, name: str, value: Value) -> Primitive:
    facts = attrs.evolve(primitive.facts, fresh=True, total=True)
    return Primitive(name, "constant", value, None, None, None, facts, registered=False)


# --- with examples last -------------------------------------------------------------


def forward(rank: int) -> tuple[int, ...]:
    """Return the permutation that moves the first axis to the end."""
    return (*range(1, rank), 0)


def back(rank: int) -> tuple[int, ...]:
    """Return the permutation that moves the last axis to the front."""
    return (rank - 1, *range(rank - 1))


EXAMPLES_LAST: dict[Primitive, tuple[tuple[int, ...], bool]] = {
    op.CONV: ((0,), True),
    op.CONV_BIASED: ((0,), True),
    op.CONV_INPUT: ((0,), True),
    op.CONV_KERNEL: ((0, 1), False),
    op.MAX_WINDOWS: ((0,), True),
    op.WINDOW_WINNERS: ((0, 1), True),
    op.TO_WINNERS: ((0, 1), True),
}
"""The operands that have examples, and whether the result has."""


def to_last(value: Value, turned: tuple[int, ...], whole: bool) -> Value:
    """Return a value function for operands, and maybe a result, with examples last."""

    @functools.wraps(value)
    def value_last(xp: Any, *operands: Any, **params: Any) -> Any:
        given = [
            xp.transpose(x, back(x.ndim)) if i in turned else x for i, x in enumerate(operands)
        ]
        out = value(xp, *given, **params)
        return xp.ascontiguousarray(xp.transpose(out, forward(out.ndim))) if whole else out

    return value_last


def _value_of(primitive: Primitive) -> Value:
    """Return a value function that applies a primitive as eager mode does."""

    def value(xp: Any, *operands: Any, **params: Any) -> Any:
        return primitive.on(xp)(xp, *operands, **params)

    return value


CONVOLUTIONS = frozenset({op.CONV, op.CONV_BIASED, op.CONV_INPUT, op.CONV_KERNEL})
"""The primitives among them that are convolutions."""

last: dict[Primitive, Primitive] = {
    primitive: _derived(primitive, f"{primitive.name}_last", to_last(_value_of(primitive), *how))
    for primitive, how in EXAMPLES_LAST.items()
}
"""Primitives for arrays with examples last, by those for examples first."""


def _put_last(xp: Any, x: Any) -> Any:
    """Return a copy of an array with its first axis last."""
    return xp.transpose(x, forward(x.ndim)).copy()


PUT_LAST = _derived(op.PERMUTE, "put_last", _put_last)
"""The primitive that moves examples from the first axis to the last one."""


# --- fused primitives ---------------------------------------------------------------


def _then_relu(primitive: Primitive) -> Primitive:
    def value(xp: Any, *operands: Any, **params: Any) -> Any:
        return op.RELU.on(xp)(xp, primitive.on(xp)(xp, *operands, **params))

    return _derived(primitive, f"{primitive.name}_relu", value)


WITH_RELU: dict[Primitive, Primitive] = {
    primitive: _then_relu(primitive)
    for primitive in (op.CONV, op.CONV_BIASED, last[op.CONV], last[op.CONV_BIASED])
}
"""Primitives followed by `relu`, by the primitive."""


def _vjp(xp: Any, ct: Any, x: Any, out: Any, *, geometry: Any, size: Any, positive: bool) -> Any:
    """Return the cotangent of the operand of `max_pool`, or of a `relu` before it."""
    winners = op.WINDOW_WINNERS.on(xp)(xp, x, out, geometry=geometry)
    found = op.TO_WINNERS.on(xp)(xp, ct, winners, geometry=geometry, size=size)
    return found * (x > 0) if positive else found


_VJP = _derived(op.TO_WINNERS, "pulled_windows", _vjp)
VJP: dict[Primitive, Primitive] = {
    op.TO_WINNERS: _VJP,
    last[op.TO_WINNERS]: _derived(_VJP, "pulled_windows_last", to_last(_vjp, (0, 1, 2), True)),
}
"""``to_winners`` fused with ``window_winners``."""

_LAST_WITH_RELU = [WITH_RELU[last[primitive]] for primitive in (op.CONV, op.CONV_BIASED)]
IN_ORDER = frozenset({PUT_LAST, *last.values(), *_LAST_WITH_RELU, VJP[last[op.TO_WINNERS]]})
"""The primitives for examples last whose results are contiguous."""
