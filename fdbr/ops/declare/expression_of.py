"""Which reductions of the library a function of two elements stands for."""

import operator
from typing import Any

import numpy as np

from fdbr.backends.cpu.codegen.math import functions
from fdbr.core.expr import FLOATS, INTEGERS, Graph, InexpressibleError
from fdbr.core.primitive import dispatch, registry
from fdbr.ops.declare.rules import Function

__all__ = ["is_kept", "reduced_by", "recognised"]

_KNOWN = {
    "add": "sum",
    "multiply": "prod",
    "maximum": "max",
    "minimum": "min",
    "logical_and": "all",
    "logical_or": "any",
}
"""The reductions of the library by the functions that they join two elements by."""

_OPERATORS = ((operator.add, "sum"), (operator.mul, "prod"))
_OWN = FLOATS.keys() | INTEGERS  # the dtypes of expressions
_LIKE = {kind: np.dtype("f8" if kind in "fc" else "i8") for kind in "fciu"}  # for others
_UNSUITED = InexpressibleError, AttributeError, TypeError, ValueError, LookupError, ArithmeticError


def is_kept(name: str, state: Any) -> bool:
    """Whether a reduction of the library joins numbers of a dtype to one of the same."""
    return state.dtype == bool if name in ("all", "any") else state.dtype.kind in "fcbiu"


def reduced_by(name: str, state: Any, axes: tuple[int, ...]) -> Any:
    """A part of a state by a reduction of the library, in its own dtype."""
    params = {"axes": axes} if name in ("max", "min", "prod") else {"axes": axes, "keepdims": False}
    out = dispatch(registry[name], (state,), params)
    return out if out.dtype == state.dtype else out.astype(state.dtype)


def recognised(combine: Function, dtypes: tuple[Any, ...]) -> tuple[str, ...] | None:
    """The reductions that join each part of a state as a function does; `None` if one is unknown.

    The function is followed on expressions, which tell what it does to two elements.
    """
    several = len(dtypes) > 1
    known = None if several else _by_identity(combine)
    if known is not None:
        return (known,)
    kinds = [_LIKE.get(dtype.kind, dtype) if dtype not in _OWN else dtype for dtype in dtypes]
    graph = Graph(functions)
    a, b = (
        tuple(
            [
                graph.node("operand", dtype, (), (2 * i + k, True, False))
                for i, dtype in enumerate(kinds)
            ]
        )
        for k in range(2)
    )
    try:
        out = combine(a, b) if several else (combine(a[0], b[0]),)
        names = [_name(part, x, y) for part, x, y in zip(out, a, b, strict=True)]
    except _UNSUITED:
        return None
    found = tuple([name for name in names if name is not None])
    return found if len(found) == len(dtypes) else None


def _by_identity(combine: Function) -> str | None:
    """The reduction by one of NumPy's functions, an operation, or an operator."""
    if isinstance(combine, np.ufunc):
        return _KNOWN.get(combine.__name__)
    own = getattr(combine, "primitive", None)
    if own is not None:
        return _KNOWN.get(own.name)
    return next((name for function, name in _OPERATORS if function is combine), None)


def _name(part: Any, x: Any, y: Any) -> str | None:
    """The reduction that joins two elements to a node."""
    for name in ("add", "multiply", "maximum", "minimum"):
        join = registry[name].apply
        if part is join(x, y) or part is join(y, x):
            return _KNOWN[name]
    return None
