"""Recognize functions of two elements that built-in reductions compute."""

import operator
from typing import Any

import numpy as np

from fdbr.backends.cpu.codegen.math import functions
from fdbr.core.expr import FLOATS, INTEGERS, Graph, InexpressibleError
from fdbr.core.primitive import dispatch, registry
from fdbr.ops.declare.rules import Function

__all__ = ["keeps_dtype", "apply_reduction", "recognize_reductions"]

_REDUCTION_OF = {
    "add": "sum",
    "multiply": "prod",
    "maximum": "max",
    "minimum": "min",
    "logical_and": "all",
    "logical_or": "any",
}
"""The built-in reduction for each function that combines two elements."""

_OPERATORS = ((operator.add, "sum"), (operator.mul, "prod"))
_EXPRESSIBLE = FLOATS.keys() | INTEGERS  # dtypes that expressions have
_SAME_KIND = {kind: np.dtype("f8" if kind in "fc" else "i8") for kind in "fciu"}  # replaces others
_NOT_EXPRESSIBLE = (
    InexpressibleError,
    AttributeError,
    TypeError,
    ValueError,
    LookupError,
    ArithmeticError,
)


def keeps_dtype(name: str, state: Any) -> bool:
    """Whether a built-in reduction of a state has the dtype of the state."""
    return state.dtype == bool if name in ("all", "any") else state.dtype.kind in "fcbiu"


def apply_reduction(name: str, state: Any, axes: tuple[int, ...]) -> Any:
    """Reduce one part of a state with a built-in reduction, in its own dtype."""
    params = {"axes": axes} if name in ("max", "min", "prod") else {"axes": axes, "keepdims": False}
    out = dispatch(registry[name], (state,), params)
    return out if out.dtype == state.dtype else out.astype(state.dtype)


def recognize_reductions(combine: Function, dtypes: tuple[Any, ...]) -> tuple[str, ...] | None:
    """Find the built-in reduction equal to ``combine`` for each part of a state.

    Return `None` if a part has none.  The function is called on symbolic expressions, whose
    graph shows what it does to two elements.
    """
    several = len(dtypes) > 1
    known = None if several else _by_identity(combine)
    if known is not None:
        return (known,)
    kinds = [
        _SAME_KIND.get(dtype.kind, dtype) if dtype not in _EXPRESSIBLE else dtype
        for dtype in dtypes
    ]
    graph = Graph(functions)
    a, b = (
        tuple(
            [
                graph.node("operand", dtype, (), (2 * i + k, True))
                for i, dtype in enumerate(kinds)
            ]
        )
        for k in range(2)
    )
    try:
        out = combine(a, b) if several else (combine(a[0], b[0]),)
        names = [_name(part, x, y) for part, x, y in zip(out, a, b, strict=True)]
    except _NOT_EXPRESSIBLE:
        return None
    found = tuple([name for name in names if name is not None])
    return found if len(found) == len(dtypes) else None


def _by_identity(combine: Function) -> str | None:
    """Find the reduction if ``combine`` is itself a NumPy ufunc, an operation or an operator."""
    if isinstance(combine, np.ufunc):
        return _REDUCTION_OF.get(combine.__name__)
    primitive = getattr(combine, "primitive", None)
    if primitive is not None:
        return _REDUCTION_OF.get(primitive.name)
    return next((name for function, name in _OPERATORS if function is combine), None)


def _name(part: Any, x: Any, y: Any) -> str | None:
    """Find the reduction that combines ``x`` and ``y`` to the expression ``part``."""
    for name in ("add", "multiply", "maximum", "minimum"):
        join = registry[name].apply
        if part is join(x, y) or part is join(y, x):
            return _REDUCTION_OF[name]
    return None
