"""The expression graph of fused steps, composed of the formulas of each."""

from collections.abc import Container, Sequence
from typing import Any

import numpy as np

from fdbr.backends.cpu.codegen.formulas import formula_of
from fdbr.backends.cpu.codegen.scalar_functions import MODULE
from fdbr.compiler.ir import op
from fdbr.compiler.ir.program import Instruction, Variable, kind_of
from fdbr.core.expr import FLOATS, INTEGERS, Graph, Node, every

__all__ = ["BY_ROW", "StepGraph"]

BY_ROW = frozenset({op.SUBTRACT_AT_LABELS})
"""Primitives that act on a matrix by its column; other operands have one element for each row."""

_BOOL = np.dtype(np.bool_)
_PLAIN = frozenset({0.0, 0.5, 1.0, 2.0})  # numbers that stem from no size, whatever their sign


class StepGraph:
    """Collect the nodes of steps.

    Attributes
    ----------
    rank
        The number of loops.
    graph
        The graph, with the conditions under which formulas hold.
    values
        The nodes of the variables that steps have made.
    inputs
        The operands that are read, and how: see `Access`.
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.graph = Graph(MODULE, guarded=True)
        self.values: dict[Variable, Node] = {}
        self.inputs: list[tuple[Any, str]] = []
        self._numbers: dict[Any, int] = {}

    def value(self, operand: Any, axes: str) -> Node:
        """Return the node of an operand; an input is read in the loops that ``axes`` names."""
        kind = kind_of(operand)
        if type(operand) is not Variable and kind.size == 1:
            return self._number(self.graph.constant(_number_of(operand), kind.dtype))
        if type(operand) is Variable and operand in self.values:
            return self.values[operand]
        key = operand if type(operand) is Variable else id(operand), axes
        if key not in self._numbers:
            self._numbers[key] = len(self.inputs)
            self.inputs.append((operand, axes))
        detail = self._numbers[key], axes[-1:] != "-"
        return self.graph.node("operand", kind.dtype, (), detail)

    def _number(self, constant: Node) -> Node:
        """Return the node of a number, which is an argument of the kernel if it may be of a size.

        So kernels do not depend on the number of examples over which a mean is taken.
        """
        number, dtype = constant.detail[0], constant.dtype
        if dtype not in FLOATS or abs(number) in _PLAIN:
            return constant
        key = constant.detail, dtype
        if key not in self._numbers:
            self._numbers[key] = len(self.inputs)
            self.inputs.append((np.array([number], dtype), "-" * self.rank))
        return self.graph.node("operand", dtype, (), (self._numbers[key], False))

    def add(self, step: Instruction, args: list[Node]) -> None:
        """Add an elementwise step, or a view."""
        out = step.outs[0]
        if step.primitive in (op.RESHAPE, op.BROADCAST_TO):
            self.values[out] = args[0]
            return
        if step.primitive in BY_ROW:
            x, taken, label = args
            here = self.graph.node("is_column", _BOOL, (label,))
            rest = self.graph.node("sub", x.dtype, (x, taken))
            self.values[out] = self.graph.node("select", x.dtype, (here, rest, x))
            return
        formula = formula_of(step)
        assert formula is not None, step.primitive.name
        given = [
            arg if dtype is None else self._converted(arg, dtype)
            for arg, dtype in zip(args, formula.operands, strict=True)
        ]
        numbers = _rounded(step.operands)
        if formula.condition is not None:
            self.graph.require(self._copied(formula.condition, given, numbers))
        self.values[out] = self._copied(formula.root, given, numbers)

    def reduce(self, out: Variable, arg: Node, how: str) -> None:
        """Add a reduction along the loops that results do not keep."""
        found = self.graph.node("reduced", arg.dtype, (arg,), "sum" if how == "mean" else how)
        if how == "mean":
            found = found / self.graph.node("columns", arg.dtype)
        self.values[out] = found

    def _converted(self, node: Node, dtype: Any) -> Node:
        if node.dtype == dtype:
            return node
        if dtype == _BOOL:
            zero = self.graph.constant(0, node.dtype)
            return self.graph.node("ne", _BOOL, (node, zero))
        return self.graph.node("number" if node.dtype in INTEGERS else "cast", dtype, (node,))

    def _copied(self, root: Node, given: list[Node], numbers: Container[Any]) -> Node:
        """Return a node of a formula, with the operands, and ``numbers`` of the step, replaced."""
        copies: dict[Node, Node] = {}
        for node in every([root]):
            if node.op == "operand":
                copies[node] = given[node.detail[0]]
            else:
                args = tuple([copies[arg] for arg in node.args])
                copies[node] = self.graph.node(node.op, node.dtype, args, node.detail)
                if node.op == "constant" and node.detail[0] in numbers:
                    copies[node] = self._number(copies[node])
        return copies[root]


def _rounded(operands: Sequence[Any]) -> frozenset[float]:
    """Return the numbers among operands, rounded to each floating dtype."""
    found = [float(number) for number in map(_number_of, operands) if number is not None]
    most = np.finfo(np.float32).max
    kinds: list[Any] = [np.float32, np.float64]
    return frozenset(kind(x).item() for x in found if abs(x) <= most for kind in kinds)


def _number_of(operand: Any) -> Any:
    """Return the number that an operand is; `None` if it is a variable or has several elements."""
    kind = kind_of(operand)
    if type(operand) is Variable or kind.size != 1:
        return None
    return operand if kind.is_number else operand.reshape(())[()]
