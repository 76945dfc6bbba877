"""How a primitive acts on one element, as an expression of the kernel language.

The kernel language is Python with typed casts ``f4`` and ``f8``, and the functions of
`mathematics`.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fdbr.compiler.ir.program import Instruction, kind_of

__all__ = ["BY_ROW", "CODES", "cast", "cost", "element", "is_elementwise"]

CODES = {
    np.dtype(np.float32): "f4",
    np.dtype(np.float64): "f8",
    np.dtype(np.bool_): "b1",
    np.dtype(np.int32): "i4",
    np.dtype(np.int64): "i8",
}
"""The dtypes that kernels know, and what they are called there."""

_FLOATS = "f4", "f8"

# What a primitive is on operands that have the dtype of its result.
_ARITHMETIC = {
    "add": "({0} + {1})",
    "subtract": "({0} - {1})",
    "multiply": "({0} * {1})",
    "divide": "({0} / {1})",
    "negative": "(-{0})",
    "positive": "{0}",
    "square": "square({0})",
    "reciprocal": "({one} / {0})",
    "sqrt": "sqrt({0})",
    "real_abs": "abs({0})",
    "real_sign": "sign_{code}({0})",
    "maximum": "maximum({0}, {1})",
    "minimum": "minimum({0}, {1})",
    "relu": "maximum({0}, {zero})",
    "exp": "exp_{code}({0})",
    "log": "log_{code}({0})",
    "log1p": "log1p_{code}({0})",
    "tanh": "tanh_{code}({0})",
    "tanh_slope": "tanh_slope_{code}({0})",
    "sigmoid": "sigmoid_{code}({0})",
    "sigmoid_slope": "sigmoid_slope_{code}({0})",
    "floor": "floor({0})",
    "ceil": "ceil({0})",
    "astype_inexact": "{0}",
    "ndtr": "ndtr_{code}({0})",
}
_LIMITED = frozenset({"clipped", "hard_limits"})
_ONLY_SINGLE = {"ndtr"}  # for doubles there is no formula that is as exact and fast

_COMPARISONS = {
    "equal": "({0} == {1})",
    "not_equal": "({0} != {1})",
    "less": "({0} < {1})",
    "less_equal": "({0} <= {1})",
    "greater": "({0} > {1})",
    "greater_equal": "({0} >= {1})",
    "isfinite": "isfinite({0})",
    "isnan": "({0} != {0})",
}

_LOGIC = {
    "logical_and": "({0} & {1})",
    "logical_or": "({0} | {1})",
    "logical_not": "(not {0})",
}

BY_ROW = frozenset({"subtract_at_labels"})
"""Primitives that act on a matrix by its column ``c``; other operands have one element a row."""

_EXPENSIVE = frozenset(
    {
        *("exp", "log", "log1p", "tanh", "tanh_slope", "sigmoid", "sigmoid_slope"),
        *("sqrt", "divide", "ndtr", "gaussian"),
    }
)


def cost(step: Instruction) -> int:
    """About how many additions an element costs."""
    return 8 if step.primitive.name in _EXPENSIVE else 1


def cast(text: str, code: str, to: str) -> str:
    """A value of one dtype as one of another."""
    if code == to:
        return text
    return f"({text} != 0)" if to == "b1" else f"{to}({text})"


def is_elementwise(step: Instruction) -> bool:
    """Whether a kernel can do it, element by element."""
    name = step.primitive.name
    if step.several or len(step.outs) != 1:
        return False
    out = CODES.get(step.outs[0].kind.dtype)
    kinds = [kind_of(operand) for operand in step.operands]
    if out is None or any(CODES.get(kind.dtype) is None for kind in kinds):
        return False
    if name == "full_like":
        return out in _FLOATS and is_plain(step.params["value"])
    if name in _ARITHMETIC:
        return out in _FLOATS and not (name in _ONLY_SINGLE and out == "f8")
    if name == "integer_power":
        return out in _FLOATS and step.params["exponent"] in (2, 3, 4, -1, -2)
    if name in _LIMITED:
        return out in _FLOATS
    if name == "where":
        return out in _FLOATS and CODES[kinds[0].dtype] == "b1"
    if name in _COMPARISONS:
        return not any(kind.is_number and kind.type is int for kind in kinds) or all(
            kind.dtype.kind != "b" for kind in kinds
        )
    return name in _LOGIC and all(kind.dtype.kind == "b" for kind in kinds)


def is_plain(value: Any) -> bool:
    """Whether a constant is a number that the kernel language can write down."""
    return type(value) in (int, float) or isinstance(value, np.floating)


_POWERS = {
    2: "square({0})",
    3: "(square({0}) * {0})",
    4: "square(square({0}))",
    -1: "({one} / {0})",
    -2: "({one} / square({0}))",
}


def element(step: Instruction, texts: Sequence[str], codes: Sequence[str]) -> str:
    """The expression for one element of the result, from expressions for the operands'."""
    name = step.primitive.name
    out = CODES[step.outs[0].kind.dtype]
    casts: Callable[[str], list[str]] = lambda to: [  # noqa: E731
        cast(text, code, to) for text, code in zip(texts, codes, strict=True)
    ]
    if name == "full_like":
        return f"{out}({float(step.params['value'])!r})"
    if name in _LIMITED:
        return _limited(casts(out)[0], out, step.params["low"], step.params["high"])
    if name == "where":
        chosen, otherwise = casts(out)[1:]
        return f"select({texts[0]}, {chosen}, {otherwise})"
    if name == "subtract_at_labels":
        return f"select(c == {texts[2]}, {texts[0]} - {casts(out)[1]}, {texts[0]})"
    if name in _COMPARISONS:
        return _COMPARISONS[name].format(*casts(_common(step)))
    if name in _LOGIC:
        return _LOGIC[name].format(*texts)
    template = _POWERS[step.params["exponent"]] if name == "integer_power" else _ARITHMETIC[name]
    constants: dict[str, Any] = {"code": out, "one": f"{out}(1)", "zero": f"{out}(0)"}
    return template.format(*casts(out), **step.params, **constants)


def _limited(text: str, out: str, low: float, high: float) -> str:
    """An element between two bounds, of which an infinite one is none."""
    if low != -math.inf:
        text = f"maximum({text}, {out}({low!r}))"
    return text if high == math.inf else f"minimum({text}, {out}({high!r}))"


def _common(step: Instruction) -> str:
    """The dtype in which NumPy compares."""
    kinds = [kind_of(operand) for operand in step.operands]
    weak: list[Any] = [kind.type(0) if kind.is_number else kind.dtype for kind in kinds]
    return CODES.get(np.result_type(*weak), "f8")
