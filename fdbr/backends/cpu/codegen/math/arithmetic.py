"""Arithmetic, comparison and choice of nodes, under NumPy's names."""

import math
from typing import Any

import numpy as np

from fdbr.core.expr import FLOATS, InexpressibleError, Node, joined

__all__ = [
    *(
        "abs",
        "absolute",
        "add",
        "asarray",
        "astype",
        "bitwise_and",
        "bitwise_invert",
        "bitwise_not",
    ),
    *("bitwise_or", "bitwise_xor", "ceil", "divide", "equal", "floor", "invert", "isinf"),
    *("fma", "full_like", "greater", "greater_equal", "hypot", "isfinite", "isnan", "less"),
    *(
        "less_equal",
        "logical_and",
        "logical_not",
        "logical_or",
        "logical_xor",
        "maximum",
        "minimum",
        "multiply",
        "negative",
    ),
    *("not_equal", "ones_like", "positive", "reciprocal", "result_type", "round", "sign"),
    *("signbit", "sqrt", "square", "subtract", "trunc", "where", "zeros_like", "dtype"),
]

dtype = np.dtype

# --- arithmetic ---------------------------------------------------------------------


def floating(x: Node) -> Node:
    if x.dtype not in FLOATS:
        raise InexpressibleError("functions of integers")
    return x


def add(x: Any, y: Any) -> Node:
    return joined("add", x, y)


def subtract(x: Any, y: Any) -> Node:
    return joined("sub", x, y)


def multiply(x: Any, y: Any) -> Node:
    return joined("mul", x, y)


def divide(x: Any, y: Any) -> Node:
    return joined("div", x, y)


def negative(x: Node) -> Node:
    return -x


def positive(x: Node) -> Node:
    return x


def absolute(x: Node) -> Node:
    return x.__abs__()


abs = absolute


def square(x: Node) -> Node:
    return x * x


def reciprocal(x: Node) -> Node:
    return 1 / x


def sqrt(x: Node) -> Node:
    return floating(x).graph.node("sqrt", x.dtype, (x,))


def maximum(x: Any, y: Any) -> Node:
    """The larger one; NaN if one is."""
    return joined("maximum", x, y)


def minimum(x: Any, y: Any) -> Node:
    """The smaller one; NaN if one is."""
    return joined("minimum", x, y)


def sign(x: Node) -> Node:
    return where(x > 0, 1, where(x < 0, -1, where(x == 0, full_like(x, 0), x)))


def asarray(x: Node) -> Node:
    return x


def astype(x: Node, dtype: Any, copy: bool = True) -> Node:
    return x.astype(dtype)


def result_type(*values: Any) -> Any:
    return np.result_type(*(v.dtype if isinstance(v, Node) else v for v in values))


def floor(x: Node) -> Node:
    return floating(x).graph.node("floor", x.dtype, (x,))


def ceil(x: Node) -> Node:
    return floating(x).graph.node("ceil", x.dtype, (x,))


def trunc(x: Node) -> Node:
    return floating(x).graph.node("trunc", x.dtype, (x,))


def round(x: Node) -> Node:
    """The nearest integer, halves to even."""
    return floating(x).graph.node("rint", x.dtype, (x,))


def fma(x: Any, y: Any, z: Any) -> Node:
    """``x * y + z``, rounded once."""
    return joined("fma", x, y, z)


# --- comparison and choice ----------------------------------------------------------


def equal(x: Any, y: Any) -> Node:
    return joined("eq", x, y)


def not_equal(x: Any, y: Any) -> Node:
    return joined("ne", x, y)


def less(x: Any, y: Any) -> Node:
    return joined("lt", x, y)


def less_equal(x: Any, y: Any) -> Node:
    return joined("le", x, y)


def greater(x: Any, y: Any) -> Node:
    return joined("gt", x, y)


def greater_equal(x: Any, y: Any) -> Node:
    return joined("ge", x, y)


def truth(x: Any) -> Any:
    """Whether a number is not 0."""
    return x.astype(np.bool_) if isinstance(x, Node) else bool(x)


def logical_and(x: Any, y: Any) -> Node:
    return joined("and", truth(x), truth(y))


def logical_or(x: Any, y: Any) -> Node:
    return joined("or", truth(x), truth(y))


def logical_xor(x: Any, y: Any) -> Node:
    return joined("xor", truth(x), truth(y))


def logical_not(x: Node) -> Node:
    return ~truth(x)


def bitwise_and(x: Any, y: Any) -> Node:
    return joined("and", x, y)


def bitwise_or(x: Any, y: Any) -> Node:
    return joined("or", x, y)


def bitwise_xor(x: Any, y: Any) -> Node:
    return joined("xor", x, y)


def bitwise_invert(x: Node) -> Node:
    return ~x


invert = bitwise_not = bitwise_invert


def isnan(x: Node) -> Node:
    return x != x


def isfinite(x: Node) -> Node:
    return x - x == 0


def isinf(x: Node) -> Node:
    return absolute(floating(x)) == math.inf


def signbit(x: Node) -> Node:
    bits = floating(x).graph.node("bits", FLOATS[x.dtype], (x,))
    return bits < 0


def where(condition: Node, x: Any, y: Any) -> Node:
    if condition.dtype != np.bool_:
        raise InexpressibleError("a choice by numbers")
    graph = condition.graph
    dtype = np.result_type(*(v.dtype if hasattr(v, "dtype") else v for v in (x, y)))
    chosen = (v.astype(dtype) if isinstance(v, Node) else graph.constant(v, dtype) for v in (x, y))
    return graph.node("select", dtype, (condition, *chosen))


def full_like(x: Node, value: float, dtype: Any = None) -> Node:
    return x.graph.constant(value, np.dtype(dtype or x.dtype))


def zeros_like(x: Node, dtype: Any = None) -> Node:
    return full_like(x, 0, dtype)


def ones_like(x: Node, dtype: Any = None) -> Node:
    return full_like(x, 1, dtype)


def hypot(x: Any, y: Any) -> Node:
    """By the quotient of the smaller and the larger one, without overflow."""
    sides = [absolute(v) if isinstance(v, Node) else math.fabs(v) for v in (x, y)]
    larger = maximum(*sides)
    ratio = minimum(*sides) / where(larger == 0, 1, larger)
    out = larger * sqrt(1 + ratio * ratio)
    for side in sides:  # even beside NaN
        if isinstance(side, Node):
            out = where(side == math.inf, math.inf, out)
        elif side == math.inf:
            out = full_like(out, side)
    return out
