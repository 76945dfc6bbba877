"""Python's own numbers: what a primitive is on them.

In the recorded function an operator on two integers of Python is exact, whatever their size, as is
a comparison of two numbers, and so it is in the program.  All else follows NumPy.
"""

import operator
from collections.abc import Callable
from typing import Any

from fdbr.core import Primitive, dispatch

__all__ = ["apply", "exact"]

_WHOLE = frozenset({int, bool})

_EXACT: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "power": operator.pow,
    "integer_power": lambda x, exponent: x**exponent,
    "square": lambda x: x * x,
    "negative": operator.neg,
    "positive": operator.pos,
    "real_abs": operator.abs,
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "bitwise_and": operator.and_,
    "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
    "bitwise_left_shift": operator.lshift,
    "bitwise_right_shift": operator.rshift,
}


_REAL = _WHOLE | {float}

_COMPARISONS = frozenset(
    {"equal", "not_equal", "less", "less_equal", "greater", "greater_equal"}
)  # of an integer and a floating number, too: no integer is rounded for it


def exact(primitive: Primitive, kinds: Any) -> Callable[..., Any] | None:
    """Python's exact function for a primitive of such values; `None` if NumPy computes it."""
    known = _REAL if primitive.name in _COMPARISONS else _WHOLE
    return _EXACT.get(primitive.name) if known.issuperset(kinds) else None


def apply(primitive: Primitive, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """Apply a primitive to arrays, numbers, or traced values of outer transformations."""
    function = exact(primitive, map(type, args))
    return dispatch(primitive, args, params) if function is None else function(*args, **params)
