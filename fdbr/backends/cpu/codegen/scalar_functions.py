"""The array module that value functions get: formulas, and functions called number by number.

What `codegen.math.functions` has no formula for, SciPy's function in C computes, as its ufunc does.
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
_NAMES = {"power": "pow", "digamma": "psi"}  # where NumPy and SciPy have two


class _Module:
    """Functions of nodes, by NumPy's and SciPy's names."""

    of_nodes = True

    def __getattr__(self, name: str) -> Any:
        formula, scalar = getattr(functions, name, None), _NAMES.get(name, name)
        if formula is None and scalars.arity(scalar) is None:
            raise AttributeError(f"kernels have no function {name}")
        made = _either(formula, scalar)
        setattr(self, name, made)
        return made


def _either(formula: Any, scalar: str) -> Callable[..., Any]:
    """The formula; where it is not known, or does not hold for all numbers, a call.

    SciPy's functions take a while to import, so nobody asks for them before.
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
