"""Expressions of the kernel language, and the values that its names are bound to."""

import ast
import functools
from collections.abc import Callable, Sequence
from typing import Any

from fdbr.backends.cpu.codegen.kernel_functions import BUILTINS, Function, Intrinsic
from fdbr.backends.cpu.codegen.llvm_text import Builder, Module
from fdbr.backends.cpu.codegen.llvm_values import KernelError, Value

__all__ = ["OPERATORS", "Expressions", "phi", "pick"]

OPERATORS: dict[type, str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
}
_COMPARISONS: dict[type, str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}


class Expressions(Builder):
    """Emit the expressions of a kernel.

    Attributes
    ----------
    values
        The value that each name is bound to at this point.
    lost
        The names that are no longer bound here, and why.
    used
        The values that were read by name.
    """

    def __init__(self, module: Module, scope: dict[str, Any], flags: str) -> None:
        super().__init__(module, flags)
        self.scope = scope
        self.values: dict[str, Value] = {}
        self.lost: dict[str, str] = {}
        self.used: set[str] = set()

    def called(self, function: Function, types: tuple[str, ...]) -> tuple[str, str | None]:
        """Return the call of a function for argument types, and the type of its result."""
        raise NotImplementedError

    # --- names

    def get(self, name: str) -> Value:
        found = self.values.get(name)
        if found is not None:
            self.used.add(found.text)
            return found
        if name in self.lost:
            raise KernelError(f"{name} {self.lost[name]}")
        number = self.scope.get(name)
        if type(number) not in (bool, int, float):
            raise KernelError(f"nothing is called {name}")
        return self.literal(number)

    def bind(self, name: str, value: Value) -> None:
        self.values[name] = self.strong(value)
        self.lost.pop(name, None)

    def lose(self, name: str, why: str) -> None:
        self.values.pop(name, None)
        self.lost[name] = why

    def joined(self, a: Value, first: str, b: Value, second: str) -> Value:
        """Return the phi of values from two blocks."""
        self.used |= {a.text, b.text}
        return Value(a.type, self.add(phi(a, first, b.text, second)))

    # --- expressions

    def value(self, node: ast.expr) -> Value:
        found = pick(_EXPRESSIONS, node)(self, node)
        if found is None:
            raise KernelError("a call gives nothing")
        return found

    def constant(self, node: ast.Constant) -> Value:
        if type(node.value) not in (bool, int, float):
            raise KernelError(f"no value is {node.value!r}")
        return self.literal(node.value)

    def named(self, node: ast.Name) -> Value:
        return self.get(node.id)

    def element_of(self, node: ast.Subscript) -> Value:
        return self.read(self.value(node.value), self.value(node.slice))

    def operated(self, node: ast.BinOp) -> Value:
        sign = pick(OPERATORS, node.op)
        return self.binary(sign, self.value(node.left), self.value(node.right))

    def operated_alone(self, node: ast.UnaryOp) -> Value:
        x = self.value(node.operand)
        if isinstance(node.op, ast.USub):
            return self.negative(x)
        if isinstance(node.op, ast.Not):
            return self.invert(self.truth(x))
        return self.invert(x) if isinstance(node.op, ast.Invert) else x

    def compared(self, node: ast.Compare) -> Value:
        """Emit chained comparisons, which end at the first one that is false."""
        signs = [pick(_COMPARISONS, op) for op in node.ops]
        left = self.value(node.left)

        def next(sign: str, operand: ast.expr) -> Value:
            nonlocal left
            right = self.value(operand)
            found = self.compare(sign, left, right)
            left = right
            return found

        parts = [
            functools.partial(next, sign, operand)
            for sign, operand in zip(signs, node.comparators, strict=True)
        ]
        return self.until(False, parts)

    def decided(self, node: ast.BoolOp) -> Value:
        parts = [functools.partial(lambda x: self.truth(self.value(x)), x) for x in node.values]
        return self.until(isinstance(node.op, ast.Or), parts)

    def until(self, last: bool, parts: Sequence[Callable[[], Value]]) -> Value:
        """Emit truth values in order, and stop at the first that is ``last``."""
        *others, end = parts
        ends, after = [], self.label()
        for part in others:
            found, following = part(), self.label()
            ends.append((str(last).lower(), self.block))
            self.branch(found.text, *((after, following) if last else (following, after)))
            self.begin(following)
        found = end()
        if not ends:
            return found
        ends.append((found.text, self.block))
        self.jump(after)
        self.begin(after)
        texts = ", ".join(f"[ {text}, %{block} ]" for text, block in ends)
        return Value("b1", self.add(f"phi i1 {texts}"))

    def chosen(self, node: ast.IfExp) -> Value:
        yes, no, after = self.label(), self.label(), self.label()
        self.branch(self.truth(self.value(node.test)).text, yes, no)
        self.begin(yes)
        a, first = self.value(node.body), self.block
        self.jump(after)
        self.begin(no)
        b, second = self.value(node.orelse), self.block
        self.jump(after)
        self.begin(after)
        if a.literal is not None:
            a = self.cast(a, b.type)
        elif b.literal is not None:
            b = self.cast(b, a.type)
        if a.type != b.type:
            raise KernelError(f"a value is {a.type} or {b.type}")
        return self.joined(a, first, b, second)

    def call_named(self, node: ast.Call) -> Value | None:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        found = None if name in self.values else self.scope.get(name, BUILTINS.get(name))
        if not isinstance(found, Intrinsic | Function):
            raise KernelError(f"no function is called {ast.unparse(node.func)}")
        args = [self.value(arg) for arg in node.args]
        if node.keywords or not found.takes(len(args)):
            raise KernelError(f"{name} is called with other arguments than it has")
        if isinstance(found, Intrinsic):
            return found.write(self, *args)
        return self.applied(found, [self.strong(arg) for arg in args])

    def applied(self, function: Function, args: Sequence[Value]) -> Value | None:
        """Emit a call of a function."""
        head, result = self.called(function, tuple([arg.type for arg in args]))
        text = f"call {head}({', '.join([arg.typed for arg in args])})"
        if result is None:
            self.do(text)
            return None
        return Value(result, self.add(text))


def phi(a: Value, first: str, text: str, second: str) -> str:
    """Return a phi node of a value from one block and one of its type from another."""
    return f"phi {a.typed.removesuffix(a.text)}[ {a.text}, %{first} ], [ {text}, %{second} ]"


def pick(table: dict[type, Any], node: ast.AST) -> Any:
    """Return the entry for a node of Python's syntax tree, or raise an error that names it."""
    try:
        return table[type(node)]
    except KeyError:
        raise KernelError(f"the kernel language has no {type(node).__name__}") from None


_EXPRESSIONS: dict[type, Callable[[Expressions, Any], Value | None]] = {
    ast.Constant: Expressions.constant,
    ast.Name: Expressions.named,
    ast.Subscript: Expressions.element_of,
    ast.BinOp: Expressions.operated,
    ast.UnaryOp: Expressions.operated_alone,
    ast.Compare: Expressions.compared,
    ast.BoolOp: Expressions.decided,
    ast.IfExp: Expressions.chosen,
    ast.Call: Expressions.call_named,
}
