"""Lowering of the kernel language to LLVM.

The kernel language is a subset of Python: a function of numbers and pointers, with loops over
ranges, ``while``, ``if``, assignments to names and to elements of pointers, and calls of functions
declared as `intrinsic` or `function`.  Each name has a static type where it is assigned.
"""

import ast
from collections.abc import Callable, Sequence
from typing import Any

from fdbr.backends.cpu.codegen.kernel_expressions import OPERATORS, phi, pick
from fdbr.backends.cpu.codegen.kernel_functions import Function, parsed
from fdbr.backends.cpu.codegen.llvm_numbers import integer
from fdbr.backends.cpu.codegen.llvm_text import Builder, Module
from fdbr.backends.cpu.codegen.llvm_values import KernelError, Value
from fdbr.backends.cpu.codegen.loop_parts import Parts, parts_of
from fdbr.backends.cpu.codegen.vector_loops import VectorLoops

__all__ = ["lower"]

_ARGUMENTS = [Value("i8", f"%{name}") for name in ("table", "start", "stop", "thread")]
_FEW = 4  # iterations of a loop that is unrolled
_MOST = 64  # statements in all its iterations
_SHORT = 2  # statements of a function that is inlined here
_POSITIVE = f"range(i64 0, {1 << 62})"
_Carried = dict[str, tuple[Value, str]]


def lower(source: str, scope: dict[str, Any]) -> tuple[str, bool]:
    """Return an LLVM module with ``kernel``, the last function of a source.

    Also return whether it needs no optimisation passes before instruction selection.

    ``scope`` has the names that the source may use beside the functions defined before.
    """
    tree = parsed(source)
    scope = dict(scope)
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef):
            kernel = statement
            scope[kernel.name] = Function(kernel, scope)
        else:
            exec(compile(ast.Module([statement], []), "<fdbr kernel>", "exec"), scope)
    try:
        return _module(kernel, scope, vectors=True)
    except KernelError:  # for instance, a name is used after a vector loop
        return _module(kernel, scope, vectors=False)


def _module(kernel: ast.FunctionDef, scope: dict[str, Any], vectors: bool) -> tuple[str, bool]:
    module = Module()
    module.vectors = vectors
    lowering = _Lowering(module, scope, "")
    lowering.body(kernel, _ARGUMENTS)
    lowering.do("ret void")
    arguments = ", ".join(f"i64 {_POSITIVE} {value.text}" for value in _ARGUMENTS)
    _finish(lowering, f"void @kernel({arguments})")
    return module.text(), module.final


def _finish(lowering: Builder, head: str) -> None:
    body = "\n".join(lowering.lines)
    lowering.module.texts.append(f"define {head} {{\nentry:\n{body}\n}}\n")


