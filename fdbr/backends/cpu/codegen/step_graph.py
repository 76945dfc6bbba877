"""The expression graph of fused steps, composed of the formulas of each."""

from typing import Any

import numpy as np

from fdbr.backends.cpu.codegen.formulas import formula_of
from fdbr.backends.cpu.codegen.scalar_functions import MODULE
from fdbr.compiler.ir import op
from fdbr.compiler.ir.program import Instruction, Variable, kind_of
from fdbr.core.expr import INTEGERS, Graph, Node, every

__all__ = ["StepGraph"]

_BOOL = np.dtype(np.bool_)


class StepGraph:
    """Collect the nodes of steps.

    Attributes
    ----------
    graph
        The graph, with the conditions under which formulas hold.
    values
        The nodes of the variables that steps have made.
    inputs
        The operands that are read, and how: see `Access`.
    """

    def __init__(self) -> None:
        self.graph = Graph(MODULE, guarded=True)
        self.values: dict[Variable, Node] = {}
        self.inputs: list[tuple[Any, str]] = []
        self._numbers: dict[Any, int] = {}

    def value(self, operand: Any, axes: str) -> Node:
        """Return the node of an operand; an input is read in the loops that ``axes`` names."""
        kind = kind_of(operand)
        if type(operand) is not Variable and kind.size == 1:
            number = operand if kind.is_number else operand.reshape(())[()]
            return self.graph.constant(number, kind.dtype)
        if type(operand) is Variable and operand in self.values:
            return self.values[operand]
        key = operand if type(operand) is Variable else id(operand), axes
        if key not in self._numbers:
            self._numbers[key] = len(self.inputs)
            self.inputs.append((operand, axes))
        return self.graph.node("operand", kind.dtype, (), (self._numbers[key], "c" in axes))

    def add(self, step: Instruction, args: list[Node]) -> None:
        """Add an elementwise step, or a view."""
        out = step.outs[0]
        if step.primitive in (op.RESHAPE, op.BROADCAST_TO):
            self.values[out] = args[0]
            return
        formula = formula_of(step)
        assert formula is not None, step.primitive.name
        given = [
            arg if dtype is None else self._converted(arg, dtype)
            for arg, dtype in zip(args, formula.operands, strict=True)
        ]
        if formula.condition is not None:
            self.graph.require(self._copied(formula.condition, given))
        self.values[out] = self._copied(formula.root, given)

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

    def _copied(self, root: Node, given: list[Node]) -> Node:
        """Return a node of a formula, with the operands replaced."""
        copies: dict[Node, Node] = {}
        for node in every([root]):
            if node.op == "operand":
                copies[node] = given[node.detail[0]]
            else:
                args = tuple([copies[arg] for arg in node.args])
                copies[node] = self.graph.node(node.op, node.dtype, args, node.detail)
        return copies[root]
