"""Python's own numbers: what a primitive is on them.

In the captured function an operator on two integers of Python is exact, whatever their size, as is
a comparison of two numbers, and so it is in the program.  All else follows NumPy.
"""

import operator
from collections.abc import Callable
from typing import Any

from fdbr.core.primitive import Primitive, dispatch

__all__ = ["apply", "exact"]

_WHOLE = frozenset({int, bool})

_REAL = _WHOLE | {float}

_COMPARISONS = frozenset(
    {operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge}
)  # of an integer and a floating number, too: no integer is rounded for it


def exact(primitive: Primitive, kinds: Any) -> Callable[..., Any] | None:
    """Python's exact function for a primitive of such values; `None` if NumPy computes it."""
    function = primitive.facts.exact
    if function is None:
        return None
    return function if (_REAL if function in _COMPARISONS else _WHOLE).issuperset(kinds) else None


def apply(primitive: Primitive, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """Apply a primitive to arrays, numbers, or traced values of outer transformations."""
    function = exact(primitive, map(type, args))
    return dispatch(primitive, args, params) if function is None else function(*args, **params)
