"""Building blocks of formulas on nodes."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fdbr.backends.cpu.codegen.math.arithmetic import fma, full_like, result_type, where
from fdbr.core.expr import FLOATS, InexpressibleError, Node

__all__ = [
    *("bits_of", "both", "from_bits", "held", "in_double", "integers", "polynomial"),
]


def in_double(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of single numbers that is computed in double precision, and rounded once.

    Its operands may be of double precision if they come of single numbers, as those of derivatives
    do; of others its formula is not exact enough.
    """

    @functools.wraps(function)
    def of_single(*operands: Any) -> Any:
        if not all(x.single for x in operands if isinstance(x, Node)):
            raise InexpressibleError("what has no formula as exact in double precision")
        dtype = result_type(*operands)
        if dtype not in FLOATS:
            raise InexpressibleError("functions of integers")
        # Numbers are rounded to the dtype of the others, as NumPy has them.
        wide = [
            x.astype(np.float64) if isinstance(x, Node) else dtype.type(x).item() for x in operands
        ]
        return function(*wide).astype(dtype)

    return of_single


def polynomial(x: Node, coefficients: Sequence[float]) -> Node:
    """Horner's rule, from the highest power down."""
    total: Any = coefficients[0]
    for coefficient in coefficients[1:]:
        total = fma(total, x, coefficient)
    return total


def bits_of(x: Node) -> Node:
    return x.graph.node("bits", FLOATS[x.dtype], (x,))


def integers(op: str, x: Node, y: Any) -> Node:
    other = y if isinstance(y, Node) else x.graph.constant(y, x.dtype)
    return x.graph.node(op, x.dtype, (x, other))


def from_bits(bits: Node, dtype: Any) -> Node:
    return bits.graph.node("float", dtype, (bits,))


def held(x: Node, low: float, high: float) -> Node:
    """``x`` between bounds; NaN stays NaN."""
    x = where(x < low, low, x)
    return where(x > high, high, x)


def both(x: Any, y: Any) -> tuple[Node, Node]:
    """Two operands of which one may be a number, as nodes."""
    like = x if isinstance(x, Node) else y
    first, second = (v if isinstance(v, Node) else full_like(like, v) for v in (x, y))
    return first, second
