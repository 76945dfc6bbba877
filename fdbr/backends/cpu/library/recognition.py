"""Recognize users' functions of two elements that built-in reductions compute."""

from typing import Any

import numpy as np

from fdbr.backends.cpu.codegen.math import functions
from fdbr.core.expr import FLOATS, INTEGERS, Graph, InexpressibleError
from fdbr.core.primitive import implement, registry
from fdbr.ops.declare.expression_of import REDUCTION_OF, recognized
from fdbr.ops.declare.rules import Function

__all__: list[str] = []

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


@implement(recognized, np)
def _recognized(combine: Function, dtypes: tuple[Any, ...]) -> tuple[str, ...] | None:
    """Call ``combine`` on symbolic expressions, whose graph shows what it does to two elements."""
    several = len(dtypes) > 1
    kinds = [
        _SAME_KIND.get(dtype.kind, dtype) if dtype not in _EXPRESSIBLE else dtype
        for dtype in dtypes
    ]
    graph = Graph(functions)
    a, b = (
        tuple(
            [graph.node("operand", dtype, (), (2 * i + k, True)) for i, dtype in enumerate(kinds)]
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


def _name(part: Any, x: Any, y: Any) -> str | None:
    """Find the reduction that combines ``x`` and ``y`` to the expression ``part``."""
    for name in ("add", "multiply", "maximum", "minimum"):
        join = registry[name].apply
        if part is join(x, y) or part is join(y, x):
            return REDUCTION_OF[name]
    return None
