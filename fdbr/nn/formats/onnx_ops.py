"""ONNX nodes of elementwise primitives, reductions and products."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr.compiler.ir.program import Instruction, kind_of
from fdbr.nn.formats.onnx_graph import Graph, Unsupported, dtypes

__all__ = ["WRITERS", "Writer", "writes"]

Writer = Callable[[Graph, Instruction], Any]
"""A function that adds nodes for a step, and returns the name of its result, or the names of
several.
"""

WRITERS: dict[str, Writer] = {}
"""The writers by the names of primitives."""


def writes(*names: str) -> Callable[[Writer], Writer]:
    """Make a function the writer of some primitives."""

    def decorate(function: Writer) -> Writer:
        WRITERS.update(dict.fromkeys(names, function))
        return function

    return decorate


# --- elementwise --------------------------------------------------------------------

_ONE = {
    "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "negative": "Neg", "real_abs": "Abs",
    "reciprocal": "Reciprocal", "floor": "Floor", "ceil": "Ceil", "round": "Round",
    "real_sign": "Sign", "sin": "Sin", "cos": "Cos", "tan": "Tan", "asin": "Asin", "acos": "Acos",
    "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "tanh": "Tanh", "asinh": "Asinh",
    "acosh": "Acosh", "atanh": "Atanh", "sigmoid": "Sigmoid", "expit": "Sigmoid", "relu": "Relu",
    "erf": "Erf", "softplus": "Softplus", "softsign": "Softsign", "positive": "Identity",
    "checked_index": "Identity", "checked_lengths": "Identity", "to_device": "Identity",
    "on_host": "Identity",
}  # fmt: skip

_TWO = {
    "add": "Add", "subtract": "Sub", "multiply": "Mul", "divide": "Div", "power": "Pow",
    "maximum": "Max", "minimum": "Min", "logical_and": "And", "logical_or": "Or",
    "logical_xor": "Xor", "bitwise_and": "BitwiseAnd", "bitwise_or": "BitwiseOr",
    "bitwise_xor": "BitwiseXor",
}  # fmt: skip

_COMPARISONS = {
    "equal": "Equal", "less": "Less", "less_equal": "LessOrEqual", "greater": "Greater",
    "greater_equal": "GreaterOrEqual",
}  # fmt: skip


@writes(*_ONE)
def _one(graph: Graph, step: Instruction) -> str:
    dtype = step.outs[0].kind.dtype
    return str(graph.emit(_ONE[step.primitive.name], [graph.name(step.operands[0], dtype)]))


@writes(*_TWO)
def _two(graph: Graph, step: Instruction) -> str:
    kind, dtype = _TWO[step.primitive.name], step.outs[0].kind.dtype
    if dtype.kind == "b":  # ONNX has logic instead of arithmetic for booleans
        kind = {"Add": "Or", "Max": "Or", "Mul": "And", "Min": "And"}.get(kind, kind)
        kind = kind.removeprefix("Bitwise")
    return str(graph.emit(kind, [graph.name(operand, dtype) for operand in step.operands]))


@writes(*_COMPARISONS)
def _comparison(graph: Graph, step: Instruction) -> str:
    dtype = dtypes(step.operands)
    if dtype.kind == "b" and step.primitive.name != "equal":
        dtype = np.dtype(np.int32)
    names = [graph.name(operand, dtype) for operand in step.operands]
    return str(graph.emit(_COMPARISONS[step.primitive.name], names))


@writes("not_equal")
def _not_equal(graph: Graph, step: Instruction) -> str:
    dtype = dtypes(step.operands)
    names = [graph.name(operand, dtype) for operand in step.operands]
    return str(graph.emit("Not", [graph.emit("Equal", names)]))


@writes("logical_not")
def _not(graph: Graph, step: Instruction) -> str:
    return str(graph.emit("Not", [graph.name(step.operands[0], bool)]))


@writes("bitwise_invert")
def _invert(graph: Graph, step: Instruction) -> str:
    kind = "Not" if step.outs[0].kind.dtype == bool else "BitwiseNot"
    return str(graph.emit(kind, [graph.name(step.operands[0])]))


@writes("isnan", "isinf", "isfinite")
def _special(graph: Graph, step: Instruction) -> str:
    name = graph.name(step.operands[0])
    if step.primitive.name != "isfinite":
        return str(graph.emit({"isnan": "IsNaN", "isinf": "IsInf"}[step.primitive.name], [name]))
    either = graph.emit("Or", [graph.emit("IsNaN", [name]), graph.emit("IsInf", [name])])
    return str(graph.emit("Not", [either]))


def _formula(*names: str) -> Callable[[Any], Writer]:
    """Make a writer from a function of a `_Calculator` and the names of the operands."""

    def decorate(function: Any) -> Writer:
        def write(graph: Graph, step: Instruction) -> str:
            dtype = step.outs[0].kind.dtype
            given = [graph.name(operand, dtype) for operand in step.operands]
            return str(function(_Calculator(graph, dtype), *given, **step.params))

        return writes(*names)(write)

    return decorate


class _Calculator:
    """Nodes by their names, ``c.Add(a, 1.0)``; numbers are constants of one dtype."""

    def __init__(self, graph: Graph, dtype: Any) -> None:
        self._graph, self.dtype = graph, dtype

    def __getattr__(self, kind: str) -> Callable[..., str]:
        def call(*operands: Any, **attributes: Any) -> str:
            names = [x if isinstance(x, str) else self.number(x) for x in operands]
            return str(self._graph.emit(kind, names, **attributes))

        return call

    def number(self, value: Any) -> str:
        return self._graph.constant(value, self.dtype)


_formula("square")(lambda c, x: c.Mul(x, x))
_formula("log1p")(lambda c, x: c.Log(c.Add(x, 1)))
_formula("expm1")(lambda c, x: c.Sub(c.Exp(x), 1))
_formula("exp2")(lambda c, x: c.Pow(2, x))
_formula("log2")(lambda c, x: c.Mul(c.Log(x), 1 / np.log(2.0)))
_formula("log10")(lambda c, x: c.Mul(c.Log(x), 1 / np.log(10.0)))
_formula("logit")(lambda c, x: c.Log(c.Div(x, c.Sub(1, x))))
_formula("cbrt")(lambda c, x: c.Mul(c.Sign(x), c.Pow(c.Abs(x), 1 / 3)))
_formula("erfc")(lambda c, x: c.Sub(1, c.Erf(x)))
_formula("log_sigmoid")(lambda c, x: c.Neg(c.Softplus(c.Neg(x))))
_formula("silu")(lambda c, x: c.Mul(x, c.Sigmoid(x)))
_formula("gelu")(lambda c, x: c.Mul(c.Mul(x, 0.5), c.Add(c.Erf(c.Mul(x, 2.0**-0.5)), 1)))
_formula("leaky_relu")(lambda c, x, slope: c.LeakyRelu(x, alpha=float(slope)))
_formula("integer_power", "half_integer_power")(lambda c, x, exponent: c.Pow(x, exponent))
_formula("clipped", "hard_limits")(lambda c, x, low, high: c.Min(c.Max(x, low), high))
_formula("hypot")(lambda c, x, y: c.Sqrt(c.Add(c.Mul(x, x), c.Mul(y, y))))
_formula("logaddexp")(lambda c, x, y: c.Add(c.Max(x, y), c.Softplus(c.Neg(c.Abs(c.Sub(x, y))))))
_formula("scaled_and_moved")(lambda c, x, weight, bias: c.Add(c.Mul(x, weight), bias))
_formula("scaled_distance")(lambda c, x, y, scale: c.Mul(c.Sub(x, y), scale))


@_formula("trunc")
def _trunc(c: _Calculator, x: str) -> str:
    return c.Where(c.Less(x, 0), c.Ceil(x), c.Floor(x))


@_formula("remainder")
def _remainder(c: _Calculator, x: str, y: str) -> str:
    if c.dtype.kind in "iu":
        return c.Mod(x, y)
    return c.Sub(x, c.Mul(c.Floor(c.Div(x, y)), y))


@_formula("floor_divide")
def _floor_divide(c: _Calculator, x: str, y: str) -> str:
    return c.Div(c.Sub(x, c.Mod(x, y)), y) if c.dtype.kind in "iu" else c.Floor(c.Div(x, y))


@writes("where")
def _where(graph: Graph, step: Instruction) -> str:
    condition, x, y = step.operands
    dtype = step.outs[0].kind.dtype
    names = [graph.name(condition, bool), graph.name(x, dtype), graph.name(y, dtype)]
    return str(graph.emit("Where", names))


@writes("astype_exact", "astype_inexact")
def _astype(graph: Graph, step: Instruction) -> str:
    return graph.cast(graph.name(step.operands[0]), step.outs[0].kind.dtype)


@writes("full_like")
def _full_like(graph: Graph, step: Instruction) -> str:
    kind = step.outs[0].kind
    value = graph.constant(step.params["value"], kind.dtype)
    return str(graph.emit("Expand", [value, graph.integers(kind.shape)]))


# --- reductions --------------------------------------------------------------------------

_REDUCTIONS = {
    "sum": "ReduceSum", "mean": "ReduceMean", "max": "ReduceMax", "min": "ReduceMin",
    "prod": "ReduceProd", "logsumexp": "ReduceLogSumExp", "euclidean": "ReduceL2",
}  # fmt: skip


def reduced(graph: Graph, kind: str, name: str, step: Instruction) -> str:
    """Reduce a value along the axes of a step."""
    rank = len(kind_of(step.operands[0]).shape)
    axes = tuple(step.params["axes"])
    if not axes:
        return name
    keep = len(step.outs[0].kind.shape) == rank
    return str(graph.emit(kind, [name, graph.integers(axes)], keepdims=int(keep)))


@writes(*_REDUCTIONS)
def _reduction(graph: Graph, step: Instruction) -> str:
    name = graph.name(step.operands[0], step.outs[0].kind.dtype)
    return reduced(graph, _REDUCTIONS[step.primitive.name], name, step)


@writes("sum_of_rows")
def _sum_of_rows(graph: Graph, step: Instruction) -> str:
    name = graph.name(step.operands[0])
    return str(graph.emit("ReduceSum", [name, graph.integers([0])], keepdims=0))


@writes("any", "all")
def _any_or_all(graph: Graph, step: Instruction) -> str:
    name = graph.cast(graph.name(step.operands[0], bool), np.int32)
    kind = "ReduceMax" if step.primitive.name == "any" else "ReduceMin"
    return graph.cast(reduced(graph, kind, name, step), bool)


@writes("count_nonzero")
def _count_nonzero(graph: Graph, step: Instruction) -> str:
    name = graph.cast(graph.name(step.operands[0], bool), step.outs[0].kind.dtype)
    return reduced(graph, "ReduceSum", name, step)


@writes("squared_distance")
def _squared_distance(graph: Graph, step: Instruction) -> str:
    away = graph.emit("Sub", [graph.name(operand) for operand in step.operands])
    return reduced(graph, "ReduceSumSquare", away, step)


@writes("about_mean")
def _about_mean(graph: Graph, step: Instruction) -> list[str]:
    name = graph.name(step.operands[0])
    mean = reduced(graph, "ReduceMean", name, step)
    return [reduced(graph, "ReduceSumSquare", graph.emit("Sub", [name, mean]), step), mean]


@writes("argmax", "argmin")
def _argmax(graph: Graph, step: Instruction) -> str:
    name, axis = graph.name(step.operands[0]), step.params["axis"]
    if axis is None:
        name, axis = graph.emit("Reshape", [name, graph.integers([-1])]), 0
        shape = step.outs[0].kind.shape
        found = graph.emit(_arg(step), [name], axis=axis, keepdims=0)
        return str(graph.emit("Reshape", [found, graph.integers(shape)]) if shape else found)
    keep = int(step.params["keepdims"])
    return str(graph.emit(_arg(step), [name], axis=int(axis), keepdims=keep))


def _arg(step: Instruction) -> str:
    return "ArgMax" if step.primitive.name == "argmax" else "ArgMin"


@writes("cumsum")
def _cumsum(graph: Graph, step: Instruction) -> str:
    name = graph.name(step.operands[0], step.outs[0].kind.dtype)
    axis = graph.constant(np.int64(step.params["axis"]))
    return str(graph.emit("CumSum", [name, axis], reverse=int(step.params["reverse"])))


@writes("softmax", "log_softmax")
def _softmax(graph: Graph, step: Instruction) -> Any:
    if len(step.params["axes"]) != 1:
        return NotImplemented
    kind = "Softmax" if step.primitive.name == "softmax" else "LogSoftmax"
    axis = int(step.params["axes"][0])
    return graph.emit(kind, [graph.name(step.operands[0])], axis=axis)


# --- products -----------------------------------------------------------------------


@writes("matmul")
def _matmul(graph: Graph, step: Instruction) -> str:
    dtype = step.outs[0].kind.dtype
    return str(graph.emit("MatMul", [graph.name(operand, dtype) for operand in step.operands]))


@writes("affine", "matmul_transposed")
def _affine(graph: Graph, step: Instruction) -> str:
    dtype = step.outs[0].kind.dtype
    names = [graph.name(operand, dtype) for operand in step.operands]
    if len(kind_of(step.operands[0]).shape) == 2:
        return str(graph.emit("Gemm", names, transB=1))
    transposed = graph.emit("Transpose", [names[1]], perm=[1, 0])
    product = graph.emit("MatMul", [names[0], transposed])
    return str(product if len(names) == 2 else graph.emit("Add", [product, names[2]]))


@writes("contract")
def _contract(graph: Graph, step: Instruction) -> str:
    parts = [step.params[name] for name in ("of_x", "of_y", "to")]
    if not all(part.isascii() and (part.isalpha() or not part) for part in parts):
        raise Unsupported(f"einsum with the labels {', '.join(parts)}")
    dtype = step.outs[0].kind.dtype
    names = [graph.name(operand, dtype) for operand in step.operands]
    return str(graph.emit("Einsum", names, equation=f"{parts[0]},{parts[1]}->{parts[2]}"))