class _Lowering(VectorLoops):
    """Lower a function of the kernel language to LLVM.

    Attributes
    ----------
    line
        The number of the current source line.
    """

    line = 0

    def __init__(self, module: Module, scope: dict[str, Any], flags: str) -> None:
        super().__init__(module, scope, flags)
        self.inside: list[Function] = []  # the functions that are being inlined
        self.narrow = False  # whether short inner loops are left to a vectorised outer one

    def called(self, function: Function, types: tuple[str, ...]) -> tuple[str, str | None]:
        module = self.module
        key = function, types
        found = module.functions.get(key)
        if found is None:
            if key in module.functions:
                raise KernelError(f"{function.tree.name} calls itself")
            module.functions[key] = None
            lowering = _Lowering(module, function.scope, function.flags)
            arguments = [Value(type, f"%a{i}") for i, type in enumerate(types)]
            result = lowering.body(function.tree, arguments)
            kind = result.typed.split()[0] if result else "void"
            lowering.do(f"ret {result.typed}" if result else "ret void")
            head = f"{kind} @{function.tree.name}.{len(module.functions)}"
            given = ", ".join([value.typed for value in arguments])
            _finish(lowering, f"internal {head}({given}) alwaysinline")
            found = module.functions[key] = head, result.type if result else None
        return found

    def applied(self, function: Function, args: Sequence[Value]) -> Value | None:
        if self.lanes == 1 and len(function.tree.body) > _SHORT:
            return super().applied(function, args)
        if function in self.inside:
            raise KernelError(f"{function.tree.name} calls itself")
        outer = self.scope, self.flags, self.values, self.lost
        self.inside.append(function)
        flags = f"{function.flags} " if function.flags else ""
        self.scope, self.flags, self.values, self.lost = function.scope, flags, {}, {}
        try:
            return self.body(function.tree, args)
        finally:
            self.inside.pop()
            self.scope, self.flags, self.values, self.lost = outer

    def body(self, tree: ast.FunctionDef, arguments: Sequence[Value]) -> Value | None:
        """Emit the body without the return, and return the value that it returns."""
        names = [arg.arg for arg in tree.args.args]
        if len(names) != len(arguments):
            raise KernelError(f"{tree.name} takes {len(names)} arguments, not {len(arguments)}")
        self.values = dict(zip(names, arguments, strict=True))
        *statements, last = tree.body
        try:
            self.statements(statements)
            self.line = last.lineno
            if isinstance(last, ast.Return) and last.value is not None:
                return self.strong(self.value(last.value))
            self.statements([last])
        except KernelError as error:
            if error.where is None:
                error.where = f"{tree.name}, line {self.line}"
            raise
        return None

    def statements(self, nodes: Sequence[ast.stmt]) -> None:
        for node in nodes:
            self.line = node.lineno
            pick(_STATEMENTS, node)(self, node)

    def assign(self, node: ast.Assign) -> None:
        target, *more = node.targets
        if more:
            raise KernelError("an assignment has one target")
        if not isinstance(target, ast.Tuple):
            self.store(target, self.value(node.value))
            return
        if not isinstance(node.value, ast.Tuple) or len(target.elts) != len(node.value.elts):
            raise KernelError("names are assigned together to as many values")
        values = [self.value(part) for part in node.value.elts]
        for part, value in zip(target.elts, values, strict=True):
            self.store(part, value)

    def store(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Subscript):
            self.write(self.value(target.value), self.value(target.slice), value)
        elif isinstance(target, ast.Name):
            self.bind(target.id, value)
        else:
            raise KernelError("what is assigned to is a name or an element")

    def assign_changed(self, node: ast.AugAssign) -> None:
        sign = pick(OPERATORS, node.op)
        if isinstance(node.target, ast.Subscript):
            pointer, index = self.value(node.target.value), self.value(node.target.slice)
            changed = self.binary(sign, self.read(pointer, index), self.value(node.value))
            self.write(pointer, index, changed)
        else:
            assert isinstance(node.target, ast.Name)
            before = self.get(node.target.id)
            self.bind(node.target.id, self.binary(sign, before, self.value(node.value)))

    def expression(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self.call_named(node.value)
        elif not isinstance(node.value, ast.Constant):  # not a docstring
            raise KernelError("an expression that is not used")

    def choose(self, node: ast.If) -> None:
        yes, no, after = self.label(), self.label(), self.label()
        self.branch(self.truth(self.value(node.test)).text, yes, no)
        values, lost, ends = self.values, self.lost, []
        for label, statements in ((yes, node.body), (no, node.orelse)):
            self.values, self.lost = dict(values), dict(lost)
            self.begin(label)
            self.statements(statements)
            ends.append((self.block, self.values))
            lost = lost | self.lost
            self.jump(after)
        self.begin(after)
        (first, ones), (second, others) = ends
        self.lost = lost
        for name in ones | others:
            a, b = ones.get(name), others.get(name)
            if a is None or b is None:
                self.lose(name, "may have no value")
            elif a.type != b.type:
                self.lose(name, f"may be {a.type} or {b.type}")
            else:
                self.bind(name, a if a == b else self.joined(a, first, b, second))

    def repeat_for(self, node: ast.For) -> None:
        first, stop, step = self.bounds(node)
        always = first.literal is not None and stop.literal is not None
        iterations = range(first.literal, stop.literal, step.literal or 1) if always else None
        if iterations is not None and not iterations:
            return
        if iterations is not None and len(iterations) == 1:
            self.write_out(node, iterations)
            return
        parts = parts_of(node)
        few = iterations is not None and len(iterations) <= _FEW and _weight(node) <= _MOST
        plain = step.literal == 1 and self.lanes == 1 and self.module.vectors
        plain &= parts.innermost or _is_narrow(node)
        if plain and not (few and self.narrow) and self.vector_loop(node, parts, first, stop):
            return
        if iterations is not None and few:
            self.write_out(node, iterations)
            return
        outer, self.narrow = self.narrow, self.narrow or _is_narrow(node)
        self.module.final &= not self.narrow
        up = step.literal is None or step.literal > 0
        compare = f"icmp {'slt' if up else 'sgt'} i64"
        before, body, after = self.block, self.label(), self.label()
        if always:
            self.jump(body)
        else:
            self.branch(self.add(f"{compare} {first.text}, {stop.text}"), body, after)
        self.begin(body)
        index, following = Value("i8", self.name()), self.name()
        if iterations is not None:
            self.ranges[index.text] = iterations if iterations.step > 0 else iterations[::-1]
        at, before_it, carried = self.enter(parts)
        assert isinstance(node.target, ast.Name)
        self.bind(node.target.id, index)
        self.statements(node.body)
        self.lines.insert(at, f"  {index.text} = {phi(first, before, following, self.block)}")
        self.repeat(carried, at, before)
        self.do(f"{following} = add nsw i64 {index.text}, {step.text}")
        end, more = self.block, self.add(f"{compare} {following}, {stop.text}")
        self.branch(more, body, after)
        self.begin(after)
        self.narrow = outer
        if not always:
            for name, (old, _) in carried.items():
                if name in self.values:
                    self.values[name] = self.joined(old, before, self.values[name], end)
            self.leave(before_it)
        self.lose(node.target.id, "has no value after its loop")

    def write_out(self, node: ast.For, iterations: range) -> None:
        """Unroll a loop completely."""
        assert isinstance(node.target, ast.Name)
        for iteration in iterations:
            self.bind(node.target.id, Value("i8", str(iteration)))
            self.statements(node.body)
        self.lose(node.target.id, "has no value after its loop")

    def bounds(self, node: ast.For) -> tuple[Value, Value, Value]:
        """Return the start, stop and step of a loop's range."""
        call: Any = node.iter
        plain = isinstance(call, ast.Call) and ast.unparse(call.func) == "range"
        if not plain or not 0 < len(call.args) < 4 or node.orelse:
            raise KernelError("a loop is over a range, without `else`")
        if not isinstance(node.target, ast.Name):
            raise KernelError("a loop counts in one name")
        given: list[Value] = [self.value(arg) for arg in call.args]
        if any(value.type not in ("u1", "i4", "i8") for value in given):
            raise KernelError("a range is of integers")
        zero, one = self.literal(0), self.literal(1)
        first, stop, step = (zero, *given, one) if len(given) == 1 else (*given, one)[:3]
        if step.literal == 0:
            raise KernelError("the step of a range is 0")
        known = [(x, integer(x)) for x in (first, stop, step)]
        found = [self.cast(x, "i8") if n is None else self.literal(n) for x, n in known]
        return found[0], found[1], found[2]

    def repeat_while(self, node: ast.While) -> None:
        if node.orelse:
            raise KernelError("a loop has no `else`")
        before, head, body, after = self.block, self.label(), self.label(), self.label()
        self.jump(head)
        self.begin(head)
        at, outer, carried = self.enter(parts_of(node))
        self.branch(self.truth(self.value(node.test)).text, body, after)
        values = self.values
        self.values = dict(values)
        self.begin(body)
        self.statements(node.body)
        self.repeat(carried, at, before)
        self.jump(head)
        self.begin(after)
        for name in carried:
            if name in self.values:
                self.values[name] = values[name]
        self.leave(outer)

    def enter(self, parts: Parts) -> tuple[int, set[str], dict[str, tuple[Value, str]]]:
        """Begin a loop: each name that it assigns becomes a phi.

        Returns where to insert the phis, the bound names, and for each carried name its value
        before the loop and its phi's register.
        """
        carried = {}
        for name in parts.assigned:
            old = self.values.get(name)
            if old is not None:
                carried[name] = old, self.name()
                self.values[name] = Value(old.type, carried[name][1])
        return len(self.lines), set(self.values), carried

    def repeat(self, carried: _Carried, at: int, before: str) -> None:
        """Emit, at the end of a loop, the phis for its carried names."""
        lines = []
        for name, (old, text) in carried.items():
            new = self.values.get(name)
            if new is not None and new.type == old.type:
                self.used |= {old.text, new.text}
                lines.append(f"  {text} = {phi(old, before, new.text, self.block)}")
                continue
            why = f"is {old.type} before a loop, and something else after a round"
            if text in self.used:
                raise KernelError(f"{name} {why}")
            self.lose(name, why)
        self.lines[at:at] = lines

    def leave(self, outer: set[str]) -> None:
        """Unbind, after code that may not have run, the names that it assigned."""
        for name in self.values.keys() - outer:
            self.lose(name, "may have no value")


def _is_narrow(node: ast.For) -> bool:
    """Return whether a loop contains only short loops, so that vectorising it is better than them.

    A loop whose trip count is loaded from memory does not count: its iterations are sequential.
    """
    args = node.iter.args if isinstance(node.iter, ast.Call) else []
    if any(isinstance(arg, ast.Subscript) for arg in args):
        return False
    inner = [statement for statement in node.body if isinstance(statement, ast.For)]
    if not inner or 0 < _iterations(node) <= _FEW or len(node.body) > _FEW * len(inner):
        return False
    return all(1 < _iterations(loop) <= _FEW for loop in inner)


def _iterations(node: ast.For) -> int:
    """Return a loop's trip count if it is constant, otherwise 0."""
    args = node.iter.args if isinstance(node.iter, ast.Call) else []
    last = args[0] if len(args) == 1 else None
    return last.value if isinstance(last, ast.Constant) and type(last.value) is int else 0


def _weight(node: ast.For | ast.While) -> int:
    """Return the approximate number of statements in all iterations of a loop."""
    total = 0
    for statement in node.body:
        total += _weight(statement) if isinstance(statement, ast.For | ast.While) else 1
    return total * ((isinstance(node, ast.For) and _iterations(node)) or _FEW)


_STATEMENTS: dict[type, Callable[[_Lowering, Any], None]] = {
    ast.Assign: _Lowering.assign,
    ast.AugAssign: _Lowering.assign_changed,
    ast.Expr: _Lowering.expression,
    ast.For: _Lowering.repeat_for,
    ast.While: _Lowering.repeat_while,
    ast.If: _Lowering.choose,
    ast.Pass: lambda lowering, node: None,
}
