"""Primitives on Python numbers.

In the captured function, operators on two Python integers are exact, whatever their size, and so
are comparisons of two numbers.  Complex numbers have no order.  A program computes them in the same
way.  Everything else follows NumPy.
"""

import operator
from collections.abc import Callable
from typing import Any

from fdbr.core.primitive import Primitive, dispatch
from fdbr.errors.checks import number_types

__all__ = ["apply", "exact"]

_WHOLE = frozenset({int, bool})

_COMPARISONS = frozenset(
    {operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge}
)  # also between an integer and a float: the integer is not rounded


def exact(primitive: Primitive, kinds: Any) -> Callable[..., Any] | None:
    """Return Python's exact function for a primitive on some types; `None` if NumPy computes it."""
    function = primitive.facts.exact
    if function is None:
        return None
    return (
        function
        if (number_types if function in _COMPARISONS else _WHOLE).issuperset(kinds)
        else None
    )


def apply(primitive: Primitive, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """Apply a primitive to arrays, numbers, or traced values of outer transformations."""
    function = exact(primitive, map(type, args))
    return dispatch(primitive, args, params) if function is None else function(*args, **params)
