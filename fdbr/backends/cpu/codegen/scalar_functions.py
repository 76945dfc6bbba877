"""The array module that value functions are traced with: formulas, and scalar function calls.

A function without a formula in `codegen.math.functions` calls SciPy's C function.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr.backends.cpu.codegen.math import functions
from fdbr.backends.cpu.codegen.math.arithmetic import result_type
from fdbr.backends.cpu.runtime import scalars
from fdbr.core.expr import FLOATS, InexpressibleError, Node

__all__ = ["MODULE"]

_DOUBLE = np.dtype(np.float64)
_NAMES = {"power": "pow", "digamma": "psi"}  # names that differ between NumPy and SciPy


class _Module:
    """Provide functions of nodes under NumPy's and SciPy's names."""

    of_nodes = True

    def __getattr__(self, name: str) -> Any:
        formula, scalar = getattr(functions, name, None), _NAMES.get(name, name)
        if formula is None and scalars.arity(scalar) is None:
            raise AttributeError(f"kernels have no function {name}")
        made = _either(formula, scalar)
        setattr(self, name, made)
        return made


def _either(formula: Any, scalar: str) -> Callable[..., Any]:
    """Return the formula, or a scalar call where there is none or it does not hold for all numbers.

    SciPy's functions are imported at their first use, because the import is slow.
    """

    def function(*operands: Any, **params: Any) -> Node:
        if formula is not None:
            try:
                found: Node = formula(*operands, **params)
            except InexpressibleError:
                if scalars.arity(scalar) is None:
                    raise
            else:
                return found
        count = scalars.arity(scalar)
        if len(operands) != count or not any(isinstance(x, Node) for x in operands):
            raise InexpressibleError(f"{scalar} of {len(operands)} operands")
        return _called(scalar, operands)

    return function


def _called(scalar: str, operands: tuple[Any, ...]) -> Node:
    dtype = result_type(*operands)
    graph = next(x.graph for x in operands if isinstance(x, Node))
    if dtype not in FLOATS:
        raise InexpressibleError("functions of integers")
    wide = [
        x.astype(_DOUBLE) if isinstance(x, Node) else graph.constant(dtype.type(x), _DOUBLE)
        for x in operands
    ]
    return graph.node("scalar", _DOUBLE, tuple(wide), scalar).astype(dtype)


MODULE: Any = _Module()
