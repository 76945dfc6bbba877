"""Lowering of expression nodes to LLVM: each becomes a number, or a vector of numbers."""

from collections.abc import Sequence
from typing import Any

from fdbr.backends.cpu.codegen.intrinsics import NAMES, scalar
from fdbr.backends.cpu.codegen.kernel_functions import BUILTINS
from fdbr.backends.cpu.codegen.llvm_text import Builder
from fdbr.backends.cpu.codegen.llvm_values import Value, kind
from fdbr.core.expr import Node

__all__ = ["NodeValues", "code_of"]

_ON_REALS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^"}
_ON_INTEGERS = {"iadd": "+", "isub": "-", "imul": "*", "iand": "&", "ior": "|", "ixor": "^"}
_SIGNS = {**_ON_REALS, **_ON_INTEGERS, "shl": "<<", "ashr": ">>"}
_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_CALLS = {
    **{name: NAMES[name] for name in ("fma", "maximum", "minimum", "select", "bits")},
    **{name: NAMES[name] for name in ("sqrt", "floor", "ceil", "trunc", "rint")},
    "float": NAMES["number"],
    "abs": BUILTINS["abs"],
}


def code_of(dtype: Any) -> str:
    """Return the name of a dtype in kernels."""
    code: str = dtype.str[1:]
    return code


class NodeValues(Builder):
    """Emit the values of nodes."""

    def of_node(self, node: Node, args: Sequence[Value]) -> Value:
        """Emit the value of a node that is no operand, given those of its arguments."""
        if node.op == "constant":
            return self.strong(self.cast(self.literal(node.detail[0]), code_of(node.dtype)))
        lanes = max([arg.lanes for arg in args])
        if node.op == "scalar":
            return self._called(scalar(node.detail).write, args, lanes)
        args = [self.spread(arg, lanes) for arg in args]
        if node.op in _SIGNS:
            return self.binary(_SIGNS[node.op], *args)
        if node.op in _COMPARISONS:
            return self.compare(_COMPARISONS[node.op], *args)
        if node.op in _CALLS:
            found: Value = _CALLS[node.op].write(self, *args)
            return found
        if node.op == "neg":
            return self.negative(args[0])
        if node.op == "not":
            return self.invert(args[0])
        assert node.op in ("number", "cast"), node.op
        return self.cast(args[0], code_of(node.dtype))

    def _called(self, function: Any, args: Sequence[Value], lanes: int) -> Value:
        """Call a scalar function for each lane."""
        if lanes == 1:
            found: Value = function(self, *args)
            return found
        many = "poison"
        for lane in range(lanes):
            given = [
                Value(arg.type, self.add(f"extractelement {arg.typed}, i64 {lane}"))
                if arg.lanes > 1
                else arg
                for arg in args
            ]
            one = function(self, *given)
            many = self.add(f"insertelement {kind('f8', lanes)} {many}, {one.typed}, i64 {lane}")
        return Value("f8", many, lanes=lanes)

    def active(self, index: Value, stop: Value, lanes: int) -> str:
        """Return the mask of the lanes of a vector that begins at an index, before a stop."""
        left = self.called_on("smin", self.binary("-", stop, index), Value("i8", str(lanes)))
        short = self.spread(Value("i4", self.add(f"trunc {left.typed} to i32")), lanes)
        return self.add(f"icmp sgt {short.typed}, <{', '.join(f'i32 {k}' for k in range(lanes))}>")
