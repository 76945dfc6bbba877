"""Recognize functions of two elements that built-in reductions compute."""

import operator
from typing import Any

import numpy as np

from fdbr.core.primitive import dispatch, registry
from fdbr.core.routine import Routine
from fdbr.ops.declare.rules import Function

__all__ = ["keeps_dtype", "apply_reduction", "recognize_reductions"]

REDUCTION_OF = {
    "add": "sum",
    "multiply": "prod",
    "maximum": "max",
    "minimum": "min",
    "logical_and": "all",
    "logical_or": "any",
}
"""The built-in reduction for each function that combines two elements."""

_OPERATORS = ((operator.add, "sum"), (operator.mul, "prod"))


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

    Return `None` if a part has none.
    """
    known = by_identity(combine) if len(dtypes) == 1 else None
    return recognized.host(combine, dtypes) if known is None else (known,)


@Routine
def recognized(combine: Function, dtypes: tuple[Any, ...]) -> tuple[str, ...] | None:
    """Find the built-in reductions in what ``combine`` does to two elements."""
    return None


def by_identity(combine: Function) -> str | None:
    """Find the reduction if ``combine`` is itself a NumPy ufunc, an operation or an operator."""
    if isinstance(combine, np.ufunc):
        return REDUCTION_OF.get(combine.__name__)
    primitive = getattr(combine, "primitive", None)
    if primitive is not None:
        return REDUCTION_OF.get(primitive.name)
    return next((name for function, name in _OPERATORS if function is combine), None)
