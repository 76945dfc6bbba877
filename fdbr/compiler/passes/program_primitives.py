"""Primitives that programs alone have: passes make steps of them, and they have no rules.

Their values say what they compute, by the primitives that they stand for.
"""

import copy
import functools
from collections.abc import Callable
from typing import Any

from fdbr.core import Primitive, registry

__all__ = [
    "EXAMPLES_LAST",
    "PULLED",
    "PUT_LAST",
    "WITH_RELU",
    "back",
    "forward",
    "last",
    "to_last",
]

Value = Callable[..., Any]


def _derived(primitive: Primitive, name: str, value: Value) -> Primitive:
    made = copy.copy(primitive)
    made.name, made.value, made.rules = name, value, None
    made.kind, made.forward, made.batch, made.fresh = "constant", None, None, True
    return made


# --- with examples last -------------------------------------------------------------


def forward(rank: int) -> tuple[int, ...]:
    """Where axes come from when the first one becomes the last."""
    return (*range(1, rank), 0)


def back(rank: int) -> tuple[int, ...]:
    """Where they come from when the last one becomes the first."""
    return (rank - 1, *range(rank - 1))


EXAMPLES_LAST: dict[str, tuple[tuple[int, ...], bool]] = {
    "conv": ((0,), True),
    "conv_biased": ((0,), True),
    "conv_input": ((0,), True),
    "conv_kernel": ((0, 1), False),
    "max_windows": ((0,), True),
    "window_winners": ((0, 1), True),
    "to_winners": ((0, 1), True),
}
"""The operands that have examples, and whether the result has."""


def to_last(value: Value, turned: tuple[int, ...], whole: bool) -> Value:
    """A value for operands that have examples last, and maybe such a result."""

    @functools.wraps(value)
    def value_last(xp: Any, *operands: Any, **params: Any) -> Any:
        given = [
            xp.transpose(x, back(x.ndim)) if i in turned else x for i, x in enumerate(operands)
        ]
        out = value(xp, *given, **params)
        return xp.ascontiguousarray(xp.transpose(out, forward(out.ndim))) if whole else out

    return value_last


last: dict[str, Primitive] = {
    name: _derived(registry[name], f"{name}_last", to_last(registry[name].value, *how))
    for name, how in EXAMPLES_LAST.items()
}
"""Primitives for arrays with examples last, by the names of those for examples first."""


def _put_last(xp: Any, x: Any) -> Any:
    """An array with its first axis put last, laid out so in memory of its own."""
    return xp.transpose(x, forward(x.ndim)).copy()


PUT_LAST = _derived(registry["permute"], "put_last", _put_last)
"""The primitive that moves examples from the first axis to the last one."""


# --- several in one -----------------------------------------------------------------


def _then_relu(primitive: Primitive) -> Primitive:
    def value(xp: Any, *operands: Any, **params: Any) -> Any:
        return registry["relu"].value(xp, primitive.value(xp, *operands, **params))

    return _derived(primitive, f"{primitive.name}_relu", value)


WITH_RELU: dict[str, Primitive] = {
    primitive.name: _then_relu(primitive)
    for primitive in (registry["conv"], registry["conv_biased"], last["conv"], last["conv_biased"])
}
"""`relu` of what a primitive gives."""


def _pulled(xp: Any, ct: Any, x: Any, out: Any, *, geometry: Any, size: Any, positive: bool) -> Any:
    """The cotangent of what `max_pool` took, or of what `relu` took that gave it."""
    winners = registry["window_winners"].value(xp, x, out, geometry=geometry)
    found = registry["to_winners"].value(xp, ct, winners, geometry=geometry, size=size)
    return found * (x > 0) if positive else found


_PULLED = _derived(registry["to_winners"], "pulled_windows", _pulled)
PULLED: dict[str, Primitive] = {
    "to_winners": _PULLED,
    "to_winners_last": _derived(_PULLED, "pulled_windows_last", to_last(_pulled, (0, 1, 2), True)),
}
"""``to_winners`` together with ``window_winners``."""
